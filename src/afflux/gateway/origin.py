"""Subscribe to a stream of any wire: declare where it comes from, and read its items with credit by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Protocol

from afflux.aio.client import connect
from afflux.aio.peer import Peer
from afflux.aio.session import Session
from afflux.calls import Metadata, SetupLike
from afflux.core.entry import ProtocolEntry
from afflux.core.errors import Unsupported
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike, Payloads
from afflux.gateway import typed
from afflux.gateway.framing import FRAMINGS, Cutter
from afflux.protocols.rsocket.cursor import Read
from afflux.retry.backoff import Backoff
from afflux.sessions.chan import SessionType, type_of
from afflux.sessions.machine import Machine
from afflux.transports.address import parse
from afflux.transports.security import Tls

__all__ = ["CURSORS", "Items", "Origin", "OriginVerb", "subscribed"]

OriginVerb = Literal["stream", "channel", "subscribe", "session"]
"How a stream is requested."

CURSORS = frozenset(("rsocket", "rsocket-draft", "reactivesocket"))
"The protocols whose requests have composite metadata, and so may have a cursor."
_READ_BYTES = 0x1_0000


@dataclass(frozen=True, slots=True)
class Origin:
    """A remote stream.

    Raises:
        AddressError: the address is invalid.
        Unsupported: the protocol does not have the verb.
        ValueError: the verb, the framing, the session and the data do not fit.
    """

    uri: str
    "The address of the server."
    _: KW_ONLY
    verb: OriginVerb | None = None
    """``stream``, ``channel`` (sends ``data``, and completes its half), ``subscribe`` (REQUEST_SUB of ReactiveSocket, a
    publisher of reactive-streams-io) or ``session`` (bytes of Jmux, cut by ``framing``). None for ``session`` with a
    framing, else for the first of ``stream`` and ``channel`` that the protocol has."""
    route: str | None = None
    "The route; in Limit-Stream the channel's name."
    data: PayloadLike = b""
    "The data of the request; in reactive-streams-io the publisher's name."
    metadata: Metadata = None
    "The metadata of the request."
    setup: SetupLike | None = None
    "The setup of the connection, for example credentials."
    framing: str | None = None
    "How bytes become items: a name of ``FRAMINGS``."
    session: SessionType[Any, Any] | Machine | None = None
    """The type of the session that the channel has. Its items are the values that it receives in a loop, as JSON; the
    lines of ``data`` are the steps of this side, as JSON or ``choose N`` (gateway/typed.py)."""
    replays: bool = False
    "The stream always begins with its first item, so that after a lost connection the stored items are skipped."
    resume: bool = False
    "Resume the connection's session when its transport is lost, where the protocol and the server can."
    tls: Tls | None = None
    "As in ``afflux.connect``."

    def __post_init__(self) -> None:
        entry = parse(self.uri).entry
        if self.framing is not None and self.framing not in FRAMINGS:
            raise ValueError(f"unknown framing {self.framing!r}; known: {', '.join(FRAMINGS)}")
        verb = self.verb or ("channel" if self.session is not None else _usual_verb(entry, self.framing))
        if verb is None:
            entry.require("session")
            raise ValueError(f"{self.uri} is a stream of bytes: choose its framing, one of {', '.join(FRAMINGS)}")
        if verb in ("session", "subscribe"):
            entry.require(verb)
        else:
            entry.check(verb)
        if (verb == "session") != (self.framing is not None):
            raise ValueError(f"a framing is for sessions of bytes: {self.uri} is read by {verb}")
        if self.session is not None:
            self._check_session(verb)
        if self.resume:
            entry.require("resume")
        object.__setattr__(self, "verb", verb)

    def _check_session(self, verb: OriginVerb) -> None:
        if verb != "channel":
            raise ValueError(f"a session type is for channels: {self.uri} is read by {verb}")
        typed.received_in_loop(self.client)
        typed.steps_of(_bytes(self.data))

    @property
    def client(self) -> Machine:
        """This side's machine of ``session``; its structs are tuples."""
        if self.session is None:
            raise ValueError(f"{self.uri} has no session type")
        return type_of(self.session).client.with_classes({})

    @property
    def may_have_cursor(self) -> bool:
        """Whether a request of this kind may have a cursor."""
        return self.verb == "stream" and parse(self.uri).entry.name in CURSORS


def _usual_verb(entry: ProtocolEntry, framing: str | None) -> OriginVerb | None:
    if framing is not None:
        return "session"
    verbs: tuple[OriginVerb, ...] = ("stream", "channel")
    return next((verb for verb in verbs if verb in entry.verbs), None)


class Items(Protocol):
    """Items that arrive as far as they are requested."""

    def request(self, n: int) -> None:
        """Request ``n`` more."""

    async def next_chunk(self) -> Payloads | None:
        """Return the next items; None at the end."""


@asynccontextmanager
async def connected(origin: Origin, limits: Limits) -> AsyncIterator[Peer]:
    """Connect to the server of a stream. Raises as ``afflux.connect`` does."""
    resume = Backoff() if origin.resume else False
    async with connect(origin.uri, limits=limits, setup=origin.setup, resume=resume, tls=origin.tls) as peer:
        yield peer


@asynccontextmanager
async def subscribed(origin: Origin, peer: Peer, cursor: Read | None) -> AsyncIterator[Items]:
    """Request a stream, without credit. The request is sent with the first ``request`` for items."""
    data, route, metadata = origin.data, origin.route, origin.metadata
    match origin.verb:
        case "session":
            async with await peer.session(_bytes(data), finish=True) as session:
                yield _Cut(session, Cutter(origin.framing or "", peer.limits.payload_bytes))
        case "channel" if origin.session is not None:
            async with typed.opened(peer, origin.client, route, typed.steps_of(_bytes(data))) as items:
                yield items
        case "channel":
            async with peer.channel(_once(data), route=route, metadata=metadata, credit=0) as items:
                yield items
        case "subscribe":
            async with peer.subscribe(data, route=route, metadata=metadata, credit=0) as items:
                yield items
        case _:
            async with peer.stream(data, route=route, metadata=metadata, cursor=cursor, credit=0) as items:
                yield items


class _Cut:
    """The bytes of a session as items: it reads while at least one item is requested."""

    def __init__(self, session: Session, cutter: Cutter) -> None:
        self._session = session
        self._cutter = cutter
        self._credit = 0
        self._granted = asyncio.Event()
        self._ended = False

    def request(self, n: int) -> None:
        """Request ``n`` more items."""
        self._credit += n
        self._granted.set()

    async def next_chunk(self) -> list[Payload] | None:
        """Return the items of the next bytes."""
        while not self._ended:
            while self._credit <= 0:
                self._granted.clear()
                await self._granted.wait()
            data = await self._session.read(_READ_BYTES)
            self._ended = not data
            if items := self._cutter.cut(data) if data else self._cutter.end():
                self._credit -= len(items)
                return [Payload(item) for item in items]
        return None


async def _once(data: PayloadLike) -> AsyncGenerator[PayloadLike, None]:
    yield data


def _bytes(data: PayloadLike) -> bytes | str:
    if isinstance(data, Payload):
        raise Unsupported("a session of bytes has no payloads")
    return data if isinstance(data, str) else bytes(data)
