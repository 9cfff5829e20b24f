"""Manage the table of one connection's streams: the live ones, their credit, and the delivered payloads.

Theory of operation. A frame (arrivals.py) or a call of the application (engine.py) is first classified as one input of
a stream's table; ``step`` looks up the next state and the action, which is a function of steps.py. Only five paths
bypass the tables, all from inbound.py: an item within credit, the last item of a stream, a grant of credit, a whole
request, and its one answer.

Credit. ``to_receive`` of a stream counts the items that the peer may still send, ``to_send`` those of this side; both
are exact (R-26, R-27).
"""

from __future__ import annotations

from typing import Any

from afflux.core.credit import SATURATED
from afflux.core.errors import Canceled, Error
from afflux.core.events import Answers, Event, Failed, Items, Opened, Requests
from afflux.core.ids import StreamIds
from afflux.core.passes import Pass
from afflux.core.payload import Payload
from afflux.core.terms import Place
from afflux.protocols.family.late import LateFrames
from afflux.protocols.family.leases import Leases
from afflux.protocols.family.member import Member
from afflux.protocols.family.outbound import Outbound
from afflux.protocols.family.reassembly import Reassembly
from afflux.protocols.family.states import StreamInput, StreamState
from afflux.protocols.family.steps import ACTIONS
from afflux.protocols.family.stream import Stream

__all__ = ["Handlers", "Streams"]

_COUNTS = ("newest", "credit_frames", "opened", "items_sent", "delivered", "objects")
"The counters of a state."
_IN_DONE, _CLOSED = StreamState.IN_DONE, StreamState.CLOSED


class Handlers:
    """The handlers that the peer's requests occupy, and their maximum number (DR-2)."""

    __slots__ = ("begun", "fires", "many", "most", "running", "turned_away")

    def __init__(self, streams: int, pending: int) -> None:
        self.running: set[int] = set()
        "Streams that the peer opened and whose handler has not returned, or not started."
        self.begun: set[int] = set()
        "Of those, the streams whose handler has started."
        self.fires: set[int] = set()
        "Of those, the fire requests, started or not. Their bytes are bounded, not their number (FL-03)."
        self.most = streams and streams + pending
        self.many = self.most - pending * 3 // 8 if pending else SATURATED
        "With more ``running`` reading pauses; the rest of ``pending`` is for the requests of one read."
        self.turned_away = 0

    def release(self, id: int) -> None:
        """Record that a handler has returned, or will never start."""
        self.running.discard(id)
        self.begun.discard(id)
        self.fires.discard(id)


class Streams:
    """All streams of one connection."""

    __slots__ = (
        "accepting",
        "credit_frames",
        "current",
        "delivered",
        "handlers",
        "ids",
        "items_sent",
        "late",
        "leases",
        "limits",
        "live",
        "member",
        "newest",
        "objects",
        "opened",
        "outbound",
        "peer_parity",
        "reassembly",
        "untold",
        "work",
    )

    def __init__(
        self, member: Member, client: bool, current: Pass, outbound: Outbound, place: Place | None = None
    ) -> None:
        limits = current.limits
        self.member = member
        self.limits = limits
        self.current = current
        self.outbound = outbound
        self.live: dict[int, Stream] = {}
        self.work = Handlers(limits.streams, limits.pending_streams)
        self.handlers = self.work.running
        self.reassembly = Reassembly(limits, member.rules.order, place)
        self.delivered = 0
        "Bytes of delivered payloads that are not consumed yet."
        self.objects = 0
        "Number of those payloads."
        self.accepting = False
        "The connection is open: requests are served."
        self.leases: Leases | None = None
        "Counts requests; None unless both sides have agreed on leases."
        odd = client == bool(member.client_parity)
        self.ids = StreamIds(1 if odd else 2)
        self.peer_parity = 0 if odd else 1
        "1 if the peer's ids are odd, else 0."
        self.newest = 0
        "The highest id of the peer's streams so far: a higher one has no past."
        self.late = LateFrames(limits)
        "The records of streams that have ended."
        self.credit_frames = 0
        self.opened = 0
        self.items_sent = 0
        self.untold: dict[int, Event] = {}
        "How calls of the application changed the inbound halves of streams: events of the next pass."

    @property
    def most_credit_frames(self) -> int:
        """The REQUEST_N frames that the items so far could need (FC-08)."""
        return 5 + 2 * (self.opened + 10 * self.items_sent)

    # -- the short paths -------------------------------------------------------------------------------------

    def startable(self) -> int:
        """The number of whole requests that the short path may take now."""
        if not self.accepting or self.leases is not None:
            return 0
        return self.work.most - len(self.handlers)

    def asked(self, ids: list[int], payloads: list[Payload], size: int) -> None:
        """Count and report whole REQUEST_RESPONSE frames that bypassed the tables (the step IDLE/APP_OPEN_LAST)."""
        count = len(ids)
        self.newest = ids[-1]
        self.handlers.update(ids)
        self.opened += count
        self.delivered += size
        self.objects += count
        if count == 1:
            self.current.events.append(Opened(ids[0], "request", payloads[0], 1, False))
        else:
            self.current.events.append(Requests(ids, payloads, size))

    def answered(self, ids: list[int], payloads: list[Payload], size: int) -> None:
        """Count and report whole answers that bypassed the tables (the step ITEM_LAST/COMPLETE_IN)."""
        self.delivered += size
        if len(ids) == 1:
            self.current.events.append(Items(ids[0], payloads, True))
        else:
            self.current.events.append(Answers(ids, payloads, size))

    def took(self, stream: Stream, items: int, size: int) -> None:
        """Count items that bypassed the tables (R-27)."""
        credit = stream.to_receive
        credit.available -= items
        credit.used += items
        if credit.available <= 0:
            stream.hot = 0
        self.delivered += size
        self.objects += items

    # -- steps -----------------------------------------------------------------------------------------------

    def step(self, stream: Stream, input: StreamInput, argument: Any = None) -> None:
        """Apply one input to a stream."""
        step = stream.role.steps[stream.state][input]
        stream.state = step.next
        ACTIONS[step.action](self, stream, argument)
        self.settle(stream)

    def leave(self, id: int, input: StreamInput, argument: Any = None) -> None:
        """End a stream, or its inbound half, for the application; an end that was not reported yet is dropped."""
        self.untold.pop(id, None)
        stream = self.live.get(id)
        if stream is not None:
            self.step(stream, input, argument)

    def settle(self, stream: Stream) -> None:
        """Delete a stream that has ended; otherwise update ``hot``."""
        id, partials = stream.id, self.reassembly.partials
        if stream.state is not _CLOSED:
            if stream.state is _IN_DONE and id in partials:
                self.reassembly.drop(id)  # this side canceled the inbound half: the rest will not come
            stream.rate(id in partials)
            return
        stream.hot = 0
        stream.answering = False
        del self.live[id]
        if partials:
            self.reassembly.drop(id)
        if stream.late:
            self.late.given_up(id, stream.late)
        elif stream.verb != "request":
            self.late.ended(id, stream.requester and stream.verb == "channel" and not stream.ended)
        elif not stream.requester:
            self.late.answered(1)

    def give_up(self, stream: Stream) -> None:
        """End a stream, or its inbound half, from this side: items within the peer's credit may be in flight."""
        partial = stream.id in self.reassembly.partials
        in_flight = self.limits.fragments if partial else self.limits.cancel_race_frames
        stream.late = max(stream.late, stream.to_receive.available, in_flight)
        self.late.expect_parts()

    def end_both(self, stream: Stream) -> None:
        """End the inbound half because this side completes; the next pass reports it."""
        self.give_up(stream)
        text = "the channel ended with this side's completion"
        self.untold[stream.id] = Failed(stream.id, Canceled(text, stream=stream.id, rule=self.member.rules.halves))

    def send_error(self, id: int, code: int, text: str) -> None:
        """End a stream with ERROR."""
        self.outbound.frame(id, self.member.quirks.error(id, code, text.encode()))

    def allocate(self) -> int:
        """Return an unused id for a stream that this side opens.

        Raises:
            LimitExceeded: all ids are in use.
        """
        id = self.ids.allocate(self.live)
        if self.ids.wrapped:
            self.late.forget(id)
        return id

    # -- the whole connection ---------------------------------------------------------------------------------

    def fail_all(self, error: Error) -> None:
        """Fail each live stream once: the connection has ended."""
        for id in list(self.live):
            self.current.events.append(Failed(id, error.about(id)))
        self.live.clear()
        self.reassembly.clear()
        self.outbound.clear()

    def fail_sent(self, ids: set[int], error: Error) -> None:
        """Fail the streams that have sent anything, and drop their queues: the session has ended and another begins.
        The other streams move to the new session."""
        for id in sorted(ids):
            self.outbound.scheduler.discard(id)
            if self.live.pop(id, None) is not None:
                self.current.events.append(Failed(id, error.about(id)))

    # -- a snapshot -------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The state that ``restore`` reads: the live streams and every counter. Queued data and incomplete payloads
        have their own states."""
        return {
            "live": [stream.state_of() for stream in self.live.values()],
            "handlers": sorted(self.handlers),
            "fires": sorted(self.work.fires),
            "ids": self.ids.state(),
            "late": self.late.state(),
            "counts": [getattr(self, name) for name in _COUNTS],
            "accepting": self.accepting,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state. Incomplete payloads must be restored first."""
        for values in state["live"]:
            stream = Stream.of_state(values, self.member)
            self.live[stream.id] = stream
            stream.rate(stream.id in self.reassembly.partials)
        self.handlers.update(state["handlers"])
        self.work.fires.update(state.get("fires", ()))
        self.ids.restore(state["ids"])
        self.late.restore(state["late"])
        for name, value in zip(_COUNTS, state["counts"], strict=True):
            setattr(self, name, value)
        self.accepting = state["accepting"]
