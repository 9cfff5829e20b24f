"""Store the names of addresses from the name resolution blocks of pcapng files, to show them beside the addresses.

A name comes from outside: it is shortened, and characters that are not printable ASCII are replaced.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from struct import Struct

from afflux.capture.network import V4
from afflux.capture.segments import End
from afflux.core.limits import Limits

__all__ = ["Names", "end_text", "printable"]

_END, _IPV4, _IPV6 = 0, 1, 2
_LONGEST = 255
"Characters of a name at most."


class Names:
    """The names of addresses.

    Args:
        limits: see ``capture_names``.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.capture_names
        self._names: dict[tuple[int, int], str] = {}

    def __len__(self) -> int:
        return len(self._names)

    def read(self, body: bytes, order: str) -> None:
        """Read the records of a block. The first name of an address counts. A record that is cut off ends them."""
        head, at = Struct(order + "HH").unpack_from, 0
        while at + 4 <= len(body) and len(self._names) < self._most:
            kind, size = head(body, at)
            value = body[at + 4 : at + 4 + size]
            if kind == _END or len(value) < size:
                return
            width = {_IPV4: 4, _IPV6: 16}.get(kind, size)
            name = printable(value[width:].partition(b"\0")[0])
            if name:
                number = int.from_bytes(value[:width], "big")
                known = (V4, number) if kind == _IPV4 else (number >> 64, number & 0xFFFF_FFFF_FFFF_FFFF)
                self._names.setdefault(known, name)
            at += 4 + (size + 3 & ~3)

    def text(self, end: End) -> str:
        """Return an end as ``address:port``, with the name of the address in parentheses if it has one."""
        name = self._names.get(end[:2])
        return f"{end_text(end)} ({name})" if name else end_text(end)


def end_text(end: End) -> str:
    """Return an end as ``address:port``."""
    high, low, port = end
    return f"{IPv4Address(low)}:{port}" if high == V4 else f"[{IPv6Address(high << 64 | low)}]:{port}"


def printable(text: bytes) -> str:
    """Return a text from outside, at most 255 characters, with ``?`` for everything but printable ASCII."""
    return "".join(chr(byte) if 0x21 <= byte <= 0x7E else "?" for byte in text[:_LONGEST])
