"""What all protocols of the registry have in common: how an engine is made, and that it has what the contract asks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from afflux.core import engine as contracts
from afflux.core.errors import AddressError, LocalProtocolError, Unsupported
from afflux.core.events import Closed, Failed, Opened, singly
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.core.terms import Terms
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.registry import PROTOCOLS, Protocols, named

BUILT = list(PROTOCOLS)
ABILITIES = {
    "lease": "leases",
    "resume": "resumption",
    "extensions": "extensions",
    "session": "byte_sessions",
    "open": "typed_sessions",
}
"""The attribute of an engine for each feature, and the contract of what it is."""
CONTRACTS = {
    "scheduler": contracts.Scheduler,
    "leases": contracts.Leases,
    "resumption": contracts.Resumption,
    "extensions": contracts.Extensions,
    "byte_sessions": contracts.ByteSessions,
    "typed_sessions": contracts.TypedSessions,
}


def made(name: str, role: str, terms: Terms | None = None, *, decide: bool = False) -> Any:
    return PROTOCOLS[name].make(role, terms or Terms(), limits=Limits(), decide=decide, now=0.0)


def promised(contract: Any) -> set[str]:
    """The public names of a contract and of those it is built on."""
    names: set[str] = set()
    for kind in contract.__mro__[:-2]:
        names |= {name for name in vars(kind) if not name.startswith("_")}
    return names


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("name", BUILT)
def test_an_engine_has_what_its_entry_declares(name: str, role: str) -> None:
    sessions = Sessions(Limits()) if "resume" in PROTOCOLS[name].features and role == "server" else None
    engine = made(name, role, Terms(leases=True, token=bytes(32), sessions=sessions))
    assert promised(contracts.Engine) - set(dir(engine)) == set()
    abilities = {ability for feature in PROTOCOLS[name].features if (ability := ABILITIES.get(feature))}
    for ability, contract in CONTRACTS.items():
        there = getattr(engine, ability)
        if there is not None:
            assert promised(contract) - set(dir(there)) == set(), ability
            assert ability == "scheduler" or ability in abilities
        elif ability in abilities:
            assert (ability, role) == ("leases", "server")  # agreed on when SETUP comes


@pytest.mark.parametrize("name", BUILT)
def test_an_engine_is_new_and_ends(name: str) -> None:
    engine = made(name, "server")
    assert not engine.closed
    assert engine.receive(b"", 0.0) == []
    assert engine.wants_read
    assert engine.room(0) > 0
    engine.receive_eof(1.0)
    engine.receive_eof(1.0)
    assert engine.closed
    assert engine.deadline is None


@pytest.mark.parametrize("name", BUILT)
def test_a_stream_that_never_was(name: str) -> None:
    engine = made(name, "client")
    assert (engine.credit(0x7001), engine.unsent(0x7001), list(engine.streams())) == (0, False, [])


@pytest.mark.parametrize("name", ["jmux", "rsio"])
def test_a_protocol_without_a_decision_refuses_no_client(name: str) -> None:
    engine = made(name, "server")
    for decide in (engine.accept, lambda now: engine.refuse("no", now)):
        with pytest.raises(LocalProtocolError, match=r"deci(de|sion)"):
            decide(0.0)
    with pytest.raises(Unsupported, match="push"):
        engine.push(b"x")


def test_a_protocol_is_found_by_its_name_or_suggested_by_another() -> None:
    assert {named(name).name for name in BUILT} == set(BUILT)
    with pytest.raises(AddressError, match='did you mean "rsio"'):
        named("reactive-streams-io")
    with pytest.raises(AddressError, match='did you mean "rsocket"'):
        named("rsockt")


def test_a_protocol_may_be_added_and_removed() -> None:
    protocols = Protocols()
    protocols["toy"] = protocols["jmux"]
    assert protocols["toy"].name == "jmux"
    assert len(protocols) == len(BUILT) + 1
    del protocols["toy"]
    assert list(protocols) == BUILT


@pytest.mark.parametrize("name", ["rsocket", "reactivesocket"])
def test_a_setup_that_can_not_be_is_the_callers_mistake(name: str) -> None:
    with pytest.raises(LocalProtocolError, match="mime"):
        made(name, "client", Terms(data_mime="x" * 300))
    proposed = made(name, "client", Terms(payload=Payload(b"data", b"metadata"))).setup
    assert (proposed.data, proposed.metadata) == (b"data", b"metadata")


def test_a_connection_without_a_setup_states_and_decides_nothing() -> None:
    with pytest.raises(Unsupported, match="no setup"):
        made("jmux", "client", Terms(payload=Payload(b"hello")))
    with pytest.raises(Unsupported, match="no setup"):
        made("jmux", "server", decide=True)


@pytest.mark.parametrize(
    ("name", "text"), [("reactivesocket", "java,half-close"), ("jmux", "ids-255"), ("rsio", "no-split,no-goodbye-ack")]
)
def test_a_dialect_is_read_and_used(name: str, text: str) -> None:
    read = dict(PROTOCOLS[name].options)["dialect"]
    dialect = read(text)
    assert str(dialect) == text
    made(name, "server", Terms(dialect=dialect))
    with pytest.raises(ValueError, match="expected comma-separated words"):
        read("nonsense")


@pytest.mark.parametrize("name", BUILT)
def test_a_refusal_ends_a_client_and_states_why(name: str) -> None:
    """What a listener says to a connection that it does not take; nothing was processed."""
    refusal = PROTOCOLS[name].refusal
    assert refusal is not None
    client = made(name, "client")
    verb = PROTOCOLS[name].verbs[0]
    client.open(verb, b"x", credit=1)
    while client.outgoing():
        pass
    events = client.receive(refusal("too-many-connections: connections=1"), 0.0)
    failed, closed = (next(event for event in events if isinstance(event, kind)) for kind in (Failed, Closed))
    assert closed.error.message == "too-many-connections: connections=1"
    assert failed.error.message == closed.error.message
    assert not failed.error.may_have_been_processed
    assert client.closed


@pytest.mark.parametrize("name", BUILT)
def test_what_an_engine_holds(name: str) -> None:
    """Half a message that has come, a payload that is delivered and not consumed, and what waits to be written."""
    client, server = made(name, "client"), made(name, "server")
    while data := client.outgoing():
        server.receive(data, 0.0)
    while data := server.outgoing():
        client.receive(data, 0.0)
    assert client.held_bytes == server.held_bytes == 0
    verb = PROTOCOLS[name].verbs[0]
    asked = bytes([0x78]) * 1000
    client.open(verb, asked, credit=1)
    assert client.held_bytes >= 1000
    data = b"".join(iter(client.outgoing, b""))
    assert client.held_bytes == 0
    server.receive(data[:500], 0.0)
    assert 0 < server.held_bytes <= 500
    events = server.receive(data[500:], 0.0)
    assert server.held_bytes >= 1000
    server.consumed(server.held_bytes, 100)
    list(iter(server.outgoing, b""))
    assert server.held_bytes == 0
    (stream,) = [event.stream for event in singly(events) if isinstance(event, Opened)]
    server.send(stream, [bytes(2000)])
    assert server.held_bytes >= 2000
    server.close(0.0)
    list(iter(server.outgoing, b""))
    assert server.held_bytes == 0


def engines(statement: str) -> list[str]:
    """The protocols whose engines a new process has imported after a statement."""
    program = (
        f"{statement}; import sys; "
        "print(*(name.split('.')[2] for name in sorted(sys.modules) if name.startswith('afflux.protocols.') "
        "and name.endswith('.engine') and name.count('.') == 3))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_to_recognize_protocols_imports_no_engine() -> None:
    """Decoding needs none, and to import all of them takes longer than to decode a small capture."""
    assert engines("from afflux.protocols.registry import recognizable; assert len(recognizable()) == 6") == []


def test_what_selects_a_protocol_imports_its_engine() -> None:
    """A connection that had to import it would delay the other ones."""
    assert engines("from afflux.protocols.registry import named; named('jmux')") == ["jmux"]
    found = engines("from afflux.protocols.registry import any_protocol; any_protocol()")
    assert {"jmux", "limit", "reactivesocket", "rsio", "rsocket"} <= set(found)


def test_a_protocol_that_was_assigned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROTOCOLS, "own", PROTOCOLS["limit"])
    assert named("own") is PROTOCOLS["limit"]
