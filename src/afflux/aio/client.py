"""Connect to a server, and reconnect or resume when the connection is lost: ``afflux.connect``."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_bytes
from time import time
from typing import TYPE_CHECKING, Any, Final, Never

from afflux.aio.driver import Driver
from afflux.aio.keeper import Keeper
from afflux.aio.peer import Peer
from afflux.aio.serving import Serving
from afflux.aio.verbs import Extension, verbs_of
from afflux.calls import SetupLike, terms_of
from afflux.calls.arguments import AsyncOnly, check_arguments
from afflux.core.entry import NO_STORE
from afflux.core.errors import ConnectFailed, SetupRefused
from afflux.core.events import Established, Opened, Suspended
from afflux.core.limits import Limits
from afflux.core.terms import TOKEN_BYTES, Terms
from afflux.retry.backoff import Backoff
from afflux.transports import clock
from afflux.transports.address import Address, parse
from afflux.transports.durations import in_words
from afflux.transports.security import Tls, settled
from afflux.watching import watch_of

if TYPE_CHECKING:
    from afflux.protocols.rsocket.lease import LeasePolicy
    from afflux.resume.record import Record
    from afflux.resume.store import Store

__all__ = ["Connecting", "connect"]

_MOST_WAITING = 256
"Requests that may wait for a lease when ``lease_wait`` is set and ``limits.lease_queue`` is 0."
_NO_ITEMS: Final = 'a connection has no items: write "async with afflux.connect(…) as peer", then "peer.stream(…)"'


class ClientHandlers(Serving):
    """The handlers of a client. They also notify the keeper, which maintains the connection."""

    keeper: Keeper | None = None
    again: Sequence[tuple[Opened, int]] = ()
    "Handlers of a former process that begin again when the session is resumed."
    back: asyncio.Future[None] | None = None
    "Done when the session of a former process is resumed."
    greeted = False
    "The server's part of a handshake has arrived, in a protocol that has one."
    heard: asyncio.Future[None] | None = None
    "Done when more input has been processed; see ``next_input``."

    def next_input(self) -> asyncio.Future[None]:
        """Return a future that is done when more input has been processed."""
        self.heard = heard = self.driver.state.loop.create_future()
        self.driver.requested = True
        return heard

    def established(self, event: Established) -> None:
        """The server's part of the handshake has arrived."""
        self.greeted = True

    def begin(self) -> None:
        """Begin the handlers that may begin."""
        super().begin()
        heard, self.heard = self.heard, None
        if heard is not None and not heard.done():
            heard.set_result(None)

    def suspended(self, event: Suspended) -> None:
        """The transport is gone; the session continues."""
        if self.keeper is not None:
            self.keeper.suspended(self.driver)

    def resumed(self) -> None:
        """The session has a transport again."""
        if self.keeper is not None:
            self.keeper.resumed()
        again, self.again = self.again, ()
        for event, sent in again:
            self.begin_again(event, sent)
        if self.back is not None and not self.back.done():
            self.back.set_result(None)

    def ended(self) -> None:
        """The connection is over."""
        super().ended()
        if self.keeper is not None:
            self.keeper.ended(self.driver)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The arguments of ``connect``, checked."""

    address: Address
    handler: object
    limits: Limits
    terms: Terms
    timeout: float
    tls: Tls | None
    lease_wait: float | None
    resume: Backoff | None
    reconnect: Backoff | None
    extensions: Mapping[int | str, Extension]
    store: Path | None


class Connecting(AsyncOnly):
    """A connection about to be made: ``await`` it for the peer, or use ``async with``, which also closes the peer."""

    __slots__ = ("_peer", "_plan", "_store")

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._peer: Peer | None = None
        self._store: Store | None = None

    def __repr__(self) -> str:
        what = (
            'await it, or use "async with"'
            if self._peer is None
            else "connected"
            if not self._peer.closed
            else "closed"
        )
        return f"<Connecting to {self._plan.address!s:.200}: {what}>"

    def __await__(self) -> Generator[None, None, Peer]:
        return self._open().__await__()

    if not TYPE_CHECKING:  # a type checker finds the missing attribute itself

        def __getattr__(self, name: str) -> Never:
            hint = ""
            if hasattr(Peer, name):
                hint = ': it is not made yet; write "async with afflux.connect(…) as peer" or "peer = await '
                hint += 'afflux.connect(…)"'
            raise AttributeError(f"a connection that is about to be made has no {name!r}{hint}", name=name, obj=self)

        def __iter__(self) -> Never:
            raise TypeError(_NO_ITEMS)

        def __aiter__(self) -> Never:
            raise TypeError(_NO_ITEMS)

    async def __aenter__(self) -> Peer:
        self._peer = await self._open()
        return self._peer

    async def __aexit__(self, *_: object) -> None:
        if self._peer is not None:
            await self._peer.close()

    async def _open(self) -> Peer:
        if self._plan.store is None:
            return await self._connect()
        from afflux.resume.store import Store

        self._store = store = Store(self._plan.store)
        try:
            peer = await self._connect()
        except BaseException:
            store.close()
            raise
        peer.store = store
        return peer

    async def _connect(self) -> Peer:
        plan = self._plan
        handlers, driver = self._prepare(self._former())
        peer = Peer(driver, handlers, plan.address.entry, str(plan.address))
        if (store := self._store) is not None and plan.reconnect is None:
            driver.finished.add_done_callback(lambda _: store.close())
        if plan.resume is not None or plan.reconnect is not None:

            async def renew() -> Driver:
                handlers, driver = self._prepare()
                handlers.keeper = peer.keeper
                try:
                    await self._begin(driver)
                except BaseException:
                    driver.abort()
                    raise
                peer.renewed(driver, handlers)
                return driver

            peer.keeper = handlers.keeper = Keeper(
                plan.limits, join=self._join, renew=renew, resume=plan.resume, reconnect=plan.reconnect
            )
        if driver.state.away and driver.saving is not None:
            await self._resume_former(peer, handlers, driver, driver.saving.record)
            return peer
        try:
            await self._begin(driver)
        except BaseException:
            if peer.keeper is not None:
                await peer.keeper.stop()
            driver.abort()
            raise
        return peer

    def _prepare(self, former: Record | None = None) -> tuple[ClientHandlers, Driver]:
        """Make an engine, its driver and its handlers, without a transport, or restore those of a former process."""
        plan = self._plan
        terms = plan.terms if plan.resume is None else replace(plan.terms, token=token_bytes(TOKEN_BYTES))
        verbs = verbs_of(plan.handler)
        engine: Any
        if former is None:
            engine = plan.address.entry.make("client", terms, limits=plan.limits, decide=False, now=clock.now())
        else:
            engine = former.engine
        handlers = ClientHandlers(verbs, extensions=plan.extensions)
        watch = watch_of(plan.address.entry, str(plan.address), client=True)
        driver = handlers.slots.driver = Driver(engine, handlers, expects=plan.address, watch=watch)
        driver.leases.wait_s = plan.lease_wait
        if terms.leases:
            driver.leases.first = driver.state.loop.create_future()
        if former is not None:
            driver.keep(former)
            driver.state.away = True
        elif self._store is not None:
            from afflux.resume.record import Record
            from afflux.resume.recovery import replays_of

            replays = replays_of(plan.handler)
            where = self._where
            driver.keep(Record(self._store, engine, kind="client", address=where, asks=True, replays=replays))
        return handlers, driver

    # -- a session that a former process has left -------------------------------------------------------------

    @property
    def _where(self) -> str:
        """The address of a session, without its options."""
        return str(replace(self._plan.address, options={}))

    def _former(self) -> Record | None:
        """Load the session in the file.

        Raises:
            StoreError: the session is not one that can continue here.
            SetupRefused: the session is too old; it has been removed from the file.
        """
        plan, store = self._plan, self._store
        found = [] if store is None else store.sessions()
        if store is None or not found:
            return None
        from afflux.resume.errors import StoreError
        from afflux.resume.record import Record
        from afflux.resume.recovery import replays_of

        saved = found[-1]
        if saved.kind != "client":
            raise StoreError(store.path, "it stores the sessions of a server; choose another file")
        if saved.address != self._where:
            text = f"it stores a session with {saved.address}; use another file for {self._where}"
            raise StoreError(store.path, text)
        replays = replays_of(plan.handler)
        record = Record.load(store, saved, limits=plan.limits, terms=plan.terms, asks=True, replays=replays)
        if time() - saved.seen <= plan.limits.resume_s:
            return record
        record.remove()
        if plan.reconnect is not None:
            return None
        text = f"{store.path}: its session was left more than {plan.limits.resume_s:g} s ago"
        raise SetupRefused(f"{text}{_lost(record)}; connect again for a new one", rule="resume_s")

    async def _resume_former(self, peer: Peer, handlers: ClientHandlers, driver: Driver, record: Record) -> None:
        """Resume a session that a former process has left.

        Raises:
            SetupRefused: the server does not have the session any more; it has been removed from the file.
            ConnectFailed: no server answered; the session stays in the file.
        """
        from afflux.aio.unfinished import unfinished_of
        from afflux.resume.recovery import restart

        handlers.again = restart(record, "client")
        handlers.back = back = driver.state.loop.create_future()
        peer.unfinished = unfinished_of(driver, record)
        try:
            await self._join(driver, until=back)
        except BaseException:
            if peer.keeper is not None:
                await peer.keeper.stop()
            driver.leave()
            raise
        if driver.state.over and driver.renew is not None:
            await driver.renew()
        elif driver.state.over:
            reason = driver.state.reason()
            text = f"{record.store.path}: its session is over: {reason.message}{_lost(record)}"
            text += "; connect again for a new one"
            raise SetupRefused(text, code=reason.code, stream=0, rule=reason.rule) from reason

    async def _begin(self, driver: Driver) -> None:
        """Open the first transport for a driver. With leases, also wait until a request can be sent."""
        await self._join(driver, until=driver.leases.first)
        if driver.leases.first is not None:
            driver.state.check()

    async def _join(self, driver: Driver, *, until: asyncio.Future[None] | None = None) -> None:
        """Open a transport for a driver, and wait for ``until`` or the end of the connection."""
        plan = self._plan
        if (watch := driver.state.watch) is not None:
            watch.connecting()
        try:
            async with asyncio.timeout(plan.timeout):
                plan.address.check_port()
                await plan.address.carrier.load().open(plan.address, lambda: driver.pump, plan.tls)
                if until is not None:
                    await asyncio.wait((until, driver.closed), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            raise ConnectFailed(f"{plan.address} did not answer within {in_words(plan.timeout)}") from error


def connect(
    uri: str | Address,
    *,
    handler: object = None,
    limits: Limits | None = None,
    setup: SetupLike | None = None,
    metadata_mime: str | None = None,
    data_mime: str | None = None,
    keepalive: float | None = None,
    lifetime: float | None = None,
    mtu: int | None = None,
    timeout: float | None = None,
    tls: Tls | None = None,
    lease: LeasePolicy | bool = False,
    lease_wait: float | None = None,
    resume: Backoff | bool = False,
    reconnect: Backoff | bool = False,
    extensions: Mapping[int | str, Extension] | None = None,
    store: str | Path | None = None,
) -> Connecting:
    """Connect to a server: ``async with afflux.connect(uri) as peer`` or ``peer = await afflux.connect(uri)``.

    The first use of ``afflux.connect`` in a running loop imports it in a thread, so that the loop does not stop; errors
    of its arguments are then raised when it is entered. ``from afflux import connect`` outside of a loop imports it.

    Args:
        uri: the address; its options take precedence over the arguments of the same name.
        handler: the handlers of the server's own requests; None refuses them.
        limits: the bounds; ``Limits.server()`` if None.
        setup: sent to the server when the connection is made: data, a payload, or entries of metadata such as
            ``afflux.Bearer("…")``.
        metadata_mime: MIME type of all metadata; composite if None. With ``message/x.rsocket.routing.v0`` it is the
                route alone, and other types have no route.
        data_mime: MIME type of all data; application/octet-stream if None.
        keepalive: seconds between keepalives, 0.01 or more; 20 if None.
        lifetime: seconds of silence after which the server counts as dead, more than ``keepalive``; 90 if None.
        mtu: largest frame sent, in bytes.
        timeout: seconds until the transport has to be connected; ``limits.handshake_s`` if None.
        tls: trusted authorities, and the certificate to show, for ``tls`` and ``wss``; options of the address (ca,
            cert, key, name) take precedence.
        lease: honour leases of the server; a policy decides what the server is granted in turn, True grants it
            unlimited requests. Without a lease a request raises LeaseExpired.
        lease_wait: seconds that a request waits for a lease instead; at most ``limits.lease_queue`` requests wait (256
            when that is 0).
        resume: when the transport is lost, resume the session on another: no item is lost or repeated. True for
            ``Backoff()``. Tries end when ``limits.resume_s`` is over, or when the server refuses.
        reconnect: when the connection is over, make another; requests in flight have failed. True for ``Backoff()``.
        extensions: functions to call with ``(stream, body)`` of an EXT frame, by extended type or by name.
        store: a file to store the session in (SQLite, mode 0600), with ``resume``: when this process dies, the next
            one that connects with the same file resumes the session, and finds the unfinished streams in
            ``peer.unfinished``. An item counts as consumed when the next one is requested. The file is for one session
            at a time; closing the connection normally ends the session.
    Raises:
        AddressError: immediately, for an invalid address; when entered, for a certificate that cannot be used.
        TypeError: immediately: an argument is of a wrong type.
        Unsupported: the protocol or transport lacks a requested feature.
        ConnectFailed: when entered: no server answered, or the TLS handshake failed.
        SetupRefused: when entered, with ``store``: the session in the file is over; with ``reconnect`` another begins.
        afflux.resume.StoreError: when entered: the file cannot be used.
    """
    check_arguments(locals())
    if store is not None and not resume:
        raise ValueError("store= stores a session that can be resumed: it needs resume=True")
    address = parse(uri)
    address.carrier.load()
    for wanted, feature in ((lease, "lease"), (resume, "resume"), (extensions, "extensions")):
        if wanted:
            address.entry.require(feature)
    if store is not None:
        address.entry.require("store", NO_STORE)
    limits = limits or Limits.server()
    if lease_wait is not None and not limits.lease_queue:
        limits = limits.replace(lease_queue=_MOST_WAITING)
    verbs_of(handler)
    terms = terms_of(address, limits, setup, metadata_mime, data_mime, keepalive, lifetime, mtu)
    policy = None if isinstance(lease, bool) else lease
    return Connecting(
        _Plan(
            address=address,
            handler=handler,
            limits=limits,
            terms=replace(
                terms,
                leases=bool(lease),
                lease=policy,
                extensions=tuple(extensions or ()),
                sizes=getattr(handler, "element_size", None),
            ),
            timeout=limits.handshake_s if timeout is None else timeout,
            tls=settled(tls, address),
            lease_wait=lease_wait,
            resume=_backoff(resume),
            reconnect=_backoff(reconnect),
            extensions=extensions or {},
            store=None if store is None else Path(store),
        )
    )


def _lost(record: Record) -> str:
    """Describe what is lost with a session, for an error's text."""
    count = len(record.asked)
    return f" ({count} unfinished {'stream is' if count == 1 else 'streams are'} lost with it)" if count else ""


def _backoff(wanted: Backoff | bool) -> Backoff | None:
    if isinstance(wanted, Backoff):
        return wanted
    return Backoff() if wanted else None
