"""Apply the messages about a connection and its endings: one function for each action of the tables.

Rules:

1. Valid messages before an invalid one are delivered first; a violation becomes goodbye with its reason (R-12, R-17),
   and Closed carries it.
2. Each side sends goodbye at most once, and nothing after it (D-11, R-44). Its sender waits ``goodbye_s`` for the
   answer and reads on only to find that.
3. Ignoring a message is charged (DR-1): the glitch bucket bounds its cost.
4. No state survives the transport (R-46): an engine is one connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

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
from afflux.core.limits import REASONS
from afflux.core.machine import numbered
from afflux.protocols.rsio import frames
from afflux.protocols.rsio.clock import Clock
from afflux.protocols.rsio.codes import VERSION, Extension
from afflux.protocols.rsio.farewell import Farewell
from afflux.protocols.rsio.frames import ClientHello, Goodbye, GoodbyeAck, Hello, Message, ServerHello
from afflux.protocols.rsio.inbound import Inbound, Reading
from afflux.protocols.rsio.publications import Publications
from afflux.protocols.rsio.shared import Shared
from afflux.protocols.rsio.states import CLIENT, SERVER, ConnectionAction, ConnectionInput, ConnectionState
from afflux.protocols.rsio.subscriptions import SIGNALS, Signals, Subscriptions

__all__ = ["Connection"]

_S, _I = ConnectionState, ConnectionInput
_DRAINING, _CLOSED, _SIGNAL = _S.DRAINING, _S.CLOSED, _I.SIGNAL
_TYPES = {
    Extension.SPLIT_MESSAGES: (frames.OnNextPart.TYPE, frames.OnNextLastPart.TYPE),
    Extension.GOODBYE_ACK: (GoodbyeAck.TYPE,),
}
"Messages of the extensions (R-14, I-5). None of them changes the meaning of another message (R-16)."


class Connection:
    """Control one connection: hello, goodbye, and which messages are legal."""

    __slots__ = (
        "_decide",
        "_offered",
        "_publications",
        "_shared",
        "_signals",
        "_table",
        "agreed",
        "client",
        "clock",
        "farewell",
        "hello",
        "inbound",
    )

    def __init__(
        self,
        shared: Shared,
        client: bool,
        subscriptions: Subscriptions,
        publications: Publications,
        *,
        decide: bool,
        extensions: Collection[int],
    ) -> None:
        if strange := set(extensions) - set(Extension):
            raise LocalProtocolError(f"unknown extension {min(strange)}: expected 12 or 14", rule="R-15")
        self._shared = shared
        self.client = client
        self._table = CLIENT if client else SERVER
        self._decide = decide and not client
        self._offered = tuple(sorted(map(int, extensions)))
        self._publications = publications
        self._signals = Signals(subscriptions)
        self.inbound = Inbound(shared.limits, subscriptions.ids.size_of, subscriptions.elements.take, self._message)
        self.farewell = Farewell(shared, subscriptions, publications)
        self.clock = Clock(shared, client, self.inbound, subscriptions, publications, self.farewell)
        self.hello: Hello | None = None
        "The peer's hello; None before it has arrived."
        self.agreed: frozenset[int] = frozenset()
        "Extensions that both sides list (R-15)."
        self.step(_I.APP_START, None)

    # -- one pass -------------------------------------------------------------------------------------------

    def run(self, work: Callable[..., None], *arguments: Any) -> list[Event]:
        """Do one piece of work and return its events; a violation ends the connection (never raises)."""
        shared, clock = self._shared, self.clock
        try:
            work(*arguments)
        except Violation as violation:
            self.step(_I.BROKEN, violation)
        if clock.live:
            clock.idle_since = None
        elif shared.state is _DRAINING:
            self.step(_I.LAST_ENDED, None)
        events, shared.events = shared.events, []
        return events

    def step(self, input: ConnectionInput, argument: Any) -> None:
        """Apply a step of the table."""
        step = self._table.steps[self._shared.state][input]
        self._shared.state = step.next
        _ACTIONS[step.action](self, argument)

    def receive(self, data: bytes | memoryview, now: float) -> None:
        """Apply bytes that arrived.

        Raises:
            Violation: they cannot be read, so the start of the next message cannot be found.
        """
        try:
            self.inbound.receive(data, now)
        except Violation:
            self.inbound.close()
            raise

    def check_deciding(self) -> None:
        """Check that a hello waits for a decision; no-op after Closed.

        Raises:
            LocalProtocolError: no hello waits.
        """
        if self._shared.state not in (_S.DECIDING, _CLOSED):
            raise LocalProtocolError("no hello waits for a decision", rule="3.1")

    def accept(self) -> None:
        """Accept the peer for the application; apply what arrived meanwhile.

        Raises:
            Violation: it cannot be read.
        """
        if self._shared.state is _S.DECIDING:
            self.step(_I.APP_ACCEPT, self.hello)
            try:
                self.inbound.resume(self._shared.now)
            except Violation:
                self.inbound.close()
                raise

    def tick(self) -> None:
        """Apply the timeouts."""
        if cause := self.clock.look():
            self.step(*cause)

    def _message(self, message: Message) -> None:
        """Apply one message. A violation ends the connection, not the reading: the answer to goodbye follows."""
        input = _INPUTS.get(type(message), _SIGNAL)
        if isinstance(message, Hello):
            if isinstance(message, ClientHello) is self.client:
                input = _I.HELLO_WRONG
            elif message.version != VERSION:
                input = _I.HELLO_OTHER
        try:
            self.step(input, message)
        except Violation as violation:
            self.step(_I.BROKEN, violation)

    # -- establishment --------------------------------------------------------------------------------------

    def say_hello(self, argument: Any) -> None:
        """Send hello: a client immediately, a server may (R-10, D-5), unless its hello depends on the client."""
        if not self._decide:
            self._greet()

    def _greet(self) -> None:
        kind = ClientHello if self.client else ServerHello
        self._shared.out.control(kind(version=VERSION, extensions=self._offered).encode())

    def judge(self, hello: ClientHello) -> None:
        self._shared.events.append(Established(hello))
        self.hello = hello
        if self._decide:
            self.inbound.reading = Reading.HELD
        else:
            self.step(_I.APP_ACCEPT, hello)

    def establish(self, hello: Hello) -> None:
        if self._decide:
            self._greet()
        self.hello = hello
        self.agreed = frozenset(self._offered) & frozenset(hello.extensions)  # R-15, D-6
        for extension in self.agreed:
            self.inbound.known |= frozenset(_TYPES[Extension(extension)])
        self._shared.split = Extension.SPLIT_MESSAGES in self.agreed
        self.inbound.reading = Reading.ALL
        if self.client:
            self._shared.events.append(Established(None))

    def other_version(self, hello: Hello) -> None:
        text = f"version {hello.version} is not supported; supported: {VERSION}"
        error: Error = RemoteProtocolError(text, rule="R-12")
        if self.client:
            error = SetupRefused(text, rule="R-12")
        # what was sent before the hello was discarded, so retry is safe (HS-25)
        self.farewell.say(text, Rejected(text, rule="R-13"))
        self.end(error)

    def refuse(self, violation: Violation) -> None:
        """Send goodbye without a hello, so that the client can conclude that nothing was processed."""
        error = ConnectionClosed(violation.reason, rule=violation.rule)
        self.farewell.say(violation.reason, error)
        self.end(error)

    # -- messages -------------------------------------------------------------------------------------------

    def signal(self, message: Any) -> None:
        if type(message) in SIGNALS:
            self._signals.apply(message)
        elif isinstance(message, frames.Subscribe):
            refusal = "the connection is closing" if self._shared.state is _DRAINING else ""
            self._publications.on_subscribe(message, refusal)
        elif isinstance(message, frames.Request):
            self._publications.on_request(message)
        else:
            self._publications.on_cancel(message)

    def drop(self, message: Message) -> None:
        self._signals.note(message)

    # -- endings --------------------------------------------------------------------------------------------

    def fatal(self, cause: Violation | Message) -> None:
        """Report the peer's violation."""
        if isinstance(cause, Message):
            cause = Violation(f"{cause.NAME} is not legal here", rule="R-9")
        error = RemoteProtocolError(cause.reason, stream=0, rule=cause.rule, too_large=cause.too_large)
        self.farewell.await_reply(cause.reason, error, error)

    def reply(self, goodbye: Goodbye) -> None:
        """Handle the peer's goodbye: end everything and answer once (R-42)."""
        reason = goodbye.reason
        refused = self.client and self.hello is None
        closed = SetupRefused if refused else ConnectionClosed
        error = closed(reason or "the peer sent goodbye", stream=0, rule="R-42")
        error.may_have_been_processed = not refused  # nothing is processed before the server's hello
        self.farewell.part(error)
        self.farewell.answer(Extension.GOODBYE_ACK in self.agreed)
        self.end(error if reason or self.hello is None else None)

    def close(self, violation: Violation) -> None:
        error = ConnectionClosed("this side closed the connection")
        self.farewell.await_reply(violation.reason, error, None)

    def drain(self, violation: Violation) -> None:
        self.farewell.reason = violation.reason

    def finish(self, argument: Any) -> None:
        self.farewell.finish()

    def give_up(self, argument: Any) -> None:
        self._break_off(ConnectionClosed(REASONS["handshake_s"], rule="handshake_s"))

    def lose(self, argument: Any) -> None:
        self._break_off(ConnectionClosed("the peer closed the connection", rule="R-45"))

    def _break_off(self, error: Error) -> None:
        self.farewell.part(error)
        self.end(error)

    def end(self, error: Error | None) -> None:
        """Stop reading, and report Closed."""
        self.inbound.close()
        self._shared.events.append(Closed(error))


def _over(connection: Connection, argument: Any) -> None:
    """Close: the answer to goodbye has arrived, or will not come."""
    connection.end(connection.farewell.error)


def _stop_reading(connection: Connection, argument: Any) -> None:
    connection.inbound.close()


def _nothing(connection: Connection, argument: Any) -> None:
    """No-op: already in this state."""


_INPUTS: dict[type[Message], ConnectionInput] = {
    ClientHello: _I.HELLO,
    ServerHello: _I.HELLO,
    Goodbye: _I.GOODBYE,
    GoodbyeAck: _I.GOODBYE_ACK,
}

_D = ConnectionAction
_ACTIONS: list[Callable[[Connection, Any], None]] = numbered(
    {
        _D.FATAL: Connection.fatal,
        _D.SAY_HELLO: Connection.say_hello,
        _D.JUDGE: Connection.judge,
        _D.ESTABLISH: Connection.establish,
        _D.OTHER_VERSION: Connection.other_version,
        _D.SIGNAL: Connection.signal,
        _D.REPLY: Connection.reply,
        _D.ACKNOWLEDGED: _over,
        _D.DROP: Connection.drop,
        _D.STOP_READING: _stop_reading,
        _D.REFUSE: Connection.refuse,
        _D.DRAIN: Connection.drain,
        _D.CLOSE: Connection.close,
        _D.FINISH: Connection.finish,
        _D.EXPIRE: _over,
        _D.GIVE_UP: Connection.give_up,
        _D.LOSE: Connection.lose,
        _D.NOTHING: _nothing,
    }
)
