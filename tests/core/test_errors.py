"""The tree of errors: what each carries and how it reads."""

from __future__ import annotations

import pytest

from afflux.core import errors
from afflux.core.errors import (
    ApplicationError,
    ConnectionClosed,
    Consequence,
    Error,
    LimitExceeded,
    MissingExtra,
    Rejected,
    RemoteProtocolError,
    Unsupported,
    Violation,
)


def test_all_is_the_module() -> None:
    public = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert public == set(errors.__all__)


def test_one_tree() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, Error) or kind in (Consequence, Violation)


def test_what_an_error_carries() -> None:
    error = Rejected("full", code=0x202, stream=5, rule="X-42")
    assert (error.message, error.code, error.stream, error.rule) == ("full", 0x202, 5, "X-42")
    assert repr(error) == "Rejected('full', code=0x202, stream=5, rule='X-42')"
    assert repr(Rejected()) == "Rejected('')"
    assert str(error) == "full"


def test_application_errors_choose_their_code() -> None:
    assert ApplicationError().code is None  # the protocol's own
    assert ApplicationError(0x1234, "mine", stream=3).message == "mine"
    with pytest.raises(TypeError, match="the first argument of ApplicationError is a code"):
        ApplicationError("mine")  # type: ignore[arg-type]  # what a user may write


def test_a_missing_extra_states_how_to_install_it() -> None:
    error = MissingExtra("the command line", "cli")
    assert str(error) == 'the command line needs the extra "cli": pip install "afflux[cli]"'
    assert isinstance(error, Unsupported)
    assert isinstance(error, ImportError)
    assert error.extra == "cli"


def test_a_violation_knows_its_rule() -> None:
    with pytest.raises(Violation) as caught:
        raise Violation("bad", rule="X-7", code=0x101, stream=3)
    assert (caught.value.reason, caught.value.rule, caught.value.code, caught.value.stream) == ("bad", "X-7", 0x101, 3)
    assert not isinstance(caught.value, Error)


def test_an_error_is_raised_again_as_a_copy() -> None:
    first = ApplicationError(0x1234, "mine", stream=3, rule="2.4")
    again = first.again()
    assert again is not first
    assert repr(again) == repr(first)
    assert MissingExtra("x", "cli").again().extra == "cli"
    assert not first.again().__suppress_context__
    first.__cause__ = cause = OSError()
    assert first.again().__cause__ is cause


def test_what_ends_a_connection_is_about_each_of_its_streams() -> None:
    error = ConnectionClosed("gone", code=1, stream=0, rule="SL-03")
    one = error.about(5)
    assert (type(one), one.message, one.code, one.stream, one.rule) == (ConnectionClosed, "gone", 1, 5, "SL-03")
    assert one.__cause__ is error
    assert error.stream == 0


def test_an_error_tells_that_an_item_is_too_large_only_if_it_was_raised_so() -> None:
    """The rule is a citation."""
    assert RemoteProtocolError("", rule="payload_bytes", too_large=True).again().about(3).too_large
    assert not LimitExceeded("", rule="payload_bytes").again().too_large
