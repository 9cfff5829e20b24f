"""Connect and listen over TCP, with clear errors. The blocking side needs no event loop.

Connections are accepted here and not by ``loop.create_server``: a refused connection gets its reason in one write, a
flood waits in the kernel's queue, and running out of descriptors does not spin.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from afflux.core.errors import BindFailed, ConnectFailed, Unsupported
from afflux.transports.address import Address
from afflux.transports.base import Admission, Factory, Link, Listener
from afflux.transports.durations import in_words
from afflux.transports.parting import Parting
from afflux.transports.resolving import resolved, resolved_within

if TYPE_CHECKING:
    import asyncio

    from afflux.core.limits import Limits
    from afflux.transports.reading import Receiver
    from afflux.transports.security import Tls

__all__ = [
    "TRANSPORT",
    "SocketLink",
    "SocketListener",
    "Tcp",
    "connected",
    "dialed",
    "joined",
    "require_sharing",
    "reserved",
    "why_not",
]

_Found = tuple[Any, ...]
_BACKLOG = 4096
"Connections that may wait in the system's queue, if the system allows that number."
_ACCEPTS_PER_TURN = 64
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"Idle seconds before the first probe, seconds between probes, and probes: 90 s in all, like a client's lifetime."
NO_FILES = "this process has too many open files: raise its limit (ulimit -n)"
"Why no socket was made, for EMFILE."
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Tcp:
    """See transports.base.Transport."""

    async def open(self, address: Address, factory: Callable[[], Receiver], tls: Tls | None = None) -> None:
        """Connect; try the addresses of the host one after the other."""
        import asyncio

        sock = await connected(address)
        await joined(asyncio.get_running_loop().create_connection(factory, sock=sock))

    async def listen(
        self, address: Address, admission: Admission, factory: Factory, tls: Tls | None = None
    ) -> Listener:
        """Bind every address of the host; port 0 binds all of them to one free port."""
        import asyncio

        loop = asyncio.get_running_loop()
        try:
            found = await resolved(address.host, address.port, socket.AI_PASSIVE)
            sockets = _bind(address.port, found, shared=admission.reuse_port, backlog=_BACKLOG)
        except OSError as error:
            raise _bind_failed(address, error) from error
        return SocketListener(address.at(port=_port_of(sockets)), sockets, admission, factory, loop)

    def refusal(self, address: Address, reason: str) -> bytes:
        """Return the refusal of the protocol."""
        refuse = address.entry.refusal
        return b"" if refuse is None else refuse(reason)

    def dial(self, address: Address, timeout: float, tls: Tls | None = None, limits: Limits | None = None) -> Link:
        """Connect a socket."""
        return SocketLink(dialed(address, timeout))


def require_sharing() -> None:
    """Raise unless several processes can listen at one port here.

    Raises:
        Unsupported: the system has no SO_REUSEPORT.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise Unsupported("this system has no SO_REUSEPORT: only one process can listen at a port")


def reserved(address: Address) -> tuple[Address, list[socket.socket]]:
    """Reserve a port that several processes will share: return its address, and sockets that do not listen. While these
    are open no other program gets the port, even when no process listens.

    Raises:
        BindFailed: the address is not available, or another program listens there, sharing it or not.
        Unsupported: ports cannot be shared here.
    """
    require_sharing()
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if address.port:
            # Bind without SO_REUSEPORT first: with it the system would accept any other sharing program as well.
            for sock in _bind(address.port, found):
                sock.close()
        sockets = _bind(address.port, found, shared=True)
    except OSError as error:
        raise _bind_failed(address, error) from error
    return address.at(port=_port_of(sockets)), sockets


async def connected(address: Address) -> socket.socket:
    """Connect a socket to ``address``, under asyncio.

    Raises:
        ConnectFailed: there is no listener.
    """
    import asyncio

    try:
        return await _connect(asyncio.get_running_loop(), await resolved(address.host, address.port))
    except OSError as error:
        raise ConnectFailed(why_not(address, error)) from error


async def joined(connecting: Coroutine[Any, Any, tuple[asyncio.Transport, Any]]) -> None:
    """Create the transport of a connected socket. When this is canceled, uvloop would close the transport and never
    call ``connection_lost``; so the transport is created in any case, and then aborted."""
    import asyncio

    making = asyncio.ensure_future(connecting)
    try:
        await asyncio.shield(making)
    except asyncio.CancelledError:
        making.add_done_callback(_abort)
        raise


def _abort(making: asyncio.Future[tuple[asyncio.Transport, Any]]) -> None:
    """Abort a transport whose caller was canceled."""
    if not making.cancelled() and making.exception() is None:
        making.result()[0].abort()


def dialed(address: Address, timeout: float) -> socket.socket:
    """Connect a blocking socket to ``address``, looked up and tried within ``timeout`` seconds in all.

    Raises:
        ConnectFailed: there is no listener, or it did not answer in time.
    """
    until = monotonic() + timeout
    try:
        sock = _dialed(resolved_within(address.host, address.port or 0, timeout), until)
    except TimeoutError as error:
        raise ConnectFailed(f"{address} did not answer within {in_words(timeout)}") from error
    except OSError as error:
        raise ConnectFailed(why_not(address, error)) from error
    _steady(sock)
    return sock


def _dialed(found: Sequence[_Found], until: float) -> socket.socket:
    """Connect to the first of some addresses that answers before the time ``until``. Raises the last error."""
    failed = [OSError("the host has no address")]
    for family, kind, protocol, _, target in found:
        sock = socket.socket(family, kind, protocol)
        with _attempt(sock, failed):
            sock.settimeout(max(0.001, until - monotonic()))
            sock.connect(target)
            return sock
    raise failed[-1]


@contextmanager
def _attempt(sock: socket.socket, failed: list[OSError]) -> Iterator[None]:
    """Close a socket that does not connect. Errors of the system are added to ``failed``: the next address is tried."""
    try:
        yield
    except OSError as error:
        failed.append(error)
        sock.close()
    except BaseException:
        sock.close()
        raise


def _steady(sock: socket.socket, *, listening: bool = False) -> None:
    """Disable Nagle's delay and enable TCP keepalive, because not every protocol has keepalives (SL-05). Accepted
    sockets inherit both from the listening one."""
    if not listening:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class SocketLink(socket.socket):
    """A socket as a link (transports.base.Link): ``send``, ``recv``, ``fileno`` and ``close`` are its own."""

    certificate = None
    "Always None without TLS."

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.setblocking(False)

    def pending(self) -> bool:
        """False: poll reports all input."""
        return False

    def flush(self) -> None:
        """No-op: a socket has no bytes of its own."""

    def events(self, reading: bool, writing: bool) -> int:
        """Return the events that the driver wants."""
        return (select.POLLIN if reading else 0) | (select.POLLOUT if writing else 0)

    def end_writing(self) -> None:
        """End this half."""
        self.shutdown(socket.SHUT_WR)


async def _connect(loop: asyncio.AbstractEventLoop, found: Sequence[_Found]) -> socket.socket:
    failed = [OSError("the host has no address")]
    for family, kind, protocol, _, target in found:
        sock = socket.socket(family, kind, protocol)
        with _attempt(sock, failed):
            sock.setblocking(False)
            await loop.sock_connect(sock, target)
            _steady(sock)
            return sock
    raise failed[-1]


def _bind(
    port: int | None, found: Sequence[_Found], *, shared: bool = False, backlog: int | None = None
) -> list[socket.socket]:
    """Bind a socket for each address, all to one port; ``shared`` with other processes; listening if there is a
    ``backlog``."""
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, target in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind((target[0], port, *target[2:]))
            if backlog is not None:
                _steady(sock, listening=True)
                sock.listen(backlog)
            sock.setblocking(False)
            port = sock.getsockname()[1]
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _port_of(sockets: Sequence[socket.socket]) -> int:
    port: int = sockets[0].getsockname()[1]
    return port


def _bind_failed(address: Address, error: OSError) -> BindFailed:
    return BindFailed(f"cannot listen on {address}: {_words(error)}")


def why_not(address: Address, error: OSError) -> str:
    """Return why no connection was made, in words."""
    return f"cannot connect to {address}: {_words(error)}"


def _words(error: OSError) -> str:
    """Return the system's text, without asyncio's wrapping of several of them."""
    if isinstance(error, socket.gaierror):
        return f"unknown host name ({error.strerror})"
    if error.errno == errno.ECONNREFUSED:
        return "refused: nothing listens there"
    if error.errno == errno.EADDRINUSE:
        return "the port is in use"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have the address"
    if error.errno == errno.ECONNRESET:
        return "the peer reset the connection"
    if error.errno == errno.EMFILE:
        return NO_FILES
    if error.errno is not None:
        return os.strerror(error.errno)  # asyncio puts its own text before it
    return str(error)


class SocketListener:
    """Accepts connections from listening sockets under a loop."""

    def __init__(
        self,
        address: Address,
        sockets: list[socket.socket],
        admission: Admission,
        factory: Factory,
        loop: asyncio.AbstractEventLoop,
        *,
        closed: Callable[[], None] | None = None,
    ) -> None:
        """``closed`` is called once, by ``close``."""
        self.address = address
        "The address with the bound port."
        self._closed = closed
        self._sockets = sockets
        self._admission = admission
        self._factory = factory
        self._loop = loop
        self._starting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._parting = Parting(loop)
        self._watch()

    def close(self) -> None:
        """Stop accepting."""
        self._unwatch()
        if self._pause is not None:
            self._pause.cancel()
        for sock in self._sockets:
            sock.close()
        self._sockets = []
        self._parting.close()
        if self._closed is not None:
            self._closed()
            self._closed = None

    def _watch(self) -> None:
        self._pause = None
        for sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _unwatch(self) -> None:
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())

    def _wait(self, seconds: float) -> None:
        self._unwatch()
        if self._pause is None:
            self._pause = self._loop.call_later(seconds, self._watch)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if (seconds := self._admission.delay()) > 0:
                return self._wait(seconds)
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return None
            except ConnectionAbortedError:
                continue
            except OSError as error:
                return self._wait(self._admission.exhausted(error)) if error.errno in _NO_DESCRIPTORS else None
            self._take(sock, str(peer[0]) if peer else "")
        return None

    def _take(self, sock: socket.socket, host: str) -> None:
        if (reason := self._admission.admit(host)) is not None:
            self._parting.refuse(sock, self._admission.last_words(reason), self._admission.flush)
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._start(sock, host))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, sock: socket.socket, host: str) -> None:
        protocol = self._factory(host)
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, sock)
        except (OSError, RuntimeError) as error:  # uvloop raises RuntimeError for a socket that is closed already
            sock.close()
            protocol.connection_lost(error)


TRANSPORT = Tcp()
"The transport ``tcp``."
