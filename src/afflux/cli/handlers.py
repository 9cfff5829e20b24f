"""Load the object that ``serve --handler MODULE:OBJECT`` names, and check what it can answer."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from typer import Exit

from afflux.cli.exits import usage

__all__ = ["check_verbs", "load"]


def load(spec: str) -> object:
    """Load the object that MODULE:OBJECT names; instantiate it if it is a class. Exits with a usage error otherwise."""
    module_name, colon, path = spec.partition(":")
    if not colon or not module_name or not path:
        usage(f"invalid --handler {spec!r}: expected MODULE:OBJECT, {_like(spec)}")
    found: Any = _module(module_name, path)
    for name in path.split("."):
        if not hasattr(found, name):
            near = get_close_matches(name, [known for known in dir(found) if known[0] != "_"], n=1, cutoff=0.5)
            usage(f"--handler: {path} not found in {module_name}{f'; did you mean {near[0]}?' if near else ''}")
        found = getattr(found, name)
    if isinstance(found, type):
        found = _made(spec, found)
    _check(spec, found)
    return found


def _check(spec: str, found: object) -> None:
    """Refuse an object that the server would refuse, or whose attributes cannot be read."""
    from afflux.aio.verbs import verbs_of

    try:
        if not _verbs_of(found):
            usage(f"--handler: {spec} {_lack(found)}")
        verbs_of(found)
    except TypeError as error:
        usage(f"--handler: {spec}: {error}")
    except Exit:
        raise
    except Exception as error:  # of a property
        usage(f"--handler: cannot use {spec}: {_words(error)}")


def check_verbs(uri: str, handler: object) -> None:
    """Refuse a handler without any method that the protocol offers."""
    from afflux.transports.address import parse

    offered, verbs = parse(uri, serving=True).entry.offers, _verbs_of(handler)
    if not set(verbs) & set(offered):
        usage(f"{uri} offers {', '.join(offered)}, but the handler has only {', '.join(verbs)}")


def _lack(found: object) -> str:
    """Return what an object without a method for calls lacks."""
    from afflux import Router

    if isinstance(found, Router):
        return "is a Router without routes"
    names = ", ".join(_verbs())
    if callable(found):
        return f"is a function: add it to a Router, or name an object with methods such as {names}"
    public = [name for name in dir(found) if name[0] != "_"]
    if attributes := [name for name in public if name in _verbs()]:
        return f"has {attributes[0]}, which is not a method, but of type {type(getattr(found, attributes[0])).__name__}"
    near = [f"{name} → {verb[0]}" for name in public if (verb := get_close_matches(name, _verbs(), n=1, cutoff=0.75))]
    return f"has none of the methods {names}{f'; did you mean {near[0]}?' if near else ''}"


def _like(spec: str) -> str:
    """Return an example near to what was written: a last part in capitals is the name of a class."""
    module, point, last = spec.rpartition(".")
    if point and _module_of(module) and last[:1].isupper():
        return f"such as {module}:{last}"
    return f"such as {_module_of(spec) or 'app'}:handler"


def _module_of(path: str) -> str | None:
    """Return the name of the module in a file, given its path; None if it does not look like one."""
    name = path.removesuffix(".py").removeprefix("./").replace("/", ".")
    return name if all(part.isidentifier() for part in name.split(".")) else None


def _module(name: str, path: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")) or name.endswith(".py"):
        meant = _module_of(name)
        hint = f"; did you mean {meant}:{path}?" if meant else ""
        usage(f"--handler: {name!r} is not the name of a module{hint}")
    try:
        here = os.getcwd()
    except FileNotFoundError:
        usage("--handler: the current directory was removed: change to another")
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        where = "" if error.name and f"{name}.".startswith(f"{error.name}.") else f", which {name} imports"
        usage(f"--handler: no module {error.name!r}{where}" + (f" (in {here} or installed)" if not where else ""))
    except SystemExit as ended:
        usage(f"--handler: cannot import {name}: it ends the program, by sys.exit({ended.code!r})")
    except Exception as error:
        usage(f"--handler: cannot import {name}: {_words(error)}")


def _made(spec: str, found: type) -> object:
    try:
        return found()
    except TypeError as error:
        if _raised_in_this_file(error):
            usage(f"--handler: {spec} is a class that needs arguments; name an object of it instead ({error})")
        usage(f"--handler: cannot make {spec}: {_words(error)}")
    except SystemExit as ended:
        usage(f"--handler: cannot make {spec}: it ends the program, by sys.exit({ended.code!r})")
    except Exception as error:
        usage(f"--handler: cannot make {spec}: {_words(error)}")


def _raised_in_this_file(error: Exception) -> bool:
    return traceback.extract_tb(error.__traceback__)[-1].filename == __file__


def _words(error: Exception) -> str:
    """Return the error with its place."""
    if isinstance(error, SyntaxError):
        text = f"{Path(error.filename).name}, line {error.lineno}" if error.filename else ""
        return f"{error.msg} ({text})" if text else str(error.msg)
    place = _place(traceback.extract_tb(error.__traceback__))
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"


def _place(calls: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary:
    """Return the last call in the user's own files: not in afflux, another package, or the standard library."""
    installed = [
        str(Path(__file__).parents[1]),
        *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    ]
    own = [call for call in calls if call.filename[0] != "<" and not call.filename.startswith(tuple(installed))]
    return own[-1] if own else calls[-1]


def _verbs() -> Sequence[str]:
    from afflux.aio.verbs import VERBS

    return VERBS


def _verbs_of(handler: object) -> list[str]:
    made: Any = getattr(handler, "as_handler", lambda: handler)()
    return [verb for verb in _verbs() if callable(getattr(made, verb, None))]
