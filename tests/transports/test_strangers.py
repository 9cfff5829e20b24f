"""The peer's first bytes: what is told of a peer that speaks another protocol."""

from __future__ import annotations

import pytest

from afflux.protocols.registry import PROTOCOLS
from afflux.transports.strangers import stranger

SETUP_REFUSED = b"\x00\x00\x0a" + bytes(4) + b"\x2c\x00\x00\x00\x00\x01"
FIRST = {
    "jmux": b"Jmux\x01\x00\x80\x00",
    "rsio": b"\x02\x00\x02",
    "reactivesocket": b"\x00\x00\x00\x10\x00\x0c" + bytes(10),
    "rsocket": SETUP_REFUSED,
    "rsocket-draft": SETUP_REFUSED,
    "limit": SETUP_REFUSED,
}
FAMILY = ("rsocket", "rsocket-draft", "limit")


@pytest.mark.parametrize("expected", PROTOCOLS)
@pytest.mark.parametrize("server", FIRST)
def test_the_first_bytes_of_a_server(expected: str, server: str) -> None:
    told = stranger(FIRST[server], expected, client=False)
    if server == expected or {server, expected} <= set(FAMILY):
        assert told is None
    elif server in FAMILY:
        assert told == f"the peer speaks limit, rsocket or rsocket-draft, not {expected}"
    else:
        assert told == f"the peer speaks {server}, not {expected}"


@pytest.mark.parametrize("expected", PROTOCOLS)
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
        (b"220 mail.example ESMTP\r\n", 'a protocol of text lines ("220 mail.example ESMTP")'),
        (b"-ERR unknown command\n", 'a protocol of text lines ("-ERR unknown command")'),
        (b"+OK " + b"x" * 80 + b"\r\n", f'a protocol of text lines ("+OK {"x" * 36}…")'),
    ],
)
def test_other_protocols(expected: str, data: bytes, told: str) -> None:
    assert stranger(data, expected, client=False) == f"the peer speaks {told}, not {expected}"


@pytest.mark.parametrize("expected", PROTOCOLS)
def test_bytes_of_no_known_protocol(expected: str) -> None:
    """A protocol that always begins with the same bytes is certain; in the others a long frame may begin like this."""
    told = stranger(b"\xf0\xf1\xf2", expected, client=False)
    assert told == (
        f"the peer does not speak {expected}: unknown first bytes f0 f1 f2" if expected in ("jmux", "rsio") else None
    )


@pytest.mark.parametrize("data", [b"220 mail", b"hi\r\n", b"caf\xc3\xa9 au lait\r\n", b"x" * 600 + b"\n"])
def test_what_is_not_taken_for_a_line_of_text(data: bytes) -> None:
    assert stranger(data, "rsocket", client=False) is None


def test_a_first_byte_may_still_become_the_expected_protocol() -> None:
    assert stranger(b"J", "jmux", client=False) is None
    assert stranger(b"\x02", "rsio", client=False) is None


def test_a_client_is_recognized_by_what_clients_send() -> None:
    assert stranger(b"\x01\x00", "jmux", client=True) == "the peer speaks rsio, not jmux"
    assert stranger(b"Jmux\x01\x00\x80\x00", "rsocket", client=True) == "the peer speaks jmux, not rsocket"
