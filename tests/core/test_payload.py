"""Payloads are values."""

from __future__ import annotations

import pytest

from afflux.core.payload import Payload, payload_of


def test_equality() -> None:
    assert Payload(b"a") == Payload(b"a", None)
    assert Payload(b"a", b"") != Payload(b"a")
    assert Payload(b"a") != b"a"
    assert hash(Payload(b"a", b"m")) == hash(Payload(b"a", b"m"))


def test_sizes_and_truth() -> None:
    assert len(Payload(b"abc", b"de")) == 5
    assert len(Payload()) == 0
    assert Payload()


def test_looks() -> None:
    assert repr(Payload(b"a")) == "Payload(b'a')"
    assert repr(Payload(b"a", b"m")) == "Payload(b'a', metadata=(1 bytes))"
    assert repr(Payload(bytes(100))).endswith("… (100 bytes))")
    assert Payload(b"a\xff").text == "a\ufffd"


@pytest.mark.parametrize("value", [b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc", Payload(b"abc")])
def test_what_stands_for_a_payload(value: object) -> None:
    assert payload_of(value) == Payload(b"abc")  # type: ignore[arg-type]  # each of the accepted types in turn
    assert type(payload_of(value).data) is bytes  # type: ignore[arg-type]  # as above


def test_what_does_not() -> None:
    with pytest.raises(TypeError, match="not int"):
        payload_of(5)  # type: ignore[arg-type]  # the mistake under test
