"""Read and write MessagePack integers, which number the branches of CHOOSE (2.4). ``afflux.sessions`` has the other
values."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from afflux.core.errors import Violation

__all__ = ["packed", "unpacked"]

_READERS: Final = {
    code: Struct(f">x{letter}")
    for code, letter in {
        0xCC: "B",
        0xCD: "H",
        0xCE: "I",
        0xCF: "Q",
        0xD0: "b",
        0xD1: "h",
        0xD2: "i",
        0xD3: "q",
    }.items()
}
_WRITERS: Final = (
    (-0x20, -1, Struct(">b"), b""),
    (0, 0x7F, Struct(">B"), b""),
    (-0x80, -1, Struct(">b"), b"\xd0"),
    (0, 0xFF, Struct(">B"), b"\xcc"),
    (-0x8000, -1, Struct(">h"), b"\xd1"),
    (0, 0xFFFF, Struct(">H"), b"\xcd"),
    (-0x8000_0000, -1, Struct(">i"), b"\xd2"),
    (0, 0xFFFF_FFFF, Struct(">I"), b"\xce"),
    (-0x8000_0000_0000_0000, -1, Struct(">q"), b"\xd3"),
    (0, 0xFFFF_FFFF_FFFF_FFFF, Struct(">Q"), b"\xcf"),
)
"Least and greatest value, form and first byte of each encoding, the shortest first."


def packed(value: int) -> bytes:
    """Return the shortest encoding: 0 and above in the unsigned forms (R-31, D-9).

    Raises:
        ValueError: the value has more than 64 bits.
    """
    for least, most, form, head in _WRITERS:
        if least <= value <= most:
            return head + form.pack(value)
    raise ValueError(f"{value} does not fit 64 bits")


def unpacked(data: bytes) -> int:
    """Read exactly one integer of any format (R-31, R-32).

    Raises:
        Violation: ``data`` is anything else.
    """
    first = data[0] if data else 0xC1
    if len(data) == 1 and (first < 0x80 or first >= 0xE0):
        return first if first < 0x80 else first - 0x100
    try:
        value: int = _READERS[first].unpack(data)[0]
    except (KeyError, error):
        raise Violation(f"expected one integer, not {data[:16].hex() or 'nothing'}", rule="R-32") from None
    return value
