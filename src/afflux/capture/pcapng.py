"""Find the packets of a pcapng file: sections of either byte order, interfaces with their own clocks, enhanced, simple
and obsolete packet blocks. Decryption secrets and the names of addresses are stored. Blocks of other types are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from struct import Struct
from typing import Final

import numpy as np

from afflux.capture.errors import CaptureError, Damaged
from afflux.capture.names import Names
from afflux.capture.packets import NO_TIME, Ints, Packets
from afflux.capture.secrets import Secrets
from afflux.core.limits import Limits, reached

__all__ = ["MAGIC", "Interface", "Pcapng", "Section"]

MAGIC: Final = bytes.fromhex("0a0d0d0a")
"The type of a section header block, the same in both byte orders."
_ORDERS: Final = {bytes.fromhex("1a2b3c4d"): ">", bytes.fromhex("4d3c2b1a"): "<"}
_SECTION, _INTERFACE, _OBSOLETE, _SIMPLE, _NAMES, _ENHANCED, _SECRETS = 0x0A0D0D0A, 1, 2, 3, 4, 6, 10
_PACKETS: Final = {_ENHANCED: 32, _OBSOLETE: 32, _SIMPLE: 16}
"Blocks with a packet, and their size without it."
_END, _RESOLUTION, _OFFSET = 0, 9, 14
"Options of an interface."
_KEY_LOG: Final = 0x544C534B
"The type of decryption secrets that are a key log of TLS."
_LARGEST_DATE: Final = 0x7FFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface, as its section describes it."""

    linktype: int
    "The LINKTYPE of its packets."
    snaplen: int
    "The largest packet captured, in bytes; 0 for no limit."
    resolution: int = 6
    "The unit of its times, as if_tsresol: 10**-n s, or 2**-n s if bit 0x80 is set."
    offset: int = 0
    "Seconds to add to its times."


@dataclass(frozen=True, slots=True)
class Section:
    """What the blocks of a section so far say about those that follow."""

    order: str
    "The byte order, ``<`` or ``>``."
    interfaces: tuple[Interface, ...]
    "The interfaces."


class Pcapng:
    """The format of one pcapng file.

    Args:
        start: the first 12 bytes.
        limits: see ``capture_record_bytes``, ``capture_interfaces`` and ``capture_secret_bytes``.
        secrets: takes the TLS secrets.
        names: takes the names of addresses.

    Raises:
        CaptureError: the byte order of the first section is unknown.
    """

    def __init__(self, start: bytes, limits: Limits, secrets: Secrets, names: Names) -> None:
        if len(start) < 12:
            raise CaptureError(f"a pcapng file begins with 28 bytes, and this one has {len(start)}")
        if start[8:12] not in _ORDERS:
            raise CaptureError(f"the byte-order magic of the first section is {start[8:12].hex()}")
        self._limits = limits
        self._order = _ORDERS[start[8:12]]
        self.interfaces: list[Interface] = []
        "The interfaces of the current section."
        self._secrets = secrets
        self._names = names
        self._longest = {_SECRETS: limits.capture_secret_bytes, _NAMES: limits.capture_record_bytes}
        self.skip = 0
        "Bytes of a skipped block that are not in the block that ``cut`` was given."

    @property
    def section(self) -> Section:
        """The state of the current section, from which another reader can continue."""
        return Section(self._order, tuple(self.interfaces))

    def resume(self, section: Section) -> None:
        """Continue in a section whose beginning another reader has read."""
        self._order = section.order
        self.interfaces = list(section.interfaces)

    def record_size(self, head: bytes) -> int:
        """Return the size of the block that begins with these 12 bytes."""
        order = _ORDERS.get(head[8:12], self._order) if head[:4] == MAGIC else self._order
        return int(Struct(order + "I").unpack_from(head, 4)[0])

    def cut(
        self, block: bytes, at: int, end: int, offset: int, number: int
    ) -> tuple[Packets | None, int, Damaged | None]:
        """See ``Pcap.cut``. Returns before each section header, so that a result belongs to one section."""
        starts: list[int] = []
        kinds: list[int] = []
        damaged = None
        try:
            at = self._walk(block, at, end, offset, starts, kinds)
        except Damaged as wrong:
            damaged, at = wrong, wrong.offset - offset
        if not starts:
            return None, at, damaged
        packets, wrong_at = self._packets(block, offset, number, starts, kinds)
        if wrong_at is not None:
            at, damaged = wrong_at, Damaged("bad-record", offset + wrong_at, "the lengths in a packet block disagree")
        return packets, at, damaged

    def _walk(self, block: bytes, at: int, end: int, offset: int, starts: list[int], kinds: list[int]) -> int:
        head = Struct(self._order + "II").unpack_from
        most = self._limits.capture_record_bytes
        while end - at >= 12:
            kind, size = head(block, at)
            if kind == _SECTION:
                if starts:
                    break
                size = self._section(block[at : at + 28], offset + at)
                head = Struct(self._order + "II").unpack_from
            least = _PACKETS.get(kind, 12)
            if size < least or size & 3:
                raise Damaged("bad-record", offset + at, f"a block of type {kind} has a length of {size}")
            if size - least > most and (kind in _PACKETS or kind == _INTERFACE):
                raise Damaged("bad-record", offset + at, reached(self._limits, "capture_record_bytes"))
            if kind in _PACKETS:
                if at + size > end:
                    break
                starts.append(at)
                kinds.append(kind)
            elif kind == _INTERFACE:
                if at + size > end:
                    break
                self._interface(block[at : at + size], offset + at)
            elif size <= self._longest.get(kind, 0):
                if at + size > end:
                    break
                self._store(kind, block[at + 8 : at + size - 4])
            else:
                self.skip = max(0, at + size - end)
            at += size - self.skip
            if self.skip:
                break
        return at

    def _store(self, kind: int, body: bytes) -> None:
        """Store the secrets or the names in a block."""
        if kind == _NAMES:
            self._names.read(body, self._order)
        elif len(body) >= 8:
            secrets, size = Struct(self._order + "II").unpack_from(body)
            if secrets == _KEY_LOG:
                self._secrets.read(BytesIO(body[8 : 8 + size]))

    def _section(self, start: bytes, offset: int) -> int:
        order = _ORDERS.get(start[8:12])
        if order is None:
            raise Damaged("bad-record", offset, f"the byte-order magic of a section is {start[8:12].hex()}")
        size, _, major = Struct(order + "IIH").unpack_from(start.ljust(28, b"\0"), 4)
        if len(start) >= 14 and major != 1:
            raise Damaged("bad-record", offset, f"pcapng version {major} is unsupported; supported: 1")
        self._order = order
        self.interfaces = []
        return int(size)

    def _interface(self, data: bytes, offset: int) -> None:
        if len(self.interfaces) >= self._limits.capture_interfaces:
            raise Damaged("too-many-interfaces", offset, reached(self._limits, "capture_interfaces"))
        if len(data) < 20:
            raise Damaged("bad-record", offset, f"an interface block has {len(data)} bytes")
        linktype, _, snaplen = Struct(self._order + "HHI").unpack_from(data, 8)
        options = dict(self._options(data[16:-4]))
        resolution, seconds = options.get(_RESOLUTION, b"\x06")[:1], options.get(_OFFSET, bytes(8))
        sign = "little" if self._order == "<" else "big"
        shift = int.from_bytes(seconds[:8], sign, signed=True)  # type: ignore[arg-type]  # one of two literals
        self.interfaces.append(Interface(linktype, snaplen, resolution[0] if resolution else 6, shift))

    def _options(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the options of a block; an option that is cut off ends them."""
        found: list[tuple[int, bytes]] = []
        read, at = Struct(self._order + "HH").unpack_from, 0
        while at + 4 <= len(data):
            code, size = read(data, at)
            if code == _END or at + 4 + size > len(data):
                break
            if code in (_RESOLUTION, _OFFSET):
                found.append((code, data[at + 4 : at + 4 + size]))
            at += 4 + (size + 3 & ~3)
        return found

    def _packets(
        self, block: bytes, offset: int, number: int, starts: list[int], kinds: list[int]
    ) -> tuple[Packets | None, int | None]:
        """Return the packets before the first block that contradicts itself, and where that block is."""
        at, kind = np.array(starts, np.int64), np.array(kinds, np.int64)
        u16, u32 = (np.ndarray((len(block) - 3,), f"{self._order}{t}", block, 0, (1,)) for t in ("u2", "u4"))
        size = u32[at + 4].astype(np.int64)
        simple = kind == _SIMPLE
        interface = np.where(kind == _OBSOLETE, u16[at + 8], u32[at + 8]).astype(np.int64)
        interface[simple] = 0
        known = interface < len(self.interfaces)
        interface = np.where(known, interface, 0)
        snaplen = self._column("snaplen")[interface]
        snaplen[snaplen == 0] = self._limits.capture_record_bytes
        original = np.where(simple, u32[at + 8], u32[at + 24]).astype(np.int64)
        captured = np.where(simple, np.minimum(np.minimum(original, snaplen), size - 16), u32[at + 20])
        captured = captured.astype(np.int64)
        room = size - np.where(simple, 16, 32)
        right = known & (u32[at + size - 4] == size) & (captured <= room) & (captured <= original)
        right &= captured <= np.minimum(snaplen, self._limits.capture_record_bytes)
        whole = len(at) if right.all() else int(right.argmin())
        wrong = None if whole == len(at) else int(at[whole])
        if not whole:
            return None, wrong
        ticks = (u32[at + 12].astype(np.uint64) << np.uint64(32)) | u32[at + 16]
        time = self._times(ticks, interface)
        time[simple] = NO_TIME
        packets = Packets(
            block=block,
            offset=offset,
            number=number,
            time=time[:whole],
            interface=interface[:whole],
            linktype=self._column("linktype")[interface][:whole],
            start=(at + np.where(simple, 12, 28))[:whole],
            captured=captured[:whole],
            original=original[:whole],
        )
        return packets, wrong

    def _column(self, name: str) -> Ints:
        """One attribute of all interfaces; a section without interfaces has one that matches no packet."""
        return np.array([getattr(one, name) for one in self.interfaces] or [0], np.int64)

    def _times(self, ticks: np.ndarray[tuple[int], np.dtype[np.uint64]], interface: Ints) -> Ints:
        time = np.zeros(len(ticks), np.int64)
        for number in np.unique(interface).tolist():
            if number < len(self.interfaces):
                mine = interface == number
                time[mine] = nanoseconds(ticks[mine], self.interfaces[number])
        return time


def nanoseconds(ticks: np.ndarray[tuple[int], np.dtype[np.uint64]], clock: Interface) -> Ints:
    """Convert times of an interface to nanoseconds since 1970. A time after the year 2262 becomes the last one."""
    digits = clock.resolution & 0x7F
    if clock.resolution == 9 and not clock.offset:
        made = ticks
    elif clock.resolution & 0x80:
        digits = min(digits, 63)
        seconds = ticks >> np.uint64(digits)
        part = ticks & np.uint64((1 << digits) - 1)
        if digits > 33:
            part, digits = part >> np.uint64(digits - 33), 33
        return _dated(seconds, (part * np.uint64(1_000_000_000)) >> np.uint64(digits), clock.offset)
    else:
        unit = np.uint64(10 ** min(digits, 19))
        seconds, part = ticks // unit, ticks % unit
        if digits <= 9:
            return _dated(seconds, part * np.uint64(10 ** (9 - digits)), clock.offset)
        return _dated(seconds, part // np.uint64(10 ** (min(digits, 19) - 9)), clock.offset)
    return np.minimum(made, np.uint64(_LARGEST_DATE)).astype(np.int64)


def _dated(
    seconds: np.ndarray[tuple[int], np.dtype[np.uint64]],
    part: np.ndarray[tuple[int], np.dtype[np.uint64]],
    offset: int,
) -> Ints:
    most = 9_000_000_000
    whole = np.minimum(seconds, np.uint64(most)).astype(np.int64) + max(-most, min(offset, most))
    return np.clip(whole, 0, most) * 1_000_000_000 + part.astype(np.int64)
