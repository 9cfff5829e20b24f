"""ReactiveSocket of 2015 for the generic suites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afflux.core.frame import Malformed
from afflux.core.limits import Limits
from afflux.protocols.reactivesocket import Engine, frames
from afflux.protocols.reactivesocket.engine import DEFAULT_MTU
from afflux.protocols.reactivesocket.frames import ReactiveSocketFrame, decode
from afflux.protocols.reactivesocket.states import (
    CLIENT,
    HALF_REQUESTER,
    HALF_RESPONDER,
    REQUESTER,
    RESPONDER,
    SERVER,
)
from tests.protocols.generic.family import ask_four, family_floods, wired
from tests.protocols.generic.wires import Talk, Vectors, Wire

from . import grids
from .playbook import setup


def pieces(vector: dict[str, Any]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """A vector is one frame behind its length."""
    yield bytes.fromhex(vector["hex"]), vector["decoded"]


def value_of(frame: ReactiveSocketFrame, name: str) -> Any:
    """What a vector calls ``name``."""
    if name == "stream_id":
        return frame.stream  # type: ignore[attr-defined]
    if name == "data_hex" and isinstance(frame, frames.Ext):
        return frame.body.hex()
    if name.endswith("_hex"):
        value = getattr(frame, name.removesuffix("_hex"))
        return None if value is None else value.hex()
    return getattr(frame, name)


def described(frame: ReactiveSocketFrame) -> dict[str, Any]:
    """The frame as the vectors write it."""
    row: dict[str, Any] = {
        "frame_length": len(frame.encode(prefixed=True)),
        "frame": frame.NAME,
        "flags": frame.flags(),
    }
    if not isinstance(frame, frames.Ext):
        row["stream_id"] = frame.stream  # type: ignore[attr-defined]
    for field in frame.FIELDS:
        if field.name in ("metadata", "data", "body"):
            name = f"{field.name.replace('body', 'data')}_hex"
            row[name] = value_of(frame, name)
        elif not field.kind.arrow.startswith("bool") and field.name != "stream":
            row[field.name] = getattr(frame, field.name)
    return row


def read(data: bytes, meaning: dict[str, Any]) -> ReactiveSocketFrame:
    """A frame whose length is there and true."""
    if int.from_bytes(data[:4], "big") != len(data):
        raise Malformed(f"{len(data)} bytes are no frame yet", rule="R-2")
    return decode(data[4:])


def make(role: Any, *, limits: Limits, mtu: int = 0) -> Engine:
    return Engine(role, limits=limits, mtu=mtu or DEFAULT_MTU)


TO_SERVER = wired(
    setup(metadata=b"m", data=b"d"),
    frames.RequestResponse(stream=2, metadata=b"m", data=b"q"),
    frames.RequestResponse(stream=4, data=b"q"),
    frames.RequestStream(stream=6, initial_n=2),
    frames.RequestChannel(stream=8, initial_n=2, follows=True, metadata=b"m" * 60),
    frames.RequestChannel(stream=8, data=b"d" * 60),
    frames.RequestChannel(stream=8, complete=True),
    frames.Keepalive(respond=True, data=b"k"),
    frames.RequestN(stream=6, n=3),
    frames.Ext(extended_type=2, ignore=True, body=b"x"),
    frames.MetadataPush(metadata=b"p"),
    frames.Cancel(stream=6),
    frames.ErrorFrame(stream=0, code=0x11, data=b"end"),
)
TO_CLIENT = wired(
    frames.Keepalive(respond=True, data=b"k"),
    frames.Response(stream=2, metadata=b"m", data=b"a"),
    frames.Response(stream=4, data=b"1"),
    frames.Response(stream=4, data=b"2"),
    frames.Response(stream=4, follows=True, data=b"3" * 60),
    frames.Response(stream=4, complete=True, data=b"3"),
    frames.RequestN(stream=6, n=2),
    frames.Response(stream=6, data=b"c"),
    frames.ErrorFrame(stream=6, code=0x21, data=b"no"),
    frames.RequestSub(stream=1, initial_n=1, data=b"back"),
    frames.ErrorFrame(stream=0, code=0x11, data=b"end"),
)


WIRE = Wire(
    name="reactivesocket",
    make=make,
    tables=(
        (CLIENT, grids.CLIENT_GRID, grids.CONNECTION_LETTERS),
        (SERVER, grids.SERVER_GRID, grids.CONNECTION_LETTERS),
        (REQUESTER, grids.REQUESTER_GRID, grids.STREAM_LETTERS),
        (RESPONDER, grids.RESPONDER_GRID, grids.STREAM_LETTERS),
        (HALF_REQUESTER, grids.HALF_REQUESTER_GRID, grids.STREAM_LETTERS),
        (HALF_RESPONDER, grids.HALF_RESPONDER_GRID, grids.STREAM_LETTERS),
    ),
    vectors=Vectors(
        file="reactivesocket.json",
        pieces=pieces,
        decode=read,
        described=described,
        encode=lambda frame: frame.encode(prefixed=True),
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
                "Opened",
                "Completed",
                "Granted",
                "Ignored",
                "Pushed",
                "Canceled",
                "Failed",
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
            heard=("Established", "Items", "Items", "Granted", "Items", "Failed", "Opened", "Failed", "Closed"),
        ),
    ),
    floods=family_floods(
        frames,
        2,
        keepalive=frames.Keepalive(respond=True, data=b"k"),
        stray=frames.Cancel(stream=98),
        item=frames.Response(stream=2, data=b"x" * 50),
    ),
    verbs={
        "client": ("request", "fire", "stream", "channel", "subscribe"),
        "server": ("request", "fire", "stream", "channel", "subscribe"),
    },
)
