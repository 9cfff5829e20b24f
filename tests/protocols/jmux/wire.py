"""Jmux for the generic suites: its requests. Sessions of bytes are its own, and so are their tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afflux.core.frame import Malformed
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.jmux import Engine, frames
from afflux.protocols.jmux.frames import ConnectionHeader, IncrementRation, JmuxFrame
from afflux.protocols.jmux.halves import ACKNOWLEDGEMENT, HANDLER, INBOUND, OUTBOUND
from afflux.protocols.jmux.states import (
    CLIENT,
    CLIENT_SESSION,
    SERVER,
    SERVER_SESSION,
    ConnectionAction,
    SessionAction,
)
from tests.protocols.generic.wires import Flood, Talk, Vectors, Wire

from . import grids
from .playbook import HELLO, WELCOME, abort, data, error, more, opening, ping

NAMES = {"session": "session_id"}


def pieces(vector: dict[str, Any]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """A vector is one message. The two headers are alike but for who says them."""
    meaning = dict(vector["decoded"])
    if "version" in meaning:
        del meaning["message"]
    yield bytes.fromhex(vector["hex"]), meaning


def read(raw: bytes, meaning: dict[str, Any]) -> JmuxFrame:
    if "version" in meaning:
        return frames.decode_header(raw, client=False)
    size = frames.size_at(raw)
    if size is None or size > len(raw):
        raise Malformed(f"{len(raw)} bytes are no message yet", rule="2.2")
    return frames.decode(raw)


def described(message: JmuxFrame) -> dict[str, Any]:
    """The message as the vectors write it."""
    row: dict[str, Any] = {"message": message.NAME}
    if isinstance(message, ConnectionHeader):
        ration = message.initial_ration
        return {
            "version": message.version,
            "initial_ration_field": ration,
            "ration": ration * frames.STEPS_256,
            "reserved": message.reserved,
        }
    for name in ("session", "cookie", "increment", "open", "close", "eof", "ack_required", "partial"):
        if hasattr(message, name):
            row[NAMES.get(name, name)] = getattr(message, name)
    if isinstance(message, IncrementRation):
        row |= {"shift": message.shift, "bytes": message.size}
    if (detail := getattr(message, "detail", None)) is not None:
        row |= {"length": len(detail), "detail": detail.decode()}
    if (body := getattr(message, "data", None)) is not None:
        row |= {"length": len(body), "data_hex": body.hex()}
    return row


def make(role: Any, *, limits: Limits, mtu: int = 1024) -> Engine:
    return Engine(role, limits=limits, fragment=mtu, max_wait_for_id=30)


def ask_four(engine: Engine) -> None:
    for number in range(4):
        engine.open("request", b"ask%d" % number)


def said(*messages: JmuxFrame) -> tuple[bytes, ...]:
    return tuple(message.encode() for message in messages)


TO_SERVER = said(
    HELLO,
    opening(b"q", eof=True),
    opening(b"half", id=1),
    data(b" and half", id=1),
    ping(7),
    data(id=1, eof=True),
    more(256, id=0),
    frames.NoOperation(data=b"xyz"),
    opening(b"never mind", id=2, eof=True),
    abort(id=2),
    opening(b"unfinished", id=3),
    error("the end"),
)
TO_CLIENT = said(
    WELCOME,
    data(b"half", id=0),
    data(b" and half", id=0, eof=True, close=True, ack=True),
    ping(7),
    data(b"a", id=1, eof=True),
    abort(id=2, detail="no"),
    more(256, id=3),
    frames.Close(session=1),
    error("the end"),
)


WIRE = Wire(
    name="jmux",
    make=make,
    tables=(
        (CLIENT, grids.CLIENT_GRID, grids.CONNECTION_LETTERS),
        (SERVER, grids.SERVER_GRID, grids.CONNECTION_LETTERS),
        (CLIENT_SESSION, grids.CLIENT_SESSION_GRID, grids.SESSION_LETTERS),
        (SERVER_SESSION, grids.SERVER_SESSION_GRID, grids.SESSION_LETTERS),
        (OUTBOUND, grids.OUTBOUND_GRID, grids.OUTBOUND_LETTERS),
        (INBOUND, grids.INBOUND_GRID, grids.INBOUND_LETTERS),
        (ACKNOWLEDGEMENT, grids.ACK_GRID, grids.ACK_LETTERS),
        (HANDLER, grids.HANDLER_GRID, grids.HANDLER_LETTERS),
    ),
    fatal=(ConnectionAction.VIOLATION, SessionAction.VIOLATION),
    vectors=Vectors(
        file="jmux.json",
        pieces=pieces,
        decode=read,
        described=described,
    ),
    talks=(
        Talk(
            name="asked",
            role="server",
            said=TO_SERVER,
            heard=("Established", "Opened", "Opened", "Opened", "Failed", "Failed", "Failed", "Closed"),
        ),
        Talk(
            name="answered",
            role="client",
            said=TO_CLIENT,
            first=ask_four,
            greeted=True,
            heard=("Established", "Items", "Items", "Failed", "Failed", "Closed"),
        ),
    ),
    floods=(
        Flood(
            row="FL-07",
            unit=lambda n: said((abort if n % 2 else opening)(id=n // 2 % 128))[0],
            ends="paused",
        ),
        Flood(row="KA-08", unit=lambda n: ping(n & 0xFFFF).encode(), ends="closed", rule="keepalive_rate"),
        Flood(
            row="empty Data",
            unit=lambda n: data().encode() * 1024 if n else opening().encode(),
            ends="closed",
            rule="protocol-abuse",
        ),
        Flood(
            row="NoOperation",
            unit=lambda n: frames.NoOperation(data=b"x" * 4000).encode(),
            ends="closed",
            rule="protocol-abuse",
        ),
        Flood(row="FL-06", unit=lambda n: opening(b"q", id=n % 128, eof=True).encode(), ends="paused"),
        Flood(row="FC-18", unit=lambda n: opening(b"x" * 4096, id=n % 128).encode(), ends="paused"),
    ),
    verbs={"client": ("request",), "server": ()},
    grants=False,
    opening=lambda key, payload: Payload(b"%06d" % key + payload.data),
    item=lambda asked, payload: Payload(payload.data),
    idle=frozenset({0}),
    same_answers=False,
    mtus=(64, 100, 5000),
)
