"""Who may come in, and who may ask: credentials are checked at the SETUP, or at each request. No frames live here.

::

    check = afflux.auth.verify_token(os.environ["TOKEN"])
    async with afflux.serve(uri, handler, on_setup=afflux.auth.at_setup(check)) as server: ...
    async with afflux.connect(server.uri, setup=afflux.Bearer(token)) as peer: ...

1. Nothing of a client's is served before its check has said yes. A check says yes by returning a principal: anything
   but None and False. It says no with None, False or an exception; a check that fails says no.
2. Whatever the reason, the peer is told the same: ``REFUSED`` and nothing more (AU-01). Reasons and secrets are in no
   error and in no log.
3. An address whose checks have failed ``limits.auth_failures`` times within a minute waits for its next answer until
   that rate allows one more check. Who would have to wait beyond ``handshake_s`` is not checked, and told "auth-rate"
   (AU-03). An address may have as many checks at once as it may still fail, so that trying at once gains nothing. Each
   check that says yes allows one more at once, so that ten thousand clients of one address get in; one that says no
   takes all of these away.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
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

from afflux.aio.peer import Peer, current_peer
from afflux.aio.verbs import verbs_of
from afflux.calls import entries
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
"What a peer is told that is refused, whatever the reason."

Check = Callable[[Authentication | None, Peer], Any]
"""``check(credentials, peer)``, async or not: returns the principal, or None to refuse. The credentials are what the
peer says, None where it says nothing; compare secrets with ``hmac.compare_digest``, never with ``==``."""

_MOST_PROVED: Final = 256
"Checks of one address at once, beyond those that may fail."

_Sleep = Callable[[float], Awaitable[object]]

_principal: ContextVar[Any] = ContextVar("afflux_principal")


def current_principal() -> Any:
    """Who made the request that the running handler answers: what the check of the request returned, else that of its
    connection (``peer.principal``); None when neither was checked.

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
    """Check each client once, when it connects: the ``on_setup`` of ``afflux.serve``.

    Who is refused gets REJECTED_SETUP; who comes in has its principal as ``peer.principal``.

    Args:
        check: says who it is.
        failures: what to count failures in, shared with other gates; an own one if None.
        clock: monotonic seconds.
        sleep: waits for so many of them.
    """
    gate = _Gate(check, failures, clock, sleep)

    async def on_setup(setup: Any, peer: Peer) -> None:
        metadata, mime = getattr(setup, "metadata", None), getattr(setup, "metadata_mime", None)
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
    """A handler that checks the credentials in each request's own metadata before ``handler`` is entered.

    Who is refused gets REJECTED, a fire or a push no answer. The first item of a channel decides for all of it. In
    ``handler``, :func:`current_principal` is what the check returned. Extension frames are no requests: gate the setup.
    Where a protocol has no metadata (jmux, rsio) there are no credentials: a check can go by the peer's certificate.

    Args:
        handler: any handler, or a Router.
        check: says who it is.
        failures: what to count failures in, shared with other gates; an own one if None.
        clock: monotonic seconds.
        sleep: waits for so many of them.

    Raises:
        TypeError: ``handler`` has no verbs.
    """
    gated = _Gated(verbs_of(handler), _Gate(check, failures, clock, sleep))
    if (sizes := getattr(handler, "element_size", None)) is not None:
        gated.element_size = sizes
    return gated


class _Gated:
    """A handler behind a gate. It has exactly the verbs that the inner one has."""

    element_size: Callable[[str], int]

    def __init__(self, verbs: Mapping[str, Callable[..., Any]], gate: _Gate) -> None:
        self._gate = gate
        for verb, inner in verbs.items():
            setattr(self, verb, self._pusher(inner) if verb == "push" else self._caller(verb, inner))

    def _caller(self, verb: str, inner: Callable[..., Any]) -> Callable[[Any], Awaitable[Any]]:
        async def call(argument: Any) -> Any:
            first = argument.first if verb == "channel" else argument
            await self._admit(getattr(first, "metadata", None))  # a session has none: its peer's certificate may do
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
        peer = current_peer()
        mime = getattr(peer.setup, "metadata_mime", None)
        _principal.set(await self._gate.admit(metadata, mime, peer))


# How often.


@dataclass(slots=True)
class _Busy:
    """Checks of one address that are under way."""

    checks: int = 0
    proved: int = 0
    "How many checks in a row have said yes, 256 at most."
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def wake(self, most: int) -> None:
        """Let some of those who wait look again."""
        while most > 0 and self.waiting:
            waiter = self.waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                most -= 1


class _Gate:
    """One check, and how often it may fail."""

    def __init__(self, check: Check, failures: Failures | None, clock: Callable[[], float], sleep: _Sleep) -> None:
        self._check = check
        self._failures = Failures() if failures is None else failures
        self._clock = clock
        self._sleep = sleep
        self._busy: dict[str, _Busy] = {}

    async def admit(self, metadata: bytes | None, metadata_mime: str | None, peer: Peer) -> Any:
        """The principal that metadata proves.

        Raises:
            Rejected: there is none, or this address has to wait too long.
        """
        limits = peer.limits
        address = _address(peer.host)
        busy = await self._turn(address, limits)
        principal = None
        try:
            principal = await self._checked(metadata, metadata_mime, peer)
        finally:
            # A check that was canceled counts as well: else hanging up in time would make trying free.
            if principal is None:
                self._failures.add(address, limits.auth_failures, self._clock())
            self._leave(address, busy, principal is not None)
        if principal is None:
            raise Rejected(REFUSED)
        return principal

    async def _checked(self, metadata: bytes | None, metadata_mime: str | None, peer: Peer) -> Any:
        """The principal, or None. What the check raises may hold secrets: only where it did is logged."""
        try:
            found = entries(metadata, metadata_mime, limit=peer.limits.composite_entries)
            answer = self._check(found.credentials, peer)
            principal = await answer if isawaitable(answer) else answer
        except Error:
            return None
        except Exception as error:
            peer._driver.state.log_failure(f"afflux: an authentication check raised {_where(error)}")
            return None
        return None if principal is False else principal

    async def _turn(self, address: str, limits: Limits) -> _Busy:
        """Wait until one more check of an address may run, and count it.

        Raises:
            Rejected: that takes too long. It is said late, too.
        """
        failures, per_minute = self._failures, limits.auth_failures
        end = self._clock() + limits.handshake_s
        again = False
        while True:
            now = self._clock()
            busy = self._busy.get(address) or _Busy()
            wait = failures.wait(address, per_minute, now)
            alone = not busy.checks
            at_once = failures.left(address, per_minute, now) + busy.proved
            if not wait and (alone or at_once - busy.checks >= 1 - _GRAIN):
                busy.checks += 1
                self._busy[address] = busy
                return busy
            if now + wait > end:
                await self._sleep((end - now) / 2)
                raise Rejected(REASONS["auth_failures"], rule="auth_failures")
            if wait:
                await self._sleep(wait)
            else:
                await self._one_ends(address, busy, end - now, again)
                again = True

    async def _one_ends(self, address: str, busy: _Busy, seconds: float, again: bool) -> None:
        """Wait until a check of the same address ends; ``again``: ahead of those who have not waited yet."""
        waiter = asyncio.get_running_loop().create_future()
        (busy.waiting.appendleft if again else busy.waiting.append)(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                busy.wake(1)  # this turn is for the next
            elif waiter in busy.waiting:
                busy.waiting.remove(waiter)
            self._forget(address, busy)
            if isinstance(error, TimeoutError):
                raise Rejected(REASONS["auth_failures"], rule="auth_failures") from None
            raise

    def _leave(self, address: str, busy: _Busy, good: bool) -> None:
        busy.checks -= 1
        busy.proved = min(busy.proved + 1, _MOST_PROVED) if good else 0
        # After a failure everyone has to look how long it takes now.
        busy.wake(2 if good else len(busy.waiting))
        self._forget(address, busy)

    def _forget(self, address: str, busy: _Busy) -> None:
        if not busy.checks and not busy.waiting and self._busy.get(address) is busy:
            self._busy.pop(address, None)


def _where(error: BaseException) -> str:
    """The kind of an error and the line that raised it, without its words."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
    return f"{type(error).__name__}{place}"


# Ready checks.


def verify_token(tokens: str | Mapping[str, Any]) -> Check:
    """A check of ``afflux.Bearer``: one token, or several with the principal that each stands for.

    The principal of a lone token is "bearer". All tokens are compared, in constant time.

    Raises:
        ValueError: a token is empty, or its principal is None or False.
    """
    if isinstance(tokens, str):
        tokens = {tokens: "bearer"}
    if any(not token or principal is None or principal is False for token, principal in tokens.items()):
        raise ValueError("a token is not empty, and stands for a principal that is not None and not False")
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
    """A check of ``afflux.Simple`` against what :func:`hash_password` made of each user's password.

    The principal is the user's name. An unknown user takes as long as a known one. Passwords are hashed in threads,
    four at a time.

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
    """What to keep instead of a password: ``scrypt:N:R:P:SALT:KEY``, with a salt of its own each time.

    Args:
        password: the password.
        costs: scrypt's n (a power of 2), r and p: what each guess costs, and each login.

    Raises:
        ValueError: the password is empty, or scrypt can not have these costs.
    """
    if not password:
        raise ValueError("a password is not empty")
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
        """What ``hash_password`` wrote. Raises ValueError, without the text."""
        found = re.fullmatch(r"scrypt:(\d{1,9}):(\d{1,4}):(\d{1,4}):([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)", text)
        try:
            if found is not None:
                n, r, p = map(int, found.group(1, 2, 3))
                salt, key = (b64decode(part, validate=True) for part in found.group(4, 5))
                if n > 1 and not n & (n - 1) and r and p and len(key) == 32:
                    return cls((n, r, p), salt, key)
        except Base64Error:
            pass
        raise ValueError(f"the password of {name!r} was not hashed: keep what afflux.auth.hash_password(…) returns")


# Credentials in a file.

_FILE_BYTES = 0x10000
_WANTED = "a line `bearer TOKEN` or `simple USER PASSWORD`"


class AuthFileError(Error, ValueError):
    """A file of credentials that can not be used; the text says why, and never what is in it."""


def read_file(path: str | os.PathLike[str]) -> Simple | Bearer:
    """The credentials in a file: one line, ``bearer TOKEN`` or ``simple USER PASSWORD``.

    Empty lines, and lines that begin with ``#``, are skipped. A password goes to the end of its line and may have
    spaces inside; a user's name and a token have none. The text is UTF-8, 64 KiB at most. The file may be a pipe.

    Raises:
        AuthFileError: there is no such file, other users may read or write it, or it says something else.
    """
    try:
        with open(path, "rb") as file:
            _check_mode(path, os.fstat(file.fileno()))
            data = file.read(_FILE_BYTES + 1)
    except OSError as error:
        raise AuthFileError(f"{os.fspath(path)}: {error.strerror or 'can not be read'}") from None
    if len(data) > _FILE_BYTES:
        raise AuthFileError(f"{os.fspath(path)}: more than {_FILE_BYTES} bytes; wanted is {_WANTED}")
    try:
        lines = [line.strip(" \t\r") for line in str(data, "utf-8").split("\n")]
    except UnicodeDecodeError:
        raise AuthFileError(f"{os.fspath(path)}: not UTF-8 text") from None
    found = [(n, line) for n, line in enumerate(lines, 1) if line and not line.startswith("#")]
    if len(found) != 1:
        raise AuthFileError(f"{os.fspath(path)}: {len(found) or 'no'} lines of credentials; wanted is {_WANTED}")
    number, line = found[0]
    return _parsed(line, f"{os.fspath(path)}, line {number}")


def _check_mode(path: str | os.PathLike[str], status: os.stat_result) -> None:
    """A file of ours that others can read is a secret no more. One that is not ours is its owner's business."""
    exposed = stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and exposed:
        mode = stat.S_IMODE(status.st_mode)
        name = os.fspath(path)
        raise AuthFileError(f"{name}: others may use it (mode {mode:04o}), so it is no secret; run: chmod 600 {name}")


def _parsed(line: str, place: str) -> Simple | Bearer:
    words = line.split(maxsplit=2)
    if words[0] == "bearer" and len(words) == 2:
        return Bearer(words[1])
    if words[0] == "simple" and len(words) == 3:
        return Simple(words[1], words[2])
    raise AuthFileError(f"{place}: wanted is {_WANTED}")
