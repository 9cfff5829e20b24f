"""Compile the inner rings with mypyc: ``python tools/compiled.py FOLDER`` puts what belongs into the wheel there.

Without FOLDER it only says what is missing to compile with.
``hatch_build.py`` runs it when a wheel is built with ``AFFLUX_MYPYC=1``. The source is that of the pure build and is
not touched: it is copied, the codecs of the frames are written down beside it, and all modules but those of
``INTERPRETED`` are compiled together, so that they call each other directly. Only mypy and setuptools are needed.
"""

import os
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

DECLARING = ("afflux.protocols.rsocket.frames",)
"Modules that declare frames. Their codecs are written down as ``_codecs.py`` beside them, and compiled."

RINGS = ("afflux/core", "afflux/protocols/rsocket", "afflux/protocols/rsocket/metadata")
"What is compiled: every module of these folders, but for those below."

INTERPRETED = {
    "core/dissect": "text for people",
    "core/engine": "declares the contract and does nothing",
    "core/errors": "one of them is an ImportError, which mypyc can not inherit from; applications inherit from them",
    "core/fields": "writes source when a frame is declared",
    "core/frame": "makes the classes of the frames",
    "core/limits": "made from its rows when it is imported, in a way that mypyc does not know",
    "core/machine": "generic data classes, which mypyc does not know",
    "core/reference": "text for people",
    "protocols/rsocket/codes": "asked when something fails",
    "protocols/rsocket/cursor": "data classes with constants, which mypyc does not know",
    "protocols/rsocket/establishment": "once for each connection",
    "protocols/rsocket/frames": "the declarations; what they become is in _codecs",
    "protocols/rsocket/lease": "applications inherit from the policies",
    "protocols/rsocket/metadata/authentication": "data classes with constants, which mypyc does not know",
    "protocols/rsocket/metadata/broker": "data classes with constants, which mypyc does not know",
    "protocols/rsocket/metadata/composite": "says itself what is no entry, better than mypyc does",
    "protocols/rsocket/metadata/tracing": "data classes with constants, which mypyc does not know",
    "protocols/rsocket/metadata/types": "data classes with constants, which mypyc does not know",
    "protocols/rsocket/routes": "generic data classes, which mypyc does not know",
    "protocols/rsocket/snapshot": "once for each session that is written down",
    "protocols/rsocket/states": "the tables",
}
"Modules that stay as they are, each with the reason."


def file_of(module: str) -> str:
    """Where the source of a module is, in ``src``."""
    return module.replace(".", "/") + ".py"


def compiled(source: Path) -> list[str]:
    """The files to compile, as they are called in ``source``."""
    paths = [path for ring in RINGS for path in sorted((source / ring).glob("*.py")) if path.stem != "__init__"]
    names = [path.relative_to(source) for path in paths]
    return [str(name) for name in names if str(name.with_suffix("").relative_to("afflux")) not in INTERPRETED]


def write_codecs(source: Path, folder: Path) -> None:
    """Write the codecs of the frames that are declared in a copy of the source, for the compiler and for the wheel."""
    sys.path.insert(0, str(source))
    from afflux.core.frame import Frame, codecs_module

    for name in DECLARING:
        declared = [value for value in vars(import_module(name)).values() if isinstance(value, type)]
        text = codecs_module(cls for cls in declared if issubclass(cls, Frame) and hasattr(cls, "__source__"))
        for place in (source, folder):
            path = (place / file_of(name)).with_name("_codecs.py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def compile_in(source: Path, folder: Path) -> None:
    """Compile the modules in a copy of the source; the extensions go to the folder."""
    from mypyc.build import mypycify
    from setuptools import setup

    os.chdir(source)
    options = ["--config-file=", "--follow-imports=silent", "--no-site-packages", "--cache-dir=.cache"]
    extensions = mypycify([*options, *compiled(source)], group_name="afflux", debug_level="0", target_dir=".c")
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
            words = [sys.executable, __file__, step, *places]
            done = subprocess.run(words, text=True, capture_output=True, check=False)
            if done.returncode:
                sys.stderr.write(done.stdout + done.stderr)
                raise SystemExit(f"{step} failed")


STEPS = {"writing the codecs": write_codecs, "compiling": compile_in}

if __name__ == "__main__":
    if len(sys.argv) == 4:
        STEPS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
    elif lack := missing():
        raise SystemExit(lack)
    elif len(sys.argv) == 2:
        make(Path(sys.argv[1]))
