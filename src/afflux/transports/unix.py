"""Connect and listen on Unix sockets: ``unix:///run/name.sock``. The file exists as long as its server.

1. The file gets its permissions (600 unless ``?mode=`` sets others) before a client can connect.
2. A socket file that a dead server left is replaced; a socket with a listener is in use, and a file that is not a
   socket is left alone.
3. Closing removes the file, if it still belongs to this server.

Clients have no host: ``connections_per_address`` does not count them.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from afflux.core.errors import BindFailed, ConnectFailed
from afflux.transports.address import Address
from afflux.transports.base import Admission, Factory, Link, Listener
from afflux.transports.durations import in_words
from afflux.transports.tcp import NO_FILES, SocketLink, SocketListener, joined

if TYPE_CHECKING:
    from afflux.core.limits import Limits
    from afflux.transports.reading import Receiver
    from afflux.transports.security import Tls

__all__ = ["TRANSPORT", "Unix", "bound", "why_not"]

_BACKLOG = 4096
_LONGEST = 107
"Bytes of a path at most: the system's structure has no room for more."
_AGAIN_S = 0.02
"Seconds between attempts while the queue of a server is full: the system cannot wait for it."


class Unix:
    """See transports.base.Transport."""

    async def open(self, address: Address, factory: Callable[[], Receiver], tls: Tls | None = None) -> None:
        """Connect; retry while the server's queue is full."""
        import asyncio

        sock = _made(address)
        try:
            sock.setblocking(False)
            while not _connects(sock, address):
                await asyncio.sleep(_AGAIN_S)
        except BaseException:
            sock.close()
            raise
        await joined(asyncio.get_running_loop().create_unix_connection(factory, sock=sock))

    async def listen(
        self, address: Address, admission: Admission, factory: Factory, tls: Tls | None = None
    ) -> Listener:
        """Bind the socket file."""
        import asyncio

        try:
            sock = bound(address)
        except OSError as error:
            raise BindFailed(f"cannot listen on {address}: {why_not(error, address.path)}") from error
        mine = _identity(address.path)

        def remove() -> None:
            with suppress(OSError):
                if _identity(address.path) == mine:
                    os.unlink(address.path)

        loop = asyncio.get_running_loop()
        return SocketListener(address, [sock], admission, factory, loop, closed=remove)

    def refusal(self, address: Address, reason: str) -> bytes:
        """Return the refusal of the protocol."""
        refuse = address.entry.refusal
        return b"" if refuse is None else refuse(reason)

    def dial(self, address: Address, timeout: float, tls: Tls | None = None, limits: Limits | None = None) -> Link:
        """Connect a socket."""
        sock = _made(address)
        try:
            sock.setblocking(True)
            # Not settimeout: on a socket that does not block the system does not wait for room in the queue.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout))
            if not _connects(sock, address):
                raise ConnectFailed(f"{address} did not answer within {in_words(timeout)}")
        except BaseException:
            sock.close()
            raise
        return SocketLink(sock)


def _made(address: Address) -> socket.socket:
    try:
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectFailed(f"cannot connect to {address}: {why_not(error, address.path)}") from error


def _connects(sock: socket.socket, address: Address) -> bool:
    """Connect; False while the server's queue is full. Raises ConnectFailed."""
    try:
        sock.connect(address.path)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ConnectFailed(f"cannot connect to {address}: {why_not(error, address.path)}") from error
    return True


def bound(address: Address) -> socket.socket:
    """Return a listening socket. Raises OSError, for which ``why_not`` has words."""
    path = address.path
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            sock.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_left_over(path):
                raise
            os.unlink(path)
            sock.bind(path)
        # No client can connect between bind and listen: the file never has more permissions than ``mode``.
        os.chmod(path, int(address.options.get("mode", "600"), 8))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_left_over(path: str) -> bool:
    """Return whether the file is a socket without a listener."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise OSError(errno.EEXIST, "the path exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except BlockingIOError:
            pass
    return False


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def _timeval(seconds: float) -> bytes:
    """Return the system's ``struct timeval``; 0 would wait forever."""
    microseconds = max(1, round(seconds * 1_000_000))
    return struct.pack("@ll", *divmod(microseconds, 1_000_000))


def why_not(error: OSError, path: str) -> str:
    """Return why a path cannot be connected to, or listened on, in words."""
    if len(os.fsencode(path)) > _LONGEST:
        return f"the path is longer than {_LONGEST} bytes"
    if (kind := _not_a_socket(path)) is not None:
        return f"it is {kind}, not a socket"
    if error.errno == errno.ENOENT:
        folder = os.path.dirname(path)
        return "there is no such file" if os.path.isdir(folder) else f"there is no folder {folder}"
    if error.errno == errno.ECONNREFUSED:
        return "refused: nothing listens there"
    if error.errno == errno.EADDRINUSE:
        return "a server listens there already"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "permission denied"
    if error.errno == errno.EMFILE:
        return NO_FILES
    return error.strerror or str(error)


def _not_a_socket(path: str) -> str | None:
    """Return what is at a path; None for a socket, and for nothing."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    return None if stat.S_ISSOCK(mode) else "a directory" if stat.S_ISDIR(mode) else "a file"


TRANSPORT = Unix()
"The transport ``unix``."
