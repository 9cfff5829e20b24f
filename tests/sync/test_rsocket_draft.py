"""The extensible draft of RSocket with the blocking client. Rule numbers are draft's."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import queue

import pytest

import afflux
import afflux.sync
from afflux import Payload
from afflux.protocols.rsocket_draft import Entry, ExtendedPayload, resumable
from tests.sync.serving import LIMITS, Counting, serving

URI = "rsocket-draft+tcp://127.0.0.1:0"


class Asking(Counting):
    """Also: a request may ask for the entries that it came with, or for its connection to be cut."""

    async def request(self, payload: Payload) -> bytes:
        """``entries``: their number; ``cut``: no answer."""
        if payload.data == b"entries":
            return b"%d" % len(getattr(payload, "entries", ()))
        return await super().request(payload)

    async def fire(self, payload: Payload) -> None:
        """Cut the connection."""
        afflux.current_peer().cut()


@pytest.mark.parametrize("options", ["", "?ack=yes"])
def test_a_request_and_its_entries(options: str) -> None:
    """R-21, R-24."""
    own = Entry("own", b"1", True)
    known = {"own": lambda stream, body: None}
    with serving(Asking(), URI, extensions=known) as uri, afflux.sync.connect(uri + options) as peer:
        assert peer.request(ExtendedPayload(b"entries", entries=(own, own))).data == b"2"
        assert [item.data for item in peer.stream(b"3 2")] == [bytes(2)] * 3


@pytest.mark.parametrize("options", ["", "?ack=yes"])
def test_an_entry_on_EXT(options: str) -> None:
    """R-9; before SETUP_OK it waits, as requests do."""
    told: queue.Queue[tuple[int, bytes]] = queue.Queue()

    async def own(stream: int, body: bytes) -> None:
        told.put((stream, body))

    with serving(Asking(), URI, extensions={"own": own, 7: own}) as uri, afflux.sync.connect(uri + options) as peer:
        peer.extend(Entry("own", b"entry", True))
        peer.extend(7, b"type", stream=3)
        assert peer.request(b"x").data == b"x"
        assert [told.get(timeout=10), told.get(timeout=10)] == [(0, b"entry"), (3, b"type")]


def test_an_extension_where_there_are_none() -> None:
    with serving(Counting(), "jmux+tcp://127.0.0.1:0") as uri, afflux.sync.connect(uri) as peer:
        with pytest.raises(afflux.Unsupported, match='jmux has no "extensions"'):
            peer.extend(7)


def test_a_stream_that_opted_in_survives_a_cut() -> None:
    """R-41; one that did not ends with REJECTED (R-40)."""
    with serving(Asking(), URI, resume=True) as uri:
        with afflux.sync.connect(f"{uri}?ack=yes", resume=True, limits=LIMITS) as peer:
            kept, plain = peer.stream(resumable(b"50 3"), credit=4), peer.stream(b"50 3", credit=4)
            assert [len(next(kept).data), len(next(plain).data)] == [3, 3]
            peer.fire(b"cut")
            assert sum(1 for _ in kept) == 49
            with pytest.raises(afflux.Rejected):
                list(plain)
