"""What the declarations of RSocket's family have in common: frames as bytes, four requests, the floods."""

from __future__ import annotations

from typing import Any

from .wires import Flood


def wired(*said: Any) -> tuple[bytes, ...]:
    """Frames as they stand on a byte stream."""
    return tuple(frame.encode(prefixed=True) for frame in said)


def ask_four(engine: Any) -> None:
    """One of each."""
    for verb in ("request", "stream", "channel", "fire"):
        engine.open(verb, b"ask", credit=int(verb in ("stream", "channel")) * 3)


def family_floods(frames: Any, first: int, *, keepalive: Any, stray: Any, item: Any) -> tuple[Flood, ...]:
    """The floods that every member has. ``first`` is a client's first stream, ``stray`` a frame of no stream, and
    ``item`` one of this side's first stream."""

    def request(n: int, kind: Any = frames.RequestResponse, **fields: Any) -> bytes:
        return wired(kind(stream=first + 2 * n, data=b"", **fields))[0]

    def opened_and_canceled(n: int) -> bytes:
        id = first + 2 * (n // 2)
        return wired(frames.Cancel(stream=id))[0] if n % 2 else request(n // 2, frames.RequestStream, initial_n=1)

    def granted(n: int) -> bytes:
        grant = frames.RequestN(stream=first, n=1)
        return wired(grant)[0] if n else request(0, frames.RequestStream, initial_n=1)

    return (
        Flood(
            row="FL-01",
            begins=True,
            unit=opened_and_canceled,
            ends="closed",
            rule="cancel_bucket",
            limits={"streams": 100_000, "connections": 1},
        ),
        Flood(row="FL-03", unit=lambda n: request(n, frames.RequestFnf), ends="paused"),
        Flood(row="FL-06", unit=request, ends="paused"),
        Flood(row="FC-08", unit=granted, ends="closed", rule="protocol-abuse"),
        Flood(row="KA-02", unit=lambda n: wired(keepalive)[0], ends="paused"),
        Flood(row="KA-02, read", unit=lambda n: wired(keepalive)[0], ends="closed", rule="keepalive_rate", reads=True),
        Flood(row="SI-07", unit=lambda n: wired(stray)[0], ends="closed", rule="protocol-abuse"),
        Flood(
            row="items nobody takes",
            role="client",
            first=lambda engine: engine.open("stream", b"", credit=1 << 30),
            unit=lambda n: wired(item)[0],
            ends="paused",
        ),
    )
