"""Decrypt one TLS connection of a capture with the secrets of a key log.

Theory of operation. Each direction is a sequence of records. Until the hellos of both sides are there, nothing is
encrypted. The client random in the client's hello selects the secrets, the server's hello the cipher suite. From then
on the two directions are independent: a direction of TLS 1.3 changes its keys after its Finished message and at each
key update, one of TLS 1.2 at its ChangeCipherSpec. A direction that cannot be decrypted ends with a reason; nothing is
raised. A gap ends its direction too, because decrypting a record requires the number of records before it.

Not decrypted: 0-RTT data, which is sent under a key of its own; suites without authenticated encryption; renegotiation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from afflux.capture import tls
from afflux.capture.ciphers import SUITES, Keys, Suite, master_keys, needed, next_secret, traffic_keys
from afflux.capture.secrets import Secrets
from afflux.capture.tls import TLS13, Answer, Hello, Messages
from afflux.core.errors import MissingExtra

__all__ = ["Decryption", "Plain"]

_CHANGE, _ALERT, _HANDSHAKE, _DATA, _HEARTBEAT = range(20, 25)
_LARGEST = 0x4000 + 2_048
"Bytes of a record (RFC 5246, 6.2.3)."
_WAITING = 0x1_0000
"Bytes of the client that may wait for the server's hello."
_WRONG = "a TLS record cannot be decrypted: the secret is that of another connection, or bytes are damaged"
_TRAFFIC = "{}_TRAFFIC_SECRET_0"
_FIRST = "{}_HANDSHAKE_TRAFFIC_SECRET"


@dataclass(frozen=True, slots=True)
class Plain:
    """Decrypted bytes of one direction."""

    rising: bool
    "The direction (see ``Segments.rising``)."
    data: bytes
    start: int
    "Their position in the decrypted bytes of the direction."
    ends: list[int]
    "The position after each record's bytes in ``data``."
    packets: list[int]
    "The packet that completed each record."


@dataclass(slots=True)
class _Way:
    """One direction."""

    rising: bool
    client: bool
    "The client sends it."
    held: bytearray = field(default_factory=bytearray)
    messages: Messages = field(default_factory=Messages)
    keys: Keys | None = None
    "The current keys; None while records are not encrypted."
    pending: Keys | None = None
    "The keys after ChangeCipherSpec, in TLS 1.2."
    secret: bytes = b""
    "The traffic secret, in TLS 1.3."
    finished: bool = False
    "The handshake of this direction is over, in TLS 1.3."
    waits: bool = False
    "The next record can be read only when the server's hello is there."
    tried: bool = False
    "A record should have been decrypted."
    read: bool = False
    "A record was decrypted."
    closed: bool = False
    "The side has said that it sends no more."
    over: str = ""
    "Why the rest cannot be decrypted; empty if it can."
    delivered: int = 0
    "Decrypted bytes so far."


class Decryption:
    """The two directions of a connection.

    Args:
        secrets: the secrets, by client random.
        client: the direction of the client's bytes, by ``rising``.
    """

    def __init__(self, secrets: Secrets, client: bool) -> None:
        self.client = client
        "The direction of the client's bytes."
        self._secrets = secrets
        self._ways = {rising: _Way(rising, rising is client) for rising in (client, not client)}
        self._hello = Hello()
        self._answer: Answer | None = None
        self._suite: Suite | None = None
        self._known: dict[str, bytes] = {}
        self._skips_early = False

    def __str__(self) -> str:
        """What the handshake shows: version, cipher, server name, and the protocol that the server selected, or those
        offered."""
        shown = [tls.VERSIONS.get(self._answer.version, "TLS") if self._answer else "TLS"]
        shown += [str(self._suite)] if self._suite is not None else []
        shown += [str(self._hello)] if str(self._hello) else []
        return "; ".join(shown)

    def problem(self, rising: bool) -> str:
        """Return why the rest of a direction cannot be decrypted; empty if it can."""
        return self._ways[rising].over

    def feed(self, rising: bool, data: bytes, ends: Sequence[int], packets: Sequence[int]) -> list[Plain]:
        """Add bytes of a direction; return what can be decrypted now. See ``flows.Consumer.data`` for the arguments."""
        way = self._ways[rising]
        if way.over or way.closed:
            return []
        before = len(way.held)
        way.held += data
        found = [self._read(way, before, ends, packets)]
        other = self._ways[not rising]
        if other.waits and (self._answer is not None or self._skips_early):
            found.append(self._read(other, len(other.held), (0,), packets[-1:]))
        return [plain for plain in found if plain.data]

    def lose(self, rising: bool, size: int) -> None:
        """The next ``size`` bytes of a direction are missing."""
        way = self._ways[rising]
        if not way.closed:
            self._stop(way, f"{size} bytes of TLS are missing, so what follows cannot be decrypted")

    def end(self, rising: bool) -> None:
        """A direction has ended."""
        way = self._ways[rising]
        if self._answer is None:
            self._give_up("the handshake is not complete")
        elif way.held:
            self._stop(way, "the last TLS record is cut off")
        elif way.tried and not way.read:
            self._stop(way, _WRONG)

    # -- records -----------------------------------------------------------------------------------------------

    def _read(self, way: _Way, before: int, ends: Sequence[int], packets: Sequence[int]) -> Plain:
        """Read the whole records; the first ``before`` bytes of them came with earlier packets."""
        held, at, last = way.held, 0, len(ends) - 1
        way.waits = False
        found = Plain(way.rising, b"", way.delivered, [], [])
        pieces: list[bytes] = []
        while not (way.over or way.closed) and len(held) - at >= 5:
            kind, size = held[at], int.from_bytes(held[at + 3 : at + 5], "big")
            if not _CHANGE <= kind <= _HEARTBEAT or held[at + 1] != 3 or size > _LARGEST:
                self._stop(way, f"not a TLS record: {held[at : at + 5].hex(' ')}")
                break
            if len(held) - at < 5 + size:
                break
            content = self._record(way, kind, bytes(held[at : at + 5]), bytes(held[at + 5 : at + 5 + size]))
            if way.waits:
                break
            at += 5 + size
            if content:
                pieces.append(content)
                way.delivered += len(content)
                found.ends.append(way.delivered - found.start)
                found.packets.append(packets[min(bisect_left(ends, at - before), last)])
        del held[:at]
        if way.over or way.closed:
            held.clear()
        elif way.waits and len(held) > _WAITING:
            self._stop(way, "the server's hello is missing")
        return replace(found, data=b"".join(pieces))

    def _record(self, way: _Way, kind: int, head: bytes, body: bytes) -> bytes:
        """Apply one record; return the data in it. Sets ``way.waits`` if it must be read later."""
        modern = self._answer is not None and self._answer.version == TLS13
        if way.keys is not None and (kind == _DATA or not modern):
            opened = way.keys.open(head, body)
            way.tried = True
            if opened is None:
                if not (way.client and modern and self._hello.early and not way.read):  # not 0-RTT data
                    self._stop(way, _WRONG)
                return b""
            way.read, body = True, opened
            if modern:
                body = opened.rstrip(b"\0")
                kind, body = body[-1] if body else 0, body[:-1]
        elif kind == _DATA:
            if way.client and self._answer is None and not self._skips_early:
                way.waits = True
            elif not (way.client and self._skips_early):
                self._stop(way, "the handshake is not complete")
            return b""
        return self._content(way, kind, body)

    def _content(self, way: _Way, kind: int, body: bytes) -> bytes:
        """Apply the content of a record; return the data in it."""
        if kind == _DATA:
            return body
        if kind == _HANDSHAKE:
            for number, message in way.messages.feed(body):
                self._message(way, number, message)
        elif kind == _ALERT:
            way.closed |= len(body) >= 2 and (body[1] == 0 or body[0] == 2)
        elif kind == _CHANGE and self._answer is not None and self._answer.version != TLS13:
            if way.pending is None:
                self._stop(way, "the keys are negotiated again, which is not supported")
            way.keys, way.pending = way.pending, None
        return b""

    def _stop(self, way: _Way, reason: str) -> None:
        way.over = way.over or reason
        way.held.clear()

    def _give_up(self, reason: str) -> None:
        for way in self._ways.values():
            self._stop(way, reason)

    # -- handshake ---------------------------------------------------------------------------------------------

    def _message(self, way: _Way, kind: int, body: bytes) -> None:
        modern = self._answer is not None and self._answer.version == TLS13
        if kind == tls.CLIENT_HELLO and way.client and way.keys is None:
            self._offered(tls.offer(body))
        elif kind == tls.SERVER_HELLO and not way.client and way.keys is None:
            self._answered(tls.answer(body))
        elif not modern or way.keys is None:
            return
        elif kind == tls.ENCRYPTED_EXTENSIONS and not way.client:
            found = tls.extensions(body, 0)
            self._selected(tls.names_of(found.get(tls.ALPN, b"")))
            if tls.EARLY_DATA in found:
                self._give_up("its 0-RTT data is not decrypted")
        elif kind == tls.FINISHED and not way.finished:
            way.finished = True
            self._switch(way, _TRAFFIC)
        elif kind == tls.KEY_UPDATE and self._suite is not None:
            way.secret = next_secret(self._suite, way.secret)
            way.keys = traffic_keys(self._suite, way.secret)

    def _offered(self, found: Hello) -> None:
        """Apply the client's hello."""
        self._hello = found
        self._known = self._secrets.find(found.random)
        if not self._known:
            self._give_up("no secret for its client random in the key log")

    def _answered(self, found: Answer | None) -> None:
        """Apply the server's hello: select the keys of both directions."""
        if found is None or not self._hello.random:
            self._give_up("a wrong hello" if found is None else "the client's hello is missing")
            return
        if found.retry:
            self._skips_early = True
            return
        self._answer, self._suite = found, SUITES.get(found.suite)
        self._selected((found.protocol,) if found.protocol else ())
        if found.version not in (0x0303, TLS13):
            self._give_up("only TLS 1.2 and 1.3 are decrypted")
        elif self._suite is None or found.compressed:
            what = "compression" if self._suite is not None else f"cipher suite 0x{found.suite:04x}"
            self._give_up(f"{what} is not decrypted")
        else:
            try:
                needed()
            except MissingExtra as missing:
                self._give_up(str(missing))
                return
            self._select(found, self._suite)

    def _select(self, found: Answer, suite: Suite) -> None:
        if found.version == TLS13:
            for way in self._ways.values():
                self._switch(way, _FIRST)
            return
        master = self._known.get("CLIENT_RANDOM")
        if master is None:
            self._give_up("the key log has no secret of TLS 1.2 for its client random")
            return
        keys = master_keys(suite, master, self._hello.random, found.random)
        for way, one in zip(self._ways.values(), keys, strict=True):
            way.pending = one

    def _switch(self, way: _Way, label: str) -> None:
        """Use the keys of a secret of TLS 1.3."""
        label = label.format("CLIENT" if way.client else "SERVER")
        secret = self._known.get(label)
        if secret is None or self._suite is None:
            self._stop(way, f"the key log has no {label} for its client random")
            return
        way.secret, way.keys = secret, traffic_keys(self._suite, secret)

    def _selected(self, names: tuple[str, ...]) -> None:
        """Show the protocol that the server has selected in place of those offered."""
        if names:
            self._hello = replace(self._hello, protocols=names)
