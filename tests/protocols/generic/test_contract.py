"""The engine contract at every protocol: time that passes, ends that are silent, imports that point inward."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import afflux
from afflux.core import events as ev
from afflux.core.credit import Bound
from afflux.core.errors import ConnectionClosed, Error
from afflux.core.limits import Limits
from afflux.protocols.registry import PROTOCOLS

from .every import WIRES
from .wires import ROLES, Role, Wire, package_of, said

TINY = Limits.tiny()
BOTH = [(wire, role) for wire in WIRES for role in ROLES]
IDS = [f"{wire.name}-{role}" for wire, role in BOTH]


def stranger(wire: Wire, role: Role) -> Any:
    return wire.make(role, limits=TINY)


def established(wire: Wire, role: Role) -> Any:
    return wire.established(role, TINY)


def half_a_frame(wire: Wire, role: Role) -> Any:
    engine = established(wire, role)
    talk = next(talk for talk in wire.talks if talk.role == role)
    talk.first(engine)
    said(engine)
    engine.receive(talk.said[1][:-1], 0.0)
    return engine


def asking(wire: Wire, role: Role) -> Any:
    engine = established(wire, role)
    for verb in wire.verbs[role]:
        engine.open(verb, b"000001", credit=int(verb not in ("request", "fire") and wire.grants))
    return engine


def serving(wire: Wire, role: Role) -> Any:
    """With everything that the other side's conversation opened."""
    engine = established(wire, role)
    talk = next(talk for talk in wire.talks if talk.role == role)
    talk.first(engine)
    said(engine)
    engine.receive(b"".join(talk.said[1:3]), 0.0)
    return engine


def draining(wire: Wire, role: Role) -> Any:
    engine = asking(wire, role)
    engine.close(0.0, drain=True)
    return engine


def full(wire: Wire, role: Role) -> Any:
    """It does not read: what it says is not taken."""
    engine = established(wire, role)
    for flood in wire.floods:
        if flood.ends == "paused" and flood.role == role and not flood.limits:
            flood.first(engine)
            n = 0
            while engine.wants_read and not engine.closed:
                engine.receive(flood.unit(n), 0.0)
                n += 1
            break
    return engine


BOUNDS = get_args(Bound)
STAGES = [stranger, established, half_a_frame, asking, serving, draining, full]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
@pytest.mark.parametrize(("wire", "role"), BOTH, ids=IDS)
def test_ticks_never_loop(wire: Wire, role: Role, stage: Callable[[Wire, Role], Any]) -> None:
    """Each tick at the deadline moves the deadline on, or ends the connection: a driver that obeys does not spin. Who
    hears nothing for an hour has come to rest, or to its end."""
    engine = stage(wire, role)
    now, still = 0.0, 0
    for _ in range(10_000):
        due = engine.deadline
        if due is None or now > 3600:
            break
        still = still + 1 if due <= now else 0
        assert still < 4, f"deadline {due} at {now}, again and again"
        now = max(now, due)
        engine.tick(now)
        said(engine)
    else:
        raise AssertionError("10,000 ticks in an hour")
    assert (engine.deadline is None) == (engine.closed or now <= 3600)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
@pytest.mark.parametrize(("wire", "role"), BOTH, ids=IDS)
def test_an_early_tick_does_no_harm(wire: Wire, role: Role, stage: Callable[[Wire, Role], Any]) -> None:
    engine = stage(wire, role)
    said(engine)
    engine.tick(0.0)  # a verb may have had something to tell
    due = engine.deadline
    for _ in range(3):
        assert engine.tick(0.0) == []
        assert engine.outgoing() == b""
        assert engine.deadline == due


@pytest.mark.parametrize("how", ["close", "lost"])
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
@pytest.mark.parametrize(("wire", "role"), BOTH, ids=IDS)
def test_a_closed_engine_is_silent(wire: Wire, role: Role, stage: Callable[[Wire, Role], Any], how: str) -> None:
    """After Closed nothing is heard, said or due, whatever comes and whatever the application still wants."""
    engine = stage(wire, role)
    was_closed = engine.closed
    events = engine.close(0.0) if how == "close" else []
    while not engine.closed:
        events += engine.receive_eof(0.0)
    assert sum(isinstance(event, ev.Closed) for event in events) == (not was_closed)
    assert was_closed or isinstance(events[-1], ev.Closed)
    said(engine)
    for events in (engine.receive(wire.hello(role) * 2, 1.0), engine.receive_eof(1.0), engine.tick(1000.0)):
        assert events == []
    assert engine.close(1.0) == engine.close(1.0, drain=True) == []
    for stream in range(5):
        engine.cancel(stream)
        engine.release(stream)
        engine.consumed(10, 1)
        assert engine.credit(stream) == 0
    for verb in wire.verbs[role]:
        with pytest.raises(ConnectionClosed):
            engine.open(verb, b"000001", credit=int(wire.grants))
    assert (engine.outgoing(), engine.queued, engine.deadline) == (b"", 0, None)


@pytest.mark.parametrize(("wire", "role"), BOTH, ids=IDS)
def test_verbs_that_there_are_not(wire: Wire, role: Role) -> None:
    """They raise an error of afflux that names what there is."""
    engine = established(wire, role)
    for verb in ("request", "fire", "stream", "channel", "subscribe", "carry"):
        if verb not in wire.verbs[role]:
            with pytest.raises(Error, match=rf"{verb}|{wire.name}|client"):
                engine.open(verb, b"", credit=1)


def test_every_protocol_is_declared() -> None:
    assert [wire.name for wire in WIRES] == [entry.name for entry in PROTOCOLS.values()]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_the_engine_is_the_one_of_its_package_and_needs_no_world(wire: Wire) -> None:
    """Nothing in a protocol imports a driver, or what has a clock or a socket, not even by name at run time."""
    folder = Path(afflux.__file__).parent / "protocols" / package_of(wire.name)
    assert type(wire.make("client", limits=TINY)).__module__.startswith(f"afflux.protocols.{package_of(wire.name)}.")
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            assert called not in ("__import__", "import_module", "open", "print", "input", "exec", "eval"), path


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
@pytest.mark.parametrize(("wire", "role"), BOTH, ids=IDS)
def test_the_status_of_streams(wire: Wire, role: Role, stage: Callable[[Wire, Role], Any]) -> None:
    """Each live stream once, with sums that are right; none when the connection is over."""
    engine = stage(wire, role)
    found = engine.streams()
    assert len({status.stream for status in found}) == len(found)
    for status in found:
        assert status.granted == status.outstanding + status.received
        assert 0 <= engine.credit(status.stream) <= status.credit
        assert status.verb in (*wire.verbs["client"], *wire.verbs["server"], "session")
        assert status.reason is None or status.reason in BOUNDS
    full = {status.stream: status.reason for status in engine.streams(room=0, now=1.0)}
    assert list(full) == [status.stream for status in found]
    changed = {full[status.stream] for status in found if full[status.stream] != status.reason}
    assert changed <= {"transport", "memory"}  # memory: what was queued could leave, and what arrives could not
    engine.receive_eof(0.0)
    engine.receive_eof(0.0)
    assert not engine.closed or engine.streams() == []
