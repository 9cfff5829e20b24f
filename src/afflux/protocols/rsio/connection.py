"""One end of a connection: what its messages, its time and its endings do. The contract of an engine is engine.py's.

Rules this module keeps:

1. Good messages before a bad one are delivered first; a broken rule becomes goodbye with its reason (R-12, R-17), and
   Closed tells it.
2. Each side says goodbye at most once, and nothing after it (D-11, R-44). Who said it waits ``goodbye_s`` for the
   answer and reads on only to find that.
3. Ignoring a message is charged (DR-1): the glitch bucket bounds what it can cost.
4. No state survives the transport (R-46): an engine is one connection.
"""

# long: one method for each action of the connection tables.

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

from afflux.core.errors import (
    ConnectionClosed,
    Error,
    LocalProtocolError,
    Rejected,
    RemoteProtocolError,
    SetupRefused,
    Violation,
)
from afflux.core.events import Closed, Established, Event
from afflux.core.limits import REASONS, Limits, explained
from afflux.protocols.rsio import frames
from afflux.protocols.rsio.codes import VERSION, Extension, cut
from afflux.protocols.rsio.frames import ClientHello, Goodbye, GoodbyeAck, Hello, Message, ServerHello
from afflux.protocols.rsio.inbound import Inbound
from afflux.protocols.rsio.outbound import Outbound
from afflux.protocols.rsio.publications import Publications, Sizes
from afflux.protocols.rsio.shared import Shared
from afflux.protocols.rsio.states import CLIENT, SERVER, ConnectionAction, ConnectionInput, ConnectionState
from afflux.protocols.rsio.subscriptions import Subscriptions

__all__ = ["DEFAULT_MTU", "Connection"]

DEFAULT_MTU = 0x10000
"Bytes of an element beyond which it is cut, where both sides know split messages; and bytes of each part."
_MIN_MTU = 64  # a smaller part is one without progress

_S, _I = ConnectionState, ConnectionInput
_OPEN, _DRAINING, _CLOSING, _CLOSED = _S.OPEN, _S.DRAINING, _S.CLOSING, _S.CLOSED
_UNDECIDED = (_S.WAIT, _S.DECIDING)
_TYPES = {
    Extension.SPLIT_MESSAGES: (frames.OnNextPart.TYPE, frames.OnNextLastPart.TYPE),
    Extension.GOODBYE_ACK: (GoodbyeAck.TYPE,),
}
"The messages that an extension brings (R-14, I-5). None of them changes what another message means (R-16)."


# long: see the top of the file
class Connection:
    """The state of one end. Its arguments are those of engine.Engine."""

    __slots__ = (
        "_born",
        "_busy",
        "_client",
        "_decide",
        "_draining",
        "_error",
        "_full",
        "_greeted",
        "_in",
        "_now",
        "_offered",
        "_out",
        "_publications",
        "_quiet",
        "_reply_by",
        "_shared",
        "_state",
        "_subscriptions",
        "_table",
        "agreed",
        "hello",
        "limits",
    )

    def __init__(
        self,
        role: Literal["client", "server"],
        *,
        limits: Limits | None = None,
        decide: bool = False,
        now: float = 0.0,
        mtu: int = DEFAULT_MTU,
        extensions: Collection[int] = (),
        sizes: Sizes | None = None,
    ) -> None:
        if mtu < _MIN_MTU:
            raise LocalProtocolError(f"parts have {_MIN_MTU} bytes or more, not {mtu}", rule="fragment_min_bytes")
        if strange := set(extensions) - set(Extension):
            raise LocalProtocolError(f"there is no extension {min(strange)}; there is: 12 and 14", rule="R-15")
        self.limits = limits or Limits.server()
        self._client = role == "client"
        self._table = CLIENT if self._client else SERVER
        self._state = self._table.start
        self._decide = decide
        self._offered = tuple(sorted(map(int, extensions)))
        self._born = self._now = self._quiet = now
        self._out = Outbound(min(mtu, self.limits.payload_bytes), min(DEFAULT_MTU, self.limits.payload_bytes // 2))
        self._shared = Shared(self.limits, self._out)
        self._subscriptions = Subscriptions(self._shared)
        self._publications = Publications(self._shared, sizes)
        self._in = Inbound(self.limits, self._subscriptions.size_of, self._subscriptions.take, self._message)
        self._busy = False
        "At the last look something was live."
        self._full = False
        "At the last look this side could take no more input."
        self._greeted = False
        "This side has said hello."
        self._reply_by = 0.0
        self._error: Error | None = None
        "What Closed will tell."
        self._draining: Violation | None = None
        "This side drains, with these words."
        self.hello: Hello | None = None
        "The peer's hello; None before it came."
        self.agreed: frozenset[int] = frozenset()
        "What both sides know (R-15)."
        self._step(_I.APP_START, decide)

    # -- one pass -------------------------------------------------------------------------------------------

    def _run(self, work: Callable[..., None], *arguments: Any) -> list[Event]:
        """Do one piece of work and hand over its events; a violation ends the connection (never raises)."""
        shared = self._shared
        shared.now = self._now
        try:
            work(*arguments)
        except Violation as violation:
            self._step(_I.BROKEN, violation)
        if self._live:
            self._busy = True
        elif self._state is _DRAINING:
            self._step(_I.LAST_ENDED, None)
        events, shared.events = shared.events, []
        return events

    @property
    def _live(self) -> bool:
        return bool(self._subscriptions.live or self._publications.live)

    def _receive(self, data: bytes | memoryview, now: float) -> None:
        try:
            self._in.receive(data, now)
        except Violation:
            self._in.close()  # nobody knows where the next message begins
            raise

    def _message(self, message: Message) -> None:
        """One message came. What it breaks ends the connection, not the reading: the answer to goodbye follows."""
        input = _INPUTS.get(type(message), _I.SIGNAL)
        if isinstance(message, Hello):
            if isinstance(message, ClientHello) is self._client:
                input = _I.HELLO_WRONG
            elif message.version != VERSION:
                input = _I.HELLO_OTHER
        try:
            self._step(input, message)
        except Violation as violation:
            self._step(_I.BROKEN, violation)

    def _step(self, input: ConnectionInput, argument: Any) -> None:
        step = self._table.steps[self._state][input]
        self._state = step.next
        _ACTIONS[step.action](self, argument)

    # -- establishment --------------------------------------------------------------------------------------

    def _say_hello(self, later: bool) -> None:
        """A client speaks at once, a server may (R-10, D-5), unless what it says depends on the client."""
        if self._client or not later:
            self._greet()

    def _greet(self) -> None:
        if not self._greeted:
            self._greeted = True
            kind = ClientHello if self._client else ServerHello
            self._out.control(kind(version=VERSION, extensions=self._offered).encode())

    def _judge(self, hello: ClientHello) -> None:
        self._shared.events.append(Established(hello))
        self._in.held = self._decide
        self.hello = hello
        if not self._decide:
            self._step(_I.APP_ACCEPT, hello)

    def _establish(self, hello: Hello) -> None:
        self._greet()
        self.hello = hello
        self.agreed = frozenset(self._offered) & frozenset(hello.extensions)  # R-15, D-6
        for extension in self.agreed:
            self._in.known |= frozenset(_TYPES[Extension(extension)])
        self._shared.split = Extension.SPLIT_MESSAGES in self.agreed
        self._in.first = False
        if self._client:
            self._shared.events.append(Established(None))
        if self._draining is not None:
            self._step(_I.APP_DRAIN, self._draining)

    def _other_version(self, hello: Hello) -> None:
        text = f"version {hello.version}: this side speaks version {VERSION} only"
        error: Error = RemoteProtocolError(text, rule="R-12")
        if self._client:
            error = SetupRefused(text, rule="R-12")
        # what was said on trust was discarded, so it is safe to try again (HS-25)
        self._say_goodbye(text, Rejected(text, rule="R-13"))
        self._end(error)

    def _refuse(self, violation: Violation) -> None:
        """goodbye without a hello: the client learns that nothing was taken."""
        error = ConnectionClosed(violation.reason, rule=violation.rule)
        self._say_goodbye(violation.reason, error)
        self._end(error)

    def _check_deciding(self) -> None:
        if self._state not in (_S.DECIDING, _CLOSED):
            raise LocalProtocolError("there is nothing to decide: no hello waits for it", rule="3.1")

    def _accept(self) -> None:
        if self._state is _S.DECIDING:
            self._step(_I.APP_ACCEPT, self.hello)
            try:
                self._in.resume(self._now)
            except Violation:
                self._in.close()
                raise

    # -- messages -------------------------------------------------------------------------------------------

    def _signal(self, message: Message) -> None:
        if isinstance(message, frames.Subscribe):
            refusal = "the connection is closing" if self._state is _DRAINING else ""
            self._publications.on_subscribe(message, refusal)
        else:
            owner, method = _SIGNALS[type(message)]
            method(getattr(self, owner), message)

    def _drop(self, message: Message) -> None:
        self._subscriptions.note(message)

    def _deafen(self, violation: Violation) -> None:
        self._in.close()

    # -- endings --------------------------------------------------------------------------------------------

    def _fatal(self, cause: Violation | Message) -> None:
        """The peer broke a rule: say which."""
        if isinstance(cause, Message):
            cause = Violation(f"{cause.NAME} makes no sense here", rule="R-9")
        error = RemoteProtocolError(cause.reason, stream=0, rule=cause.rule)
        self._await_reply(cause.reason, error, error)

    def _reply(self, goodbye: Goodbye) -> None:
        """The peer leaves: end everything and answer once (R-42)."""
        reason = goodbye.reason
        refused = self._client and self.hello is None
        closed = SetupRefused if refused else ConnectionClosed
        error = closed(reason or "the peer said goodbye", stream=0, rule="R-42")
        error.may_have_been_processed = not refused  # nothing is taken before the server's hello
        ack = GoodbyeAck(message="") if Extension.GOODBYE_ACK in self.agreed else Goodbye(reason="")
        self._part(error)
        self._out.farewell(ack.encode())
        self._end(error if reason or self.hello is None else None)

    def _acknowledged(self, message: Message) -> None:
        self._end(self._error)

    def _expire(self, argument: Any) -> None:
        self._end(self._error)

    def _close(self, violation: Violation) -> None:
        self._await_reply(violation.reason, ConnectionClosed("this side closed the connection"), None)

    def _drain(self, violation: Violation) -> None:
        self._draining = self._draining or violation

    def _finish(self, argument: Any) -> None:
        """What the last subscriptions have queued goes first."""
        reason = self._draining.reason if self._draining else ""
        self._out.farewell(Goodbye(reason=self._text(reason)).encode())
        self._reply_by = self._now + self.limits.goodbye_s

    def _give_up(self, argument: Any) -> None:
        error = ConnectionClosed(REASONS["handshake_s"], rule="handshake_s")
        self._part(error)
        self._end(error)

    def _lose(self, argument: Any) -> None:
        error = ConnectionClosed("the peer closed the connection", rule="R-45")
        self._part(error)
        self._end(error)

    def _nothing(self, argument: Any) -> None:
        """It is so already."""

    def _await_reply(self, reason: str, error: Error, told: Error | None) -> None:
        self._say_goodbye(reason, error)
        self._error = told
        self._reply_by = self._now + self.limits.goodbye_s

    def _say_goodbye(self, reason: str, error: Error) -> None:
        """Once, as the last word; to the subscriptions it is an end (R-45)."""
        self._part(error)
        self._out.farewell(Goodbye(reason=self._text(reason)).encode())

    def _text(self, reason: str) -> str:
        return cut(explained(self.limits, reason), self.limits.error_text_bytes[0])

    def _part(self, error: Error) -> None:
        self._subscriptions.end_all(error)
        self._publications.end_all()
        self._out.clear()

    def _end(self, error: Error | None) -> None:
        self._in.close()
        self._shared.events.append(Closed(error))

    # -- time -----------------------------------------------------------------------------------------------

    def _hold(self, now: float) -> None:
        """This side did not read: what the peer did not say until ``now`` is not held against it."""
        self._quiet = now
        self._in.hold(now)
        self._subscriptions.parts.hold(now)

    def _idle_at(self) -> float | None:
        """When a server gives up a client that wants nothing. One that is live is not idle, whatever it says."""
        idle = self.limits.idle_s
        return None if self._client or idle is None or self._live else self._quiet + idle

    def _due(self) -> float | None:
        """When tick is wanted, in a state that is not CLOSED."""
        if self._state in _UNDECIDED:
            return self._born + self.limits.handshake_s
        if self._state is _CLOSING:
            return self._reply_by
        times = [] if (idle := self._idle_at()) is None else [idle]
        if self._in.incomplete_since is not None:
            times.append(self._in.incomplete_since + self.limits.frame_s)
        if oldest := self._subscriptions.parts.oldest():
            times.append(oldest[1] + self.limits.reassembly_s)
        return min(times, default=None)

    def _tick(self, now: float) -> None:
        if self._busy and not self._live:
            self._busy = False
            self._quiet = now  # it has been idle since this look, or a little longer
        due = self._due()
        if due is None or now < due:
            return
        if self._state in _UNDECIDED:
            self._step(_I.SILENT, Violation(REASONS["handshake_s"], rule="handshake_s"))
        elif self._state is _CLOSING and self._draining is not None and self._out.size:
            self._reply_by = now + self.limits.goodbye_s  # what the last subscriptions have queued goes first
        elif self._state is _CLOSING:
            self._step(_I.REPLY_LATE, None)
        else:
            self._tick_open(now)

    def _tick_open(self, now: float) -> None:
        since, idle = self._in.incomplete_since, self._idle_at()
        if since is not None and now >= since + self.limits.frame_s:
            raise Violation(REASONS["frame_s"], rule="frame_s")
        self._subscriptions.expire(now)
        if idle is not None and now >= idle:
            self._step(_I.APP_CLOSE, Violation(REASONS["idle_s"], rule="idle_s"))


_INPUTS: dict[type[Message], ConnectionInput] = {
    ClientHello: _I.HELLO,
    ServerHello: _I.HELLO,
    Goodbye: _I.GOODBYE,
    GoodbyeAck: _I.GOODBYE_ACK,
}
_SIGNALS: dict[type[Message], tuple[str, Callable[[Any, Any], None]]] = {
    frames.Request: ("_publications", Publications.on_request),
    frames.Cancel: ("_publications", Publications.on_cancel),
    frames.Subscribed: ("_subscriptions", Subscriptions.on_subscribed),
    frames.OnNext: ("_subscriptions", Subscriptions.on_next),
    frames.OnNextPacked: ("_subscriptions", Subscriptions.on_packed),
    frames.OnNextPart: ("_subscriptions", Subscriptions.on_part),
    frames.OnNextLastPart: ("_subscriptions", Subscriptions.on_part),
    frames.OnComplete: ("_subscriptions", Subscriptions.on_complete),
    frames.OnError: ("_subscriptions", Subscriptions.on_error),
}

_D = ConnectionAction
_ACTIONS: dict[ConnectionAction, Callable[[Connection, Any], None]] = {
    _D.FATAL: Connection._fatal,
    _D.SAY_HELLO: Connection._say_hello,
    _D.JUDGE: Connection._judge,
    _D.ESTABLISH: Connection._establish,
    _D.OTHER_VERSION: Connection._other_version,
    _D.SIGNAL: Connection._signal,
    _D.REPLY: Connection._reply,
    _D.ACKNOWLEDGED: Connection._acknowledged,
    _D.DROP: Connection._drop,
    _D.DEAFEN: Connection._deafen,
    _D.REFUSE: Connection._refuse,
    _D.DRAIN: Connection._drain,
    _D.CLOSE: Connection._close,
    _D.FINISH: Connection._finish,
    _D.EXPIRE: Connection._expire,
    _D.GIVE_UP: Connection._give_up,
    _D.LOSE: Connection._lose,
    _D.NOTHING: Connection._nothing,
}
