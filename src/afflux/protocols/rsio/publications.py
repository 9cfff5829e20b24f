"""Apply subscribers' messages and the application's calls to the publishers of this side.

A message or a call is first classified as one input of the table PUBLISHER in states.py; the table gives the next state
and the action; the action is a method of the same name here.

The application's number of a publication is never reused, the subscriber's id may be: a handler that still runs for a
canceled subscription has no effect on the next one of that id (R-34).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from afflux.core.credit import SATURATED, Credit, StreamStatus
from afflux.core.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError, Unsupported, Violation
from afflux.core.events import Canceled, Failed, Granted, Ignored, Opened
from afflux.core.limits import REASONS, oversize
from afflux.core.machine import numbered
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.protocols.rsio.codes import GENERIC_TEXT, UNBOUNDED, text_for
from afflux.protocols.rsio.frames import Cancel, OnComplete, OnError, Request, Subscribe, Subscribed
from afflux.protocols.rsio.kinds import varint
from afflux.protocols.rsio.packing import queue_varying
from afflux.protocols.rsio.shared import Shared
from afflux.protocols.rsio.states import PUBLISHER, PublisherAction, PublisherInput, PublisherState

__all__ = ["Publication", "Publications", "Sizes"]

_I = PublisherInput
_FREE = PublisherState.FREE
# Names for the hot path: an attribute of an enumeration costs three times as much.
_SUBSCRIBE, _REQUEST, _ITEM, _COMPLETE = _I.SUBSCRIBE, _I.REQUEST, _I.APP_ITEM, _I.APP_COMPLETE

Sizes = Callable[[str], int]
"""Returns the size of the elements of a publisher: bytes of each, 0 for any size. It may raise an afflux error to
refuse the subscription."""

_RULE_3_9 = "a demand is 1 to 2^63-1 (Reactive Streams 3.9)"


class Publication:
    """State of one subscription of the peer."""

    __slots__ = ("head", "id", "parts", "size", "state", "stream", "to_send")

    def __init__(self, id: int, size: int) -> None:
        self.id = id
        "The subscriber's id."
        self.head = varint(id)
        self.stream = 0
        "The application's number."
        self.state = _FREE
        self.to_send = Credit()
        "The demand."
        self.size = size
        "Bytes of each element; 0 for any size."
        self.parts = 0
        "Number of elements that were sent in parts."


class Publications:
    """Manage all subscriptions of the peer."""

    __slots__ = (
        "_credit_frames",
        "_ended",
        "_most",
        "_newest",
        "_opened",
        "_sizes",
        "begun",
        "by_id",
        "handlers",
        "items_sent",
        "live",
        "many",
        "shared",
    )

    def __init__(self, shared: Shared, sizes: Sizes | None) -> None:
        self.shared = shared
        self.by_id: dict[int, Publication] = {}
        self.live: dict[int, Publication] = {}
        "Publications by the application's number."
        self.handlers: set[int] = set()
        "Publications whose handler has not returned, or not begun (DR-2)."
        self.begun: set[int] = set()
        "Publications whose handler is running."
        self.items_sent = 0
        self._sizes = sizes
        limits = shared.limits
        self._most = limits.streams and limits.streams + limits.pending_streams
        self.many = self._most - limits.pending_streams * 3 // 8 if limits.pending_streams else SATURATED
        "Number of ``handlers`` that stops reading; the others that may be pending are for input of one read."
        self._newest = 0
        self._opened = 0
        self._credit_frames = 0
        self._ended = 0
        "Publications that this side ended, and whose cancel may be in flight."

    # -- messages of the subscribers ------------------------------------------------------------------------

    def on_subscribe(self, message: Subscribe, refusal: str = "") -> None:
        """Open a subscription; ``refusal`` is why it must be refused."""
        taken = self.by_id.get(message.subscriber)
        if taken is None:
            self._begin(message, refusal)
        else:
            self._step(taken, _I.SUBSCRIBE, message)

    def _begin(self, message: Subscribe, refusal: str) -> None:
        id = message.subscriber
        # the subscriber has canceled, or it could not reuse the id: its remaining output is not wanted
        self.shared.out.drop(id)
        refusal = refusal or self._judge(message)
        size = 0
        if not refusal:
            size, refusal = self._choose_size(message.publisher)
        publication = Publication(id, size)
        if refusal:
            self._step(publication, _I.SUBSCRIBE_BAD, refusal)
        else:
            self._step(publication, _SUBSCRIBE, message)

    def _judge(self, message: Subscribe) -> str:
        """Return why a subscription is refused; "" if it is not."""
        limits, name = self.shared.limits, message.publisher
        if message.initial_demand > UNBOUNDED:
            return _RULE_3_9
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            return f"{REASONS['publisher_bytes']}: its name is not UTF-8"
        if size > limits.publisher_bytes:
            return REASONS["publisher_bytes"]
        return REASONS["streams"] if len(self.handlers) >= self._most else ""

    def _choose_size(self, name: str) -> tuple[int, str]:
        """Return the size of the elements, and why the subscription is refused after all."""
        if self._sizes is None:
            return 0, ""
        try:
            size = self._sizes(name)
        except Exception as error:
            return 0, text_for(error, self.shared.limits)
        return size, "" if 0 <= size <= self.shared.limits.payload_bytes else GENERIC_TEXT

    def on_request(self, message: Request) -> None:
        """Add demand."""
        publication, n = self.by_id.get(message.subscriber), message.demand
        self._credit_frames += 1
        if self._credit_frames > self.shared.limits.credit_frames(self._opened, self.items_sent):
            self.shared.charge(1, message.subscriber, "credit_frames", "more requests than elements need")
        if publication is None:
            self._unknown(message.subscriber, "request")
        else:
            self._step(publication, _REQUEST if 0 < n <= UNBOUNDED else _I.REQUEST_BAD, n)

    def on_cancel(self, message: Cancel) -> None:
        """Cancel a subscription."""
        publication = self.by_id.get(message.subscriber)
        if publication is not None:
            self._step(publication, _I.CANCEL, None)
            return
        self.shared.out.drop(message.subscriber)  # not even what has ended
        if self._ended:
            self._ended -= 1
            self._unknown(message.subscriber, "cancel")
        else:
            self.shared.charge(1, message.subscriber, "R-30", "cancel for an unknown id")

    # -- calls of the application ---------------------------------------------------------------------------

    def send(self, stream: int, payloads: Sequence[PayloadLike], complete: bool) -> None:
        """Send elements within the demand.

        Raises:
            LocalProtocolError: there is less demand, and nothing is sent; or an element differs from the fixed size:
                those before it are sent, then onError.
            LimitExceeded: one is larger than a peer accepts; nothing is sent.
            Unsupported: one has metadata.
        """
        publication = self.live.get(stream)
        if publication is None:
            return
        if len(payloads) > publication.to_send.available:
            text = f"{len(payloads)} elements with a demand for {publication.to_send.available}"
            raise LocalProtocolError(text, stream=stream, rule="R-23")
        elements = [item if type(item) is bytes else _element(item, stream) for item in payloads]
        if len(largest := max(elements, key=len, default=b"")) > self.shared.limits.payload_bytes:
            text = oversize(self.shared.limits, "payload_bytes", len(largest))
            raise LimitExceeded(text, stream=stream, rule=REASONS["payload_bytes"])
        size = publication.size
        wrong = next((i for i, data in enumerate(elements) if len(data) != size), -1) if size else -1
        good = elements if wrong < 0 else elements[:wrong]
        if good:
            self._step(publication, _ITEM, good)
        if wrong >= 0:
            text = f"an element of {len(elements[wrong])} bytes where each has {size}"
            self._step(publication, _I.APP_ITEM_BAD, GENERIC_TEXT)
            raise LocalProtocolError(text, stream=stream, rule="3.3")
        if complete:
            self._step(publication, _COMPLETE, None)

    def fail(self, stream: int, error: BaseException) -> None:
        """End a subscription: the publisher has failed."""
        publication = self.live.get(stream)
        if publication is not None:
            self._step(publication, _I.APP_FAIL, error)

    def end_all(self) -> None:
        """End all subscriptions with the connection: each publisher gets a cancel (R-45)."""
        for stream in self.live:
            self.shared.events.append(Canceled(stream, True))
        self.live.clear()
        self.by_id.clear()

    def status(self, room: int) -> list[StreamStatus]:
        """Return one status for each live subscription of the peer."""
        return [self._status(stream, publication, room) for stream, publication in self.live.items()]

    def _status(self, stream: int, publication: Publication, room: int) -> StreamStatus:
        state, credit, queued = publication.state.name, publication.to_send, self.shared.out.queued(publication.id)
        bounds = [credit.sending(queued=queued, room=room)]
        return StreamStatus.of(stream, "stream", state, requester=False, to_send=credit, queued=queued, bounds=bounds)

    # -- steps ----------------------------------------------------------------------------------------------

    def _step(self, publication: Publication, input: PublisherInput, argument: Any) -> None:
        before = publication.state
        step = PUBLISHER.steps[before][input]
        publication.state = step.next
        if step.next is _FREE and before is not _FREE:
            del self.by_id[publication.id], self.live[publication.stream]
        _ACTIONS[step.action](self, publication, argument)

    def _unknown(self, id: int, name: str) -> None:
        """Ignore a message for an id in FREE; ``credit_frames`` and the ended publications bound their number
        (R-30)."""
        self.shared.events.append(Ignored(id, "R-30", f"{name} for a subscription that is over", 0))

    def open(self, publication: Publication, message: Subscribe) -> None:
        self._newest += 2
        self._opened += 1
        publication.stream = self._newest
        publication.to_send.available = message.initial_demand
        self.by_id[publication.id] = self.live[publication.stream] = publication
        self.handlers.add(publication.stream)
        self._answer(publication.id, publication.size)
        name = Payload(message.publisher.encode())
        self.shared.delivered += len(name)
        self.shared.objects += 1
        self.shared.events.append(Opened(publication.stream, "stream", name, message.initial_demand, False))

    def refuse(self, publication: Publication, reason: str) -> None:
        self.shared.charge(1, publication.id, "R-20", reason)
        self._ended += 1
        self._answer(publication.id, 0)
        self.shared.out.control(OnError(subscriber=publication.id, error=reason).encode())

    def grant(self, publication: Publication, n: int) -> None:
        publication.to_send.add(n)
        self.shared.events.append(Granted(publication.stream, n))

    def refuse_demand(self, publication: Publication, n: int) -> None:
        self.shared.out.drop(publication.id)
        self._end(publication, OnError(subscriber=publication.id, error=_RULE_3_9).encode())
        error = RemoteProtocolError(f"a demand of {n}", stream=publication.stream, rule="R-26")
        self.shared.events.append(Failed(publication.stream, error))
        self.shared.count_cancel()

    def canceled(self, publication: Publication, argument: Any) -> None:
        self.shared.out.drop(publication.id)
        self.shared.events.append(Canceled(publication.stream, True))
        if publication.stream in self.begun:
            self.shared.count_cancel()

    def _answer(self, id: int, size: int) -> None:
        """Answer each subscribe once, before anything else (R-21), so that subscribers can count the answers (R-36)."""
        self.shared.out.control(Subscribed(subscriber=id, element_size=size).encode())

    def send_elements(self, publication: Publication, elements: list[bytes]) -> None:
        publication.to_send.spend(len(elements))
        self.items_sent += len(elements)
        if publication.size:
            self.shared.out.fixed(publication.id, publication.head, elements, publication.size)
        else:
            shared = self.shared
            split = shared.out.part if shared.split else shared.limits.payload_bytes
            publication.parts = queue_varying(
                shared.out, publication.id, publication.head, elements, split, publication.parts
            )

    def complete(self, publication: Publication, argument: Any) -> None:
        self._end(publication, OnComplete(subscriber=publication.id).encode())

    def fail_with(self, publication: Publication, error: BaseException) -> None:
        text = text_for(error, self.shared.limits)
        self._end(publication, OnError(subscriber=publication.id, error=text).encode())

    def wrong_size(self, publication: Publication, text: str) -> None:
        """End a subscription whose elements do not have the size that was announced."""
        self._end(publication, OnError(subscriber=publication.id, error=text).encode())

    def _end(self, publication: Publication, message: bytes) -> None:
        """Queue the last message of a subscription, after its elements (R-28)."""
        self._ended += 1
        self.shared.out.put(publication.id, message)


def _element(item: PayloadLike, stream: int) -> bytes:
    payload = payload_of(item)
    if payload.metadata is not None:
        raise Unsupported("an element of reactive-streams-io has no metadata, only data", stream=stream)
    return payload.data


def _fatal(publications: Publications, publication: Publication, argument: Any) -> None:
    raise Violation(f"subscribe with id {publication.id}, which is in use", rule="SI-29")


_A = PublisherAction
_ACTIONS: list[Callable[[Publications, Publication, Any], None]] = numbered(
    {
        _A.FATAL: _fatal,
        _A.OPEN: Publications.open,
        _A.REFUSE: Publications.refuse,
        _A.GRANT: Publications.grant,
        _A.REFUSE_DEMAND: Publications.refuse_demand,
        _A.CANCELED: Publications.canceled,
        _A.SEND: Publications.send_elements,
        _A.WRONG_SIZE: Publications.wrong_size,
        _A.COMPLETE: Publications.complete,
        _A.FAIL: Publications.fail_with,
    },
    unhandled=(_A.IGNORE, _A.NOTHING),  # an unknown id has no record
)
