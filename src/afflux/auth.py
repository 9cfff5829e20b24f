"""Check credentials at the SETUP or at each request.

::

    check = afflux.auth.verify_token(os.environ["TOKEN"])
    async with afflux.serve(uri, handler, on_setup=afflux.auth.at_setup(check)) as server: ...
    async with afflux.connect(server.uri, setup=afflux.Bearer(token)) as peer: ...

1. A client is served only after its check has accepted it. A check accepts by returning a principal: any value but None
   and False. None, False or an exception refuses.
2. The peer always gets the same text, ``REFUSED`` (AU-01). Errors and logs contain no reasons and no secrets.
3. An address whose checks have failed ``limits.auth_failures`` times within a minute waits until that rate permits
   another check. A check that would wait beyond ``handshake_s`` is skipped, and the peer gets "auth-rate" (AU-03). An
   address may have as many concurrent checks as it may still fail, so that parallel attempts gain nothing. Each check
   that accepts permits one more concurrent check, so that ten thousand clients of one address can connect; a check that
   refuses revokes all of these.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
import shlex
import stat
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import scrypt, sha256
from inspect import isawaitable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from afflux.aio.current import mime_types
from afflux.aio.peer import Peer, current_peer
from afflux.aio.verbs import verbs_of
from afflux.calls import entries
from afflux.calls.arguments import check_callable, check_type
from afflux.core.engine import Setup
from afflux.core.errors import Error, Rejected
from afflux.core.limits import REASONS, Limits
from afflux.protocols.rsocket.metadata import Authentication, Bearer, Simple
from afflux.retry.failures import GRAIN as _GRAIN
from afflux.retry.failures import Failures
from afflux.retry.failures import address_of as _address

if TYPE_CHECKING:
    from afflux.aio.server import OnSetup

__all__ = [
    "REFUSED",
    "AuthFileError",
    "Check",
    "Failures",
    "at_setup",
    "current_principal",
    "hash_password",
    "per_request",
    "read_file",
    "verify_password",
    "verify_token",
]

REFUSED: Final = "not authenticated"
"The text sent to a refused peer, for every reason."

Check = Callable[[Authentication | None, Peer], Any]
"""``check(credentials, peer)``, async or not: returns the principal, or None to refuse. The credentials are None if the
peer has sent none. Compare secrets with ``hmac.compare_digest``, never with ``==``."""

_MOST_ACCEPTED: Final = 256
"Concurrent checks of one address beyond those that may fail."

_Sleep = Callable[[float], Awaitable[object]]

_principal: ContextVar[Any] = ContextVar("afflux_principal")


def current_principal() -> Any:
    """Return the principal of the request that the running handler answers: the result of the request's check, else of
    its connection's check (``peer.principal``); None if neither was checked.

    Raises:
        LookupError: called outside of a handler.
    """
    try:
        return _principal.get()
    except LookupError:
        return current_peer().principal


def at_setup(
    check: Check,
    *,
    failures: Failures | None = None,
    clock: Callable[[], float] = monotonic,
    sleep: _Sleep = asyncio.sleep,
) -> OnSetup:
    """Return an ``on_setup`` for ``afflux.serve`` that checks each client when it connects.

    A refused client gets REJECTED_SETUP; the principal of an accepted one is ``peer.principal``.

    Args:
        check: returns the principal.
        failures: counts failures, shared with other gates; a new counter if None.
        clock: returns monotonic seconds.
        sleep: waits for the given seconds.
    """
    gate = _Gate(check, failures, clock, sleep)

    async def on_setup(setup: object, peer: Peer) -> None:
        metadata, mime = (setup.metadata, setup.metadata_mime) if isinstance(setup, Setup) else (None, None)
        peer.principal = await gate.admit(metadata, mime, peer)

    return on_setup


def per_request(
    handler: object,
    check: Check,
    *,
    failures: Failures | None = None,
    clock: Callable[[], float] = monotonic,
    sleep: _Sleep = asyncio.sleep,
) -> object:
    """Return a handler that checks the credentials in each request's metadata before it calls ``handler``.

    A refused request gets REJECTED; a refused fire or push gets no answer. The credentials of a channel are in its
    first item. In ``handler``, :func:`current_principal` returns the check's result. Extension frames are not requests:
    check the setup. In protocols without metadata (jmux, rsio) a check can use the peer's certificate.

    Args:
        handler: any handler, or a Router.
        check: returns the principal.
        failures: counts failures, shared with other gates; a new counter if None.
        clock: returns monotonic seconds.
        sleep: waits for the given seconds.

    Raises:
        TypeError: ``handler`` has no verbs.
    """
    gated = _Gated(verbs_of(handler), _Gate(check, failures, clock, sleep))
    if (sizes := getattr(handler, "element_size", None)) is not None:
        gated.element_size = sizes
    return gated


class _Gated:
    """A handler that checks requests, with exactly the verbs of the inner handler."""

    element_size: Callable[[str], int]

    def __init__(self, verbs: Mapping[str, Callable[..., Any]], gate: _Gate) -> None:
        self._gate = gate
        for verb, inner in verbs.items():
            setattr(self, verb, self._pusher(inner) if verb == "push" else self._caller(verb, inner))

    def _caller(self, verb: str, inner: Callable[..., Any]) -> Callable[[Any], Awaitable[Any]]:
        async def call(argument: Any) -> Any:
            first = argument.first if verb == "channel" else argument
            await self._admit(getattr(first, "metadata", None))  # a byte session has no metadata
            answer = inner(argument)
            return await answer if isawaitable(answer) else answer

        return call

    def _pusher(self, inner: Callable[..., Any]) -> Callable[[bytes], Awaitable[None]]:
        async def push(metadata: bytes) -> None:
            try:
                await self._admit(metadata)
            except Rejected:
                return
            answer = inner(metadata)
            if isawaitable(answer):
                await answer

        return push

    async def _admit(self, metadata: bytes | None) -> None:
        _principal.set(await self._gate.admit(metadata, mime_types()[0], current_peer()))


# Limits of concurrency and failures.


@dataclass(slots=True)
class _Running:
    """The running checks of one address."""

    checks: int = 0
    accepted: int = 0
    "Consecutive checks that have accepted, at most 256."
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def wake(self, most: int) -> None:
        """Wake up to ``most`` waiting checks."""
        while most > 0 and self.waiting:
            waiter = self.waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                most -= 1


class _Gate:
    """A check with its limits."""

    def __init__(self, check: Check, failures: Failures | None, clock: Callable[[], float], sleep: _Sleep) -> None:
        check_callable(
            "check", check, "a function of the credentials and the peer, such as afflux.auth.verify_token(…)"
        )
        self._check = check
        self._failures = Failures() if failures is None else failures
        self._clock = clock
        self._sleep = sleep
        self._running: dict[str, _Running] = {}

    async def admit(self, metadata: bytes | None, metadata_mime: str | None, peer: Peer) -> Any:
        """Return the principal of the credentials in metadata.

        Raises:
            Rejected: the check refuses, or the address would wait too long.
        """
        limits = peer.limits
        address = _address(peer.host)
        running = await self._enter(address, limits)
        principal = None
        try:
            principal = await self._checked(metadata, metadata_mime, peer)
        finally:
            # A canceled check counts as a failure, so that disconnecting early gains nothing.
            if principal is None:
                self._failures.add(address, limits.auth_failures, self._clock())
            self._leave(address, running, principal is not None)
        if principal is None:
            raise Rejected(REFUSED)
        return principal

    async def _checked(self, metadata: bytes | None, metadata_mime: str | None, peer: Peer) -> Any:
        """Return the principal, or None. An exception of the check may contain secrets, so only its place is logged."""
        try:
            found = entries(metadata, metadata_mime, limit=peer.limits.composite_entries)
            answer = self._check(found.credentials, peer)
            principal = await answer if isawaitable(answer) else answer
        except Error:
            return None
        except Exception as error:
            peer._driver.state.log_failure(f"afflux: an authentication check raised {_place(error)}")
            return None
        return None if principal is False else principal

    async def _enter(self, address: str, limits: Limits) -> _Running:
        """Wait until another check of an address may run, and count it.

        Raises:
            Rejected: that would take too long. It is raised after half of the remaining time.
        """
        failures, per_minute = self._failures, limits.auth_failures
        end = self._clock() + limits.handshake_s
        again = False
        while True:
            now = self._clock()
            running = self._running.get(address) or _Running()
            wait = failures.wait(address, per_minute, now)
            alone = not running.checks
            most = failures.left(address, per_minute, now) + running.accepted
            if not wait and (alone or most - running.checks >= 1 - _GRAIN):
                running.checks += 1
                self._running[address] = running
                return running
            if now + wait > end:
                await self._sleep((end - now) / 2)
                raise Rejected(REASONS["auth_failures"], rule="auth_failures")
            if wait:
                await self._sleep(wait)
            else:
                await self._wait_for_end(address, running, end - now, again)
                again = True

    async def _wait_for_end(self, address: str, running: _Running, seconds: float, again: bool) -> None:
        """Wait until a check of the same address ends; with ``again``, before those that have not waited yet."""
        waiter = asyncio.get_running_loop().create_future()
        (running.waiting.appendleft if again else running.waiting.append)(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                running.wake(1)  # pass the wake-up on
            elif waiter in running.waiting:
                running.waiting.remove(waiter)
            self._discard(address, running)
            if isinstance(error, TimeoutError):
                raise Rejected(REASONS["auth_failures"], rule="auth_failures") from None
            raise

    def _leave(self, address: str, running: _Running, accepted: bool) -> None:
        running.checks -= 1
        running.accepted = min(running.accepted + 1, _MOST_ACCEPTED) if accepted else 0
        # After a failure, all waiting checks compute their delay again.
        running.wake(2 if accepted else len(running.waiting))
        self._discard(address, running)

    def _discard(self, address: str, running: _Running) -> None:
        if not running.checks and not running.waiting and self._running.get(address) is running:
            self._running.pop(address, None)


def _place(error: BaseException) -> str:
    """Return the type of an error and the line that raised it, without its text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
    return f"{type(error).__name__}{place}"


# Ready checks.


def verify_token(tokens: str | Mapping[str, Any]) -> Check:
    """Return a check of ``afflux.Bearer``: one token, or several with a principal each.

    The principal of a single token is "bearer". All tokens are compared, in constant time.

    Raises:
        TypeError: ``tokens`` is neither text nor a mapping, or a token is not text.
        ValueError: a token is empty, or its principal is None or False.
    """
    if isinstance(tokens, str):
        tokens = {tokens: "bearer"}
    if not isinstance(tokens, Mapping) or not all(isinstance(token, str) for token in tokens):
        raise TypeError('tokens are text, or a mapping of tokens to principals, such as {"token of ann": "ann"}')
    if any(not token or principal is None or principal is False for token, principal in tokens.items()):
        raise ValueError("a token must not be empty, and its principal must not be None or False")
    known = [(sha256(token.encode()).digest(), principal) for token, principal in tokens.items()]

    def check(credentials: Authentication | None, peer: Peer) -> Any:
        if not isinstance(credentials, Bearer):
            return None
        given = sha256(credentials.token.encode()).digest()
        found = None
        for digest, principal in known:
            if hmac.compare_digest(digest, given):
                found = principal
        return found

    return check


def verify_password(users: Mapping[str, str]) -> Check:
    """Return a check of ``afflux.Simple`` against the result of :func:`hash_password` for each user.

    The principal is the user's name. An unknown user takes as long as a known one. At most four threads hash passwords.

    Raises:
        ValueError: a value was not made by ``hash_password``.
    """
    known = {name: _Hash.parsed(name, text) for name, text in users.items()}
    costs = max(
        (stored.costs for stored in known.values()), key=lambda costs: costs[0] * costs[1] * costs[2], default=_COSTS
    )
    decoy = _Hash(costs, secrets.token_bytes(16), secrets.token_bytes(32))
    turns = asyncio.Semaphore(4)

    async def check(credentials: Authentication | None, peer: Peer) -> Any:
        if not isinstance(credentials, Simple):
            return None
        stored = known.get(credentials.username, decoy)
        async with turns:
            key = await asyncio.to_thread(_derived, credentials.password, stored.salt, stored.costs)
        return credentials.username if hmac.compare_digest(key, stored.key) else None

    return check


_COSTS: Final = (1 << 14, 8, 5)
"scrypt's n, r and p: 16 MiB and about a fifth of a second."


def hash_password(password: str, *, costs: tuple[int, int, int] = _COSTS) -> str:
    """Return the text to store instead of a password: ``scrypt:N:R:P:SALT:KEY``, with a new salt each time.

    Args:
        password: the password.
        costs: scrypt's n (a power of 2), r and p: the cost of each attempt and each login.

    Raises:
        TypeError: the password is not text.
        ValueError: it is empty, or scrypt does not support these costs.
    """
    check_type("password", password, str, "text")
    if not password:
        raise ValueError("a password must not be empty")
    salt = secrets.token_bytes(16)
    words = [*map(str, costs), *(b64encode(part).decode() for part in (salt, _derived(password, salt, costs)))]
    return ":".join(["scrypt", *words])


def _derived(password: str, salt: bytes, costs: tuple[int, int, int]) -> bytes:
    n, r, p = costs
    return scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=256 * r * (n + p), dklen=32)


@dataclass(frozen=True, slots=True)
class _Hash:
    """A stored password."""

    costs: tuple[int, int, int]
    salt: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def parsed(cls, name: str, text: str) -> _Hash:
        """Parse the result of ``hash_password``. Raises ValueError, without the text."""
        found = re.fullmatch(r"scrypt:(\d{1,9}):(\d{1,4}):(\d{1,4}):([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)", text)
        try:
            if found is not None:
                n, r, p = map(int, found.group(1, 2, 3))
                salt, key = (b64decode(part, validate=True) for part in found.group(4, 5))
                if n > 1 and not n & (n - 1) and r and p and len(key) == 32:
                    return cls((n, r, p), salt, key)
        except Base64Error:
            pass
        raise ValueError(f"the password of {name!r} was not hashed: store the result of afflux.auth.hash_password(…)")


# Credentials in a file.

_FILE_BYTES = 0x10000
_EXPECTED = "expected a line `bearer TOKEN` or `simple USER PASSWORD`"


class AuthFileError(Error, ValueError):
    """A file of credentials cannot be used. The text contains the reason and nothing of the file."""


def read_file(path: str | os.PathLike[str]) -> Simple | Bearer:
    """Read the credentials in a file: one line, ``bearer TOKEN`` or ``simple USER PASSWORD``.

    Empty lines and lines that begin with ``#`` are skipped. A password extends to the end of its line and may contain
    spaces; a user's name and a token may not. The text is UTF-8, at most 64 KiB. The file may be a pipe.

    Raises:
        AuthFileError: the file is missing, accessible to other users, or has other content.
    """
    try:
        with open(path, "rb") as file:
            _check_mode(path, os.fstat(file.fileno()))
            data = file.read(_FILE_BYTES + 1)
    except OSError as error:
        raise AuthFileError(f"{os.fspath(path)}: {error.strerror or 'cannot be read'}") from None
    if len(data) > _FILE_BYTES:
        raise AuthFileError(f"{os.fspath(path)}: more than {_FILE_BYTES} bytes; {_EXPECTED}")
    try:
        lines = [line.strip(" \t\r") for line in str(data, "utf-8").split("\n")]
    except UnicodeDecodeError:
        raise AuthFileError(f"{os.fspath(path)}: not UTF-8 text") from None
    found = [(n, line) for n, line in enumerate(lines, 1) if line and not line.startswith("#")]
    if len(found) != 1:
        raise AuthFileError(f"{os.fspath(path)}: {len(found) or 'no'} lines of credentials; {_EXPECTED}")
    number, line = found[0]
    return _parsed(line, f"{os.fspath(path)}, line {number}")


def _check_mode(path: str | os.PathLike[str], status: os.stat_result) -> None:
    """Refuse a file of this user that other users may access. The files of other users are not checked."""
    exposed = stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and exposed:
        mode = stat.S_IMODE(status.st_mode)
        name = os.fspath(path)
        remedy = shlex.join(["chmod", "600", name])
        raise AuthFileError(f"{name}: other users may access it (mode {mode:04o}); run: {remedy}")


def _parsed(line: str, place: str) -> Simple | Bearer:
    words = line.split(maxsplit=2)
    if words[0] == "bearer" and len(words) == 2:
        return Bearer(words[1])
    if words[0] == "simple" and len(words) == 3:
        return Simple(words[1], words[2])
    raise AuthFileError(f"{place}: {_EXPECTED}")
