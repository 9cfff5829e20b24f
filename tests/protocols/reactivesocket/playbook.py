"""Conversations with an engine of ReactiveSocket, told line by line as those of RSocket are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afflux.core import events as ev
from afflux.core.frame import Frame
from afflux.core.limits import Limits
from afflux.protocols.reactivesocket import Dialect, Engine, frames
from tests.protocols.rsocket.playbook import Begins, Mode, closed, failed, ignored
from tests.protocols.rsocket.playbook import Playbook as RSocketPlaybook

__all__ = ["Playbook", "closed", "error", "failed", "ignored", "raw", "requester", "responder", "setup"]


class Playbook(RSocketPlaybook):
    """One engine and what it has said so far."""

    engine: Engine  # type: ignore[assignment]  # one of the family

    def decode(self, data: bytes) -> Iterator[Frame]:
        """The frames, without their lengths."""
        for frame in frames.PREFIX.split(data):
            yield frames.decode(bytes(frame))


def raw(kind: int, flags: int = 0, stream: int = 0, body: bytes = b"") -> bytes:
    """A frame as it should not be, its length included."""
    head = kind.to_bytes(2, "big") + flags.to_bytes(2, "big") + stream.to_bytes(4, "big")
    return frames.PREFIX.join(head + body)


def error(stream: int, code: int, text: bytes | None = None) -> tuple[type, dict[str, Any]]:
    """Expect an ERROR frame."""
    wanted: dict[str, Any] = {"stream": stream, "code": code}
    return frames.ErrorFrame, wanted if text is None else wanted | {"data": Begins(text)}


def setup(**changes: Any) -> frames.Setup:
    """A SETUP that a server accepts."""
    return frames.Setup(**{"keepalive_ms": 20_000, "lifetime_ms": 90_000} | changes)


def responder(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A server whose SETUP is accepted already."""
    play = Playbook(Engine("server", limits=limits, **options), mode)  # type: ignore[arg-type]
    return play >> setup() << ev.Established  # type: ignore[return-value]


def requester(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A client that has heard from its server already."""
    play = Playbook(Engine("client", limits=limits, **options), mode)  # type: ignore[arg-type]
    play << frames.Setup
    return play >> frames.Keepalive() << ev.Established  # type: ignore[return-value]


def half(play: Any, **options: Any) -> Any:
    """The same with both directions of a channel ending each on its own."""
    return play(dialect=Dialect(channel_half_close=True), **options)
