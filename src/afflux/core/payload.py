"""Define payloads, the values that applications send and receive."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import chain, starmap
from struct import iter_unpack
from typing import overload

__all__ = ["Payload", "PayloadLike", "Payloads", "Plain", "Run"]
__all__ += ["check_items", "not_a_payload", "payload_of", "size_of"]


class Payload:
    """Data with optional metadata.

    Treat it as a value: two payloads are equal when data and metadata are. It is a plain slotted
    class and not a frozen dataclass because one is created for each item received, and a frozen
    ``__init__`` costs four times as much.
    """

    __slots__ = ("data", "metadata")

    data: bytes
    "The application's bytes."
    metadata: bytes | None
    "Further bytes, or None for a payload without metadata: empty metadata (``b''``) is not None."

    def __init__(self, data: bytes = b"", metadata: bytes | None = None) -> None:
        self.data = data
        self.metadata = metadata

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Payload):
            return NotImplemented
        return self.data == other.data and self.metadata == other.metadata

    def __hash__(self) -> int:
        return hash((self.data, self.metadata))

    def __len__(self) -> int:
        """Bytes of data and metadata together."""
        return len(self.data) + (len(self.metadata) if self.metadata is not None else 0)

    def __bool__(self) -> bool:
        """Always true: an empty payload is still a payload."""
        return True

    def __getstate__(self) -> object:
        """Return what a copy or pickle contains, in the form that ``object`` gives it. Without this method, those of a
        compiled class would lack what an interpreted class that inherits from it adds."""
        state = super().__getstate__()
        names: tuple[str, ...] = getattr(self, "__mypyc_attrs__", ())  # compiled classes have these and no __slots__
        if not names:
            return state
        more, slots = state if isinstance(state, tuple) else (state, {})
        return more, slots | {name: getattr(self, name) for name in names if hasattr(self, name)}

    def __repr__(self) -> str:
        # Metadata may contain credentials (AU-05): show its length only.
        metadata = "" if self.metadata is None else f", metadata=({len(self.metadata)} bytes)"
        return f"Payload({_short(self.data)}{metadata})"

    @property
    def proper(self) -> bool:
        """Whether data and metadata are bytes."""
        return type(self.data) is bytes and (self.metadata is None or type(self.metadata) is bytes)

    @property
    def text(self) -> str:
        """The data as UTF-8 text; bytes that are not UTF-8 become U+FFFD."""
        return str(self.data, "utf-8", "replace")


class Run:
    """Consecutive payloads of one size, with metadata of one size or without, in received bytes: an immutable sequence
    that creates each :class:`Payload` when it is accessed.

    Items that wait therefore need no object each, and C code creates the objects of those that are taken.
    """

    __slots__ = ("_block", "_count", "_head", "_marked", "_size", "_start")

    def __init__(self, block: bytes, start: int, head: int, size: int, count: int, marked: int = -1) -> None:
        """In ``block`` from ``start``: ``count`` times ``head`` bytes of header, ``marked`` bytes of metadata (-1: the
        payloads have none), and ``size`` bytes of data."""
        self._block = block
        self._start = start
        self._head = head
        self._size = size
        self._count = count
        self._marked = marked

    @property
    def size(self) -> int:
        """Bytes of all payloads."""
        return (self._size + max(0, self._marked)) * self._count

    @property
    def bare(self) -> bool:
        """Whether the payloads have no metadata."""
        return self._marked < 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Payload]:
        if self._marked < 0:
            return starmap(Payload, self._each())
        return map(Payload, self.parts(), chain.from_iterable(self._each(metadata=True)))

    def parts(self) -> Iterator[bytes]:
        """Iterate over the data of the payloads, without their metadata: see ``bare``."""
        return chain.from_iterable(self._each())

    def _each(self, *, metadata: bool = False) -> Iterator[tuple[bytes]]:
        """Iterate over the data, or the metadata."""
        marked = max(0, self._marked)
        each = f"{self._head}x{marked}s{self._size}x" if metadata else f"{self._head + marked}x{self._size}s"
        with memoryview(self._block) as block:
            return iter_unpack(each, block[self._start : self._start + self._stride * self._count])

    @property
    def _stride(self) -> int:
        return self._head + max(0, self._marked) + self._size

    @overload
    def __getitem__(self, index: int) -> Payload: ...
    @overload
    def __getitem__(self, index: slice) -> Run: ...
    def __getitem__(self, index: int | slice) -> Payload | Run:
        """Return one payload, or for a slice, whose step is ignored, a part of the sequence."""
        stride = self._stride
        if isinstance(index, slice):
            first, stop, _ = index.indices(self._count)
            begin, count = self._start + first * stride, max(0, stop - first)
            return Run(self._block, begin, self._head, self._size, count, self._marked)
        if not -self._count <= index < self._count:
            raise IndexError(f"payload {index} of {self._count}")
        start = self._start + index % self._count * stride + self._head
        middle = start + max(0, self._marked)
        metadata = None if self._marked < 0 else self._block[start:middle]
        return Payload(self._block[middle : middle + self._size], metadata)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Run | list) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(list(self))


class Plain(Run):
    """Consecutive payloads without metadata, which may differ in size: an immutable sequence as :class:`Run`.

    Args:
        datas: their data.
        size: bytes of each; -1 if they differ.
    """

    __slots__ = ("_datas",)

    def __init__(self, datas: list[bytes], size: int = -1) -> None:
        self._datas = datas
        self._size = size

    @property
    def size(self) -> int:
        """Bytes of all payloads."""
        return sum(map(len, self._datas)) if self._size < 0 else self._size * len(self._datas)

    @property
    def bare(self) -> bool:
        """Whether the payloads have no metadata."""
        return True

    def __len__(self) -> int:
        return len(self._datas)

    def __iter__(self) -> Iterator[Payload]:
        return starmap(Payload, zip(self._datas, strict=False))  # faster than map: it reuses the tuple

    def parts(self) -> Iterator[bytes]:
        """Iterate over the data of the payloads."""
        return iter(self._datas)

    @overload
    def __getitem__(self, index: int) -> Payload: ...
    @overload
    def __getitem__(self, index: slice) -> Run: ...
    def __getitem__(self, index: int | slice) -> Payload | Run:
        """Return one payload, or for a slice a part of the sequence."""
        if isinstance(index, slice):
            return Plain(self._datas[index], self._size)
        return Payload(self._datas[index])


Payloads = list[Payload] | Run
"Several payloads, in order."

PayloadLike = Payload | bytes | bytearray | memoryview | str
"Argument of the verbs: a payload, or data without metadata; text is sent as UTF-8."


def payload_of(value: PayloadLike) -> Payload:
    """Convert ``value`` to a payload.

    Raises:
        TypeError: ``value`` is not a payload, bytes or text, or is a payload whose parts are not bytes.
    """
    if isinstance(value, Payload):
        if value.proper:
            return value
        proper = copy(value)  # of a derived class, it keeps the rest
        proper.data = _bytes_of(value.data)
        proper.metadata = None if value.metadata is None else _bytes_of(value.metadata)
        return proper
    if isinstance(value, bytes):
        return Payload(value)
    if isinstance(value, str):
        return Payload(value.encode())
    if isinstance(value, (bytearray, memoryview)):
        return Payload(bytes(value))
    raise not_a_payload(value)


def not_a_payload(value: object) -> TypeError:
    """Return the error for a value that is given as a payload; its text says what to do."""
    return TypeError(f"a payload is bytes, text or afflux.Payload, not {type(value).__name__}{_hint(value)}")


def check_items(source: object) -> None:
    """Check that items can come from ``source``: an iterable, or an asynchronous one.

    Raises:
        TypeError: it is neither; or it is one value that Python can iterate over, such as text.
    """
    kind = type(source).__name__
    if isinstance(source, (str, bytes, bytearray, memoryview, Payload, dict)):
        raise TypeError(f"items come from a generator or a list, not from {kind}: yield it, or put it into a list")
    if not any(hasattr(source, name) for name in ("__aiter__", "__iter__", "__getitem__")):
        raise TypeError(f"items come from a generator or a list, not from {kind}{_missing(source)}")


def _hint(value: object) -> str:
    """Return what to do where ``value`` was given as a payload; empty if that is not known."""
    if hasattr(value, "__aiter__"):
        return ": a method that yields several items is a stream or a channel"
    if isinstance(value, (dict, list, tuple, int, float)) or value is None:
        return ": encode it, as json.dumps does, or give the route of an afflux.Router a codec"
    return _missing(value)


def _missing(value: object) -> str:
    """Return what was forgotten before ``value`` was given; empty if that is not known."""
    if hasattr(value, "__await__"):
        return ": an await is missing"
    return ": call it" if callable(value) else ""


def size_of(payloads: Payloads) -> int:
    """Return the bytes of all payloads."""
    if isinstance(payloads, Run):
        return payloads.size
    size = 0
    for payload in payloads:
        size += len(payload.data)
        if payload.metadata is not None:
            size += len(payload.metadata)
    return size


def _bytes_of(part: bytes | bytearray | memoryview) -> bytes:
    if isinstance(part, (bytes, bytearray, memoryview)):
        return bytes(part)
    raise TypeError(f"data and metadata of a payload are bytes, not {type(part).__name__}")


def _short(data: bytes) -> str:
    return repr(data) if len(data) <= 40 else f"{data[:32]!r}… ({len(data)} bytes)"
