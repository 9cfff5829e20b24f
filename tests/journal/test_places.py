"""Where a server stores its journals: a place on NATS that is closed while its connection is used."""

from __future__ import annotations

import threading

import pytest

from afflux.journal.errors import JournalError
from afflux.journal.places import Streams, place_of

PATIENCE = 30.0


def test_a_place_can_be_used_while_it_closes() -> None:
    """Closing waits for the thread of the connection, in which an attempt to connect may look at the place."""
    pytest.importorskip("nats", reason='the connection needs the extra "nats"')
    place = place_of("nats://127.0.0.1:1/x")
    assert isinstance(place, Streams)
    link, held, used = place.link, threading.Event(), threading.Event()

    async def hold() -> None:
        held.wait(PATIENCE)

    async def nothing() -> None: ...

    def use() -> None:
        assert place.link is link
        used.set()

    link.start(hold())
    closing = threading.Thread(target=place.close, daemon=True)
    closing.start()
    with pytest.raises(JournalError, match="the journal is closed"):
        while closing.is_alive():
            link.start(nothing())
    threading.Thread(target=use, daemon=True).start()
    assert used.wait(5)
    held.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()
