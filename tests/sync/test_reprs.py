"""What the objects of a blocking program look like at a prompt."""

from __future__ import annotations

import afflux.sync
from tests.sync.serving import Counting, serving


def test_a_stream_shows_its_credit_and_its_items() -> None:
    with serving(Counting()) as uri, afflux.sync.connect(uri) as peer:
        items = peer.stream(b"6 1", credit=0)
        assert repr(items) == "<ItemStream: not open, 0 unread, limited by credit>"
        items.request(4)
        assert [next(items).data for _ in range(4)] == [b"\0"] * 4
        assert repr(items) == f"<ItemStream: stream {items.id}, 0 granted, 0 unread, limited by credit>"
        items.request(3)
        assert len(list(items)) == 2
        assert repr(items).endswith("0 unread, ended>")


def test_items_that_have_arrived_are_unread() -> None:
    with serving(Counting()) as uri, afflux.sync.connect(uri) as peer:
        items = peer.stream(b"9 1", credit=4)
        next(items)
        peer.request(b"answered after the items")  # reads what has arrived
        assert repr(items) == f"<ItemStream: stream {items.id}, 0 granted, 3 unread, limited by application>"
        assert repr(peer) == f"<Peer {uri}>"
