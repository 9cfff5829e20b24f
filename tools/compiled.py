"""Compile the inner rings with mypyc: ``python tools/compiled.py FOLDER`` writes the files for the wheel to FOLDER.

Without FOLDER it only reports which tool is missing. ``hatch_build.py`` runs it when a wheel is built with
``AFFLUX_MYPYC=1``; ``MYPYC_OPT_LEVEL`` is the level of the C compiler, 3 by default. The source is copied and not
modified: the frame codecs are written to files of the copy, and all modules of the inner rings except those of
``INTERPRETED`` are compiled together, so that they call each other directly. Requires only mypy and
setuptools.

A new package in these rings is found automatically. A module that mypyc cannot compile stays interpreted, with a line
on stderr; tests/test_build.py then requires a row in ``INTERPRETED``.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

RINGS = ("core", "protocols")
"The folders of afflux that are compiled, except for the modules below."

DECLARING = "frames.py"
"Modules of this name declare frames. Their codecs are written to ``_codecs.py`` in the same folder and compiled."

INTERPRETED = {
    "core/dissect": "formats text",
    "core/engine": "declares the contract and does nothing",
    "core/errors": "one of them is an ImportError, which mypyc cannot inherit from; applications inherit from them",
    "core/fields": "generates source when a frame is declared",
    "core/frame": "creates the classes of the frames",
    "core/limits": "generated from its rows at import, in a way that mypyc does not support",
    "core/machine": "generic data classes, which mypyc does not support",
    "core/terms": "data only, created once per connection",
    "*/codes": "used only for errors",
    "*/dissector": "formats text",
    "*/entry": "runs once per connection",
    "*/errors": "applications catch them, and inherit from them",
    "*/frames": "declarations; the generated code is in _codecs",
    "*/meanings": "declarations for observers of captures",
    "*/member": "values, created once",
    "*/recognition": "runs once per connection",
    "*/states": "the tables",
    "*/tables": "the tables",
    "protocols/family/lease": "applications inherit from the policies",
    "protocols/limit/messages": "payloads: mypyc refuses slots in a class that inherits from an interpreted one",
    "protocols/rsio/kinds": "data classes with slots, which mypyc does not know; not used for elements",
    "protocols/rsocket/cursor": "data classes with constants, which mypyc does not support",
    "protocols/rsocket/metadata/authentication": "data classes with constants, which mypyc does not support",
    "protocols/rsocket/metadata/broker": "data classes with constants, which mypyc does not support",
    "protocols/rsocket/metadata/composite": "has better errors for invalid entries than mypyc",
    "protocols/rsocket/metadata/tracing": "data classes with constants, which mypyc does not support",
    "protocols/rsocket/metadata/types": "data classes with constants, which mypyc does not support",
    "protocols/rsocket/routes": "generic data classes, which mypyc does not support",
    "protocols/rsocket/staging": "data classes with constants, which mypyc does not support",
    "protocols/rsocket/snapshot": "runs once per stored session",
    "protocols/rsocket_draft/fields": "generates source when a frame is declared",
    "protocols/rsocket_draft/payload": "applications put bytearrays and memoryviews into it, as into core/payload",
    "protocols/rsocket_draft/strategies": "inherits from the policies of family/lease, which are not compiled",
}
"Modules that stay interpreted, each with the reason; ``*`` is any package."

OPEN = {"core/payload.py": {"data: bytes": "data: Any", "metadata: bytes | None": "metadata: Any"}}
"""Modules whose classes interpreted ones inherit from, with declarations that are replaced in the copy: applications put
bytearrays and memoryviews into payloads, which mypyc refuses as bytes."""

OPENED = "\n@mypyc_attr(allow_interpreted_subclasses=True)\nclass "
_ATTRIBUTE = """from typing import TYPE_CHECKING, Any
if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
"""
_KEPT_BEFORE = "    def __init__("
_KEPT = """    @classmethod
    def __init_subclass__(cls, **more: Any) -> None:
        slots = [vars(base).get("__slots__", "__dict__") for base in cls.__mro__ if not hasattr(base, "__mypyc_attrs__") or issubclass(base, cls) or base is cls]
        setattr(cls, "__mypyc_attrs__", (*getattr(cls, "__mypyc_attrs__"), *[name for one in slots for name in ((one,) if isinstance(one, str) else one)]))

"""
"Added to the first class: copies of an interpreted subclass keep what the subclass adds."
"Imported where classes are open: mypyc reads the decorator and does not call it."

REFUSED = re.compile(r"^(afflux/\S+\.py):\d+: error: (.*)", re.MULTILINE)
"The message of mypyc for a module that it cannot compile."


def compiled(source: Path) -> list[str]:
    """Return the files to compile, relative to ``source``."""
    found = [path.relative_to(source) for ring in RINGS for path in sorted((source / "afflux" / ring).rglob("*.py"))]
    return [str(path) for path in found if path.stem != "__init__" and reason_of(path) is None]


def reason_of(path: Path) -> str | None:
    """Return why a module, such as ``afflux/core/errors.py``, stays interpreted; None if it is compiled."""
    name = path.with_suffix("").relative_to("afflux")
    return next((reason for pattern, reason in INTERPRETED.items() if name.match(pattern)), None)


def open_classes(source: Path) -> None:
    """Rewrite the modules of ``OPEN`` in a copy of the source: other classes may inherit from theirs."""
    for name, replaced in OPEN.items():
        path = source / "afflux" / name
        text = path.read_text(encoding="utf-8").replace("\nclass ", OPENED)
        for before, after in replaced.items():
            text = text.replace(before, after)
        text = re.sub(r"^    __slots__ = .*\n", "", text, flags=re.MULTILINE)
        text = text.replace(_KEPT_BEFORE, _KEPT + _KEPT_BEFORE, 1)
        start = "from __future__ import annotations\n"
        path.write_text(text.replace(start, start + _ATTRIBUTE), encoding="utf-8")


def write_codecs(source: Path, folder: Path) -> None:
    """Write the frame codecs to a copy of the source for the compiler, and to the folder for the wheel."""
    sys.path.insert(0, str(source))
    from afflux.core.frame import Frame, codecs_module

    for path in sorted((source / "afflux" / "protocols").rglob(DECLARING)):
        beside = path.relative_to(source).with_name("_codecs.py")
        module = import_module(".".join(path.relative_to(source).with_suffix("").parts))
        declared = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Frame)]
        frames = [frame for frame in declared if "__source__" in vars(frame)]  # not inherited
        for place in (source, folder) if frames else ():
            (place / beside).parent.mkdir(parents=True, exist_ok=True)
            (place / beside).write_text(codecs_module(frames), encoding="utf-8")


def compile_in(source: Path, folder: Path, *refused: str) -> None:
    """Compile the modules in a copy of the source, except those refused; write the extensions to the folder."""
    from mypyc.build import mypycify
    from setuptools import setup

    if not refused:
        open_classes(source)

    os.chdir(source)
    files = [file for file in compiled(source) if file not in refused]
    options = ["--config-file=", "--follow-imports=silent", "--no-site-packages", "--cache-dir=.cache"]
    level = os.environ.get("MYPYC_OPT_LEVEL", "3")
    # mypyc indents C by hundreds of columns, and gcc's warning about indentation takes longer than the rest.
    os.environ["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} -w"
    extensions = mypycify([*options, *files], group_name="afflux", opt_level=level, debug_level="0", target_dir=".c")
    places = ("--build-temp=.o", f"--build-lib={folder}")
    setup(name="afflux", ext_modules=extensions, script_args=["--quiet", "build_ext", *places])


def missing() -> str:
    """Return which tool is missing, as text; "" if none is."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    for package in ("mypyc", "setuptools"):
        if find_spec(package) is None:
            return f"{package} is not installed"
    return ""


def make(folder: Path) -> None:
    """Run all steps. The last line of stderr is the error."""
    with tempfile.TemporaryDirectory(prefix="afflux-mypyc-") as source:
        places = (source, str(folder.resolve()))
        shutil.copytree(ROOT / "src" / "afflux", Path(source, "afflux"), ignore=shutil.ignore_patterns("__pycache__"))
        # In separate processes: the first imports the copy, and mypyc ends the second at an error.
        for step in STEPS:
            refused: list[str] = []
            while (told := run(step, *places, *refused)) is not None:
                why = {file: reason for file, reason in REFUSED.findall(told) if file not in refused}
                if not why:
                    sys.stderr.write(told)
                    raise SystemExit(f"{step} failed")
                sys.stderr.writelines(f"{file} is not compiled: {reason}\n" for file, reason in why.items())
                refused += why


def run(step: str, *words: str) -> str | None:
    """Run a step in a separate process; return its output if it fails, otherwise None."""
    done = subprocess.run([sys.executable, __file__, step, *words], text=True, capture_output=True, check=False)
    return done.stdout + done.stderr if done.returncode else None


STEPS = {"writing the codecs": write_codecs, "compiling": compile_in}

if __name__ == "__main__":
    if len(sys.argv) > 3:
        STEPS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
    elif lack := missing():
        raise SystemExit(lack)
    elif len(sys.argv) == 2:
        make(Path(sys.argv[1]))
