"""The catalogue of honest habits: what a client does, on which wires and transports, and where it is tried.

A habit is an async function of a ``Place``. It opens clients, asserts that everything is answered rightly, and leaves
its clients open: ``test_habits.py`` then asserts that each of them lives and that an ordinary request is answered.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.honest.link import Framing, Link

__all__ = ["HABITS", "MiB", "Habit", "Place", "habit", "together"]

MiB = 1 << 20


@dataclass
class Place:
    """A server to try a habit against, and the clients that the habit has opened there."""

    wire: str
    transport: str
    host: str
    port: int
    in_process: bool = False
    clients: list[Any] = field(default_factory=list)
    "Those that should live when the habit has ended."
    links: list[Link] = field(default_factory=list)
    "Every connection, to be closed in the end."

    @property
    def web(self) -> bool:
        """Whether the transport is WebSocket."""
        return self.transport == "ws"

    async def dial(
        self, framing: Framing, receive_buffer: int = 0, headers: Sequence[str] = (), path: str = "/"
    ) -> Link:
        """Connect."""
        link = await Link.dial(
            self.host,
            self.port,
            framing,
            web=self.web,
            receive_buffer=receive_buffer,
            headers=headers,
            path=path,
        )
        self.links.append(link)
        return link

    def reach(self) -> socket.socket:
        """A bare connection that has said nothing."""
        return socket.create_connection((self.host, self.port))


async def together(tasks: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The results of all; when one fails, the others are cancelled."""
    async with asyncio.TaskGroup() as group:
        begun = [group.create_task(task) for task in tasks]
    return [task.result() for task in begun]


Script = Callable[[Place], Awaitable[None]]


@dataclass(frozen=True)
class Habit:
    """What a client of another implementation does."""

    name: str
    wire: str
    script: Script
    transports: tuple[str, ...]
    server: str
    "Which server: a name in test_habits.SERVERS."
    slow: bool
    waits: bool
    "Whether it mostly waits: these are tried side by side, each with a server of its own."
    in_process: bool
    "Whether it is tried against afflux.serve in the test's own process, too."
    memory: int
    "Bytes by which the server process may grow meanwhile."
    fails: str
    "Why it fails today: the number of an issue. Empty when it works."


HABITS: list[Habit] = []


def habit(
    wire: str,
    *transports: str,
    server: str = "demo",
    slow: bool = False,
    waits: bool = False,
    in_process: bool = True,
    memory: int = 24 * MiB,
    fails: str = "",
) -> Callable[[Script], Script]:
    """Enter a function into the catalogue, under its own name."""

    def enter(script: Script) -> Script:
        HABITS.append(
            Habit(
                script.__name__,
                wire,
                script,
                transports or ("tcp",),
                server,
                slow or waits,
                waits,
                in_process and not waits,
                memory,
                fails,
            )
        )
        return script

    return enter
