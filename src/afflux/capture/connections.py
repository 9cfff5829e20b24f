"""Hold what is known of each TCP connection of a capture, and the pairs of ends by which connections are found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from afflux.capture.header_kernels import pairs
from afflux.capture.kernels import SHARED
from afflux.capture.network import V4
from afflux.capture.packets import Ints
from afflux.capture.reassembly import Half
from afflux.capture.segments import End, Segments

__all__ = ["Conflict", "Connection", "Consumer", "Entry", "Key", "Opening", "ends_of", "ids_of", "keys_of"]

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [low + high for high in _DIGITS for low in _DIGITS]
"Two digits of a number, the lower one first."
Key = tuple[int, ...]
"Both ends: two numbers with address and port for IPv4, otherwise six."


class Consumer(Protocol):
    """The receiver of the bytes of one connection. ``rising`` is the direction (see ``Segments.rising``). A packet is
    an index in the current batch, -1 after the last batch."""

    settled: bool
    "The directions may be delivered independently, each in larger pieces."
    idle: bool
    "The bytes are of no interest any more."

    def data(self, rising: bool, data: bytes, ends: Sequence[int], packets: Sequence[int]) -> None:
        """Take bytes. The packet ``packets[i]`` brought the bytes before ``ends[i]``."""

    def gap(self, rising: bool, size: int, packet: int) -> None:
        """The next ``size`` bytes are missing."""

    def end(self, rising: bool, packet: int) -> None:
        """The direction has ended; it may end twice."""


@dataclass(eq=False, slots=True)
class Connection:
    """One TCP connection."""

    low: End
    "The end that sorts first."
    high: End
    "The other end."
    time: int
    "When its first packet was captured, in nanoseconds."
    halves: dict[bool, Half]
    "Its directions, by ``rising``."
    opener: bool | None = None
    "The direction of the side that opened it; None if the capture does not show it."
    closed: bool = False
    "A RST was seen, or both FINs."
    consumer: Consumer = field(init=False)
    _id: str = ""

    @property
    def key(self) -> Key:
        """The pair of its ends, as the segments have it."""
        low, high = self.low, self.high
        return _key((*low, *high))

    @property
    def id(self) -> str:
        """A letter and 11 characters that depend on the two ends and the time of the first packet."""
        if not self._id:
            text = repr((self.low, self.high, self.time)).encode()
            number = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
            digits = ["C"]
            for _ in range(5):
                number, pair = divmod(number, 62 * 62)
                digits.append(_PAIRS[pair])
            self._id = "".join((*digits, _DIGITS[number]))
        return self._id


@dataclass(frozen=True, slots=True)
class Conflict:
    """A segment with other bytes than an earlier copy."""

    connection: Connection
    rising: bool
    "The direction."
    position: int
    "The position of the first byte that differs."
    size: int
    "How many bytes differ."
    packet: int
    "The packet, as an index in its batch."


class Opening:
    """A connection without data so far, or one that has ended in order."""

    __slots__ = ("closed", "ended", "initial", "opener", "time")

    def __init__(self, time: int, opener: bool) -> None:
        self.time = time
        self.opener = opener
        self.closed = False
        "A RST was seen, or both FINs."
        self.ended = False
        "Both FINs were seen: whatever follows is a copy, unless it is a SYN."
        self.initial = [-1, -1]  # the numbers of the SYNs, by ``rising``


Entry = Connection | Opening


def keys_of(found: Segments) -> tuple[Ints, list[Key]]:
    """Return the number of each segment's pair of ends, and the distinct pairs in the order in which they occur."""
    function = SHARED.compiled(pairs)
    if function is not None:
        count = len(found)
        numbers, firsts, slots = np.empty(count, np.int64), np.empty(count, np.int64), _slots(count)
        known = function(found.low, found.high, numbers, firsts, slots)
        if known >= 0:
            return numbers, list(_keys([column[firsts[:known]] for column in (*found.low, *found.high)]))
    return _keys_of(found)


def _slots(count: int) -> Ints:
    """Return the slots in which so many segments are looked up."""
    return np.full(1 << (2 * count).bit_length(), -1, np.int64)


def _keys(columns: Sequence[npt.NDArray[Any]]) -> Iterable[Key]:
    """Return pairs of ends."""
    a0, a1, ap, b0, b1, bp = columns
    if (a0 == V4).all() and (b0 == V4).all():
        short = (a1 << np.uint64(16) | ap.astype(np.uint64), b1 << np.uint64(16) | bp.astype(np.uint64))
        return zip(*(column.tolist() for column in short), strict=True)
    return map(_key, zip(*(column.tolist() for column in columns), strict=True))


def _keys_of(found: Segments) -> tuple[Ints, list[Key]]:
    """Do the same with numpy: only where the pair changes from one segment to the next is it looked up."""
    columns = (*found.low, *found.high)
    changes = np.zeros(len(found) - 1, np.bool_)
    for column in columns:
        changes |= column[1:] != column[:-1]
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    numbers: dict[Key, int] = {}
    runs = [numbers.setdefault(row, len(numbers)) for row in _keys([column[starts] for column in columns])]
    return np.repeat(np.array(runs, np.int64), np.diff(np.append(starts, len(found)))), list(numbers)


def _key(row: tuple[int, ...]) -> Key:
    """Return the key of a pair of ends: two numbers for IPv4, which are most and take less memory."""
    a0, a1, ap, b0, b1, bp = row
    return (a1 << 16 | ap, b1 << 16 | bp) if a0 == V4 == b0 else row


def ends_of(key: Key) -> tuple[End, End]:
    """Return the two ends that a key stands for."""
    if len(key) == 2:
        low, high = ((V4, number >> 16, number & 0xFFFF) for number in key)
        return low, high
    a0, a1, ap, b0, b1, bp = key
    return (a0, a1, ap), (b0, b1, bp)


def ids_of(keys: Sequence[Key], times: Sequence[int]) -> list[str]:
    """Return the id of each connection, given its ends and the time of its first packet; see ``Connection.id``."""
    if not keys:
        return []
    digests = [
        blake2b(_named(key, time).encode(), digest_size=8).digest() for key, time in zip(keys, times, strict=True)
    ]
    rest = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)
    digits, letters = np.frombuffer(_DIGITS.encode(), np.uint8), np.empty((len(keys), 12), np.uint8)
    letters[:, 0] = ord("C")
    for place in range(1, 12):
        rest, digit = np.divmod(rest, np.uint64(62))
        letters[:, place] = digits[digit]
    text = letters.tobytes().decode()
    return [text[at : at + 12] for at in range(0, len(text), 12)]


def _named(key: Key, time: int) -> str:
    """Return what an id is made of."""
    if len(key) == 2:
        low, high = key
        return f"(({V4}, {low >> 16}, {low & 0xFFFF}), ({V4}, {high >> 16}, {high & 0xFFFF}), {time})"
    return repr((*ends_of(key), time))
