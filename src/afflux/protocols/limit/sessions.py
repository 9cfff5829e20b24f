"""Open and begin sessions, and apply the application's calls to the live one. moves.py takes the steps."""

from __future__ import annotations

from collections.abc import Callable

from afflux.core.credit import SATURATED
from afflux.core.errors import LimitExceeded, LocalProtocolError, Rejected
from afflux.core.events import Opened
from afflux.core.payload import Payload
from afflux.protocols.limit.frames import Setup
from afflux.protocols.limit.messages import Choice, Opening
from afflux.protocols.limit.moves import Moves
from afflux.protocols.limit.session import Session
from afflux.protocols.limit.shared import Shared
from afflux.protocols.limit.states import SessionInput
from afflux.protocols.limit.steps import Plain, Steps, Turn

__all__ = ["Channels", "Sessions"]

_I = SessionInput

Channels = Callable[[str], Steps | None]
"""Returns this side's view of the session type of a channel by its name; None for an unknown channel. It may raise an
afflux error to refuse the session."""


class Sessions:
    """Manage the session of a connection: one at a time (R-25)."""

    __slots__ = (
        "_channels",
        "_newest",
        "_shared",
        "begun",
        "client",
        "handlers",
        "many_handlers",
        "most_handlers",
        "moves",
    )

    def __init__(self, shared: Shared, client: bool, channels: Channels | None, explicit: bool) -> None:
        self._shared = shared
        self.client = client
        self._channels = channels
        self.moves = Moves(shared, explicit)
        self.handlers: set[int] = set()
        "Sessions whose handler has not returned, or not begun (DR-2)."
        self.begun: set[int] = set()
        "Sessions whose handler is running."
        limits = shared.limits
        self.most_handlers = limits.streams and limits.streams + limits.pending_streams
        self.many_handlers = limits.streams
        "Number of ``handlers`` that stops reading; the others that may be pending are for input of one read."
        self._newest = 0

    # -- beginning ------------------------------------------------------------------------------------------

    def prepare(self, payload: Payload) -> tuple[Steps, Setup]:
        """Return the steps and the SETUP of a session that this client opens.

        Raises:
            LimitExceeded: a session is live, or the connection cannot have another.
            LocalProtocolError: there is no channel of that name.
        """
        if self._shared.session is not None:
            raise LimitExceeded("a connection has one session at a time: open another connection", rule="R-25")
        if self._shared.aborted:
            text = "frames of the session that this side ended may still arrive: open another connection"
            raise LimitExceeded(text, rule="D-14")
        self._shared.numbers.next()
        name = PLAIN if payload.metadata is None else payload.metadata
        try:
            channel = name.decode()
        except UnicodeDecodeError:
            channel = ""
        if not channel or len(name) > self._shared.limits.connection_metadata_bytes:
            raise LocalProtocolError("the metadata of a session is its channel's name, UTF-8 text", rule="D-7")
        steps = payload.steps if isinstance(payload, Opening) else None
        if steps is None and (steps := self.steps_of(channel)) is None:
            raise LocalProtocolError(f'unknown channel "{channel[:64]}"', rule="3.1")
        return steps, Setup(metadata=name, data=payload.data)

    def steps_of(self, channel: str) -> Steps | None:
        """Return this side's view of a channel, or None for an unknown one; without types, each channel is Plain."""
        return Plain(self.client) if self._channels is None else self._channels(channel)

    def open(self, steps: Steps, setup: Setup, end_due: bool) -> int:
        """Send SETUP; the first messages may follow directly (R-26). Return the application's number."""
        self._shared.put(setup)
        session = self._new(steps, end_due)
        self.moves.set_turn(session, mine=True)
        return session.stream

    def begin(self, steps: Steps, setup: Setup) -> None:
        """Begin the session that the client has opened."""
        session = self._new(steps, False)
        self.handlers.add(session.stream)
        opening = Payload(setup.data, None if setup.metadata == PLAIN else setup.metadata)
        self._shared.delivered += len(opening)
        self._shared.objects += 1
        self._shared.events.append(Opened(session.stream, "channel", opening, SATURATED, False))
        self.moves.set_turn(session, mine=False)

    def _new(self, steps: Steps, end_due: bool) -> Session:
        numbers = self._shared.numbers
        numbers.begin()
        self._newest += 1
        self._shared.session = session = Session(
            self._newest, steps, opening=not self.client, sent_before=numbers.sent, end_due=end_due
        )
        return session

    # -- calls of the application ---------------------------------------------------------------------------

    def find(self, stream: int) -> Session | None:
        """Return the live session if it has that number."""
        session = self._shared.session
        return session if session is not None and session.stream == stream else None

    def send(self, session: Session, payload: Payload) -> None:
        """Send one item: a value or a choice. Payloads of a Plain channel wait for this side's turn (D-15)."""
        if session.outbound_over:
            raise LocalProtocolError("this half is complete", stream=session.stream, rule="3.2")
        if isinstance(payload, Choice):
            self.moves.step(session, _I.APP_CHOOSE, payload)
        elif session.steps.completing is not None and session.turn is Turn.RECEIVE:
            self._keep(session, payload)
        else:
            self.moves.step(session, _I.APP_PAYLOAD, payload)

    def _keep(self, session: Session, payload: Payload) -> None:
        limits = self._shared.limits
        self.moves.check_size(payload)
        size = session.early_bytes + len(payload) + limits.object_overhead_bytes
        if size > limits.outbound_high_bytes and session.early:
            text = f"{size} bytes wait until the client has completed its half of the channel"
            raise LimitExceeded(text, stream=session.stream, rule="outbound_high_bytes")
        session.early.append(payload)
        session.early_bytes = size

    def complete(self, session: Session) -> None:
        """The application has nothing more to send."""
        if session.outbound_over:
            return
        completing = session.steps.completing
        if completing is None:
            if session.turn is not Turn.SEND:
                session.complete_outbound()
            if not (self.client and session.turn is Turn.BOTH):  # the server ends it (D-15)
                self.moves.step(session, _I.APP_COMPLETE, None)
            return
        session.complete_outbound()
        if session.turn is Turn.SEND:
            self.moves.step(session, _I.APP_CHOOSE, Choice(completing))

    def abort(self, session: Session, error: BaseException) -> None:
        """End the session with an error."""
        self.moves.step(session, _I.APP_ABORT, error)

    def cancel(self, session: Session) -> None:
        """A client ends the session, a server drops what the client still sends."""
        if self.client:
            self.abort(session, _CANCELED)
        else:
            session.unwanted = True


PLAIN = b"plain"
"The channel of a payload without a name (D-15)."
_CANCELED = Rejected("canceled")
