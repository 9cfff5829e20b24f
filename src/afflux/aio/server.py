"""``afflux.serve``: listening, and who may come in."""

# long: who is admitted, who comes back, and who was left by a former process meet in one table of guests.

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from afflux.aio.driver import Driver
from afflux.aio.flow import DEFAULT_CREDIT
from afflux.aio.gate import Gate
from afflux.aio.memory import Memory
from afflux.aio.peer import Peer
from afflux.aio.serving import Serving
from afflux.aio.verbs import Extension, verbs_of
from afflux.core.autocredit import Kept, check_kept
from afflux.core.errors import ConnectionClosed, Error, LimitExceeded, Rejected
from afflux.core.events import Established, Opened, Resuming, Suspended
from afflux.core.limits import REASONS, Limits, reached
from afflux.core.terms import Terms
from afflux.resume.recovery import plain, replays_of, restart
from afflux.retry.throttle import ResumeThrottle
from afflux.transports import clock
from afflux.transports.address import Address, parse
from afflux.transports.base import Listener
from afflux.transports.reading import Receiver
from afflux.transports.security import Tls, settled
from afflux.transports.ws_rules import origins_of

if TYPE_CHECKING:
    from afflux.core.engine import Engine
    from afflux.protocols.rsocket.lease import LeasePolicy
    from afflux.resume.record import Record
    from afflux.resume.store import Store

__all__ = ["OnSetup", "Server", "serve"]

OnSetup = Callable[[object, Peer], Awaitable[None]]
"Called with what a client asked for and the client; raises to refuse it."


class _Guest(Serving):
    """The handlers of one client, once it has been let in."""

    server: Server
    peer: Peer
    deciding: asyncio.Task[None] | None = None
    certificate: object = None
    "What the client showed when its session began."
    former: bool = False
    "The session was begun with a former process: nobody has looked at the client yet."
    again: Sequence[tuple[Opened, int]] = ()
    "Handlers of a former process that begin again when the client is back."

    def established(self, event: Established) -> None:
        """The client has said what it wants."""
        self.peer.setup = event.setup
        self.certificate = self.peer.certificate
        if self.driver.saving is not None:
            self.driver.saving.record.about = plain(self.certificate)
        self.server._gate.handshakes.pop(self.peer, None)
        self.server._crowd_out()
        if self.server._on_setup is not None:
            self.deciding = self.driver.tasks.spawn(self._decide(event.setup), self.context.copy())

    def suspended(self, event: Suspended) -> None:
        """The client's transport is gone; its session waits."""
        self.server._away(self.peer)

    def resuming(self, event: Resuming) -> None:
        """A newcomer wants to go on with a session: give that its transport, if everything fits."""
        self.server._gate.handshakes.pop(self.peer, None)
        if self.server._guesses.wait(self.peer.host):
            self.deciding = self.driver.tasks.spawn(self._wait_and_resume(event))
        else:
            self.server._bring_back(self, event)

    async def _wait_and_resume(self, event: Resuming) -> None:
        if await self.server._guesses.turn(self.peer.host):
            self.server._bring_back(self, event)
        else:
            self.driver.state.run(self.driver.engine.refuse, REASONS["auth_failures"], self.driver.state.now())

    def resumed(self) -> None:
        """The client is back."""
        again, self.again = self.again, ()
        for event, sent in again:
            self.begin_again(event, sent)

    def ended(self) -> None:
        """The client has gone."""
        if self.deciding is not None:
            self.driver.tasks.cancel(self.deciding)
        super().ended()

    def parted(self) -> None:
        """The client's transport is gone: it is no longer a connection, whatever its handlers still do."""
        self.server._parted(self.peer)

    def left(self) -> None:
        """Nothing of the client is left."""
        super().left()
        self.server._left(self.peer)
        del self.peer  # it holds this object

    async def look_at(self, newcomer: _Guest, event: Resuming) -> None:
        """A client of a former process is back: what decides about clients has not seen this one."""
        decide, driver = self.server._on_setup, newcomer.driver
        newcomer.peer.setup = self.peer.setup
        try:
            if decide is not None:
                await decide(self.peer.setup, newcomer.peer)
        except Exception as error:
            if not isinstance(error, Error):
                driver.state.log_failure("afflux: on_setup raised", error)
            driver.state.run(driver.engine.refuse, "there is no such session", driver.state.now())
        else:
            self.former = False
            self.peer.principal = newcomer.peer.principal
            if not driver.state.over:
                self.server._bring_back(newcomer, event)

    async def _decide(self, setup: object) -> None:
        driver = self.driver
        decide = self.server._on_setup
        try:
            if decide is not None:
                await decide(setup, self.peer)
        except Error as error:
            driver.state.run(driver.engine.refuse, error.message or "refused", driver.state.now(), error.code)
        except Exception as error:
            driver.state.log_failure("afflux: on_setup raised", error)
            driver.state.run(driver.engine.refuse, "refused", driver.state.now())
        else:
            driver.state.run(driver.engine.accept, driver.state.now())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extras:
    """What a server does beyond the verbs."""

    lease: LeasePolicy | None
    resume: bool
    extensions: Mapping[int, Extension]
    store: Path | None
    origins: frozenset[str] | None
    reuse_port: bool

    def terms(self, limits: Limits) -> Terms:
        """The terms of every connection."""
        sessions = None
        if self.resume:
            from afflux.protocols.rsocket.resume import Sessions

            sessions = Sessions(limits, asks=True)
        return Terms(lease=self.lease, sessions=sessions, extensions=tuple(self.extensions))


class Server:  # long: the listener's admission is part of it
    """A listening server. ``async with`` closes it, and with it every connection."""

    def __init__(
        self,
        address: Address,
        handler: object,
        limits: Limits,
        on_setup: OnSetup | None,
        credit: Kept,
        tls: Tls | None,
        extras: _Extras,
    ) -> None:
        self._address = address
        self._tls = settled(tls, address)
        self._make = address.entry.make
        self._transport = address.carrier.load()
        check_kept(credit)
        self._verbs = verbs_of(handler)
        self.limits = limits
        "The bounds of the listener and of each connection."
        self._on_setup = on_setup
        self._credit = credit
        self._extras = extras
        self._terms = replace(
            extras.terms(limits),
            sizes=getattr(handler, "element_size", None),
            handled=tuple(self._verbs),
            **{"keepalive": limits.keepalive_s, "lifetime": limits.lifetime_s, **address.terms},
        )
        self._store: Store | None = None
        self._replays = replays_of(handler)
        self._owners: dict[object, _Guest] = {}
        "Who is behind an engine: where the transport of a resumed session has to go."
        self._listener: Listener | None = None
        self._shown = str(address)
        "What the peers show as their address: one string for all."
        self._peers: set[Peer] = set()
        self._gate = Gate(limits, self._overloaded)
        self._ending: OrderedDict[Peer, None] = OrderedDict()
        "Clients that are gone, whose handlers still run."
        self._stopped: asyncio.Future[None] | None = None
        self._closing = False
        self._guesses = ResumeThrottle(limits)

    @property
    def uri(self) -> str:
        """Where it listens, with the port that it really got."""
        return str(self._address if self._listener is None else self._listener.address)

    @property
    def connections(self) -> tuple[Peer, ...]:
        """The clients that are connected now."""
        return tuple(self._peers)

    @property
    def refused(self) -> dict[str, int]:
        """How many connections were refused because of a limit, by its name, such as ``{"connections": 3}``."""
        return dict(self._gate.refused)

    async def start(self) -> Server:
        """Listen.

        Raises:
            AddressError: a certificate or a key can not be used.
            BindFailed: the address can not be had.
            StoreError: the file of sessions can not be used.
        """
        if self._listener is None:
            self._closing = False
            self._load()
            # Once before listening: the engine's modules are imported now and not while the first client waits.
            self._make("server", self._terms, limits=self.limits, decide=self._on_setup is not None, now=0.0)
            self._stopped = asyncio.get_running_loop().create_future()
            try:
                self._listener = await self._transport.listen(self._address, self, self._welcome, self._tls)
            except BaseException:
                await self.close(keep=True)
                raise
            self._shown = self.uri
            for peer in self._peers:
                peer.uri = self._shown
        return self

    async def close(self, *, drain: bool | float = False, keep: bool = False) -> None:
        """Accept no more, close every connection, wait for all handlers.

        Args:
            drain: let the live streams end first: True for as long as it takes, a number for that many seconds.
            keep: with ``store``, let the sessions stay in the file: their clients come back to the next server.
        """
        self._closing = True
        if self._listener is not None:
            self._listener.close()
        self._gate.close(self._shown)
        if keep:
            self._leave()
        while self._peers:
            # Who is away can not come back: there is nobody to come to.
            await asyncio.gather(*(peer.close(drain=False if peer.suspended else drain) for peer in self._peers))
            self._peers = {peer for peer in self._peers if not peer.closed}
        if self._store is not None:
            self._store.close()
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    async def wait_closed(self) -> None:
        """Wait until someone has closed it."""
        if self._stopped is not None:
            await asyncio.shield(self._stopped)

    def __await__(self) -> Generator[None, None, Server]:
        return self.start().__await__()

    async def __aenter__(self) -> Server:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Server {self.uri}, {len(self._peers)} connections>"

    # -- transports.base.Admission --------------------------------------------------------------------------

    @property
    def backoff(self) -> float:
        """Seconds to wait when descriptors have run out."""
        return self.limits.accept_backoff_s

    @property
    def flush(self) -> float:
        """Seconds that last words may take."""
        return self.limits.flush_s

    @property
    def origins(self) -> frozenset[str] | None:
        """The origins whose pages may open a WebSocket; None for any."""
        return self._extras.origins

    @property
    def reuse_port(self) -> bool:
        """Whether other processes may listen at the same port."""
        return self._extras.reuse_port

    def admit(self, host: str) -> str | None:
        """Admit one more connection from ``host``: None. Otherwise the reason why it is refused."""
        if self._closing:
            return "the server is closing"
        return self._gate.admit(host, clock.now(), self._shown)

    def last_words(self, reason: str) -> bytes:
        """The bytes that tell a refused connection why."""
        return self._transport.refusal(self._address, reason)

    def delay(self) -> float:
        """Seconds until the next accept."""
        return self._gate.delay(clock.now())

    def attach(self, host: str, uri: str) -> Receiver:
        """Serve a connection that did not come through the listener.

        The caller connects what is returned to a transport, as asyncio does, and tells it the end. ``uri`` is what
        the peer object shows.

        Raises:
            LimitExceeded: it is refused; the text says by which limit.
        """
        if (reason := self.admit(host)) is not None:
            raise LimitExceeded(reason)
        return self._welcome(host, uri)

    # -- inside ---------------------------------------------------------------------------------------------

    def _overloaded(self) -> bool:
        """Whether the connections of this process hold more than they may."""
        return Memory.of(asyncio.get_running_loop()).exceeds(self.limits.process_bytes)

    def _welcome(self, host: str, uri: str | None = None) -> Receiver:
        """The protocol object for a connection that was admitted."""
        engine = self._make(
            "server",
            self._terms,
            limits=self.limits,
            decide=self._on_setup is not None,
            now=clock.now(),
        )
        guest = self._guest(engine, uri or self._shown)
        driver, peer = guest.driver, guest.peer
        if self._store is not None:
            from afflux.resume.record import Record

            resumable: Any = engine
            driver.keep(Record(self._store, resumable, kind="server", asks=False, replays=self._replays))
        peer.host = host
        if (oldest := self._gate.begin(peer, clock.now())) is not None:
            oldest._driver.abort(ConnectionClosed(reached(self.limits, "half_handshakes"), rule="half_handshakes"))
        if self._closing:
            driver.abort()  # it was accepted just before
        return driver.pump

    def _guest(self, engine: Engine, uri: str) -> _Guest:
        """Who is behind an engine."""
        guest = _Guest(self._verbs, credit=self._credit, extensions=self._extras.extensions)
        guest.driver = driver = Driver(engine, guest, expects=self._address.protocol)
        driver.pump.answers = True
        guest.server = self
        guest.peer = peer = Peer(driver, guest, self._address.entry, uri)
        self._peers.add(peer)
        self._owners[engine] = guest
        return guest

    def _left(self, peer: Peer) -> None:
        self._peers.discard(peer)
        self._owners.pop(peer._driver.engine, None)
        self._gate.handshakes.pop(peer, None)
        self._ending.pop(peer, None)
        self._uncount(peer)

    def _parted(self, peer: Peer) -> None:
        """A client has gone while handlers may still run. Its address may connect again. The handlers that go on are
        those of ``connections`` clients at most: beyond, those of the client that went first are canceled."""
        self._gate.handshakes.pop(peer, None)
        self._uncount(peer)
        self._ending[peer] = None
        if len(self._ending) > self.limits.connections:
            first, _ = self._ending.popitem(last=False)
            first._serving.stop()

    def _count(self, peer: Peer) -> None:
        """The peer has a transport: it counts as a connection of its host."""
        peer.counted = True
        self._gate.count(peer.host)

    def _uncount(self, peer: Peer) -> None:
        if not peer.counted:
            return
        peer.counted = False
        self._gate.uncount(peer.host)

    # -- sessions that outlive their transport ----------------------------------------------------------------

    def _away(self, peer: Peer) -> None:
        """A session has lost its transport."""
        self._uncount(peer)
        if self._closing:  # it can not come back: there is nobody to come to
            peer._driver.state.loop.call_soon(peer._driver.close)
        if self._terms.sessions is not None:
            self._terms.sessions.away(peer._driver.engine)
            self._crowd_out()

    def _crowd_out(self) -> None:
        """Too many sessions, or too much of them: the longest away end."""
        for engine in () if self._terms.sessions is None else self._terms.sessions.crowd_out():
            driver = self._owners[engine].driver
            driver.abort(ConnectionClosed("another session took its place", rule="resume_sessions"))

    def _load(self) -> None:
        """Take over the sessions that a former process has left.

        Raises:
            StoreError: the file can not be used.
        """
        if self._extras.store is None:
            return
        from afflux.resume.errors import StoreError
        from afflux.resume.record import Record
        from afflux.resume.store import Store

        self._store = store = Store(self._extras.store)
        try:
            for saved in store.sessions():
                if saved.kind != "server":
                    raise StoreError(store.path, f"it holds a client's session with {saved.address}; choose another")
                if time() - saved.seen > self.limits.resume_s:
                    store.remove(saved.key)
                    continue
                terms, replays = self._terms, self._replays
                record = Record.load(store, saved, limits=self.limits, terms=terms, asks=False, replays=replays)
                self._take_over(record)
        except BaseException:
            store.close()
            raise
        self._crowd_out()

    def _take_over(self, record: Record) -> None:
        """A session of a former process waits for its client."""
        engine: Any = record.engine
        guest = self._guest(engine, self.uri)
        driver = guest.driver
        driver.keep(record)
        driver.state.away = True
        guest.peer.setup, guest.peer.counted = engine.setup, False
        guest.certificate, guest.former = record.about, True
        guest.again = restart(record, "server")
        driver.output.flush_soon()

    def _leave(self) -> None:
        """Let the sessions stay in their file; their clients find nobody for now."""
        for peer in list(self._peers):
            driver = peer._driver
            if (saving := driver.saving) is not None and saving.durable() and saving.record.kept:
                driver.leave()

    def _bring_back(self, newcomer: _Guest, event: Resuming) -> None:
        """Give a newcomer's transport to the session that it asks for; refuse it, and the session is as it was."""
        owner = None if event.session is None else self._owners.get(event.session)
        driver, now = newcomer.driver, newcomer.driver.state.now()
        # RE-10: a token is good only with the certificate that the session began with
        if owner is None or plain(owner.certificate) != plain(newcomer.peer.certificate):
            self._guesses.add(newcomer.peer.host)
            driver.state.run(driver.engine.refuse, "there is no such session", now)
            return
        if owner.former and self._on_setup is not None:
            newcomer.deciding = driver.tasks.spawn(owner.look_at(newcomer, event), newcomer.context.copy())
            return
        try:
            events = event.session.resumption.resume(event.request, now)
        except Rejected as error:
            driver.state.run(driver.engine.refuse, error.message, now)
            return
        transport, rest = driver.hand_over()
        owner.driver.pump.part()  # RE-14: what the session says from now on is not for the older transport
        owner.driver.dispatch(events)
        if transport is not None:
            self._uncount(owner.peer)
            owner.peer.host = newcomer.peer.host
            self._count(owner.peer)
            owner.driver.pump.adopt(transport, rest)


def serve(
    uri: str | Address,
    handler: object,
    *,
    limits: Limits | None = None,
    on_setup: OnSetup | None = None,
    credit: Kept = DEFAULT_CREDIT,
    tls: Tls | None = None,
    lease: LeasePolicy | None = None,
    resume: bool = False,
    extensions: Mapping[int, Extension] | None = None,
    store: str | Path | None = None,
    origins: Iterable[str] | None = None,
    reuse_port: bool = False,
) -> Server:
    """Serve ``handler`` at an address: ``async with afflux.serve(uri, handler) as server``.

    Args:
        uri: where to listen; port 0 takes a free one, see ``server.uri``.
        handler: an object with some of the methods request, fire, stream, channel and push, or a Router.
        limits: the bounds of the listener and of each connection; ``Limits.server()`` if None.
        on_setup: decides about each client, given what it asked for and the peer. An ``afflux.Error`` that it raises
            refuses the client with that text (and code, if it has one); nothing is served before it returns.
        credit: items that a channel's handler lets the client send ahead, or "auto".
        lease: what each client is granted, when it asks for leases: FixedLease, RateLease, or a policy of your own.
            Without one such a client is refused.
        resume: keep the session of a client that asks for it when its transport is lost, for ``limits.resume_s`` and
            within the other limits of resumption.
        extensions: what to call with ``(stream, body)`` of an EXT frame, by extended type.
        store: a file to keep the sessions in (SQLite, mode 0600), with ``resume``: when this process dies, the next one
            that serves with the same file goes on with them. A handler of request or stream whose function has a true
            attribute ``replays`` is called again with the same request, and the items that were sent are skipped; what
            any other was doing ends with ``Canceled``. ``on_setup`` decides anew about each client that comes back.
        origins: for ws:// and wss://, the origins whose pages may connect, such as "https://app.example"; a page of
            another gets 403. None lets any page in. Who says no Origin is no browser, and is not asked for one.
        reuse_port: let other processes that say so too listen at the same port (SO_REUSEPORT); the system spreads new
            connections over them. For tcp, tls, ws and wss. A session that is to be resumed is known to one process.
        tls: the certificate to show, and whether clients have to show one, for tls:// and wss://; what the address
            says (cert, key, client_ca) wins.

    Raises:
        AddressError: at once, for an address that can not be; when entered, for a certificate that can not be used.
        BindFailed: when entered: the address can not be had.
        Unsupported: ``reuse_port`` where the system has no SO_REUSEPORT.
        afflux.resume.StoreError: when entered: the file can not be used.
    """
    if store is not None and not resume:
        raise ValueError("store= keeps sessions that can be resumed: it needs resume=True")
    address = parse(uri)
    for wanted, feature in ((lease, "lease"), (resume, "resume"), (extensions, "extensions")):
        if wanted:
            address.entry.require(feature)
    if origins is not None and address.transport not in ("ws", "wss", "mem"):
        raise ValueError(f"origins= is for ws:// and wss://, not for {address.transport}://")
    if reuse_port:
        _check_sharing(address)
    extras = _Extras(
        lease=lease,
        resume=resume,
        extensions=extensions or {},
        store=None if store is None else Path(store),
        origins=origins_of(origins),
        reuse_port=reuse_port,
    )
    return Server(address, handler, limits or Limits.server(), on_setup, credit, tls, extras)


def _check_sharing(address: Address) -> None:
    """Raise unless several processes can listen at the address.

    Raises:
        ValueError: its transport has no ports.
        Unsupported: the system can not do it.
    """
    from afflux.transports.tcp import require_sharing

    if address.carrier.authority != "host":
        raise ValueError(f"reuse_port= is for tcp://, tls://, ws:// and wss://, not for {address.transport}://")
    require_sharing()
