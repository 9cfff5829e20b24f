"""Captures of conversations whose tables are known, and those tables as rows. Contains no tests."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from afflux.capture import analyze
from afflux.protocols.rsocket import frames as wire
from tests.capture.writing import Packet, Talk, pcap

Said = tuple[float, bool, bytes]
"Seconds of silence, whether the client speaks then, and its bytes."
Tables = dict[str, list[dict[str, Any]]]

SETUP = wire.Setup().encode(prefixed=True)
LEASING = wire.Setup(lease=True).encode(prefixed=True)


def packets(said: Iterable[Said], talk: Talk | None = None) -> list[Packet]:
    """A whole connection, in which the sides say this."""
    talk = talk or Talk()
    found = talk.open()
    for pause, client, data in said:
        talk.time += round(pause * 1e9)
        found += talk.send(client, data)
    return [*found, *talk.close()]


def tables(file: bytes, **options: Any) -> Tables:
    """All rows of all tables that a capture becomes."""
    found: Tables = {}
    for name, batch in analyze(io.BytesIO(file), **options):
        found.setdefault(name, []).extend(batch.to_pylist())
    return found


def told(*said: Said, **options: Any) -> Tables:
    """All rows of all tables of one connection."""
    return tables(pcap(packets(said)), **options)


def brief(rows: Iterable[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of rows."""
    return [tuple(row[column] for column in columns) for row in rows]


def item(stream: int, data: bytes = b"item", **more: Any) -> bytes:
    return wire.PayloadFrame(stream=stream, next=True, data=data, **more).encode(prefixed=True)


def complete(stream: int) -> bytes:
    return wire.PayloadFrame(stream=stream, complete=True).encode(prefixed=True)


def grant(stream: int, n: int) -> bytes:
    return bytes.fromhex("00000a") + stream.to_bytes(4, "big") + bytes.fromhex("2000") + n.to_bytes(4, "big")


def asks(stream: int, n: int = 8, **more: Any) -> bytes:
    return wire.RequestStream(stream=stream, initial_n=n, **more).encode(prefixed=True)
