"""Parse command-line values: payloads, items, durations."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn, TypeVar, cast

import typer

from afflux.cli.exits import usage
from afflux.cli.process import was_closed
from afflux.core.autocredit import Kept

if TYPE_CHECKING:
    from afflux.protocols.rsocket.metadata import Bearer, Simple

__all__ = [
    *(
        "DATA_LIMIT",
        "LINE_LIMIT",
        "above_0",
        "check_address",
        "check_cursors",
        "check_metadata",
        "check_reach",
        "check_source",
    ),
    *("check_store", "credentials", "credit", "directory", "duration", "existing", "items", "not_itself"),
    *("new_directory", "one", "opened", "path_name", "size", "writable"),
]

_T = TypeVar("_T")

DATA_LIMIT = 0x4000_0000
"Bytes of -d and -m: files such as /dev/zero do not end."
_LARGE_CHUNK = 0x10_0000
"Bytes read at a time of what is read to its end."
LINE_LIMIT = 0x100_0000
"Maximum line length of -D in bytes: 16 MiB."

CHUNK = 0x1_0000

_SHOWN = 64
"Characters of a name that an error shows at most."
_LONGEST_MIME = 127
_MIME_TYPES = {
    "json": "application/json",
    "cbor": "application/cbor",
    "msgpack": "application/msgpack",
    "text": "text/plain",
    "binary": "application/octet-stream",
}
"Short names that are mistaken for MIME types."
_SQLITE = b"SQLite format 3\0"
_COMPOSITE = "message/x.rsocket.composite-metadata.v0"
_ROUTING = "message/x.rsocket.routing.v0"
_AUTHENTICATION = "message/x.rsocket.authentication.v0"

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EVERY = ("0.0.0.0", "::")
"Addresses of all interfaces."

_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "h": 3600.0, "d": 86_400.0}


_MOST_S = 36_500 * 86_400.0
"The longest duration: about a hundred years."
_MOST_BYTES = (1 << 63) - 1


def duration(text: str, option: str) -> float:
    """Parse a duration into seconds: ``200ms``, ``1.5s``, ``2m``; a bare number is seconds. Exits with a usage error
    that names the option for anything else."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|d)?", text.strip())
    if match is None:
        usage(f"invalid {option} {text[:_SHOWN]!r}: write 200ms, 1.5s or 2m")
    seconds = float(match[1]) * _UNITS[match[2] or ""]
    if seconds > _MOST_S:
        usage(f"invalid {option} {text[:_SHOWN]!r}: the longest time is 36500d")
    return seconds


def above_0(text: str, option: str) -> float:
    """Parse a duration that cannot be 0. Exits with a usage error as above."""
    seconds = duration(text, option)
    if not seconds:
        usage(f"{option} must be longer than 0")
    return seconds


_DIGITS = 19
"Digits of the largest number of bytes."
_SIZES: dict[str, int] = {"": 1, "B": 1} | {
    f"{letter}{suffix}": int(base ** (power + 1))
    for power, letter in enumerate("KMGT")
    for suffix, base in (("B", 1000), ("iB", 1024))
}


def size(text: str, option: str) -> int:
    """Parse a size into bytes: ``50GB``, ``512MiB``; a bare number is bytes. Exits with a usage error as above."""
    match = re.fullmatch(r"([0-9]+)([A-Za-z]*)", text.strip())
    if match is None or match[2] not in _SIZES:
        usage(f"invalid {option} {text[:_SHOWN]!r}: write 50GB, 512MiB or a number of bytes")
    octets = int(match[1][:_DIGITS]) * _SIZES[match[2]]
    if len(match[1]) > _DIGITS or octets > _MOST_BYTES:
        usage(f"invalid {option} {text[:_SHOWN]!r}: the largest size is 9223372TB")
    return octets


def check_metadata(mmt: str | None, route: str | None, auth_file: Path | None, dmt: str | None = None) -> None:
    """Refuse options that metadata of the type ``--mmt`` cannot carry, and a type without a name."""
    for option, mime in (("--mmt", mmt), ("--dmt", dmt)):
        if mime == "":
            usage(f"{option} is empty: write a MIME type such as application/json")
        if mime is not None and (known := _MIME_TYPES.get(mime.lower())):
            usage(f"{option}: {mime!r} is not a MIME type; did you mean {known}?")
        if mime is not None and not (mime.isascii() and mime.isprintable() and len(mime) <= _LONGEST_MIME):
            usage(f"{option}: {mime[:_SHOWN]!r} is not a MIME type of at most {_LONGEST_MIME} ASCII characters")
    if mmt in (None, _COMPOSITE):
        return
    if (route is not None and mmt != _ROUTING) or (auth_file is not None and mmt != _AUTHENTICATION):
        usage(f"-r and --auth-file require composite metadata: omit --mmt, or set it to {_COMPOSITE}")


def credit(text: str) -> Kept:
    """Parse --credit: 1 to 2^31-1, or ``auto``."""
    if text == "auto":
        return "auto"
    if not re.fullmatch(r"\d{1,10}", text) or not 0 < int(text) <= 0x7FFFFFFF:
        usage(f"invalid --credit {text!r}: expected 1 to {0x7FFFFFFF:,}, or auto")
    return int(text)


async def one(text: str, option: str) -> bytes:
    """Read the data of ``option``, such as -d: ``-`` is all of stdin, ``@file`` the bytes of a file, otherwise the
    text. Exits with a usage error for more than ``DATA_LIMIT`` bytes."""
    if text == "-":
        return await _all(_stdin(option), option, "stdin")
    if text.startswith("@"):
        with await _in_thread(lambda: opened(text[1:], option)) as file:
            return await _all(file.fileno(), option, text[1:])
    return os.fsencode(text)  # keeps command-line bytes that are not UTF-8


def _stdin(option: str) -> int:
    """Return the descriptor of stdin. Exits with a usage error if the process was started without one."""
    if was_closed(0):
        usage(f"{option}: cannot read stdin: it is closed")
    return sys.stdin.fileno()


async def _all(descriptor: int, option: str, name: str) -> bytes:
    """Read a file to its end."""
    parts = bytearray()
    while part := await _read(descriptor, option, name, _LARGE_CHUNK):
        parts += part
        if len(parts) > DATA_LIMIT:
            usage(f"{option}: {name!r} is longer than {DATA_LIMIT:,} bytes; -D sends one item a line")
    return bytes(parts)


async def items(source: str) -> AsyncIterator[list[bytes]]:
    """Read the items of -D, one per line, in lists as they arrive: ``-`` is stdin, ``@file`` a file."""
    if source == "-":
        async for lines in _lines(_stdin("-D"), "stdin"):
            yield lines
        return
    name = source.removeprefix("@")
    with await _in_thread(lambda: opened(name, "-D")) as file:
        async for lines in _lines(file.fileno(), name):
            yield lines


async def _lines(descriptor: int, name: str) -> AsyncIterator[list[bytes]]:
    """Yield lists of lines; reads more only when the previous list was consumed."""
    rest = b""
    while data := await _read(descriptor, "-D", name):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > LINE_LIMIT:
            usage(f"-D: a line is longer than {LINE_LIMIT:,} bytes")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest.removesuffix(b"\r")]


def _unreadable(option: str, name: str, error: OSError) -> NoReturn:
    usage(f"{option}: cannot read {name!r}: {error.strerror}")


async def _read(descriptor: int, option: str, name: str, most: int = CHUNK) -> bytes:
    """Read available bytes, ``most`` of them; b"" at the end. Exits with a usage error if they cannot be read."""
    try:
        return await _in_thread(lambda: os.read(descriptor, most))
    except OSError as error:
        _unreadable(option, name, error)


async def _in_thread(work: Callable[[], _T]) -> _T:
    """Return the result of ``work`` in a daemon thread. Raises what it raises.

    Reading from a silent terminal, or opening a pipe that nobody writes to, must block neither the loop, which handles
    SIGINT, nor the exit of the process.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[_T] = loop.create_future()

    def end(result: _T | None, error: Exception | None) -> None:
        if arrived.done():
            return
        if error is not None:
            arrived.set_exception(error)
        else:
            arrived.set_result(cast(_T, result))

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(end, result, failure)

    threading.Thread(target=run, name="afflux-stdin", daemon=True).start()
    return await arrived


def existing(name: str, option: str, *, regular: bool = False, hint: str = "", instead: str = "") -> Path:
    """Return the path of a file. Exits with a usage error, which begins with ``option`` (that of an argument is FILE),
    if there is none, or with ``regular`` if it is a device or a pipe, which cannot be read twice. ``hint`` is added
    where there is none, ``instead`` to that it is a pipe."""
    path = Path(name)
    if not name or not _exists(path, option):
        usage(f"{option}: file {name!r} not found{hint}")
    if path.is_dir():
        usage(f"{option}: {name!r} is a directory, not a file")
    if regular and not path.is_file():
        usage(f"{option}: {name!r} is a device or a pipe, not a regular file: it is read more than once{instead}")
    if not os.access(path, os.R_OK):
        usage(f"{option}: cannot read {name!r}: {os.strerror(errno.EACCES)}")
    return path


def _exists(path: Path, option: str, use: str = "read") -> bool:
    """Whether a path exists. Exits with a usage error if the name cannot be one, such as one that is too long, or if
    its directory cannot be searched: ``use`` is what cannot be done then."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError as error:
        usage(f"{option}: cannot {use} {str(path)!r}: {error.strerror}")
    except (OSError, ValueError) as error:
        usage(f"{option}: {str(path)[:_SHOWN]!r} is not a file: {getattr(error, 'strerror', error)}")
    return path.exists()


def opened(name: str, option: str) -> BinaryIO:
    """Open the file of an option, to be read without a buffer. Exits with a usage error that names the option."""
    try:
        return existing(name, option).open("rb", buffering=0)
    except OSError as error:
        _unreadable(option, name, error)


def writable(name: str, option: str) -> None:
    """Exit with a usage error for the name of a file that cannot be written: without a directory, or one itself."""
    path = Path(name)
    if not name:
        usage(f"{option}: the name is empty")
    _exists(path, option, "write")
    if path.is_dir():
        usage(f"{option}: {name!r} is a directory, not a file")
    if not path.parent.is_dir():
        usage(f"{option}: directory {str(path.parent)!r} not found")
    if path.exists() and not path.is_file():
        return  # a pipe or a device, which opening would wait for
    new = not path.exists()
    try:
        path.open("ab").close()
        if new:
            path.unlink()
    except OSError as error:
        usage(f"{option}: cannot write {name!r}: {error.strerror}")


def path_name(text: str) -> Path:
    """Parse the name of a file or a directory; an empty one, such as that of an unset variable, is refused."""
    if not text:
        raise typer.BadParameter("the name is empty")
    return Path(text)


def credentials(path: Path) -> Simple | Bearer:
    """Read the file of --auth-file. Exits with a usage error if it has no credentials."""
    from afflux import auth

    existing(str(path), "--auth-file")
    try:
        return auth.read_file(path)
    except auth.AuthFileError as error:
        usage(f"--auth-file: {error}")


def check_store(path: Path | None) -> None:
    """Refuse a file of --store that cannot store sessions. A new file needs its directory only."""
    if path is None:
        return
    if not _exists(path, "--store"):
        writable(str(path), "--store")
        return
    existing(str(path), "--store", regular=True)
    try:
        with path.open("rb") as file:
            begin = file.read(len(_SQLITE))
    except OSError as error:
        usage(f"--store: cannot read {str(path)!r}: {error.strerror}")
    if begin not in (b"", _SQLITE):
        usage(f"--store: {str(path)!r} is not a file of sessions: choose another, or a new one")


def directory(name: str, option: str) -> Path:
    """Return the path of a directory. Exits with a usage error, which begins with ``option``, if there is none."""
    path = Path(name)
    if not name or not _exists(path, option) or not path.is_dir():
        wrong = f"{name!r} is a file, not a directory" if name and path.exists() else f"directory {name!r} not found"
        usage(f"{option}: {wrong}")
    if not os.access(path, os.R_OK | os.X_OK):
        usage(f"{option}: cannot read {name!r}: {os.strerror(errno.EACCES)}")
    return path


def new_directory(name: str, option: str) -> Path:
    """Return the path of a directory that exists or can be made. Exits with a usage error if it is a file."""
    if not name:
        usage(f"{option}: the name is empty")
    path = Path(name)
    if _exists(path, option, "write") and not path.is_dir():
        usage(f"{option}: {name!r} is a file; it has to be a directory, which may be new")
    there = next((one for one in (path, *path.absolute().parents) if one.exists()), Path("/"))
    if not there.is_dir():
        usage(f"{option}: {str(there)!r} is a file, so {name!r} cannot be made")
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".afflux-", dir=there))  # permissions alone do not tell: think of /proc
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            usage(f"{option}: cannot write into {str(there)!r}: {error.strerror}")
    return path


def check_address(uri: str, option: str, *, serving: bool = False) -> None:
    """Refuse an address of a command that has several, with the option that it belongs to."""
    from afflux.core.errors import AddressError
    from afflux.transports.address import parse

    try:
        parse(uri, serving=serving)
    except AddressError as error:
        usage(f"{option}: {error.message}")


def check_reach(uri: str) -> None:
    """Refuse a mem address: a command is a process of its own, so nothing else would be at it."""
    from afflux.transports.address import parse

    if parse(uri, serving=True).transport == "mem":
        usage(f"{uri} connects ends within one program, and a command is a program of its own: use tcp:// or unix://")


def not_itself(listen: str, other: str, option: str) -> None:
    """Refuse the address of --listen as that of ``option``: the command would connect to itself."""
    from afflux.transports.address import parse

    here, there = parse(listen, serving=True), parse(other)
    if here.path and here.transport == there.transport == "unix":
        same = os.path.realpath(here.path) == os.path.realpath(there.path)
    else:
        hosts = {here.host, there.host}
        near = hosts <= {*_LOOPBACK, *_EVERY} and (here.host in _EVERY or len(hosts - {"localhost"}) < 2)
        same = bool(here.port) and here.port == there.port and (len(hosts) == 1 or near)
    if same:
        usage(f"{option} {other} is the address of --listen: the command would connect to itself")


def check_cursors(uri: str, option: str) -> None:
    """Refuse an option that needs cursors at an address whose protocol has none."""
    from afflux.gateway.origin import CURSORS
    from afflux.protocols.registry import AUTO
    from afflux.transports.address import parse

    name = parse(uri, serving=True).protocol
    if name not in (*CURSORS, AUTO):
        usage(f"{option} requires a protocol with cursors, such as RSocket at tcp://…: {name} has none")


def check_source(source: str | None, *others: str | None) -> None:
    """Refuse a source of -D that does not exist, and stdin for two of the options, before anything is sent."""
    if [source, *others].count("-") > 1:
        usage("only one of -d, -D and -m can read stdin, which is read once")
    if source not in (None, "-"):
        existing(source.removeprefix("@"), "-D")
