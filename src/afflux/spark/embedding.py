"""Run a relay in the process that plans the batches of a query, for a stream whose server has no cursor.

1. The relay stores the items in the journal of the option ``journalDir``, and tasks read them from the relay. Its
   journal belongs to one query, which acknowledges what it has finished; another query is refused.
2. The process may be killed at any time: stored items are durable, and the relay of the next process continues.
3. Whether the remote has a cursor is asked once, while the directory has no journal.

The relay (afflux.gateway) decides how a remote is continued, and what is a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from afflux.core.errors import RemoteProtocolError
from afflux.core.limits import Limits
from afflux.journal.address import is_stream_address
from afflux.protocols.rsocket.cursor import Head, state_of
from afflux.spark.connection import Connection, setup_of
from afflux.spark.declaring import OptionError
from afflux.spark.options import Options
from afflux.transports.address import parse

if TYPE_CHECKING:
    from afflux.gateway import Relay
    from afflux.gateway.origin import OriginVerb
    from afflux.sessions import Machine
    from afflux.sync import Peer

__all__ = ["READER_NAME", "Embedded", "has_cursor", "is_relayed"]

READER_NAME = "spark"
"The name under which a query acknowledges the items of its own journal."
_LOCKED_S = 30.0
"Seconds to wait for the process of an earlier run, which may still have the journal open."
PROBE_S = 5.0
"Seconds in which a server with a cursor answers."
_RETRY_S = 0.2
_PATH_BYTES = 100
"The longest path of a socket, which systems bound at 104 to 108 bytes."

_log = logging.getLogger("afflux.spark")


def is_relayed(options: Options, connection: Connection) -> bool:
    """Return whether the stream is read through a relay of this process: there is ``journalDir``, and no cursor, which
    only a stream can have.

    Args:
        options: those of one stream.
        connection: to its server.

    Raises:
        afflux.Error: the server cannot be asked.
    """
    if options.journal_dir is None or is_stream_address(options.uri):
        return False
    if options.session is not None or options.verb not in (None, "stream"):
        return True
    if parse(options.uri).protocol != "rsocket":
        return True
    if list(directory_of(options).glob("*.journal")):
        return True
    return not has_cursor(connection)


def has_cursor(connection: Connection) -> bool:
    """Ask whether the server of a stream has a cursor. A server without one takes the question as a request for an
    item, which is canceled. One that answers nothing has none: a cursor answers immediately.

    Raises:
        afflux.Error: the request failed, or the server was away for longer than ``reconnectTimeoutMs``.
    """
    options = connection.options

    def answers(peer: Peer) -> bool:
        data, found = options.request_data.encode(), False
        try:
            for item in peer.stream(data, route=options.route, cursor=Head(), credit=1, timeout=PROBE_S):
                state_of(item.metadata)  # raises at the first item of a server without a cursor
                found = True
        except TimeoutError:
            pass
        return found

    try:
        return connection.call(answers)
    except RemoteProtocolError as error:
        if error.rule != "C-8":
            raise
        return False


def directory_of(options: Options) -> Path:
    """Return the directory of a stream's journal: one in ``journalDir`` for each of several streams."""
    directory = Path(options.journal_dir or "")
    return directory / options.streams[0].name if options.streams else directory


def _session(options: Options) -> Machine | None:
    """Return the session type of the channel.

    Raises:
        OptionError: the file cannot be read, or does not have the channel.
    """
    if options.session is None:
        return None
    from afflux.sessions import SessionSyntaxError, load

    try:
        types = load(options.session)
    except (OSError, SessionSyntaxError) as error:
        raise OptionError(f"option session: {error}") from None
    if options.route is None or options.route not in types:
        raise OptionError(f"option route must be a channel of {options.session}: {', '.join(types)}")
    return types[options.route]


class Embedded:
    """A relay in a thread. Close it; a process that ends without that loses nothing.

    Args:
        options: those of the stream.

    Raises:
        JournalError: the journal cannot be used, or another query uses it.
        afflux.Error: the relay cannot listen, or the options do not fit the stream.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._directory = directory_of(options)
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._error: BaseException | None = None
        self._running: Relay | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        started: Future[str] = Future()
        self._thread = Thread(target=self._run, args=(started,), name="afflux-relay", daemon=True)
        self._thread.start()
        self.uri = started.result()
        "The address that tasks read from."
        _log.info("%s has no cursor; it is stored in %s", options.stream_name, self._directory)

    def check(self) -> None:
        """Raise the error that has ended the relay, if there is one.

        Raises:
            JournalError: the journal cannot be written.
            afflux.Error: the remote has refused the stream.
        """
        if self._error is not None:
            raise self._error

    def status(self) -> dict[str, Any]:
        """Return the state of the relay for the query's progress.

        It has ``connected`` (whether items have arrived on this connection to the remote), ``gaps`` (since the start),
        ``room`` (bytes for which the remote may get credit), ``stall`` (why the remote waits), and ``waiting`` (items
        that are not durable yet).
        """
        if self._running is None:
            return {}
        [shard] = self._running.status()
        return {name: getattr(shard, name) for name in ("connected", "gaps", "room", "stall", "waiting")}

    def close(self) -> None:
        """Make durable what has arrived, and end the relay. Idempotent."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _run(self, started: Future[str]) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._relay(started))

    async def _relay(self, started: Future[str]) -> None:
        try:
            relay = await self._opened()
        except BaseException as error:
            started.set_exception(error)
            return
        self._running = relay
        started.set_result(relay.uri)
        failed, over = asyncio.create_task(relay.failed()), asyncio.create_task(self._over.wait())
        await asyncio.wait({failed, over}, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            self._error = failed.exception()
        failed.cancel()
        over.cancel()
        await relay.close()

    async def _opened(self) -> Relay:
        """Open the relay, when the process of an earlier run has closed the journal."""
        from afflux.gateway import Origin, relay
        from afflux.journal.errors import JournalLocked

        options = self._options
        origin = Origin(
            options.uri,
            verb=cast("OriginVerb | None", options.verb),
            route=options.route,
            data=options.request_data,
            setup=setup_of(options),
            framing=options.framing,
            session=_session(options),
            replays=options.replays,
        )
        limits = Limits.server()
        if options.journal_bytes is not None:
            limits = limits.replace(journal_bytes=options.journal_bytes)
        deadline = monotonic() + _LOCKED_S
        while True:
            try:
                return await relay(origin, journal=self._directory, listen=self._listen(), limits=limits)
            except JournalLocked:
                if monotonic() > deadline:
                    raise
            await asyncio.sleep(_RETRY_S)

    def _listen(self) -> str:
        """Return the address to listen on: a socket that only this user can open, unless the option names another."""
        if self._options.journal_listen is not None:
            return self._options.journal_listen
        if os.name == "nt":
            return "tcp://127.0.0.1:0"
        path = self._directory.absolute() / "relay.sock"
        if len(os.fsencode(path)) > _PATH_BYTES:
            self._temporary = self._temporary or tempfile.TemporaryDirectory(prefix="afflux-")
            path = Path(self._temporary.name) / "relay.sock"
        return f"unix://{path}"
