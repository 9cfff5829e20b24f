"""Payloads put together: small ones joined, large ones in place. What limits them is in test_streams.py."""

from __future__ import annotations

import sys

import pytest

from afflux.core.errors import Violation
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.family.reassembly import Reassembly
from afflux.protocols.rsocket.frames import PayloadFrame, decode

MI = 1 << 20
LIMITS = Limits.trusted()


def piece(data: bytes = b"", metadata: bytes | None = None) -> PayloadFrame:
    return PayloadFrame(stream=1, next=True, data=data, metadata=metadata)


def begun(*pieces: PayloadFrame) -> Reassembly:
    reassembly = Reassembly(LIMITS, "R-34")
    reassembly.begin(1, None, 0.0)
    for one in pieces:
        assert reassembly.add(1, one, False, LIMITS.connection_bytes) is None
    return reassembly


def ended(reassembly: Reassembly, last: bytes) -> Payload:
    whole = reassembly.add(1, piece(last), True, LIMITS.connection_bytes)
    assert whole is not None
    assert (reassembly.size, reassembly.partials) == (0, {})
    return whole.payload()


def numbered(count: int) -> list[bytes]:
    """Pieces that are all different."""
    return [number.to_bytes(2, "big") * (MI // 4) for number in range(count)]


def test_without_address_space_for_the_largest_it_is_whole_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afflux.protocols.family.reassembly._MOST_SPACE", sys.maxsize // 2)
    collecting = begun()
    collecting.partials[1].most = sys.maxsize // 2
    pieces = numbered(80)
    for data in pieces:
        collecting.add(1, piece(data), False, LIMITS.connection_bytes)
    assert ended(collecting, b"end").data == b"".join(pieces) + b"end"


@pytest.mark.parametrize(("count", "calls"), [(7, 0), (9, 1), (20, 1)])
def test_the_buffer_of_a_large_payload_is_placed_before_it_is_filled(count: int, calls: int) -> None:
    placed: list[bytes] = []
    collecting = Reassembly(LIMITS, "R-34", lambda buffer: placed.append(buffer.getvalue()[:8]))
    collecting.begin(1, None, 0.0)
    for data in numbered(count):
        collecting.add(1, piece(data), False, LIMITS.connection_bytes)
    assert placed == [bytes(8)] * calls


@pytest.mark.parametrize("count", [1, 7, 8, 9, 20, 72])
def test_a_payload_is_whole_whatever_its_size(count: int) -> None:
    """Joined below 4 MiB, in place from there; 72 of half a MiB are more than the space of the beginning."""
    data = numbered(count)
    whole = ended(begun(piece(b"", b"about"), *map(piece, data)), b"last")
    assert whole.metadata == b"about"
    assert type(whole.data) is bytes
    assert whole.data == b"".join(data) + b"last"


@pytest.mark.parametrize("count", [3, 9])
def test_metadata_after_data_is_refused(count: int) -> None:
    reassembly = begun(*map(piece, numbered(count)))
    with pytest.raises(Violation, match="metadata after data"):
        reassembly.add(1, piece(b"", b"late"), False, LIMITS.connection_bytes)
    assert (reassembly.size, reassembly.partials) == (0, {})


@pytest.mark.parametrize("count", [3, 9])
def test_a_state_is_taken_in_the_middle_and_changes_nothing(count: int) -> None:
    data = numbered(count)
    first = begun(*map(piece, data))
    state = first.state()
    second = Reassembly(LIMITS, "R-34")
    second.restore(state, 1.0, decode)
    assert second.size == first.size
    for reassembly in (first, second):
        assert reassembly.add(1, piece(b"more"), False, LIMITS.connection_bytes) is None
        assert ended(reassembly, b"last").data == b"".join(data) + b"morelast"
    assert state[0][-1] == b"".join(data)
