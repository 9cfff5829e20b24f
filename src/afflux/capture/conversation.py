"""Recognize the content of a TCP connection, and decode it: frames, frames in a WebSocket, TLS, or something else.

The first bytes of both sides decide (core.recognition). A connection that begins before the capture is decoded only if
the capture has the first frame of its client; the position of a frame is never guessed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from afflux.capture import tls
from afflux.capture.decryption import Decryption
from afflux.capture.firstbytes import FirstBytes
from afflux.capture.flows import Connection
from afflux.capture.reassembly import cut_short
from afflux.capture.settings import HEADS, OTHERS, Content, Event, Settings
from afflux.capture.sides import Placed, PlainSide, Side, WebSocketSide
from afflux.capture.skipping import UNKNOWN
from afflux.capture.strangers import SHOWN, described
from afflux.capture.talk import Followed
from afflux.capture.websocket import Head, Messages, head_of
from afflux.core.entry import ProtocolEntry
from afflux.core.limits import reached
from afflux.core.recognition import recognize

__all__ = ["Conversation"]


class Conversation(Followed):
    """The decoder of one connection; see ``flows.Consumer``."""

    __slots__ = (
        "_first", "_given_up", "_heads", "_packet", "_probe", "_probed", "_sides", "content", "detail", "frames",
        "idle", "others", "place", "protocol", "security", "settings", "settled",
    )  # fmt: skip

    def __init__(self, connection: Connection, settings: Settings) -> None:
        super().__init__(connection)
        self.settings = settings
        self.settled = False
        self.idle = False
        self.content = Content.EMPTY
        self.detail = ""
        "More about the content: the candidates, or what TLS shows."
        self.protocol: ProtocolEntry | None = None
        self.others: tuple[ProtocolEntry, ...] = ()
        "The protocols with the same first bytes that are never guessed."
        self.frames = 0
        "Frames decoded."
        self.security: Decryption | None = None
        "TLS, if its secrets are known or were looked for. Its text has the version, the cipher and the names."
        self.place = UNKNOWN
        "The first packet with data, if the caller notes it."
        self._first = FirstBytes(settings)
        self._packet = 0
        self._heads: dict[bool, Head] = {}
        self._probe: Messages | None = None
        self._probed = 0
        self._sides: dict[bool, Side] = {}
        self._given_up: list[Side] = []

    @property
    def text(self) -> str:
        """The content in words."""
        within = " in TLS" if self.security is not None and self.content is not Content.ENCRYPTED else ""
        if self.protocol is not None:
            return self.protocol.name + (" in WebSocket" if self.content is Content.WEBSOCKET else "") + within
        return (f"{self.content.value} ({self.detail})" if self.detail else self.content.value) + within

    @property
    def _opener(self) -> bool | None:
        """The direction of the side that opened the connection, as far as TLS or TCP show it."""
        return self.connection.opener if self.security is None else self.security.client

    # -- what a connection brings -------------------------------------------------------------------------------

    def data(self, rising: bool, data: bytes, ends: Sequence[int], packets: Sequence[int]) -> None:
        """See Consumer."""
        if self.idle:
            return
        if self.security is None:
            if not (self.settled or self._first.pieces or self._first.strange) and self._known(
                rising, data, packets[-1]
            ):
                return
            self._bytes(rising, data, self.connection.halves[rising].position - len(data), ends, packets)
            return
        for plain in self.security.feed(rising, data, ends, packets):
            if not self.idle:
                self._bytes(plain.rising, plain.data, plain.start, plain.ends, plain.packets)
        self._undecrypted(packets[-1])

    def _bytes(self, rising: bool, data: bytes, start: int, ends: Sequence[int], packets: Sequence[int]) -> None:
        """Take bytes that are not encrypted; ``start`` is their position."""
        if not self.settled:
            self._open(rising, data, packets[-1])
            return
        side = self._sides.get(rising)
        if side is not None:
            self._event(Event(self, rising, side, data, start, ends, packets))

    def joint(self, rising: bool) -> PlainSide | None:
        """Return the receiver of a direction whose frames can be found together with those of others; None if the bytes
        must be handed to ``data``."""
        side = self._sides.get(rising)
        if isinstance(side, PlainSide) and side.prefixed is not None and self.settled and self.security is None:
            return side
        return None

    def gap(self, rising: bool, size: int, packet: int) -> None:
        """See Consumer."""
        if self.idle:
            return
        if self.security is not None:
            self.security.lose(rising, size)
            self._undecrypted(packet)
            return
        kept = self.connection.halves[rising].counts.kept
        if not self.settled:
            self._other(Content.MID_STREAM, cut_short(kept) or "first bytes are missing")
            return
        if (side := self._sides.get(rising)) is not None:
            self._event(Event(self, rising, side, size, kept, (0,), (packet,)))

    def end(self, rising: bool, packet: int) -> None:
        """See Consumer."""
        if self.security is not None and not self.idle:
            self.security.end(rising)
            self._undecrypted(packet)
        side = self._sides.pop(rising, None)
        if side is not None:
            self._event(Event(self, rising, side, None, 0, (0,), (packet,)))
            self.idle = not self._sides
        elif not self.settled and self._first.starts:
            self._packet = packet
            if self._first.strange:
                _describe(self, final=True)
            else:
                self._decide(final=True)

    def _undecrypted(self, packet: int) -> None:
        """End the directions that cannot be decrypted any further; all of the connection if nothing is known of it."""
        if self.security is None or self.idle:
            return
        for rising in (False, True):
            reason = self.security.problem(rising)
            if reason and not self.settled:
                self._other(Content.ENCRYPTED, f"{self.security}; {reason}")
            elif reason and (side := self._sides.pop(rising, None)) is not None:
                self._event(Event(self, rising, side, reason, 0, (0,), (packet,)))
                self.idle = not self._sides

    def _event(self, event: Event) -> None:
        """Handle an event, now or at the end of the batch."""
        if self.settings.later is not None:
            self.settings.later.append(event)
        else:
            self.handle(event)

    def handle(self, event: Event) -> None:
        """Note the frames that an event completes."""
        _, rising, side, data, start, ends, packets = event
        if side in self._given_up:
            return
        before = side.buffered
        if data is None:
            self.settings.buffered -= before
            self._emit(rising, _ruled(side.end(), "cut"), 0, ends, packets)
        elif isinstance(data, str):
            self.settings.buffered -= before
            self._emit(rising, side.stop(data, "lost"), 0, ends, packets)
        elif isinstance(data, int):
            self._emit(rising, _ruled(side.lose(data), "lost", cut_short(start)), 0, ends, packets)
            self.settings.buffered += side.buffered - before
        else:
            self._emit(rising, side.feed(data), start, ends, packets)
            self._budget(rising, side, side.buffered - before, packets[-1])

    def _emit(
        self, rising: bool, placed: Iterable[Placed], start: int, ends: Sequence[int], packets: Sequence[int]
    ) -> None:
        """Note frames, each with the packet that completed it."""
        found, last = self.settings.found, len(ends) - 1
        for position, made in placed:
            number = 0 if last == 0 else min(bisect_left(ends, position - start), last)
            if self.settings.payload == "bytes":
                self.settings.keep(made)
            found.append((packets[number], self, made))
            self.frames += 1

    def _budget(self, rising: bool, side: Side, change: int, packet: int) -> None:
        """Count buffered bytes; give the direction up if all connections together have too many."""
        self.settings.buffered += change
        if change > 0 and self.settings.buffered > self.settings.limits.capture_bytes:
            self.settings.buffered -= side.buffered
            self._sides.pop(rising, None)
            self._given_up.append(side)
            self._emit(rising, side.stop(reached(self.settings.limits, "capture_bytes")), 0, (0,), (packet,))

    # -- what it carries ----------------------------------------------------------------------------------------

    def _known(self, rising: bool, data: bytes, packet: int) -> bool:
        """Settle at once if the first bytes are those of a client whose protocol they show; return whether they are.
        What may be TLS or HTTP is looked at more closely (see ``_decide``)."""
        if rising is not self.connection.opener or self.settings.ports or data[0] in OTHERS:
            return False
        result = self.settings.recognize(data, True)
        if result.protocol is None:
            return False
        self._first.add(rising, data, packet)
        self._settle(result.protocol, rising, result.candidates)
        return True

    def _open(self, rising: bool, data: bytes, packet: int) -> None:
        """Collect the first bytes of both sides until they decide."""
        if self._first.strange:
            self._first.glimpse(rising, data, SHOWN)
            _describe(self, self._first.full)
            return
        self._packet = packet
        self._first.add(rising, data, packet)
        self._decide(final=self._first.full)

    def _decide(self, final: bool) -> None:
        """Look at the first bytes; ``final`` if there will be no more."""
        opener = self._opener
        clients = (opener,) if opener is not None else tuple(self._first.starts)
        waiting = False
        if (
            opener is not None
            and tls.begins(self._first.starts.get(not opener, b""))
            and opener not in self._first.starts
        ):
            if final:
                self._other(Content.ENCRYPTED, "TLS; the client's hello is missing")
            return
        for client in clients:
            start = self._first.starts.get(client, b"")
            waiting |= start in HEADS
            if tls.begins(start):
                self._encrypted(client, start, final)
                return
            if start[:4] == b"GET ":
                waiting |= self._upgrade(client)
                if self.settled:
                    return
        if waiting and not final:
            return
        self._recognize(final)

    def _encrypted(self, client: bool, start: bytes, final: bool) -> None:
        if self.security is not None:
            self._other(Content.ENCRYPTED, "TLS in TLS")
            return
        if self.settings.secrets and not final:
            self.security = Decryption(self.settings.secrets, client)
            for rising, data, number, batch in self._first.taken():
                packet = number if batch == self.settings.batch else self._packet
                self.data(rising, data, (len(data),), (packet,))
            return
        size = 5 + int.from_bytes(start[3:5], "big")
        if len(start) >= size or final:
            shown = str(tls.hello(start))
            self._other(Content.ENCRYPTED, f"TLS; {shown}" if shown else "TLS")

    def _recognize(self, final: bool) -> None:
        entries, opener = self.settings.entries, self._opener
        forced, server = self._forced()
        more, candidates, likely = False, dict[str, ProtocolEntry](), False
        for rising, client in _roles(opener, self._first.starts):
            if not client and not self._synced(rising):
                continue  # any of a server's frames may look like its first one
            result = self.settings.recognize(self._first.starts[rising], client)
            if opener is None and result.protocol is not None:
                both = _both_begin(self.settings, self._first.starts, result.protocol, rising)
                if not both and (both is False or not final):
                    more |= both is None
                    continue
            if result.protocol is not None and (client or final or opener is None or opener in self._first.starts):
                self._settle(forced or result.protocol, rising if client else not rising, result.candidates)
                return
            more |= result.more or result.protocol is not None
            if client and opener is not None and not (more or result.candidates):
                break  # whatever the server's bytes look like
            if result.candidates:
                candidates |= {entry.name: entry for entry in result.candidates}
                likely = rising if client else not rising
        if more and not final:
            return
        if forced is not None:
            if all(self._synced(rising) or half.expected < 0 for rising, half in self.connection.halves.items()):
                self._settle(forced, not server)
            else:
                self._other(Content.MID_STREAM, "its first frame is missing")
        elif len(candidates) == 1 and len(entries) == 1:
            self._settle(entries[0], likely)
        elif candidates:
            self._other(Content.AMBIGUOUS, " or ".join(sorted(candidates)))
        else:
            _describe(self, final)

    def _synced(self, rising: bool) -> bool:
        """Whether the first bytes of a direction are known to be its first. TLS is decrypted only from there."""
        return self.security is not None or self.connection.halves[rising].synced

    def _forced(self) -> tuple[ProtocolEntry | None, bool]:
        """Return the protocol given for a port of the connection, and the direction of the server."""
        ports, connection = self.settings.ports, self.connection
        if not ports:
            return None, False
        for server, end in ((True, connection.low), (False, connection.high)):
            if end[2] in ports and self._opener in (None, not server):
                return ports[end[2]], server
        return None, False

    def _other(self, content: Content, detail: str) -> None:
        self.content, self.detail = content, detail
        self.settled = self.idle = True
        self._first.taken()
        self._probe = None
        self.settings.count(self)

    def _settle(self, protocol: ProtocolEntry, client: bool, candidates: Sequence[ProtocolEntry] = ()) -> None:
        """Decode the connection as a protocol, from its first byte. ``candidates``: see ``Recognition``."""
        make = protocol.dissector
        if make is None:
            self._other(Content.OTHER, protocol.name)
            return
        self.content, self.protocol, self.client = Content.FRAMES, protocol, client
        self.others = tuple(entry for entry in candidates if entry is not protocol and entry.unguessed)
        payload, limits = self.settings.payload, self.settings.limits
        for rising in (False, True):
            self._sides[rising] = PlainSide(make(rising is client, payload), limits)
        self.settings.count(self)
        self._replay({False: 0, True: 0})

    def _replay(self, skip: dict[bool, int]) -> None:
        """Hand the bytes collected so far to the sides, without the first ``skip``. Packets of batches before this one
        are not known any more: the one that decided stands for them."""
        self.settled = True
        self._probe = None
        for rising, data, number, batch in self._first.taken():
            packet = number if batch == self.settings.batch else self._packet
            passed = min(skip[rising], len(data))
            skip[rising] -= passed
            side = self._sides.get(rising)
            if side is not None and passed < len(data):
                self._event(Event(self, rising, side, data[passed:], 0, (0,), (packet,)))

    # -- WebSocket ----------------------------------------------------------------------------------------------

    def _upgrade(self, client: bool) -> bool:
        """Read the upgrade of a WebSocket; return whether more bytes are needed."""
        for rising in (client, not client):
            if rising not in self._heads and (head := head_of(self._first.starts.get(rising, b""))) is not None:
                self._heads[rising] = head
        if len(self._heads) < 2:
            return True
        ask, answer = self._heads[client], self._heads[not client]
        if not ask.upgrades or not answer.accepts:
            self._other(Content.OTHER, "HTTP")
            return False
        sizes = {client: ask.size, not client: answer.size}
        deflates = {rising: answer.deflates(rising is client) for rising in sizes}
        if self._probe is None:
            self._probe = Messages(self.settings.limits, ask.size, deflates[client])
            self._probed = ask.size
        protocol = self._within(self._probe, self._first.starts[client], answer)
        if protocol is None or protocol.dissector is None:
            return not self.settled
        self.content, self.protocol, self.client = Content.WEBSOCKET, protocol, client
        for rising, size in sizes.items():
            messages = Messages(self.settings.limits, size, deflates[rising])
            dissector = protocol.dissector(rising is client, self.settings.payload)
            dissector.largest = self.settings.limits.frame_bytes
            self._sides[rising] = WebSocketSide(dissector, messages, protocol.framing is not None, size)
        self.settings.count(self)
        self._replay(sizes)
        return False

    def _within(self, probe: Messages, start: bytes, answer: Head) -> ProtocolEntry | None:
        """Return the protocol of a WebSocket: from its port, its subprotocol and its first message."""
        entries = self.settings.entries
        first = next(probe.feed(start[self._probed :]), None)
        self._probed = len(start)
        if first is None and not probe.over:
            return None
        result = recognize(entries, first.data, client=True, message=True) if first is not None else None
        candidates = result.candidates if result is not None else ()
        name = answer.fields.get("sec-websocket-protocol", "")
        named = [entry for entry in candidates if entry.subprotocol == name or len(entries) == 1]
        forced, _ = self._forced()
        found = forced or (named[0] if len(named) == 1 else result.protocol if result is not None else None)
        if found is None:
            texts = " or ".join(sorted(entry.name for entry in candidates))
            self._other(Content.AMBIGUOUS if candidates else Content.OTHER, texts or "WebSocket")
        return found


def _describe(one: Conversation, final: bool) -> None:
    """Settle a connection that is none of ours. If its beginning is missing, the first bytes of the other side may show
    more: wait for them, unless there will be no more."""
    starts = one._first.starts
    begun = all(one._synced(rising) for rising in starts)
    if final or begun or len(starts) == 2:
        one._other(*described(starts, begun))
    else:
        one._first.shorten(SHOWN)


def _roles(opener: bool | None, starts: Collection[bool]) -> list[tuple[bool, bool]]:
    """Return each direction with bytes, and whether it may be the client's. The client's come first."""
    if opener is None:
        return [(rising, client) for client in (True, False) for rising in starts]
    return [(rising, rising is opener) for rising in (opener, not opener) if rising in starts]


def _both_begin(settings: Settings, starts: Mapping[bool, bytes], protocol: ProtocolEntry, rising: bool) -> bool | None:
    """Whether the other side also begins as one of a protocol does whose sides begin alike; None if more bytes must
    decide. One such beginning does not show which side it is, nor that the capture has that of the other one."""
    if settings.recognize(starts[rising], False).protocol is not protocol:
        return True
    other = starts.get(not rising)
    if other is None:
        return None
    result = settings.recognize(other, False)
    return None if result.more else result.protocol is protocol


def _ruled(placed: Iterable[Placed], rule: str, why: str = "") -> Iterator[Placed]:
    """Yield records of frames that are not whole, with a word in place of the rule: nobody has broken it."""
    for position, made in placed:
        made["error"] = {"rule": rule, "reason": "; ".join(filter(None, (made["error"]["reason"], why)))}
        yield position, made
