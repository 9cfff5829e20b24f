"""Talk to NATS servers: one connection, on an event loop of its own (loops.py).

A request is repeated with backoff while the servers do not answer, over another connection if that one was lost, for
up to the timeout of the address. nats-py's own reconnection is not used, because it is not bounded in time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from base64 import b64decode
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from afflux.core.errors import MissingExtra
from afflux.journal.access import context, credentials, denial
from afflux.journal.address import StreamAddress
from afflux.journal.errors import JournalAway, JournalError, JournalNoSpace
from afflux.journal.loops import CallerLoop, Closed, Loop, Started, ThreadLoop
from afflux.journal.mailbox import Mailbox
from afflux.retry.backoff import Backoff

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["Link", "Lost", "Message", "Refused"]

_ATTEMPT_S = 5.0
"Seconds that a server has for one answer."
_CONNECT_S = 2.0
_PING_S = 5
"Seconds between pings; a connection without answers to two of them is lost."
_LOOK_S = 0.1
"Seconds between two looks at the connection of a request."
_PENDING_BYTES = 0x1000000
"Bytes that may wait to be sent."
_BACKOFF = Backoff(first=0.02, most=1.0)
_NO_SPACE = frozenset((10002, 10023, 10028, 10047))
"JetStream's errors for storage that is used up, of an account or a server."
_STORE_FAILED = 10077
_NOT_ENABLED = frozenset((10035, 10039, 10076))
_NO_PEERS = 10005
"There are not enough servers for the replicas, perhaps because some are still starting."
_NOT_FOUND = 404
_AWAY = 503

_log = logging.getLogger("afflux.journal")
_T = TypeVar("_T")


class Lost(Exception):  # noqa: N818 -- not an error until the time for repetitions has passed
    """A server has not answered, or only that it cannot now. A later attempt may succeed."""


class Refused(Exception):  # noqa: N818 -- its caller finds the error
    """JetStream has refused a request."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        "The number of the error, ``err_code``."


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message."""

    sequence: int
    headers: dict[str, str]
    data: bytes


class _Connected(NamedTuple):
    """A connection."""

    client: Client
    lost: asyncio.Future[None]
    "Done when the connection has ended."
    mailbox: Mailbox


class Link:
    """A connection to the servers of an address. Close it.

    Args:
        address: the servers.
        threaded: any thread may call every method, at any time. Otherwise all calls come from one thread; nothing
            arrives between them, and an answer that arrives later than ``_ATTEMPT_S`` after its request is lost.

    Raises:
        AddressError: a file of the address is missing, or has the wrong content.
        MissingExtra: nats-py is not installed, or nkeys, for ``creds``.
    """

    def __init__(self, address: StreamAddress, *, threaded: bool = True) -> None:
        try:
            import nats.aio.client

            from afflux.journal.transport import Chunks
        except ImportError:
            raise MissingExtra("a journal on NATS JetStream", "nats") from None
        self.address = address
        self.path = Path(address.stream)
        "The name of the journal in errors."
        self.max_payload = 0
        "The most bytes of a message, headers included; 0 before the first connection."
        self._connect = nats.aio.client.Client
        self._transport = Chunks
        self._errors = nats.errors
        credentials(address)
        context(address)
        self._found: _Connected | None = None
        self._opening = asyncio.Lock()
        self._turn = 0
        self._cause: Exception | None = None
        self._loop: Loop = ThreadLoop() if threaded else CallerLoop()

    # -- from a thread without a loop -----------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, _T]) -> Started[_T]:
        """Run a coroutine on the link's loop.

        Raises:
            JournalError: the link is closed.
        """
        try:
            return self._loop.start(work)
        except Closed:
            raise JournalError(self.path, "the journal is closed") from None

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a coroutine on the link's loop. Raises what it raises, and as ``start``."""
        return self.result(self.start(work))

    def result(self, started: Started[_T]) -> _T:
        """Return the result of a coroutine that was started. Raises what it raises."""
        try:
            return self._loop.result(started)
        except Closed:
            raise JournalError(self.path, "the journal was closed meanwhile") from None

    def close(self) -> None:
        """Close the connection and the loop. Idempotent."""
        self._loop.close(self._end_all())

    # -- on the loop ----------------------------------------------------------------------------------------------

    async def patiently(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Return what ``attempt`` returns, repeated while it raises Lost.

        Raises:
            JournalAway: the servers have not answered for the timeout of the address.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.address.timeout_s
        waits: Iterator[float] | None = None
        lost: Lost | None = None
        while True:
            try:
                result = await attempt()
                if waits is not None:
                    _log.warning("journal %s: its servers answer again", self.path)
                return result
            except Lost as error:
                if waits is None:
                    waits, limit = _BACKOFF.waits(Random()), self.address.timeout_s
                    _log.warning("journal %s: %s; trying again for up to %g s", self.path, error, limit)
                lost = error
            left = deadline - loop.time()
            if left <= 0:
                raise JournalAway(self.path, self._away(lost)) from self._cause
            await asyncio.sleep(min(next(waits), left))

    async def api(self, operation: str, body: object = None) -> dict[str, Any]:
        """Return JetStream's answer to one request, such as ``STREAM.INFO.NAME``.

        Raises:
            Lost: there was no answer, or no server can answer now.
            Refused: it was refused.
            JournalNoSpace: the storage of the account or the server is used up.
            JournalError: there is no JetStream, or the connection was refused.
        """
        data = b"" if body is None else json.dumps(body).encode()
        return self._checked((await self._request(f"$JS.API.{operation}", data))[1])

    async def publish(self, subject: str, data: bytes, headers: dict[str, str]) -> tuple[int, bool]:
        """Store a message; return its sequence, and whether it was stored before. Raises as ``api`` does."""
        answer = self._checked((await self._request(subject, data, headers))[1])
        return int(answer.get("seq", 0)), bool(answer.get("duplicate"))

    async def direct(self, stream: str, body: object) -> Message | None:
        """Return a message from any server that stores it; None if that one does not have it. Raises Lost."""
        return _direct(*await self._request(f"$JS.API.DIRECT.GET.{stream}", json.dumps(body).encode()))

    async def direct_all(self, stream: str, bodies: Sequence[object]) -> list[Message | None]:
        """Return messages as ``direct`` does, requested together. Raises Lost if any answer is missing."""
        client, lost, mailbox = await self._connected()
        requests = [json.dumps(body).encode() for body in bodies]
        with self._failures(client):
            answers = await mailbox.ask(f"$JS.API.DIRECT.GET.{stream}", requests, lost, _ATTEMPT_S)
        if answers is None:
            raise Lost("the connection was lost")
        return [_direct(dict(answer.headers or {}), answer.data) for answer in answers]

    async def stored(self, stream: str, body: object) -> Message | None:
        """Return a message from the stream's leader; None if there is none. Raises as ``api`` does."""
        try:
            found = (await self.api(f"STREAM.MSG.GET.{stream}", body))["message"]
        except Refused as refused:
            if refused.code == 10037:  # no message found
                return None
            raise
        headers: dict[str, str] = {}
        for line in b64decode(found.get("hdrs", "")).decode("utf-8", "replace").split("\r\n")[1:]:
            name, colon, value = line.partition(":")
            if colon:
                headers[name] = value.strip()
        return Message(int(found["seq"]), headers, b64decode(found.get("data", "")))

    def _checked(self, data: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(data)
            error = answer.get("error")
        except (ValueError, AttributeError):
            raise Lost("an answer is not one of JetStream") from None
        if error is None:
            return dict(answer)
        status, code, text = error.get("code", 0), error.get("err_code", 0), str(error.get("description", ""))
        if code in _NO_SPACE or code == _STORE_FAILED:
            raise JournalNoSpace(self.path, f"JetStream has no room ({text}); trim items, or raise its limits")
        if code in _NOT_ENABLED:
            raise JournalError(self.path, f"{text}: start {self._where} with -js, or enable it for the account")
        if status == _AWAY or code == _NO_PEERS:
            raise Lost(text)
        raise Refused(code, text)

    async def _request(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None
    ) -> tuple[dict[str, str], bytes]:
        client, lost, _ = await self._connected()
        request = asyncio.ensure_future(client.request(subject, data, timeout=_ATTEMPT_S, headers=headers))
        try:
            with self._failures(client):
                while not (request.done() or lost.done() or client.is_closed):  # closed: not always reported
                    await asyncio.wait((request, lost), timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if not request.done():
                    raise Lost("the connection was lost")
                message = request.result()
        finally:
            request.cancel()
        return dict(message.headers or {}), message.data

    @contextmanager
    def _failures(self, client: Client) -> Iterator[None]:
        """Raise nats-py's errors of a request as those of ``api``."""
        try:
            yield
        except self._errors.NoRespondersError:
            if not client._server_info.get("jetstream"):  # not public otherwise
                text = f"{self._where} has no JetStream; start the server with -js"
                raise JournalError(self.path, text) from None
            raise Lost("no server of the stream answers") from None
        except self._errors.MaxPayloadError:
            text = f"a message is larger than max_payload={client.max_payload} of the server"
            raise JournalError(self.path, text) from None
        except (self._errors.Error, OSError, TimeoutError) as error:
            raise Lost(f"no answer ({_words(self._cause or error)})") from error

    async def _connected(self) -> _Connected:
        async with self._opening:
            found = self._found
            if found is None or found.lost.done() or found.client.is_closed:
                await self._end()
                found = self._found = await self._open()
            return found

    async def _open(self) -> _Connected:
        address = self.address
        server = address.servers[self._turn % len(address.servers)]
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_error)
        lost: asyncio.Future[None] = loop.create_future()
        client = self._connect()
        client._transport = self._transport(secure=address.tls is not None)

        async def end() -> None:
            if not lost.done():
                lost.set_result(None)

        mailbox = Mailbox(client)
        try:
            async with asyncio.timeout(2 * _CONNECT_S):
                await client.connect(
                    [f"nats://{server}"],
                    name=f"afflux journal {address.stream}",
                    **credentials(address), **context(address),
                    allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0,
                    connect_timeout=int(_CONNECT_S), ping_interval=_PING_S, pending_size=_PENDING_BYTES,
                    disconnected_cb=end, closed_cb=end, error_cb=self._failed,
                )  # fmt: skip
                await mailbox.open()
        except (self._errors.Error, OSError, TimeoutError) as error:
            await self._abandon(client)
            cause = self._cause if isinstance(error, self._errors.NoServersError) else error
            if (text := denial(address, server, cause)) is not None:
                raise JournalError(self.path, text) from None
            self._turn += 1
            raise Lost(f"{server} cannot be reached ({_words(cause or error)})") from error
        self._cause = None
        self.max_payload = client.max_payload
        return _Connected(client, lost, mailbox)

    async def _failed(self, error: Exception) -> None:
        self._cause = error

    async def _end(self) -> None:
        found, self._found = self._found, None
        if found is not None:
            await self._abandon(found.client)

    async def _abandon(self, client: Client) -> None:
        try:
            async with asyncio.timeout(_CONNECT_S):
                await client.close()
        except (self._errors.Error, OSError, TimeoutError):
            pass
        transport: Any = client._transport  # nats-py leaves it open after some errors
        if transport is not None:
            transport.close()

    async def _end_all(self) -> None:
        """Close the connection, and end every task, those of nats-py included."""
        await self._end()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _where(self) -> str:
        return ",".join(self.address.servers)

    def _away(self, lost: Lost) -> str:
        return f"{self._where} has not answered for {self.address.timeout_s:g} s: {lost}"


def _words(error: Exception) -> str:
    """Return the cause of a failure: the system's words for it, where it has some."""
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)  # its own text has the number and the address as Python shows them
    return str(error) or type(error).__name__


def _direct(headers: dict[str, str], data: bytes) -> Message | None:
    """Return the message in an answer to a direct request; None if the server does not have it. Raises Lost."""
    if "Nats-Sequence" in headers:
        return Message(int(headers["Nats-Sequence"]), headers, data)
    if headers.get("Status") == str(_NOT_FOUND):
        return None
    raise Lost(f"a server has answered {headers.get('Status')} {headers.get('Description', '')}".strip())


def _log_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that nats-py has left in one of its tasks: the request that it concerns fails by itself."""
    _log.debug("nats-py: %s", context.get("exception") or context.get("message"))
