"""Run one case: two sides, the wire between them, and the facts of the responder. Cases use only this module."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import afflux
from afflux.protocols.rsocket.lease import FixedLease
from afflux.retry.backoff import Backoff
from interop.control import Facts, Process
from interop.proxy import Proxy, Seen
from interop.responder import Responder
from interop.sides import AffluxAsker, Asker, Failed, ProcessAsker, RefusedAsker

__all__ = ["COMPOSITE", "Conversation", "Failed", "Setting", "Skip", "check"]

COMPOSITE = "message/x.rsocket.composite-metadata.v0"


class Skip(Exception):  # noqa: N818 -- a verdict
    """The case does not apply; the text is the reason."""


def check(true: Any, otherwise: str) -> None:
    """Fail the case unless the condition is true."""
    if not true:
        raise AssertionError(otherwise)


@dataclass(frozen=True, slots=True)
class Setting:
    """The setup of the two sides."""

    keepalive: float = 20
    "Seconds."
    lifetime: float = 90
    data_mime: str = "application/octet-stream"
    metadata_mime: str = COMPOSITE
    setup: tuple[bytes, bytes | None] = (b"", None)
    "Data and metadata of the setup."
    mtu: int | None = None
    "Maximum frame size, for each side that supports it."
    reject: bool = False
    "Whether the server refuses."
    lease: tuple[float, int] | None = None
    "Lease duration in seconds, and requests that the server grants."
    lease_back: tuple[float, int] | None = None
    "The same, granted by the client."
    lease_alone: bool = False
    "Whether only the client requests leases."
    resume: bool = False
    resume_alone: bool = False
    "Whether only the client requests resumption."
    subprotocol: bool = True
    'WebSocket: whether the peer announces the subprotocol "rsocket".'
    limits: dict[str, Any] = field(default_factory=dict)
    "Changes to afflux's limits."


@dataclass(slots=True)
class Conversation:
    """The objects that a case uses."""

    peer: str
    "The other implementation."
    role: str
    'Its role: "client" or "server".'
    transport: str
    process: Process
    setting: Setting
    proxy: Proxy
    asker: Asker
    "The client as requester."
    facts: Facts
    "Facts of the server."
    back: Asker | None = None
    "The server as requester, once the connection is accepted."
    back_facts: Facts = field(default_factory=Facts)
    "Facts of the client."

    @property
    def seen(self) -> list[Seen]:
        """The frames of the latest connection."""
        return self.proxy.link.seen if self.proxy.links else []

    async def frame(self, kind: type, way: str, count: int = 1, **fields: Any) -> Seen:
        """Wait for the ``count``-th frame of a type (with these values) in direction ``way``."""
        from afflux.protocols.rsocket.frames import decode

        def fitting() -> list[Seen]:
            found = [seen for seen in self.seen if seen.direction == way and seen.type == kind.TYPE]  # type: ignore[attr-defined]
            if fields:
                found = [s for s in found if all(getattr(decode(s.frame), k) == v for k, v in fields.items())]
            return found

        await self.proxy.wait(lambda: bool(self.proxy.links) and len(fitting()) >= count)
        return fitting()[count - 1]


def limits_of(setting: Setting) -> afflux.Limits:
    """Return the server profile with the changes of a case. The process accepts connections as fast as they come."""
    changes = {"accepts_per_s": 10_000, **setting.limits}
    return replace(afflux.Limits.server(), **changes)


def _orders(setting: Setting) -> dict[str, Any]:
    """Return the setting as orders for a server process."""
    lease = setting.lease and {"ttl": round(setting.lease[0] * 1000), "n": setting.lease[1]}
    return {
        "mtu": setting.mtu,
        "lease": lease,
        "reject": setting.reject,
        "resume": setting.resume,
        "bare": not setting.subprotocol,
    }


def _client_orders(setting: Setting) -> dict[str, Any]:
    """Return the setting as orders for a client process."""
    data, metadata = setting.setup
    lease = None
    if setting.lease or setting.lease_alone:
        ttl, n = setting.lease_back or (0, 0)
        lease = {"ttl": round(ttl * 1000), "n": n}
    return {
        "mtu": setting.mtu,
        "lease": lease,
        "bare": not setting.subprotocol,
        "keepalive": round(setting.keepalive * 1000),
        "lifetime": round(setting.lifetime * 1000),
        "data_mime": setting.data_mime,
        "metadata_mime": setting.metadata_mime,
        "setup_data": "h:" + data.hex() if data else None,
        "setup_metadata": None if metadata is None else "h:" + metadata.hex(),
        "resume": os.urandom(16).hex() if setting.resume or setting.resume_alone else None,
    }


@asynccontextmanager
async def peer_is_client(process: Process, peer: str, transport: str, setting: Setting) -> AsyncIterator[Conversation]:
    """Connect the peer to an afflux server."""
    facts = Facts()
    responder = Responder(facts)
    guests: list[afflux.Peer] = []

    async def on_setup(setup: Any, guest: afflux.Peer) -> None:
        guests.append(guest)
        await responder.setup(setup, guest, setting.reject)

    uri = f"{transport}://127.0.0.1:0" + (f"?mtu={setting.mtu}" if setting.mtu else "")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            afflux.serve(uri, responder, limits=limits_of(setting), on_setup=on_setup, **_server_parts(setting))
        )
        proxy = await stack.enter_async_context(Proxy(server.uri))
        asker = ProcessAsker(process)
        conversation = Conversation(
            peer, "client", transport, process, setting, proxy, asker, facts, back_facts=process.facts
        )
        told = await process.ask("connect", uri=proxy.uri, **_client_orders(setting))
        if "error" in told:
            raise Failed(**told["error"])
        if not (setting.reject or setting.lease_alone or setting.resume_alone):
            await facts.wait("setup")
            conversation.back = AffluxAsker(guests[0])
        try:
            yield conversation
        finally:
            await process.ask("close")


@asynccontextmanager
async def peer_is_server(process: Process, peer: str, transport: str, setting: Setting) -> AsyncIterator[Conversation]:
    """Connect an afflux client to the peer."""
    ready = await process.ask("serve", transport=transport, **_orders(setting))
    facts, back_facts = process.facts, Facts()
    try:
        async with Proxy(ready["ready"]) as proxy, AsyncExitStack() as stack:
            asker = await _afflux_client(proxy, setting, back_facts, stack)
            back = ProcessAsker(process)
            yield Conversation(peer, "server", transport, process, setting, proxy, asker, facts, back, back_facts)
    finally:
        await process.ask("close")


async def _afflux_client(proxy: Proxy, setting: Setting, facts: Facts, stack: AsyncExitStack) -> Asker:
    """Connect; an immediate refusal is also a result."""
    connecting = afflux.connect(
        proxy.uri + (f"?mtu={setting.mtu}" if setting.mtu else ""),
        handler=Responder(facts),
        limits=limits_of(setting),
        setup=afflux.Payload(*setting.setup),
        keepalive=setting.keepalive,
        lifetime=setting.lifetime,
        data_mime=setting.data_mime,
        metadata_mime=setting.metadata_mime,
        **_client_parts(setting),
    )
    try:
        return AffluxAsker(await stack.enter_async_context(connecting))
    except afflux.SetupRefused as error:
        return RefusedAsker(error)


def _client_parts(setting: Setting) -> dict[str, Any]:
    """Return leases and resumption of an afflux client."""
    parts: dict[str, Any] = {}
    if setting.lease or setting.lease_alone:
        ttl, n = setting.lease_back or (0, 0)
        parts["lease"] = FixedLease(n, ttl) if n else True
    if setting.resume or setting.resume_alone:
        parts["resume"] = Backoff(first=0.02, most=0.2)
    return parts


def _server_parts(setting: Setting) -> dict[str, Any]:
    """Return leases and resumption of an afflux server."""
    parts: dict[str, Any] = {"resume": setting.resume}
    if setting.lease:
        ttl, n = setting.lease
        parts["lease"] = FixedLease(n, ttl)
    return parts
