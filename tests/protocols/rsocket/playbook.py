"""Conversations with an engine of RSocket, and the lines that they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afflux.core import events as ev
from afflux.core.frame import Frame
from afflux.core.limits import Limits
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket import Engine, frames
from afflux.testing.playbook import Begins, Mode, closed, failed, ignored
from afflux.testing.playbook import Playbook as Conversation

__all__ = [
    "TOKEN",
    "Begins",
    "Mode",
    "Playbook",
    "closed",
    "error",
    "failed",
    "ignored",
    "newcomer",
    "position",
    "requester",
    "responder",
    "resumable_client",
    "resumable_server",
    "resume",
    "resume_ok",
    "setup",
]


TOKEN = bytes(range(16))
"What the sessions of the resumable conversations are called."


class Playbook(Conversation[Engine]):
    """A conversation with an engine of RSocket."""

    frame = Frame

    def encode(self, frame: Frame) -> bytes:
        """A frame behind its length."""
        return frame.encode(prefixed=True)

    def decode(self, data: bytes) -> Iterator[Frame]:
        """The frames, without their lengths."""
        position = 0
        while position < len(data):
            end = position + 3 + int.from_bytes(data[position : position + 3], "big")
            yield frames.decode(data, position + 3, end)
            position = end

    def cut(self) -> Playbook:
        """The transport breaks, and the session outlives it."""
        return self.eof() << ev.Suspended

    def adopt(self, newcomer: Playbook) -> Playbook:
        """A newcomer has asked for this session: give it the newcomer's transport, as a driver does.

        Raises:
            Rejected: the session can not go on from there.
        """
        self.quiet()
        event = newcomer.events.popleft()
        if not (isinstance(event, ev.Resuming) and event.session is self.engine):
            raise AssertionError(f"{event!r} does not ask for this session")
        newcomer.quiet()
        self.now = newcomer.now
        self.collect(self.engine.resumption.resume(event.request, self.now))
        self.collect(self.engine.receive(newcomer.engine.resumption.hand_over(), self.now))
        return self


def session_bytes(engine: Any) -> int:
    """Bytes that a session holds for its peer, and of its peer's unfinished payloads."""
    held: int = engine.resuming.size + engine.outbound.scheduler.size + engine.stream_table.reassembly.size
    return held


def error(stream: int, code: int, text: bytes | None = None) -> tuple[type, dict[str, Any]]:
    """Expect an ERROR frame."""
    wanted: dict[str, Any] = {"stream": stream, "code": code}
    return frames.ErrorFrame, wanted if text is None else wanted | {"data": Begins(text)}


def setup(**changes: Any) -> frames.Setup:
    """A SETUP that a server accepts."""
    values: dict[str, Any] = {
        "stream": 0,
        "keepalive_ms": 20_000,
        "lifetime_ms": 90_000,
        "metadata_mime": "message/x.rsocket.composite-metadata.v0",
        "data_mime": "application/octet-stream",
    }
    return frames.Setup(**values | changes)


def responder(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A server whose SETUP is accepted already."""
    play = Playbook(Engine("server", limits=limits, **options), mode)
    return play >> setup() << ev.Established


def requester(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A client that has heard from its server already."""
    play = Playbook(Engine("client", limits=limits, **options), mode) << frames.Setup
    keepalive = frames.Keepalive(stream=0, respond=False, position=0, data=b"")
    return play >> keepalive << ev.Established


def resumable_server(
    mode: Mode = "whole", limits: Limits | None = None, sessions: Sessions | None = None, **options: Any
) -> Playbook:
    """A server whose session, named TOKEN, can be resumed."""
    limits = limits or Limits.server()
    sessions = Sessions(limits) if sessions is None else sessions
    play = Playbook(Engine("server", limits=limits, sessions=sessions, **options), mode)
    return play >> setup(token=TOKEN, lease="lease" in options) << ev.Established


def resumable_client(mode: Mode = "whole", limits: Limits | None = None, **options: Any) -> Playbook:
    """A client that has heard from its server already, and whose session can be resumed."""
    asked = setup(token=TOKEN, lease="lease" in options)
    play = Playbook(Engine("client", setup=asked, limits=limits, **options), mode) << asked
    return play >> position(0) << ev.Established


def newcomer(play: Playbook, *, server: int, client: int, mode: Mode = "whole", **options: Any) -> Playbook:
    """A stranger at the server of ``play`` that has asked for its session, and was understood."""
    engine = Engine(
        "server", limits=play.engine.limits, sessions=play.engine.resuming.sessions, now=play.now, **options
    )
    stranger = Playbook(engine, mode)
    stranger.now = play.now
    stranger >> resume(server=server, client=client)
    assert isinstance(stranger.events[0], ev.Resuming), stranger.state()
    return stranger


def resume(*, server: int, client: int, **changes: Any) -> frames.Resume:
    """RESUME: the client has ``server`` bytes of the server's, and keeps its own from ``client`` on."""
    values: dict[str, Any] = {"stream": 0, "token": TOKEN}
    values |= {"last_received_server_position": server, "first_available_client_position": client}
    return frames.Resume(**values | changes)


def resume_ok(client: int) -> frames.ResumeOk:
    """RESUME_OK: the server has ``client`` bytes of the client's."""
    return frames.ResumeOk(stream=0, last_received_client_position=client)


def position(at: int, *, respond: bool = False) -> frames.Keepalive:
    """KEEPALIVE that says how far its sender has received."""
    return frames.Keepalive(stream=0, respond=respond, position=at, data=b"")
