"""Publishers over a connection: a subscription is a stream or a channel of a peer, and demand is its credit.

1. Each subscription opens a stream of its own, with its first request.
2. No more credit is granted than there is demand, and nothing is held here. Requests of one turn of the loop become
   one grant; one that would be small beside what is granted already waits until that is used up by two thirds.
3. ``cancel`` cancels the stream at once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from afflux.aio.flow import ItemStream
from afflux.core.errors import Error
from afflux.core.payload import Payload, PayloadLike
from afflux.reactive.contracts import Publisher, Subscriber
from afflux.reactive.links import LinkPublisher
from afflux.reactive.pulling import Pulled
from afflux.reactive.subscribing import from_publisher

if TYPE_CHECKING:
    from afflux.aio.peer import Peer

__all__ = ["Streamed", "channel", "stream"]

_MOST = 0x7FFFFFFF
"The most that one grant can say."


class Streamed(Pulled[Payload]):
    """A subscription to the items of a stream.

    A stream with ``credit=0`` is granted what is requested. One with a window keeps that window, and is pulled from.
    """

    def __init__(self, subscriber: Subscriber[Payload], items: ItemStream) -> None:
        super().__init__(subscriber, items, ahead=True)
        self._stream = items
        self._by_hand = False
        self._granted = 0
        self._scheduled = False

    def wanted(self) -> None:
        """See Link."""
        self._consider()
        super().wanted()

    def next(self, item: Payload) -> None:
        """See Link."""
        if self._by_hand:
            self._granted -= 1
        super().next(item)
        self._consider()

    def halt(self) -> None:
        """See Link."""
        with suppress(Error):  # the connection is over: nothing to cancel
            self._stream.cancel()
        super().halt()

    def _consider(self) -> None:
        """See to it that demand becomes credit."""
        if self.demand <= self._granted or self._scheduled or self.over:
            return
        if not self._by_hand:
            self._by_hand = self._stream.limited_by() == "credit"
        if self._by_hand:
            self._scheduled = True
            self.home.loop.call_soon(self._grant)

    def _grant(self) -> None:
        self._scheduled = False
        n = min(self.demand, _MOST) - self._granted
        if self.over or n <= 0 or 2 * n < self._granted:
            return
        if self._granted and self._stream.id is None:
            return  # a channel that has no first item to open with yet
        self._granted += n
        try:
            self._stream.request(n)
        except Exception as error:
            self.abort(error)


def stream(peer: Peer, data: PayloadLike = b"", **options: Any) -> Publisher[Payload]:
    """What a peer's stream has, as a publisher: each subscription opens one stream.

    Args:
        peer: whom to ask.
        data: the request.
        options: what ``Peer.stream`` takes beside ``credit``, such as ``route`` and ``metadata``.

    A peer that can not be asked is an ``on_error``.
    """
    return LinkPublisher(lambda subscriber: Streamed(subscriber, peer.stream(data, credit=0, **options)))


def channel(peer: Peer, publisher: Publisher[Any], **options: Any) -> Publisher[Payload]:
    """What a peer answers to the items of ``publisher``: each subscription opens one channel.

    The subscription subscribes to ``publisher``, and asks it for an item when the peer has asked for one. Its end ends
    both directions. ``options`` are those of ``Peer.channel`` beside ``credit``.
    """

    def link(subscriber: Subscriber[Payload]) -> Streamed:
        return Streamed(subscriber, peer.channel(from_publisher(publisher, credit=1), credit=0, **options))

    return LinkPublisher(link)
