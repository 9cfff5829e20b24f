"""Compile the inner rings, and the hot modules of the drivers, with mypyc: ``python tools/compiled.py FOLDER`` writes
the files for the wheel to FOLDER.

Without FOLDER it only reports which tool is missing. ``hatch_build.py`` runs it when a wheel is built with
``AFFLUX_MYPYC=1``; ``MYPYC_OPT_LEVEL`` is the level of the C compiler, 3 by default. The source is copied and not
modified: the frame codecs are written to files of the copy, the classes of payloads are opened to applications in it,
and all modules of the inner rings except those of ``INTERPRETED`` are compiled together with ``DRIVERS``, so that they
call each other directly. Requires only mypy and setuptools.

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

DRIVERS = tuple(
    f"afflux/aio/{name}.py"
    for name in (
        "calls",
        "driver",
        "idle",
        "input",
        "memory",
        "output",
        "room",
        "slots",
        "state",
        "streams",
        "tasks",
    )
)
"""The modules of the asyncio drivers that every turn of a loop runs. The others seldom run, or consist of coroutines
and generators, which mypyc does not make faster."""

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
    "protocols/rsocket_draft/strategies": "inherits from the policies of family/lease, which are not compiled",
}
"Modules that stay interpreted, each with the reason; ``*`` is any package."

OPEN = ("core/payload", "protocols/limit/messages", "protocols/rsocket_draft/payload")
"Modules of payloads: applications inherit from the classes, and put bytearrays and memoryviews into them."

REFUSED = re.compile(r"^(afflux/\S+\.py):\d+: error: (.*)", re.MULTILINE)
"The message of mypyc for a module that it cannot compile."


def compiled(source: Path) -> list[str]:
    """Return the files to compile, relative to ``source``."""
    found = [path.relative_to(source) for ring in RINGS for path in sorted((source / "afflux" / ring).rglob("*.py"))]
    found += [Path(name) for name in DRIVERS if (source / name).exists()]
    return [str(path) for path in found if path.stem != "__init__" and reason_of(path) is None]


def reason_of(path: Path) -> str | None:
    """Return why a module, such as ``afflux/core/errors.py``, stays interpreted; None if it is compiled."""
    name = path.with_suffix("").relative_to("afflux")
    return next((reason for pattern, reason in INTERPRETED.items() if name.match(pattern)), None)


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


def open_classes(source: Path, _: Path) -> None:
    """Rewrite the modules of ``OPEN`` in the copy: mypyc refuses such classes and such data unless they declare it."""
    declared = "@mypyc_attr(allow_interpreted_subclasses=True)\nclass "  # a declaration for mypyc: it is not called
    imports = "from typing import TYPE_CHECKING, Any\nif TYPE_CHECKING:\n    from mypy_extensions import mypyc_attr"
    for name in OPEN:
        path = source / "afflux" / f"{name}.py"
        text = path.read_text(encoding="utf-8").replace("\nclass ", f"\n{declared}")
        text = re.sub(r"\b(data|metadata): bytes(?: \| None)?", r"\1: Any", text)
        path.write_text(text.replace("import annotations\n", f"import annotations\n{imports}\n", 1), encoding="utf-8")


def compile_in(source: Path, folder: Path, *refused: str) -> None:
    """Compile the modules in a copy of the source, except those refused; write the extensions to the folder."""
    from mypyc.build import mypycify
    from setuptools import setup

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


STEPS = {"writing the codecs": write_codecs, "opening classes": open_classes, "compiling": compile_in}

if __name__ == "__main__":
    if len(sys.argv) > 3:
        STEPS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
    elif lack := missing():
        raise SystemExit(lack)
    elif len(sys.argv) == 2:
        make(Path(sys.argv[1]))
