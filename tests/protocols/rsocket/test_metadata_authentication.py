"""Authentication entries: the vectors both ways, what is cut off or too long, and that no secret is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import LocalProtocolError, Violation
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.metadata import (
    AUTHENTICATION_MIME,
    Bearer,
    CompactLen,
    Credentials,
    Simple,
    compose,
    decode_credentials,
    entries,
)

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "rsocket.json").read_text())
TYPES = st.text(st.characters(codec="ascii"), min_size=1, max_size=0x80).filter(lambda t: t not in ("simple", "bearer"))


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["id"]) for v in VECTORS if "auth" in v["decoded"]])
def test_a_vector_is_read_and_written_as_published(vector: dict[str, Any]) -> None:
    data, auth = bytes.fromhex(vector["hex"]), vector["decoded"]["auth"]
    assert (auth["type_id"], auth["type"]) == (1, "bearer")
    assert decode_credentials(data) == Bearer(auth["token"])
    assert Bearer(auth["token"]).encode() == data
    assert Credentials.decode(data) == Credentials("bearer", auth["token"].encode())


def test_simple_is_a_length_of_16_bits_a_name_and_a_password() -> None:
    data = b"\x80\x00\x05adapw"
    assert decode_credentials(b"\x80\x00\x03adapw") == Simple("ada", "pw")
    assert Simple("ada", "pw").encode() == b"\x80\x00\x03adapw"
    assert decode_credentials(data) == Simple("adapw", "")
    assert Simple("", "").encode() == b"\x80\x00\x00"
    assert Simple("é", "ü").encode() == b"\x80\x00\x02\xc3\xa9\xc3\xbc"


def test_a_type_that_came_as_text_is_known_too() -> None:
    assert decode_credentials(b"\x05bearertok") == Bearer("tok")
    assert decode_credentials(b"\x05simple\x00\x01ab") == Simple("a", "b")


@pytest.mark.parametrize(
    ("data", "type", "payload"),
    [(b"\x85raw", "0x05", b"raw"), (b"\xff", "0x7F", b""), (b"\x02own\xffraw", "own", b"\xffraw")],
)
def test_unknown_types_come_with_their_raw_payload(data: bytes, type: str, payload: bytes) -> None:
    """R-59: expose unknown auth types with raw payload."""
    assert decode_credentials(data) == Credentials(type, payload)
    assert Credentials(type, payload).encode() == data


@pytest.mark.parametrize("credentials", [Simple("user", "pass"), Bearer("token")])
def test_known_credentials_are_read_by_their_type(credentials: Simple | Bearer) -> None:
    assert type(credentials).decode(credentials.encode()) == credentials


@given(st.one_of(st.builds(Simple, st.text(), st.text()), st.builds(Bearer, st.text())))
def test_any_known_credentials_survive(credentials: Simple | Bearer) -> None:
    data = credentials.encode()
    assert decode_credentials(data) == credentials
    assert type(credentials).decode(data) == credentials
    assert list(entries(compose([credentials]))) == [(AUTHENTICATION_MIME, data)]


@given(TYPES, st.binary(), st.sampled_from(["minus-one", "plain"]))
def test_any_unknown_credentials_survive(type: str, payload: bytes, compact_len: CompactLen) -> None:
    credentials = Credentials(type[:0x7F] if compact_len == "plain" else type, payload)
    assert decode_credentials(credentials.encode(compact_len), compact_len) == credentials


@pytest.mark.parametrize("credentials", [Simple("user", "pass"), Bearer("token"), Credentials("custom", b"payload")])
def test_every_truncation_is_read_or_a_violation(credentials: Any) -> None:
    data = credentials.encode()
    for end in range(len(data)):
        try:
            decode_credentials(data[:end])
        except Violation as violation:
            assert violation.code == Code.INVALID
            assert end < {Simple: 7, Bearer: 1, Credentials: 7}[type(credentials)]
        else:
            assert end >= {Simple: 7, Bearer: 1, Credentials: 7}[type(credentials)]


@given(st.binary(max_size=40))
def test_garbage_is_read_or_a_violation(data: bytes) -> None:
    for read in (decode_credentials, Credentials.decode, Simple.decode, Bearer.decode):
        try:
            read(data)
        except Violation as violation:
            assert violation.code == Code.INVALID


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "an authentication type is missing"),
        (b"\x04ab", "an authentication type of 5 bytes where 2 are left"),
        (b"\x80\x00", "cut off"),
        (b"\x80\x00\x05abcd", "cut off"),
        (b"\x80\x00\x01\xffpw", "a user's name is not UTF-8"),
        (b"\x80\x00\x01a\xff", "a password is not UTF-8"),
        (b"\x81\xff", "a token is not UTF-8"),
    ],
)
def test_what_is_malformed_is_invalid(data: bytes, why: str) -> None:
    with pytest.raises(Violation, match=why) as caught:
        decode_credentials(data)
    assert caught.value.code == Code.INVALID


def test_who_wants_one_type_gets_no_other() -> None:
    with pytest.raises(Violation, match="the credentials are Bearer, not Simple"):
        Simple.decode(Bearer("t").encode())
    with pytest.raises(Violation, match="the credentials are Credentials, not Bearer"):
        Bearer.decode(b"\x85")


def test_a_user_has_at_most_65535_bytes() -> None:
    longest = Simple("x" * 0xFFFF, "pw")
    assert decode_credentials(longest.encode()) == longest
    with pytest.raises(LocalProtocolError, match="a user's name of 65536 bytes"):
        Simple("é" * 0x8000, "pw")


@pytest.mark.parametrize(
    "make", [lambda: Simple("\ud800", "x"), lambda: Simple("x", "\ud800"), lambda: Bearer("\ud800")]
)
def test_what_is_not_unicode_can_not_be_made(make: Any) -> None:
    with pytest.raises(LocalProtocolError, match="is not Unicode text"):
        make()


@pytest.mark.parametrize("type", ["", "x" * 129, "é"])
def test_a_type_that_does_not_fit_can_not_be_made(type: str) -> None:
    with pytest.raises(LocalProtocolError, match="an authentication type has 1 to 128 ASCII characters"):
        Credentials(type, b"")


def test_no_secret_is_shown() -> None:
    shown = [
        f"{value!r} {value}" for value in (Simple("ada", "s3cret"), Bearer("s3cret"), Credentials("own", b"s3cret"))
    ]
    assert "s3cret" not in "".join(shown)
    assert "ada" in shown[0]
    assert "own" in shown[2]
    broken = [b"\x80\x00\x30s3cret", b"\x80\x00\x01as3cret\xff", b"\x81s3cret\xff"]
    for data in broken:
        with pytest.raises(Violation) as caught:
            decode_credentials(data)
        assert "s3cret" not in f"{caught.value!r} {caught.value}"
    for make in (lambda: Simple("s3cret", "s3cret\ud800"), lambda: Bearer("s3cret\ud800")):
        with pytest.raises(LocalProtocolError) as local:
            make()
        assert "s3cret" not in f"{local.value!r} {local.value}"


def test_credentials_are_text() -> None:
    with pytest.raises(TypeError, match="is text, not NoneType"):
        Simple("ada", None)  # type: ignore[arg-type]  # a mistake
    with pytest.raises(TypeError, match="is text, not bytes"):
        Bearer(b"token")  # type: ignore[arg-type]  # a mistake
