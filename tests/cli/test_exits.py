"""Exit codes: each kind of error has its own, and wire codes have theirs."""

from __future__ import annotations

import ssl

import pytest

from afflux.cli import exits
from afflux.core import errors
from afflux.protocols.rsocket.codes import Code

NAMED = {
    "APPLICATION_ERROR": 64,
    "REJECTED": 65,
    "CANCELED": 66,
    "INVALID": 67,
    "INVALID_SETUP": 68,
    "UNSUPPORTED_SETUP": 69,
    "REJECTED_SETUP": 70,
    "REJECTED_RESUME": 71,
    "CONNECTION_ERROR": 72,
    "CONNECTION_CLOSE": 73,
}


def caused_by_tls() -> errors.Error:
    error = errors.ConnectFailed("no connection")
    error.__cause__ = ssl.SSLError("certificate verify failed")
    return error


def lost_by_nonsense() -> errors.Error:
    error = errors.Rejected("nothing was sent")
    error.__cause__ = errors.RemoteProtocolError("a frame that can not be")
    return error


@pytest.mark.parametrize("code", list(Code), ids=[code.name for code in Code])
def test_every_wire_code_has_its_exit_code(code: Code) -> None:
    assert exits.code_of(errors.Error("told", code=code)) == NAMED[code.name]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ApplicationError(0x301, "own"), 79),
        (errors.AddressError("what?"), 2),
        (errors.Unsupported("not here"), 2),
        (errors.MissingExtra("Spark", "spark"), 2),
        (TimeoutError(), 3),
        (errors.SetupRefused("no"), 4),
        (errors.SetupRefused("no", code=0x003), 70),
        (caused_by_tls(), 4),
        (lost_by_nonsense(), 72),
        (errors.ConnectFailed("nobody there"), 1),
        (errors.ConnectionClosed("gone"), 1),
        (OSError("disk"), 1),
    ],
    ids=lambda value: repr(value) if isinstance(value, BaseException) else None,
)
def test_every_kind_of_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exits.code_of(error) == code
