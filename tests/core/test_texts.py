"""Texts of errors: cut at whole characters, always UTF-8."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import ApplicationError, Canceled, ConnectFailed, Error, Invalid, LimitExceeded, Rejected
from afflux.core.texts import GENERIC_TEXT, clean_text, cut, public_text


class Said(Rejected):
    """As an application may derive one."""


@pytest.mark.parametrize(
    ("text", "limit", "left"),
    [
        ("", 5, ""),
        ("hello", 5, "hello"),
        ("hello!", 5, "hello"),
        ("äöü", 5, "äö"),
        ("x\ud800", 10, "x?"),
        ("ab", 0, ""),
    ],
)
def test_what_goes_out_is_cut(text: str, limit: int, left: str) -> None:
    assert cut(text, limit) == left


@pytest.mark.parametrize(
    ("data", "limit", "left"),
    [
        (b"", 5, ""),
        ("äöü".encode(), 6, "äöü"),
        ("äöü".encode(), 5, "äö"),
        (b"\xffab", 5, "\ufffdab"),
        (b"ab\xff", 3, "ab\ufffd"),
    ],
)
def test_what_comes_in_is_cleaned(data: bytes, limit: int, left: str) -> None:
    assert clean_text(data, limit) == left


@pytest.mark.repetitive
@given(st.text(), st.integers(0, 50))
def test_it_is_a_beginning_that_fits(text: str, limit: int) -> None:
    left = cut(text, limit)
    assert len(left.encode()) <= limit
    assert text.startswith(left)
    assert clean_text(text.encode(), limit) == left


@pytest.mark.parametrize(
    "error", [ApplicationError(message="said"), Rejected("said"), Canceled("said"), Invalid("said"), Said("said")]
)
def test_a_text_for_the_peer_is_sent(error: Error) -> None:
    assert public_text(error) == "said"


@pytest.mark.parametrize(
    "error", [KeyError("secret"), LimitExceeded("secret"), ConnectFailed("secret"), Error("secret")]
)
def test_what_may_hold_a_secret_is_not(error: Exception) -> None:
    assert public_text(error) == GENERIC_TEXT
