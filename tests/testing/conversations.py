"""The sessions of a simulated day in Limit-Stream: one at a time, in turns, and with payloads only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import afflux
from afflux.sessions import Chan, SessionType, session_type

if TYPE_CHECKING:
    from tests.testing.simulation import Handlers, Ledger, Simulation

__all__ = ["TALK", "answers", "talk"]

TALK: SessionType[Any, Any] = session_type(
    {
        "name": "talk",
        "states": [["recv", "string", 1], ["offer", 2, 4], ["recv", "string", 3], ["send", "string", 1], ["end"]],
        "types": {},
    }
)
"The client names its operation; each text is answered, until it chooses the end."


async def talk(simulation: Simulation, peer: afflux.Peer, ledger: Ledger, name: bytes) -> None:
    """Take the steps of a client."""
    async with peer.open(TALK) as chan:
        chan = await chan.send(name.decode())
        for item in range(ledger.items):
            ledger.sent += 1
            chan = await (await chan.choose(1)).send(ledger.text(item).decode())
            answer, chan = await chan.recv()
            simulation.take(ledger, answer.encode())
            if item % 8 == 7:
                await asyncio.sleep(simulation.random.random() * ledger.slow)
        chan = await chan.choose(2)
        await chan.end()


def answers(simulation: Simulation, handlers: Handlers) -> afflux.Router:
    """Return the responder."""
    router = afflux.Router()

    @router.session(TALK)
    async def answer(chan: Chan[Any]) -> None:
        name, chan = await chan.recv()
        ledger = await handlers.begin(name.encode())
        simulation.working += 1
        try:
            if ledger.stuck:
                await asyncio.Event().wait()
            while True:
                branch, chan = await chan.offer()
                if branch == 2:
                    break
                text, chan = await chan.recv()
                if text.encode() != ledger.text(ledger.seen):
                    simulation.wrong(f"{ledger}: the responder received {text[:20]!r}, not {ledger.seen}")
                ledger.seen += 1
                if ledger.fails and ledger.seen == ledger.items:
                    raise afflux.ApplicationError(message="as it was told")
                ledger.made += 1
                chan = await chan.send(text)
            await chan.end()
        finally:
            simulation.working -= 1

    @router.channel()
    async def echo(items: AsyncIterator[afflux.Payload]) -> AsyncIterator[bytes]:
        """The answers follow when the client has completed its half."""
        taken, failure = list[bytes](), None
        try:
            async for item in handlers.echo(items):
                taken.append(item.data)
        except afflux.ApplicationError as error:
            failure = error
        for data in taken:
            yield data
        if failure is not None:
            raise failure

    return router
