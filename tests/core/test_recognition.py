"""Recognition: how the verdicts of several protocols are combined, and what is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core.entry import ProtocolEntry
from afflux.core.framing import LengthPrefix
from afflux.core.recognition import LARGEST, LOOK, recognize, unknown


def begins_with(magic: bytes) -> Any:
    def verdict(start: bytes, client: bool) -> bool | None:
        if not magic.startswith(start[: len(magic)]):
            return False
        return True if len(start) >= len(magic) else None

    return verdict


def made(name: str, magic: bytes, **fields: Any) -> ProtocolEntry:
    return ProtocolEntry(name, lambda *_, **__: None, recognize=begins_with(magic), **fields)  # type: ignore[arg-type, return-value]


ONE = made("one", b"abc")
OTHER = made("other", b"abd")
TWIN = made("twin", b"abc")
SHY = made("shy", b"abc", unguessed="it looks like one")
FRAMED = made("framed", b"abcd", framing=LengthPrefix(3))
COUNTED = made("counted", b"xy", framing=LengthPrefix(4, inclusive=True, reserved=0x80000000))
SILENT = ProtocolEntry("silent", lambda *_, **__: None)  # type: ignore[arg-type, return-value]


def found(data: bytes, *entries: ProtocolEntry, **keywords: Any) -> tuple[str | None, list[str], bool]:
    result = recognize(entries, data, **keywords)
    name = None if result.protocol is None else result.protocol.name
    return name, [entry.name for entry in result.candidates], result.more


def test_one_of_two_that_begin_alike() -> None:
    assert found(b"", ONE, OTHER) == (None, [], True)
    assert found(b"ab", ONE, OTHER) == (None, [], True)
    assert found(b"abd", ONE, OTHER) == ("other", ["other"], False)
    assert found(b"abx", ONE, OTHER) == (None, [], False)


def test_candidates_that_bytes_cannot_tell_apart() -> None:
    assert found(b"abc", ONE, TWIN) == (None, ["one", "twin"], False)


def test_a_protocol_that_is_never_guessed_is_named() -> None:
    assert found(b"abc", ONE, SHY) == ("one", ["one", "shy"], False)
    assert found(b"abc", SHY) == (None, ["shy"], False)
    assert found(b"abc", SHY, made("longer", b"abcd")) == (None, ["shy"], True)


def test_a_client_that_waits_is_not_kept_waiting() -> None:
    assert found(b"abc", ONE, made("longer", b"abcd")) == ("one", ["one"], False)


def test_a_protocol_without_a_function_is_never_recognized() -> None:
    assert found(b"abc", SILENT) == (None, [], False)


def test_a_length_comes_first() -> None:
    assert found(b"\0\0\x04ab", FRAMED) == (None, [], True)
    assert found(b"\0\0\x04abcd", FRAMED) == ("framed", ["framed"], False)
    assert found(b"\0\0\x06\0\0", COUNTED) == (None, [], False)  # as a length of four bytes: 1,536
    assert found(b"\x80\0\0\x06xy", COUNTED) == ("counted", ["counted"], False)


@pytest.mark.parametrize("data", [b"\1", b"\0\0\0", b"\1\0\0", b"\0\0\2ab", b"\0\0\3abc"])
def test_a_length_that_no_first_frame_has(data: bytes) -> None:
    """Too long, nothing, or too short for what the protocol looks for."""
    assert found(data, FRAMED) == (None, [], False)
    assert LARGEST < 0x010000


def test_a_length_that_does_not_cover_itself() -> None:
    assert found(b"\0\0\0\4", COUNTED) == (None, [], False)
    assert found(b"\0\0\0\5x", COUNTED) == (None, [], False)


def test_a_message_is_a_whole_frame_without_a_length() -> None:
    assert found(b"abcd", FRAMED, message=True) == ("framed", ["framed"], False)
    assert found(b"abc", FRAMED, message=True) == (None, [], False)
    assert found(b"ab", ONE, FRAMED, message=True) == (None, [], True)


def test_a_function_that_never_decides_is_asked_for_a_few_bytes_only() -> None:
    seen: list[int] = []

    def undecided(start: bytes, client: bool) -> None:
        seen.append(len(start))

    endless = ProtocolEntry("endless", lambda *_, **__: None, recognize=undecided)  # type: ignore[arg-type, return-value]
    assert found(bytes(LOOK - 1), endless) == (None, [], True)
    assert found(bytes(10_000), endless) == (None, [], False)
    assert max(seen) == LOOK


def test_bytes_in_a_text() -> None:
    assert unknown(b"GET") == "unknown first bytes 47 45 54"
    assert unknown(b"Jm", complete=False) == "incomplete first bytes 4a 6d"
    assert unknown(bytes(9)) == "unknown first bytes 00 00 00 00 00 00 00 00 …"
