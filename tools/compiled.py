"""Compile the inner rings with mypyc: ``python tools/compiled.py FOLDER`` puts what belongs into the wheel there.

Without FOLDER it only says what is missing to compile with.
``hatch_build.py`` runs it when a wheel is built with ``AFFLUX_MYPYC=1``. The source is that of the pure build and is
not touched: it is copied, the codecs of the frames are written down beside it, and all modules of the inner rings but
those of ``INTERPRETED`` are compiled together, so that they call each other directly. Only mypy and setuptools are
needed.

A new package in these rings needs no word here: its codecs and its modules are found. A module that mypyc refuses stays
as it is, with a line on stderr; tests/test_build.py asks for a row in ``INTERPRETED`` then.
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
"The folders of afflux that are compiled, with all that is in them, but for the modules below."

DECLARING = "frames.py"
"Modules of this name declare frames. Their codecs are written down as ``_codecs.py`` beside them, and compiled."

INTERPRETED = {
    "core/dissect": "text for people",
    "core/engine": "declares the contract and does nothing",
    "core/errors": "one of them is an ImportError, which mypyc can not inherit from; applications inherit from them",
    "core/fields": "writes source when a frame is declared",
    "core/frame": "makes the classes of the frames",
    "core/limits": "made from its rows when it is imported, in a way that mypyc does not know",
    "core/machine": "generic data classes, which mypyc does not know",
    "core/pages": "once for each large payload",
    "core/payload": "applications put bytearrays and memoryviews into it, which mypyc refuses as bytes",
    "core/reference": "text for people",
    "core/terms": "nothing but data, made once for each connection",
    "*/codes": "asked when something fails",
    "*/dissector": "text for people",
    "*/entry": "once for each connection",
    "*/errors": "applications catch them, and inherit from them",
    "*/frames": "the declarations; what they become is in _codecs",
    "*/states": "the tables",
    "protocols/rsio/kinds": "data classes with slots, which mypyc does not know; elements do not come this way",
    "protocols/rsocket/cursor": "data classes with constants, which mypyc does not know",
    "protocols/rsocket/establishment": "once for each connection",
    "protocols/rsocket/lease": "applications inherit from the policies",
    "protocols/rsocket/metadata/authentication": "data classes with constants, which mypyc does not know",
    "protocols/rsocket/metadata/broker": "data classes with constants, which mypyc does not know",
    "protocols/rsocket/metadata/composite": "says itself what is no entry, better than mypyc does",
    "protocols/rsocket/metadata/tracing": "data classes with constants, which mypyc does not know",
    "protocols/rsocket/metadata/types": "data classes with constants, which mypyc does not know",
    "protocols/rsocket/routes": "generic data classes, which mypyc does not know",
    "protocols/rsocket/snapshot": "once for each session that is written down",
}
"Modules that stay as they are, each with the reason; ``*`` is any package."

REFUSED = re.compile(r"^(afflux/\S+\.py):\d+: error: (.*)", re.MULTILINE)
"What mypyc says of a module that it can not compile."


def compiled(source: Path) -> list[str]:
    """The files to compile, as they are called in ``source``."""
    found = [path.relative_to(source) for ring in RINGS for path in sorted((source / "afflux" / ring).rglob("*.py"))]
    return [str(path) for path in found if path.stem != "__init__" and reason_of(path) is None]


def reason_of(path: Path) -> str | None:
    """Why a module, such as ``afflux/core/errors.py``, stays as it is; None when it is compiled."""
    name = path.with_suffix("").relative_to("afflux")
    return next((reason for pattern, reason in INTERPRETED.items() if name.match(pattern)), None)


def write_codecs(source: Path, folder: Path) -> None:
    """Write the codecs of the frames that are declared in a copy of the source, for the compiler and for the wheel."""
    sys.path.insert(0, str(source))
    from afflux.core.frame import Frame, codecs_module

    for path in sorted((source / "afflux" / "protocols").rglob(DECLARING)):
        beside = path.relative_to(source).with_name("_codecs.py")
        module = import_module(".".join(path.relative_to(source).with_suffix("").parts))
        declared = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Frame)]
        frames = [frame for frame in declared if hasattr(frame, "__source__")]
        for place in (source, folder) if frames else ():
            (place / beside).parent.mkdir(parents=True, exist_ok=True)
            (place / beside).write_text(codecs_module(frames), encoding="utf-8")


def compile_in(source: Path, folder: Path, *refused: str) -> None:
    """Compile the modules in a copy of the source, but for those refused; the extensions go to the folder."""
    from mypyc.build import mypycify
    from setuptools import setup

    os.chdir(source)
    files = [file for file in compiled(source) if file not in refused]
    options = ["--config-file=", "--follow-imports=silent", "--no-site-packages", "--cache-dir=.cache"]
    extensions = mypycify([*options, *files], group_name="afflux", debug_level="0", target_dir=".c")
    places = ("--build-temp=.o", f"--build-lib={folder}")
    setup(name="afflux", ext_modules=extensions, script_args=["--quiet", "build_ext", *places])


def missing() -> str:
    """What is not there to compile with, in words; "" when all is."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    for package in ("mypyc", "setuptools"):
        if find_spec(package) is None:
            return f"{package} is not installed"
    return ""


def make(folder: Path) -> None:
    """Do all of it. What goes wrong is said in the last line of stderr."""
    with tempfile.TemporaryDirectory(prefix="afflux-mypyc-") as source:
        places = (source, str(folder.resolve()))
        shutil.copytree(ROOT / "src" / "afflux", Path(source, "afflux"), ignore=shutil.ignore_patterns("__pycache__"))
        # In processes of their own: the first imports the copy, the second ends the process when mypyc finds an error.
        for step in STEPS:
            refused: list[str] = []
            while (told := run(step, *places, *refused)) is not None:
                why = {file: reason for file, reason in REFUSED.findall(told) if file not in refused}
                if not why:
                    sys.stderr.write(told)
                    raise SystemExit(f"{step} failed")
                sys.stderr.writelines(f"{file} stays as it is: {reason}\n" for file, reason in why.items())
                refused += why


def run(step: str, *words: str) -> str | None:
    """Do a step in a process of its own: what it says when it fails, else None."""
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
