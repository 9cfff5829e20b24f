"""Serve one client: decide whether it may connect, and begin its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from afflux.aio.peer import Peer
from afflux.aio.serving import Serving
from afflux.core.errors import Error
from afflux.core.events import Established, Opened, Resuming, Suspended
from afflux.core.limits import REASONS
from afflux.resume.recovery import plain

if TYPE_CHECKING:
    from afflux.aio.clients import Clients

__all__ = ["ServerConnection"]


class ServerConnection(Serving):
    """The connection of one client, and its handlers."""

    clients: Clients
    peer: Peer
    counted: bool = True
    "The gate counts the client's transport."
    deciding: asyncio.Task[None] | None = None
    certificate: object = None
    "The client's certificate when its session began."
    former: bool = False
    "The session began with a former process: ``on_setup`` has not decided about this client yet."
    again: Sequence[tuple[Opened, int]] = ()
    "Requests of a former process whose handlers begin again when the client has reconnected."

    def established(self, event: Established) -> None:
        """The client has sent its setup."""
        self.peer.setup = event.setup
        self.certificate = self.peer.certificate
        if self.driver.saving is not None:
            self.driver.saving.record.about = plain(self.certificate)
        self.clients.established(self)
        if self.clients.on_setup is not None:
            self.deciding = self.driver.tasks.spawn(self._decide(event.setup), self.slots.context.copy())

    def suspended(self, event: Suspended) -> None:
        """The client's transport is gone; its session is suspended."""
        self.clients.suspended(self)

    def resuming(self, event: Resuming) -> None:
        """A new connection asks to resume a session: assign its transport to that, if the checks pass."""
        clients = self.clients
        clients.gate.handshakes.pop(self, None)
        if clients.throttle.wait(self.peer.host):
            self.deciding = self.driver.tasks.spawn(self._wait_and_resume(event))
        else:
            clients.bring_back(self, event)

    async def _wait_and_resume(self, event: Resuming) -> None:
        if await self.clients.throttle.turn(self.peer.host):
            self.clients.bring_back(self, event)
        else:
            self.refuse(REASONS["auth_failures"])

    def resumed(self) -> None:
        """The client has reconnected."""
        again, self.again = self.again, ()
        for event, sent in again:
            self.begin_again(event, sent)

    def ended(self) -> None:
        """The connection is over."""
        if self.deciding is not None:
            self.driver.tasks.cancel(self.deciding)
        super().ended()

    def parted(self) -> None:
        """The client's transport is gone: it no longer counts as a connection, even while its handlers run."""
        self.clients.parted(self)

    def left(self) -> None:
        """All tasks of the client have ended."""
        super().left()
        self.clients.left(self)
        del self.peer  # it refers to this object

    def refuse(self, reason: str, code: int | None = None) -> None:
        """Refuse the client."""
        state = self.driver.state
        state.run(state.engine.refuse, reason, state.now(), code)

    async def decide_again(self, newcomer: ServerConnection, event: Resuming) -> None:
        """Let ``on_setup`` decide about a client of a former process that has reconnected."""
        decide, state = self.clients.on_setup, newcomer.driver.state
        newcomer.peer.setup = self.peer.setup
        try:
            if decide is not None:
                await decide(self.peer.setup, newcomer.peer)
        except Exception as error:
            if not isinstance(error, Error):
                state.log_failure("afflux: on_setup raised", error)
            newcomer.refuse("there is no such session")
        else:
            self.former = False
            self.peer.principal = newcomer.peer.principal
            if not state.over:
                self.clients.bring_back(newcomer, event)

    async def _decide(self, setup: object) -> None:
        decide, state = self.clients.on_setup, self.driver.state
        try:
            if decide is not None:
                await decide(setup, self.peer)
        except Error as error:
            self.refuse(error.message or "refused", error.code)
        except Exception as error:
            state.log_failure("afflux: on_setup raised", error)
            self.refuse("refused")
        else:
            state.run(state.engine.accept, state.now())
