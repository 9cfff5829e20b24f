"""Limit-Stream for the generic suites: plain channels, and the example of its specification in the conversations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.limit import Engine
from afflux.protocols.limit.frames import Choose, End, ErrorFrame, Ext, LimitFrame, PayloadFrame, Setup, decode
from afflux.protocols.limit.integers import unpacked
from afflux.protocols.limit.states import CLIENT, SERVER, SESSION, SessionAction
from tests.protocols.generic.wires import Flood, Talk, Vectors, Wire

from . import grids
from .playbook import SKIPPED, choose, error, item, number, setup


def pieces(vector: dict[str, Any]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    meaning = {name: value for name, value in vector["decoded"].items() if name not in ("value", "value_type")}
    data = bytes.fromhex(vector["hex"])
    if (size := meaning.pop("frame_length", None)) is not None:
        (frame,) = LimitFrame.PREFIX.split(data)
        assert len(frame) == size
        data = bytes(frame)
    yield data, meaning


def described(frame: LimitFrame) -> dict[str, Any]:
    """The frame as the vectors write it."""
    row: dict[str, Any] = {"frame": frame.NAME, "stream_id": frame.stream, "flags": frame.flags()}
    if isinstance(frame, Setup | PayloadFrame | Choose) and not isinstance(frame, Choose):
        row["metadata_hex"] = None if frame.metadata is None else frame.metadata.hex()
        row["data_hex"] = frame.data.hex()
    if isinstance(frame, Setup):
        row["channel"] = (frame.metadata or b"").decode()
    elif isinstance(frame, Choose):
        row |= {"metadata_hex": frame.metadata, "data_hex": frame.data.hex(), "branch": unpacked(frame.data)}
    elif isinstance(frame, ErrorFrame):
        row |= {"code": frame.code, "data_hex": frame.data.hex()}
    elif isinstance(frame, Ext):
        row |= {"extended_type": frame.extended_type, "body_hex": frame.body.hex()}
    return row


def make(role: Any, *, limits: Limits, mtu: int = 0) -> Engine:
    return Engine(role, limits=limits)


def said(*frames: LimitFrame | bytes) -> tuple[bytes, ...]:
    prefix = LimitFrame.PREFIX
    return tuple(prefix.join(frame) if isinstance(frame, bytes) else frame.encode(prefixed=True) for frame in frames)


def take_all(engine: Engine) -> None:
    """Open a plain channel, say all there is to say, and take everything."""
    engine.open("channel", b"q", credit=99, complete=True)


def take_none(engine: Engine) -> None:
    engine.open("channel", b"q", complete=True)


def leave(engine: Engine) -> None:
    """End a session in the server's turn."""
    take_all(engine)
    engine.cancel(1)


TO_SERVER = said(
    setup(b"plain", b"first"),
    choose(1, 1),
    End(),
)
SUMMED = said(
    setup(b"one", b"first"),
    SKIPPED,
    error(1, 0x201, b"stop"),
    setup(b"two"),
    choose(1, 1),
    error(3, 0x201, b"no"),
    setup(b"three"),
    choose(3, 7),
)
TO_CLIENT = said(
    SKIPPED,
    item(4, b"one"),
    item(6, b"two", b"with metadata"),
    choose(8, 0),
    item(10, b"three"),
    choose(12, 1),
    End(),
    error(0, 0x101, b"the end"),
)
BROKEN = said(SKIPPED, number(4, 1), number(8, 2), number(10, 3))

WIRE = Wire(
    name="limit",
    make=make,
    tables=(
        (CLIENT, grids.CLIENT_GRID, grids.CONNECTION_LETTERS),
        (SERVER, grids.SERVER_GRID, grids.CONNECTION_LETTERS),
        (SESSION, grids.SESSION_GRID, grids.SESSION_LETTERS),
    ),
    fatal=(SessionAction.VIOLATE,),
    vectors=Vectors(
        file="limit-stream.json",
        pieces=pieces,
        decode=lambda data, meaning: decode(data),
        described=described,
    ),
    talks=(
        Talk(
            name="sessions",
            role="server",
            said=SUMMED,
            heard=(
                "Established",
                "Opened",
                "Ignored",
                "Failed",
                "Opened",
                "Completed",
                "Failed",
                "Opened",
                "Failed",
                "Closed",
            ),
        ),
        Talk(
            name="answered",
            role="client",
            said=TO_CLIENT,
            first=take_all,
            heard=("Established", "Ignored", "Items", "Completed", "Closed"),
        ),
        Talk(
            name="miscounted",
            role="client",
            said=BROKEN,
            first=take_all,
            heard=("Established", "Ignored", "Items", "Failed", "Closed"),
        ),
    ),
    floods=(
        Flood(
            row="FL-01",
            unit=lambda n: said(setup() if n % 2 else error(2, 0x201))[0],
            begins=True,
            ends="closed",
            rule="cancel-flood",
            limits={"streams": 100_000, "connections": 1},
        ),
        Flood(
            row="FL-06",
            unit=lambda n: said(setup() if n % 2 else error(2, 0x201))[0],
            ends="paused",
        ),
        Flood(row="FR-13", unit=lambda n: said(SKIPPED)[0], ends="closed", rule="protocol-abuse"),
        Flood(
            row="SL-08",
            unit=lambda n: said(item(2 * n + 1, b"x" * 50))[0],
            ends="paused",
        ),
        Flood(
            row="late messages",
            role="client",
            first=leave,
            unit=lambda n: said(item(2 * n + 4, b"x"))[0],
            ends="closed",
            rule="protocol-abuse",
        ),
        Flood(
            row="items nobody takes",
            role="client",
            first=lambda engine: engine.open("channel", b"q", credit=1 << 40, complete=True),
            unit=lambda n: said(item(2 * n + 4, b"x" * 50))[0],
            ends="paused",
        ),
    ),
    verbs={"client": ("channel",), "server": ()},
    waits=True,
    opening=lambda key, payload: Payload(b"%06d" % key + payload.data),
)
