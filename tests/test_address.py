"""Addresses: what parses, what it means, and what is said about what does not."""

from __future__ import annotations

import pytest

import afflux
from afflux.protocols.registry import PROTOCOLS
from afflux.transports.address import Address, parse
from afflux.transports.registry import TRANSPORTS


@pytest.mark.parametrize(
    ("uri", "protocol", "transport", "host", "port", "path"),
    [
        ("tcp://h:7000", "rsocket", "tcp", "h", 7000, ""),
        ("rsocket+tcp://127.0.0.1:0", "rsocket", "tcp", "127.0.0.1", 0, ""),
        ("tcp://[::1]:7000", "rsocket", "tcp", "::1", 7000, ""),
        ("jmux+tls://h:4160", "jmux", "tls", "h", 4160, ""),
        ("rsio+unix:///run/x.sock", "rsio", "unix", "", None, "/run/x.sock"),
        ("unix:///run/a%20b.sock", "rsocket", "unix", "", None, "/run/a b.sock"),
        ("reactivesocket+ws://h:80/rs", "reactivesocket", "ws", "h", 80, "/rs"),
        ("rsio+wss://h", "rsio", "wss", "h", 443, ""),
        ("ws://h/", "rsocket", "ws", "h", 80, "/"),
        ("mem://here", "rsocket", "mem", "here", None, ""),
    ],
)
def test_the_parts_of_an_address(
    uri: str, protocol: str, transport: str, host: str, port: int | None, path: str
) -> None:
    address = parse(uri, serving=True)
    parts = (address.protocol, address.transport, address.host, address.port, address.path)
    assert parts == (protocol, transport, host, port, path)
    assert parse(str(address), serving=True) == address


async def test_port_0_is_for_servers() -> None:
    told = "^tcp://h:0 is for servers: port 0 gives one a free port, and a client names that port$"
    with pytest.raises(afflux.AddressError, match=told):
        await afflux.connect("tcp://h:0")
    with pytest.raises(afflux.AddressError, match=told):
        afflux.sync.connect("tcp://h:0")


def test_an_address_object_is_taken_as_it_is() -> None:
    address = Address(transport="mem", host="x")
    assert parse(address) is address
    assert (address.entry, address.carrier) == (PROTOCOLS["rsocket"], TRANSPORTS["mem"])


def test_options_are_read_and_written() -> None:
    address = parse("tcp://h:1?keepalive=2.5&lifetime=30&mtu=1024")
    assert address.options == {"keepalive": 2.5, "lifetime": 30.0, "mtu": 1024}
    assert parse(str(address)) == address


def test_a_bound_address_keeps_the_rest() -> None:
    assert str(parse("tcp://h:0?mtu=64", serving=True).at(port=7000)) == "tcp://h:7000?mtu=64"
    assert str(parse("tcp://h:0", serving=True).at(host="::1", port=1)) == "tcp://[::1]:1"


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("rsockt+tcp://h:1", ['unknown protocol "rsockt"', 'did you mean "rsocket"', "jmux"]),
        ("tpc://h:1", ['unknown transport "tpc"', 'did you mean "tcp"', "unix"]),
        ("jmux://h:1", ['unknown transport "jmux"; did you mean "jmux+tcp"? Known: tcp']),
        ("tcp+jmux://h:1", ['unknown protocol "tcp"']),
        ("rsocket-drft+tcp://h:1", ['unknown protocol "rsocket-drft"; did you mean "rsocket-draft"?']),
        ("rsocket-drft://h:1", ['unknown transport "rsocket-drft"; did you mean "rsocket-draft+tcp"?']),
        ("rsokcet://h:1", ['did you mean "rsocket+tcp"?']),
        ("limit-stream://h:1", ['did you mean "limit+tcp"?']),
        ("limitstrem+tcp://h:1", ['did you mean "limit"?']),
        ("htps://h:1", ['did you mean "wss"?']),
        ("websocket://h:1", ['did you mean "ws"?']),
        ("rsocket+jmux://h:1", ['unknown transport "jmux"; known: tcp']),
        ("reactive-streams-io+tcp://h:1", ['did you mean "rsio"?']),
        ("xyzzy://h:1", ['unknown transport "xyzzy"; known: tcp']),
        ("tcp://h:1?keepalife=3", ['unknown option "keepalife"', 'did you mean "keepalive"', "mtu"]),
        ("rsio+tcp://h:1?x=3", ['unknown option "x"; known: mtu, dialect']),
        ("tcp://h:1?mtu=1", ['option "mtu" cannot be "1"', "64"]),
        ("tcp://h:1?keepalive=soon", ['option "keepalive" cannot be "soon"']),
        ("tcp://h:1?keepalive=0", ["above 0"]),
        ("tcp://h:1?keepalive=nan", ["above 0"]),
        ("tcp://h:1?mtu=100&mtu=200", ["twice"]),
        ("tcp://h:1?keepalive=abc", ["expected a number of seconds, above 0 and at most 86400 (a day)"]),
        ("tcp://h:1?mtu=abc", ["expected a number of bytes, 64 to 16777215"]),
        ("jmux+tcp://h:1?max_wait_for_id=-1", ["expected a number of seconds, from 0 and at most 86400 (a day)"]),
        ("h:7000", ['did you mean "tcp://h:7000"?']),
        ("tcp", ['did you mean "tcp://host:port"?']),
        ("tcp:h", ['did you mean "tcp://h:port"?']),
        ("jmux+TCP:/h:1", ['did you mean "jmux+tcp://h:1"?']),
        ("tcp//h:1", ['did you mean "tcp://h:1"?']),
        ("ws:h", ['did you mean "ws://h"?']),
        ("mem:x", ['did you mean "mem://x"?']),
        ("unix:/x", ['did you mean "unix:///x"?']),
        ("", ["tcp://host:port"]),
        ("tcp://", ["has no host"]),
        ("tcp://:7000", ["has no host"]),
        ("tcp://h", ["has no port"]),
        ("tcp://h:", ["has no port"]),
        ("tcp://h:99999", ['"99999" is not a port']),
        ("tcp://h:-1", ['"-1" is not a port']),
        ("tcp://h:٣", ["is not a port"]),
        ("tcp://::1:7000", ["brackets"]),
        ("tcp://[::1:7000", ["do not close"]),
        ("tcp://[::1]7000", ["do not close"]),
        ("tcp://me:secret@h:1", ["cannot contain a user or a password"]),
        ("tcp://h:1#x", ["cannot have a fragment"]),
        ("tcp://h :1", ["cannot contain spaces"]),
        ("tcp://h\n:1", ["cannot contain spaces"]),
        ("unix://h/x", ["unix:///path", "absolute path"]),
        ("unix:///", ["unix:///path"]),
        ("mem://", ["mem://name"]),
        ("mem://a:1", ["mem://name"]),
    ],
)
def test_what_an_address_can_not_be(uri: str, words: list[str]) -> None:
    with pytest.raises(afflux.AddressError) as caught:
        parse(uri)
    for word in words:
        assert word in str(caught.value)


def test_a_secret_in_an_address_is_not_repeated() -> None:
    with pytest.raises(afflux.AddressError) as caught:
        parse("tcp://me:secret@h:1")
    assert "secret" not in str(caught.value)


def test_an_address_is_text() -> None:
    with pytest.raises(afflux.AddressError, match="not int"):
        parse(7000)  # type: ignore[arg-type] # what a user may do


def test_an_unknown_protocol_is_refused_before_anything_opens() -> None:
    uri = "carrier+tcp://h:1"
    for make in (
        lambda: afflux.connect(uri),
        lambda: afflux.serve(uri, object()),
        lambda: afflux.sync.connect(uri),
    ):
        with pytest.raises(afflux.AddressError) as caught:
            make()
        assert (
            str(caught.value)
            == 'unknown protocol "carrier"; known: jmux, limit, reactivesocket, rsio, rsocket, rsocket-draft'
        )


def test_a_transport_has_options_of_its_own() -> None:
    address = parse("tls://h:1?mtu=64&ca=a%20b.pem&cert=c.pem&key=k.pem&name=n.example&client_ca=d.pem")
    assert address.options["ca"] == "a b.pem"
    assert address.terms == {"mtu": 64}
    assert parse(str(address)) == address
    assert parse("unix:///x?mode=660").options == {"mode": "660"}
    assert {name for name, entry in TRANSPORTS.items() if entry.secure} == {"tls", "wss"}


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("tcp://h:1?ca=x.pem", ['unknown option "ca": it is one of tls:// and wss://, not of tcp://', "mtu"]),
        ("tls://h:1&ca=x.pem", ['is not a port: expected 0 to 65535; options begin with "?"']),
        ("ssl://h:1", ['unknown transport "ssl"; did you mean "tls"?']),
        ("tls://h:1?mode=600", ['unknown option "mode"', "client_ca"]),
        ("unix:///x?key=k.pem", ['unknown option "key"', "mode"]),
        ("tls://h:1?ca=", ['option "ca" cannot be ""', "it is empty"]),
        ("unix:///x?mode=0o600", ["three octal digits"]),
        ("unix:///x?mode=689", ["three octal digits"]),
        ("unix:///x%00y", ["cannot contain control characters"]),
        ("unix:///x%0Ay", ["cannot contain control characters"]),
    ],
)
def test_an_option_of_another_transport_is_unknown(uri: str, words: list[str]) -> None:
    with pytest.raises(afflux.AddressError) as caught:
        parse(uri)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("localhost:7000", 'did you mean "tcp://localhost:7000"?'),
        ("http://localhost:7000", 'unknown transport "http"; did you mean "ws"? Known: tcp'),
        ("https://localhost", 'did you mean "wss"?'),
    ],
)
def test_what_was_surely_meant(uri: str, words: str) -> None:
    with pytest.raises(afflux.AddressError) as caught:
        parse(uri)
    assert words in str(caught.value)


def test_the_suggestion_is_the_nearest_known_scheme() -> None:
    """Of a protocol and of a transport, with one letter left out."""
    for names, scheme, suggested in (
        (PROTOCOLS, "{}+tcp", "{}"),
        (PROTOCOLS, "{}", "{}+tcp"),
        ([name for name in TRANSPORTS if len(name) > 2], "rsocket+{}", "{}"),
    ):
        for name in names:
            for i in range(len(name)):
                wrong = name[:i] + name[i + 1 :]
                if wrong in PROTOCOLS or wrong in TRANSPORTS:
                    continue
                with pytest.raises(afflux.AddressError) as caught:
                    parse(f"{scheme.format(wrong)}://h:1")
                assert f'did you mean "{suggested.format(name)}"?' in str(caught.value)


@pytest.mark.parametrize("uri", ["TCP://h:1", "RSocket+tcp://h:1", "rsocket+Tcp://h:1"])
def test_the_case_of_protocol_and_transport_does_not_count(uri: str) -> None:
    assert parse(uri) == parse("tcp://h:1")
