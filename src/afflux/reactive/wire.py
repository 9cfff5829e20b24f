"""Publish the streams and channels of a peer; the demand of a subscription is its credit.

1. Each subscription opens its own stream with its first request.
2. Granted credit never exceeds demand, and items are not buffered. Requests of one turn of the loop become one grant;
   a grant that is small relative to the outstanding credit waits until two thirds of that are used.
3. ``cancel`` cancels the stream immediately.
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
"The largest grant."


class Streamed(Pulled[Payload]):
    """A subscription to the items of a stream.

    With ``credit=0`` demand is granted as credit. A stream with a window keeps its window, and items are pulled.
    """

    def __init__(self, subscriber: Subscriber[Payload], items: ItemStream) -> None:
        super().__init__(subscriber, items, ahead=True)
        self._stream = items
        self._by_hand = False
        self._granted = 0
        self._scheduled = False

    def wanted(self) -> None:
        """See Link."""
        self._schedule_grant()
        super().wanted()

    def next(self, item: Payload) -> None:
        """See Link."""
        if self._by_hand:
            self._granted -= 1
        super().next(item)
        self._schedule_grant()

    def halt(self) -> None:
        """See Link."""
        with suppress(Error):  # the connection is over
            self._stream.cancel()
        super().halt()

    def _schedule_grant(self) -> None:
        """Grant demand as credit in the next turn of the loop."""
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
            return  # a channel that waits for its first item
        self._granted += n
        try:
            self._stream.request(n)
        except Exception as error:
            self.abort(error)


def stream(peer: Peer, data: PayloadLike = b"", **options: Any) -> Publisher[Payload]:
    """Return a publisher of a peer's stream: each subscription opens a stream.

    Args:
        peer: the peer.
        data: the request.
        options: arguments of ``Peer.stream`` other than ``credit``, such as ``route`` and ``metadata``.

    An error of the request is signalled by ``on_error``.
    """
    return LinkPublisher(lambda subscriber: Streamed(subscriber, peer.stream(data, credit=0, **options)))


def channel(peer: Peer, publisher: Publisher[Any], **options: Any) -> Publisher[Payload]:
    """Return a publisher of a peer's answers to the items of ``publisher``: each subscription opens a channel.

    The channel subscribes to ``publisher``, and requests an item when the peer has requested one. The end of the
    subscription ends both directions. ``options`` are arguments of ``Peer.channel`` other than ``credit``.
    """

    def link(subscriber: Subscriber[Payload]) -> Streamed:
        return Streamed(subscriber, peer.channel(from_publisher(publisher, credit=1), credit=0, **options))

    return LinkPublisher(link)
