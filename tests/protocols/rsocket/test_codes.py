"""Error codes: their names, and the way from wire to exception and back without a leak."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import (
    ApplicationError,
    Canceled,
    ConnectionClosed,
    Error,
    Invalid,
    LimitExceeded,
    Rejected,
    RemoteProtocolError,
    SetupRefused,
)
from afflux.core.limits import Limits
from afflux.core.texts import GENERIC_TEXT, clean_text, cut
from afflux.protocols.rsocket.codes import Code, code_for, error_for, is_application, name_of

LIMITS = Limits()
OUT, IN = LIMITS.error_text_bytes


def test_codes_have_the_numbers_of_the_table() -> None:
    assert {code.name: int(code) for code in Code} == {
        "INVALID_SETUP": 0x001,
        "UNSUPPORTED_SETUP": 0x002,
        "REJECTED_SETUP": 0x003,
        "REJECTED_RESUME": 0x004,
        "CONNECTION_ERROR": 0x101,
        "CONNECTION_CLOSE": 0x102,
        "APPLICATION_ERROR": 0x201,
        "REJECTED": 0x202,
        "CANCELED": 0x203,
        "INVALID": 0x204,
    }


@pytest.mark.parametrize(
    ("code", "name", "application"),
    [
        (0x000, "0x00000000", False),
        (0x001, "INVALID_SETUP", False),
        (0x201, "APPLICATION_ERROR", True),
        (0x300, "0x00000300", False),
        (0x301, "0x00000301", True),
        (0xFFFFFFFE, "0xFFFFFFFE", True),
        (0xFFFFFFFF, "0xFFFFFFFF", False),
    ],
)
def test_a_code_has_a_name_and_a_range(code: int, name: str, application: bool) -> None:
    assert name_of(code) == name
    assert is_application(code) is application


@pytest.mark.parametrize(
    ("code", "stream", "kind"),
    [
        (0x001, 0, SetupRefused),
        (0x004, 0, SetupRefused),
        (0x000, 0, ConnectionClosed),
        (0x005, 0, ConnectionClosed),
        (0x101, 0, ConnectionClosed),
        (0x102, 0, ConnectionClosed),
        (0x201, 0, ConnectionClosed),
        (0x301, 0, ConnectionClosed),
        (0x201, 5, ApplicationError),
        (0x301, 5, ApplicationError),
        (0xFFFFFFFE, 5, ApplicationError),
        (0x202, 5, Rejected),
        (0x203, 5, Canceled),
        (0x204, 5, Invalid),
        (0x001, 5, RemoteProtocolError),
        (0x101, 5, RemoteProtocolError),
        (0x300, 5, RemoteProtocolError),
        (0xFFFFFFFF, 5, RemoteProtocolError),
    ],
)
def test_an_arriving_error_becomes_an_exception(code: int, stream: int, kind: type[Error]) -> None:
    error = error_for(code, b"why", stream, LIMITS)
    assert type(error) is kind
    assert (error.code, error.stream, error.message) == (code, stream, "why")


def test_an_error_without_words_is_called_by_its_code() -> None:
    assert error_for(0x202, b"", 1, LIMITS).message == "REJECTED"
    assert error_for(0x101, b"", 0, LIMITS).message == "CONNECTION_ERROR"
    assert error_for(0x201, b"", 1, LIMITS).message == ""


def test_arriving_text_may_hold_anything_and_is_cut() -> None:
    assert clean_text(b"a\xffb", 10) == "a\ufffdb"
    assert clean_text("aé".encode(), 2) == "a"
    assert clean_text("aé".encode(), 3) == "aé"
    assert clean_text(b"abc", 2) == "ab"
    assert clean_text(b"a\xff", 2) == "a\ufffd"
    assert len(error_for(0x201, bytes(IN + 1), 1, LIMITS).message) == IN


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ApplicationError(0x301, "no such flight"), 0x301, "no such flight"),
        (ApplicationError(message="sold out"), 0x201, "sold out"),
        (ApplicationError(0x101, "would end the connection"), 0x201, "would end the connection"),
        (ApplicationError(0, "reserved"), 0x201, "reserved"),
        (Rejected("busy"), 0x202, "busy"),
        (Canceled("too slow", code=0x999), 0x203, "too slow"),
        (Invalid("no route"), 0x204, "no route"),
        (LimitExceeded("inside"), 0x201, GENERIC_TEXT),
        (ValueError("password=hunter2"), 0x201, GENERIC_TEXT),
        (KeyboardInterrupt("inside"), 0x201, GENERIC_TEXT),
        (Error("inside"), 0x201, GENERIC_TEXT),
    ],
)
def test_an_exception_becomes_a_code_and_leaks_nothing(error: BaseException, code: int, text: str) -> None:
    assert code_for(error, LIMITS) == (code, text)


def test_an_application_error_that_lost_its_code_has_the_common_one() -> None:
    error = ApplicationError(0x301, "x")
    error.code = None
    assert code_for(error, LIMITS) == (0x201, "x")


@pytest.mark.parametrize("code", [0x201, 0x202, 0x203, 0x204, 0x301, 0xFFFFFFFE])
def test_what_was_sent_arrives_as_it_was(code: int) -> None:
    error = error_for(code, "wörds".encode(), 7, LIMITS)
    assert code_for(error, LIMITS) == (code, "wörds")


@given(st.text(st.characters(exclude_categories=()), max_size=50), st.integers(0, 60))
def test_text_is_cut_between_characters_and_always_encodes(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert len(short.encode()) <= limit
    assert text.encode("utf-8", "replace").startswith(short.encode())


def test_what_goes_out_is_cut_to_its_limit() -> None:
    _, text = code_for(ApplicationError(message="é" * OUT), LIMITS)
    assert text == "é" * (OUT // 2)
