"""RSocket 1.0 for the generic suites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afflux.core.limits import Limits
from afflux.protocols.rsocket import Engine, frames
from afflux.protocols.rsocket.engine import DEFAULT_MTU
from afflux.protocols.rsocket.frames import RSocketFrame, decode
from afflux.protocols.rsocket.states import CLIENT, REQUESTER, RESPONDER, SERVER
from tests.protocols.generic.family import ask_four, family_floods, wired
from tests.protocols.generic.wires import Talk, Vectors, Wire

from . import grids
from .playbook import setup

NOT_FRAMES = ("composite", "routing_tags", "auth", "zipkin", "broker")
"""What a vector decodes to when it is the content of metadata: test_metadata.py has those."""

ODD_FLAGS = {
    "v1-lease-metadata": "M is clear although there is metadata; we set it (I-4)",
    "v1-metadata-push-text": "M is clear; we always set it (2.3)",
    "v1-metadata-push-binary": "M is clear; we always set it (2.3)",
    "v1-resume": "M and 0x040 are set, which RESUME does not have; we send them 0 (R-4)",
}
"""Vectors that test decoding, not flag policy: encoded again they differ in these flags and in nothing else."""


def pieces(vector: dict[str, Any]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The bare frames of a vector, and what each decodes to, flags left out."""
    decoded = vector["decoded"]
    if any(key in decoded for key in NOT_FRAMES):
        return
    data = bytes.fromhex(vector["hex"])
    for expected in decoded.get("frames", [decoded]):
        size = len(data)
        if "frame_length" in expected:
            size = expected["frame_length"]
            assert int.from_bytes(data[:3], "big") == size
            data = data[3:]
        yield data[:size], {key: value for key, value in expected.items() if key not in ("flags", "frame_length")}
        data = data[size:]
    assert data == b""


def described(frame: RSocketFrame) -> dict[str, Any]:
    """The frame as the vectors write it, flags left out."""
    row: dict[str, Any] = {"frame": frame.NAME}
    for field in frame.FIELDS:
        value = getattr(frame, field.name)
        name = "stream_id" if field.name == "stream" else field.name
        if field.kind.arrow == "binary":
            row[f"{name}_hex"] = None if value is None else value.hex()
        else:
            row[name] = value
    return row


def make(role: Any, *, limits: Limits, mtu: int = 0) -> Engine:
    return Engine(role, limits=limits, mtu=mtu or DEFAULT_MTU)


_P = frames.PayloadFrame
_KEEPALIVE = frames.Keepalive(stream=0, respond=True, position=0, data=b"k")
_END = frames.ErrorFrame(stream=0, code=0x101, data=b"end")
TO_SERVER = wired(
    setup(metadata=b"m", data=b"d"),
    frames.RequestResponse(stream=1, metadata=b"m", data=b"q"),
    frames.RequestStream(stream=3, initial_n=2, data=b""),
    frames.RequestChannel(stream=5, initial_n=2, follows=True, metadata=b"m" * 60, data=b""),
    _P(stream=5, next=True, data=b"d" * 60),
    _P(stream=5, complete=True, data=b""),
    _KEEPALIVE,
    frames.RequestN(stream=3, n=3),
    frames.Ext(stream=0, extended_type=2, ignore=True, body=b"x"),
    frames.MetadataPush(metadata=b"p", stream=0),
    frames.Cancel(stream=3),
    frames.RequestFnf(stream=7, data=b"f"),
    _END,
)
TO_CLIENT = wired(
    _KEEPALIVE,
    _P(stream=1, next=True, complete=True, metadata=b"m", data=b"a"),
    _P(stream=3, next=True, data=b"1"),
    _P(stream=3, next=True, data=b"2"),
    _P(stream=3, next=True, follows=True, data=b"3" * 60),
    _P(stream=3, next=True, data=b"3"),
    _P(stream=3, complete=True, data=b""),
    frames.RequestN(stream=5, n=2),
    _P(stream=5, next=True, data=b"c"),
    frames.Cancel(stream=5),
    frames.ErrorFrame(stream=5, code=0x201, data=b"no"),
    frames.RequestResponse(stream=2, data=b"back"),
    _END,
)


WIRE = Wire(
    name="rsocket",
    make=make,
    tables=(
        (REQUESTER, grids.REQUESTER_GRID, grids.STREAM_LETTERS),
        (RESPONDER, grids.RESPONDER_GRID, grids.STREAM_LETTERS),
        (CLIENT, grids.CLIENT_GRID, grids.CONNECTION_LETTERS),
        (SERVER, grids.SERVER_GRID, grids.CONNECTION_LETTERS),
    ),
    vectors=Vectors(
        file="rsocket.json",
        pieces=pieces,
        decode=lambda data, meaning: decode(data),
        described=described,
        one_way=frozenset(ODD_FLAGS),
    ),
    talks=(
        Talk(
            name="asked",
            role="server",
            said=TO_SERVER,
            heard=(
                "Established",
                "Opened",
                "Opened",
                "Opened",
                "Completed",
                "Granted",
                "Ignored",
                "Pushed",
                "Canceled",
                "Opened",
                "Failed",
                "Failed",
                "Closed",
            ),
        ),
        Talk(
            name="answered",
            role="client",
            said=TO_CLIENT,
            first=ask_four,
            heard=(
                "Established",
                "Items",
                "Items",
                "Completed",
                "Granted",
                "Items",
                "Canceled",
                "Failed",
                "Opened",
                "Failed",
                "Closed",
            ),
        ),
    ),
    floods=family_floods(
        frames,
        1,
        keepalive=_KEEPALIVE,
        stray=_P(stream=99, next=True, data=b"x"),
        item=_P(stream=1, next=True, data=b"x" * 50),
    ),
    verbs={
        "client": ("request", "fire", "stream", "channel"),
        "server": ("request", "fire", "stream", "channel"),
    },
)
