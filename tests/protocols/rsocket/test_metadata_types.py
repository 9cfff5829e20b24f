"""MIME types of one stream: what they look like, and what can not be written (R-57)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import LocalProtocolError, Violation
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.metadata import ACCEPT_MIME, MIME_IDS, MIME_TYPE_MIME, Accept, CompactLen, MimeType

MIMES = st.sampled_from(sorted(MIME_IDS)) | st.text(st.characters(codec="ascii"), min_size=1, max_size=0x7F)
LENGTHS = st.sampled_from(["minus-one", "plain"])


def test_they_are_compact_types() -> None:
    assert MimeType("application/json").encode() == b"\x85"
    assert MimeType("a/b").encode() == b"\x02a/b"
    assert MimeType("a/b").encode("plain") == b"\x03a/b"
    assert Accept(["application/cbor", "a/b", "text/plain"]).encode() == b"\x81\x02a/b\xa1"
    assert Accept([]).encode() == b""
    assert (MimeType.MIME, Accept.MIME) == (MIME_TYPE_MIME, ACCEPT_MIME)


@given(MIMES, LENGTHS)
def test_any_mime_type_survives(mime: str, compact_len: CompactLen) -> None:
    entry = MimeType(mime)
    assert MimeType.decode(entry.encode(compact_len), compact_len) == entry
    assert MimeType.decode(entry.encode(compact_len) + b"more", compact_len) == entry


@given(st.lists(MIMES, max_size=6), LENGTHS)
def test_any_accept_list_survives(mimes: list[str], compact_len: CompactLen) -> None:
    entry = Accept(iter(mimes))
    assert entry.mimes == tuple(mimes)
    assert Accept.decode(entry.encode(compact_len), compact_len) == entry


def test_every_truncation_is_read_or_a_violation() -> None:
    data = Accept(["text/plain", "own/type", "a/b"]).encode()
    whole = {0: 0, 1: 1, 10: 2, 14: 3}
    assert max(whole) == len(data)
    for end in range(len(data) + 1):
        if end in whole:
            assert len(Accept.decode(data[:end]).mimes) == whole[end]
            continue
        with pytest.raises(Violation) as caught:
            Accept.decode(data[:end])
        assert (caught.value.rule, caught.value.code) == ("R-55", Code.INVALID)
    for end in range(4):
        with pytest.raises(Violation):
            MimeType.decode(b"\x02a/b"[:end])


@given(st.binary(max_size=40))
def test_garbage_is_read_or_a_violation(data: bytes) -> None:
    for read in (MimeType.decode, Accept.decode):
        try:
            read(data)
        except Violation as violation:
            assert violation.code == Code.INVALID


@pytest.mark.parametrize("mime", ["", "x" * 129, "é"])
def test_what_does_not_fit_cannot_be_made(mime: str) -> None:
    for make in (lambda: MimeType(mime), lambda: Accept(["text/plain", mime])):
        with pytest.raises(LocalProtocolError, match="1 to 128 ASCII characters") as caught:
            make()
        assert caught.value.rule == "D-1"


def test_one_name_is_no_list() -> None:
    with pytest.raises(TypeError, match=r"Accept\(\['text/plain'\]\)"):
        Accept("text/plain")
