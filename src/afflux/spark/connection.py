"""Keep one connection to the server, and open another one after failures that a retry can mend.

Rules:

1. A connection belongs to one process: the reader of a query, or a task while it reads its range.
2. Nothing is sent while Spark holds that process, so a connection that was unused for half of its lifetime is replaced,
   one to a JetStream server after 4 s. That is not a failure, and neither is one that the server has closed meanwhile.
3. Any other failure that a retry can mend (:func:`mendable`) starts an outage. The first answer ends it. After
   ``reconnectTimeoutMs`` the last failure is raised. Start and end are logged as warnings.
4. A failure that a retry cannot mend is raised immediately.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar, cast

from afflux.core.errors import (
    Canceled,
    ConnectFailed,
    ConnectionClosed,
    Error,
    Rejected,
    RemoteProtocolError,
    SetupRefused,
    Violation,
)
from afflux.core.limits import Limits
from afflux.core.terms import Terms
from afflux.journal.address import is_stream_address
from afflux.retry.backoff import Backoff
from afflux.spark.options import Options
from afflux.transports.address import parse

if TYPE_CHECKING:
    from afflux.calls import SetupLike
    from afflux.sync import Peer

__all__ = ["LIFETIME_S", "LIMITS", "Away", "Connection", "Outage", "mendable", "setup_of"]

KEEPALIVE_S = 10.0
"Seconds between keepalives, unless the address has the option."
LIFETIME_S = 30.0
"Seconds after which a silent server counts as lost, unless the address has the option."
STREAM_IDLE_S = 4.0
"""Seconds after which an unused connection to a JetStream server is replaced: less than the 5 s for one answer and the
10 s for which a server waits to write, because nothing is received between two uses (afflux.journal.link)."""
LIMITS = Limits.server(
    payload_bytes=(_LARGEST := Limits.trusted().payload_bytes),
    connection_bytes=_LARGEST + Limits.server().connection_bytes,
)
"""The limits of the client: it has room for the largest item that a journal may contain, that of a server with
``Limits.trusted()``. Earlier versions stored such items with any limits."""
_BACKOFF = Backoff(first=0.1, most=5.0)
_PASSING = ("is closing", "are being closed", "journal-locked", "too-many-connections")
"Parts of the texts with which a server refuses a request that it may accept later."
_RETRIED_HANDSHAKE = re.compile(r"without an answer|HTTP 5\d\d")
"The failed WebSocket handshakes that a retry can mend: of a server that ends, or behind a proxy."

_log = logging.getLogger("afflux.spark")
_T = TypeVar("_T")


class Away(Exception):  # noqa: N818 -- not an error: the outage may still end
    """The server is away, and the caller did not want to wait."""


@dataclass(slots=True, kw_only=True)
class Outage:
    """An outage that has not ended."""

    since: float
    "Its start, on the monotonic clock."
    error: Exception
    "The last failure."
    attempts: int = 1
    "Failed attempts so far."
    waits: Iterator[float] = field(default_factory=lambda: _BACKOFF.waits(Random()))
    "The delays before the next attempts, in seconds."
    again: float = 0.0
    "When to try again, on the monotonic clock; only if others need the time until then."

    def __str__(self) -> str:
        name = type(self.error).__name__
        return f"{self.attempts} attempts in {monotonic() - self.since:.1f} s; the last: {name}: {self.error}"


def setup_of(options: Options) -> SetupLike | None:
    """Return the credentials of ``authFile`` for the server, as the file has them now.

    Raises:
        AuthFileError: the file is missing, accessible to other users, or has other content.
    """
    if options.auth_file is None:
        return None
    from afflux.auth import read_file  # on use: few queries need it

    return [read_file(options.auth_file)]


def mendable(error: Exception) -> bool:
    """Return whether a later attempt may succeed: the connection failed, or the server was closing."""
    if isinstance(error, SetupRefused | Rejected):
        return any(text in error.message for text in _PASSING)
    if isinstance(error, ConnectFailed):
        if type(error.__cause__).__module__ == "ssl":  # such as a certificate that is not trusted
            return False
        return not error.in_handshake or _RETRIED_HANDSHAKE.search(error.message) is not None
    return isinstance(error, ConnectionClosed | Canceled | TimeoutError)


class Connection:
    """The connection of one process to the server of a stream. Not for two threads.

    Args:
        options: ``uri`` and ``reconnectTimeoutMs``.
        user: names the process in the log, such as "the reader of the query".
        clock: returns the time in seconds; tells how long the connection was unused.
        uri: the address, if it is not that of the options.
    """

    def __init__(self, options: Options, user: str, clock: Callable[[], float] = monotonic, *, uri: str = "") -> None:
        self.options = options
        self.uri = uri or options.uri
        "The address."
        self.outage: Outage | None = None
        "The outage that goes on now."
        self.reconnects = 0
        "Outages that have ended."
        self.connected = False
        "Whether the server has ever answered."
        self.shared = False
        "Whether this process has other connections, so that it does not sleep during an outage of this one."
        direct = is_stream_address(self.uri)
        own = {} if direct else parse(self.uri).options
        self._terms = (KEEPALIVE_S, LIFETIME_S) if own.keys().isdisjoint(("keepalive", "lifetime")) else (None, None)
        lifetime = own.get("lifetime", LIFETIME_S if self._terms[1] else Terms().lifetime)
        self.idle_s = STREAM_IDLE_S if direct else lifetime / 2
        "Seconds after which an unused connection is replaced."
        self._user = user
        self._clock = clock
        self._timeout = options.reconnect_timeout_ms / 1000
        self._peer: Peer | None = None
        self._reused = False
        self._last = 0.0

    def peer(self) -> Peer:
        """Return the connection; open one if there is none that can be used.

        Raises:
            ConnectFailed: the server cannot be reached now.
        """
        if self._peer is not None and (self._peer.closed or self._clock() - self._last > self.idle_s):
            self.close()
        self._reused = self._peer is not None
        if self._peer is None:
            self._peer = self._connect()
        return self._peer

    def _connect(self) -> Peer:
        from afflux import sync

        if is_stream_address(self.uri):
            from afflux.spark.jetstream import StreamPeer

            return cast("Peer", StreamPeer(self.uri))  # has what the source uses of a peer
        keepalive, lifetime = self._terms
        remote = self.uri == self.options.uri  # not a relay of the query's own
        setup = setup_of(self.options) if remote else None
        return sync.connect(self.uri, setup=setup, keepalive=keepalive, lifetime=lifetime, limits=LIMITS)

    def call(self, work: Callable[[Peer], _T], *, patient: bool = True) -> _T:
        """Return ``work(peer)``, called again after each failure that a retry can mend.

        Args:
            patient: wait until the server answers; else raise Away after a failed attempt and its delay. If ``shared``,
                raise Away at once, also until the delay is over.

        Raises:
            Away: the server is away.
            afflux.Error: a retry cannot help, or ``reconnectTimeoutMs`` have passed.
        """
        defer = self.shared and not patient
        while True:
            if defer and self.outage is not None and monotonic() < self.outage.again:
                raise Away
            try:
                result = work(self.peer())
            except Violation as violation:
                self.close()
                raise self.unsupported(violation) from None
            except (Error, TimeoutError) as error:
                self.failed(error, defer=defer)
                if self.outage is not None and not patient:
                    raise Away from error
            else:
                self.answered()
                return result

    def answered(self) -> None:
        """The server has answered: the outage is over, if there was one."""
        self._last = self._clock()
        self._reused = False
        self.connected = True
        if self.outage is not None:
            _log.warning("%s: %s is connected again after %s", self.options.stream_name, self._user, self.outage)
            self.outage = None
            self.reconnects += 1

    def failed(self, error: Exception, *, defer: bool = False) -> None:
        """Wait until the next attempt, or raise the error. With ``defer`` note its time instead.

        Raises:
            afflux.Error: ``error``, if a retry cannot help, or if ``reconnectTimeoutMs`` have passed.
        """
        reused = self._reused
        self.close()
        if not mendable(error):
            raise error
        if reused:
            return
        now = monotonic()
        if self.outage is None:
            self.outage = Outage(since=now, error=error)
            if self._timeout:
                text = "%s: %s has lost the server, and tries again for up to %g s: %s: %s"
                name = type(error).__name__
                _log.warning(text, self.options.stream_name, self._user, self._timeout, name, error)
        else:
            self.outage.attempts += 1
            self.outage.error = error
        left = self.outage.since + self._timeout - now
        if left <= 0:
            outage, self.outage = self.outage, None
            if self._timeout:
                error.args = (f"{error} (reconnectTimeoutMs has passed: {outage.attempts} attempts)", *error.args[1:])
            raise error
        wait = min(next(self.outage.waits), left)
        if defer:
            self.outage.again = now + wait
        else:
            sleep(wait)

    def unsupported(self, violation: Violation) -> RemoteProtocolError:
        """Return the error for an answer that no server with a cursor gives."""
        return RemoteProtocolError(
            f"{self.options.stream_name} does not support the cursor: {violation.reason}; serve it with a journal "
            "(afflux serve --journal), relay it (afflux relay), or set journalDir",
            rule=violation.rule,
            code=violation.code,
        )

    def close(self) -> None:
        """Close the connection; the next request opens another one. Idempotent."""
        peer, self._peer = self._peer, None
        self._reused = False
        if peer is not None:
            peer.close()
