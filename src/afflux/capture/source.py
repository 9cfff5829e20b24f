"""Read the bytes of a capture file in order, decompressing gzip, zstd, xz and bzip2 as they are read.

Nothing is read ahead of what was asked for, so that a pipe and a file that is still being written work. The output of a
decompressor is bounded by ``capture_ratio`` times its input.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, BinaryIO, Protocol

from afflux.capture.errors import CaptureError, Damaged
from afflux.core.errors import MissingExtra
from afflux.core.limits import Limits, reached

__all__ = ["CHUNK", "SHRUNK", "Reader", "Source", "compression", "named_as_capture", "no_capture"]

CHUNK = 0x8_0000
"Bytes of one read."
SHRUNK = "shrunk"
"The word of a Problem: the file has become shorter while it was read."
_SLACK = 0x10_0000
"Output that is allowed before ``capture_ratio`` counts, in bytes: a small file may begin with zeros."
_PIECE = 0x1_0000
_XZ_MEMORY = 0x800_0000
"Bytes that a decompressor of xz may take: ``xz -9`` needs half of them."
_LONGEST = 10
"Bytes of the longest beginning of a compressed file."
_BEGINNINGS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\0": "xz"} | {
    b"BZh%d1AY&SY" % level: "bzip2" for level in range(1, 10)
}
_ARROW_ENDS_EARLY = "Truncated compressed stream"
"What pyarrow's reader of zstd raises as an OSError for data that is cut off."
_OTHERS = {
    b"\x04\x22\x4d\x18": "it is compressed with lz4: decompress it with lz4 -d",
    b"\x1f\x9d": "it is compressed with compress: decompress it with gzip -d",
    b"PK\x03\x04": "it is a zip archive: unpack it first",
    b"7z\xbc\xaf\x27\x1c": "it is a 7z archive: unpack it first",
}
"Beginnings of files that may contain a capture and are not read, and what to do."
_SUFFIXES = frozenset((".pcap", ".pcapng", ".cap"))


def compression(start: bytes) -> str | None:
    """Return how a file with these first 10 bytes is compressed: ``gzip``, ``zstd``, ``xz``, ``bzip2``, or None."""
    return next((name for begins, name in _BEGINNINGS.items() if start.startswith(begins)), None)


def named_as_capture(path: str | PurePath) -> bool:
    """Whether a file should be a capture, compressed or not, because of its name."""
    return not _SUFFIXES.isdisjoint(PurePath(path).suffixes)


def no_capture(start: bytes) -> str:
    """Return why a file with these first bytes is no capture."""
    if not start:
        return "the file is empty"
    remedy = next((f"; {text}" for begins, text in _OTHERS.items() if start.startswith(begins)), "")
    return f"not a pcap or pcapng file: its first bytes are {start[:4].hex(' ')}{remedy}"


class Reader(Protocol):
    """A file that is read in order. ``read`` may return fewer bytes than asked for, and none only at the end."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most ``size``."""


class Source:
    """The decompressed bytes of a file.

    Args:
        file: a file or a pipe, open for reading bytes.
        limits: see ``capture_ratio``.

    Raises:
        MissingExtra: the file is compressed with zstd, and pyarrow is missing.
    """

    def __init__(self, file: BinaryIO | Reader, limits: Limits) -> None:
        self._input = _Counted(file)
        self._limits = limits
        self._made = 0
        self._damaged: Damaged | None = None
        "What the next read raises: the bytes before it have been read."
        self._reader = self._decompressor()

    @property
    def compressed(self) -> bool:
        """Whether the file is compressed."""
        return self._reader is not self._input

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes; fewer only at the end of the file, or before damage.

        Raises:
            Damaged: the compressed data is cut off or wrong, or expands too much, or the file has become shorter.
        """
        if self._damaged is not None:
            raise self._damaged
        found: list[bytes] = []
        missing = size
        while missing:
            try:
                data = self._read(missing)
            except Damaged as damaged:
                if not found:
                    raise
                self._damaged = damaged
                break
            if not data:
                break
            found.append(data)
            missing -= len(data)
        return found[0] if len(found) == 1 else b"".join(found)

    def _read(self, size: int) -> bytes:
        if not self.compressed:
            data = self._input.read(size)
            if not data:
                self._check_length()
            return data
        try:
            data = self._reader.read(min(size, _PIECE))
        except (zlib.error, EOFError, OSError) as error:
            self._check_length()
            early = isinstance(error, EOFError) or str(error) == _ARROW_ENDS_EARLY
            word, text = ("truncated", "it ends early") if early else ("bad-record", str(error))
            raise Damaged(word, self._made, f"the compressed data cannot be read: {text}") from None
        self._made += len(data)
        ratio = self._limits.capture_ratio
        if ratio is not None and self._made > _SLACK + ratio * self._input.count:
            text = "if it is no attack but repeats itself, decompress it first"
            raise Damaged("bomb", self._made, f"{reached(self._limits, 'capture_ratio')}; {text}")
        return data

    def _check_length(self) -> None:
        """Raise Damaged if the file has become shorter since reading began."""
        begun, now = self._input.length, self._input.current_length()
        if begun is not None and now is not None and now < begun:
            at = self._made if self.compressed else self._input.count
            text = f"the file had {begun:,} bytes when reading began, and has become shorter: {now:,} bytes"
            raise Damaged(SHRUNK, at, text)

    def _decompressor(self) -> Reader:
        name = compression(self._input.peek(_LONGEST))
        return self._input if name is None else _DECOMPRESSORS[name](self._input)


class _Counted:
    """A file that counts what was read from it, and whose first bytes can be seen before they are read."""

    def __init__(self, file: BinaryIO | Reader) -> None:
        self._file = file
        self._first = b""
        self.count = 0
        self.closed = False
        self.length = self.current_length()
        "Bytes of the file when reading began; None for a pipe."

    def current_length(self) -> int | None:
        """Return the bytes of the file; None for what is not a regular file."""
        try:
            state = os.fstat(self._file.fileno())  # type: ignore[union-attr]  # a Reader may have none
        except (AttributeError, OSError, ValueError):
            return None
        return state.st_size if stat.S_ISREG(state.st_mode) else None

    def peek(self, size: int) -> bytes:
        """Return the first bytes of the file."""
        while len(self._first) < size and (data := self._file.read(size - len(self._first))):
            self._first += data
        return self._first

    def read(self, size: int = -1) -> bytes:
        """See Reader."""
        size = _PIECE if size < 0 else size
        data, self._first = self._first[:size], self._first[size:]
        data = data or self._file.read(size)
        self.count += len(data)
        return data

    def close(self) -> None:
        """Do nothing, for a library that closes what it reads: the file belongs to the caller."""


class _Gzip:
    """The content of all members of a gzip file."""

    def __init__(self, file: Reader) -> None:
        self._file = file
        self._inflate: Any = zlib.decompressobj(wbits=31)
        self._rest = b""
        self._begun = False

    def read(self, size: int, /) -> bytes:
        """See Reader. Raises EOFError if the file is cut off."""
        while True:
            data = self._rest or self._file.read(_PIECE)
            if not data:
                if self._begun:
                    raise EOFError("it ends early")
                return b""
            self._begun = True
            made: bytes = self._inflate.decompress(data, size)
            self._rest = self._inflate.unconsumed_tail
            if self._inflate.eof:
                self._rest = self._inflate.unused_data.lstrip(b"\0")
                self._inflate, self._begun = zlib.decompressobj(wbits=31), False
            if made:
                return made


def _zstd(file: Reader) -> Reader:
    """Return a reader of zstd. Raises MissingExtra without pyarrow, whose reader notices data that is cut off."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("a capture compressed with zstd", "capture") from None
    try:
        made: Reader = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd")
    except OSError as error:
        raise CaptureError(f"the zstd data cannot be read: {error}") from None
    return made


class _Streams:
    """The content of all streams of an xz or bzip2 file.

    Args:
        file: the file.
        make: returns a decompressor for the next stream.
        wrong: what the decompressor raises for wrong data.
    """

    def __init__(self, file: Reader, make: Callable[[], Any], wrong: type[Exception]) -> None:
        self._file = file
        self._make = make
        self._wrong = wrong
        self._stream = make()
        self._rest = b""
        self._begun = False

    def read(self, size: int, /) -> bytes:
        """See Reader. Raises EOFError if the file is cut off, OSError if it is wrong."""
        while True:
            data = b""
            if self._stream.needs_input:
                data, self._rest = self._rest or self._file.read(_PIECE), b""
                if not data:
                    if self._begun:
                        raise EOFError("it ends early")
                    return b""
                data = data if self._begun else data.lstrip(b"\0")  # xz pads streams
            self._begun = self._begun or bool(data)
            try:
                made: bytes = self._stream.decompress(data, size)
            except self._wrong as error:
                raise OSError(str(error)) from None
            if self._stream.eof:
                self._rest, self._begun = self._stream.unused_data, False
                self._stream = self._make()
            if made:
                return made


def _xz(file: Reader) -> Reader:
    try:
        import lzma
    except ImportError:
        raise _not_built("xz") from None
    return _Streams(file, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY), lzma.LZMAError)


def _bzip2(file: Reader) -> Reader:
    try:
        import bz2
    except ImportError:
        raise _not_built("bzip2") from None
    return _Streams(file, bz2.BZ2Decompressor, OSError)


def _not_built(name: str) -> CaptureError:
    return CaptureError(f"compressed with {name}, which this Python was built without: decompress it with {name} -d")


_DECOMPRESSORS: dict[str, Callable[[Any], Reader]] = {"gzip": _Gzip, "zstd": _zstd, "xz": _xz, "bzip2": _bzip2}
