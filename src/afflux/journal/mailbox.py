"""Send requests to a NATS server, and await their answers together: reading blocks costs less than with nats-py's
``request``, which has a task and a timer for each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

__all__ = ["Mailbox"]

_LOOK_S = 0.1
"Seconds between two looks at the connection."


class _Group:
    """Requests that are awaited together."""

    def __init__(self, size: int) -> None:
        self.answers: list[Msg | None] = [None] * size
        self.missing = size
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Mailbox:
    """The answers to requests of one connection, on one subscription.

    Args:
        client: the connection.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._subject = ""
        self._numbers = count()
        self._waiting: dict[str, tuple[_Group, int]] = {}
        self._arrived = 0

    async def open(self) -> None:
        """Subscribe, over the open connection. Raises as nats-py does."""
        self._subject = self._client.new_inbox()
        await self._client.subscribe(f"{self._subject}.*", cb=self._take)

    async def ask(
        self, subject: str, bodies: Sequence[bytes], lost: asyncio.Future[None], timeout_s: float
    ) -> list[Msg] | None:
        """Send requests; return their answers, in order. None if the connection is lost. Raises as nats-py does.

        Raises:
            TimeoutError: nothing has arrived for ``timeout_s`` seconds.
        """
        group = _Group(len(bodies))
        names = [f"{self._subject}.{next(self._numbers)}" for _ in bodies]
        try:
            for index, (name, body) in enumerate(zip(names, bodies, strict=True)):
                self._waiting[name] = group, index
                await self._client.publish(subject, body, reply=name)
            await self._wait(group, lost, timeout_s)
        finally:
            for name in names:
                self._waiting.pop(name, None)
        return None if group.missing else [answer for answer in group.answers if answer is not None]

    async def _wait(self, group: _Group, lost: asyncio.Future[None], timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        arrived, deadline = self._arrived, loop.time() + timeout_s
        while not (group.complete.done() or lost.done() or self._client.is_closed):  # closed: not always reported
            await asyncio.wait((group.complete, lost), timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if self._arrived != arrived:
                arrived, deadline = self._arrived, loop.time() + timeout_s
            elif loop.time() > deadline:
                raise TimeoutError

    async def _take(self, message: Msg) -> None:
        self._arrived += 1
        group, index = self._waiting.pop(message.subject, (None, 0))
        if group is not None:
            group.answers[index] = message
            group.missing -= 1
            if not group.missing and not group.complete.done():
                group.complete.set_result(None)
