"""Random conversations of every protocol through random faults: what is decoded is the truth, and losses are exact."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afflux.capture import Capture, Connection, Decoder
from afflux.protocols.registry import named, recognizable
from tests.capture.faults import PROTOCOLS, Faulty, conversations, faulty, truth
from tests.capture.test_decoding import without
from tests.examples import share

EACH = pytest.mark.parametrize("protocol", PROTOCOLS)
MANY = settings(deadline=None, max_examples=share(0.6), suppress_health_check=list(HealthCheck))


def decoded(made: Faulty, chunk: int) -> tuple[dict[bool, list[dict[str, Any]]], Connection]:
    """The records of each side, and the connection."""
    entry = named(made.conversation.protocol)
    capture = Capture(io.BytesIO(made.file), chunk=chunk)
    decoder = Decoder(capture, recognizable(), ports={7_000: entry}, payload="hex")
    found = list(decoder)
    (one,) = decoder.opened()
    assert decoder.tally == {entry.name: 1} and capture.problem is None and not +decoder.network.skipped
    return {side: [made for made in found if made["dir"] == "<>"[side]] for side in (True, False)}, one.connection


@EACH
@given(data=st.data(), chunk=st.sampled_from([400, 0x8_0000]))
@MANY
def test_where_no_byte_is_lost_what_is_decoded_is_the_truth(protocol: str, data: st.DataObject, chunk: int) -> None:
    """PC-07: order, copies, other copies, VLANs, fragments, IPv6, byte orders, nanoseconds."""
    made = data.draw(faulty(data.draw(conversations(protocol)), loses=False))
    found, connection = decoded(made, chunk)
    for side in (True, False):
        assert without(found[side], "ts", "conn") == without(truth(made.conversation, side), "ts", "conn")
    assert sum(half.counts.lost for half in connection.halves.values()) == 0


def runs(places: set[int]) -> list[tuple[int, int]]:
    """Where each run of positions begins, and its length."""
    found: list[tuple[int, int]] = []
    for place in sorted(places):
        if found and sum(found[-1]) == place:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((place, 1))
    return found


@EACH
@given(data=st.data(), chunk=st.sampled_from([400, 0x8_0000]))
@MANY
def test_lost_bytes_are_reported_with_their_size(protocol: str, data: st.DataObject, chunk: int) -> None:
    """PC-06. Frames without a lost byte are right, those before the first loss are all there, and the first gap of a
    side has a record with its exact size. The FIN shows that bytes before it are missing."""
    made = data.draw(faulty(data.draw(conversations(protocol)), loses=True))
    found, connection = decoded(made, chunk)
    for side in (True, False):
        lost = made.lost(side)
        counted = connection.halves[side is connection.opener].counts.lost
        assert counted == len(lost) or (made.cut and counted > len(lost))
        right = {one["offset"]: one for one in without(truth(made.conversation, side), "ts", "conn")}
        mine = without(found[side], "ts", "conn")
        wrong = [one for one in mine if one != right.get(one["offset"])]
        first = min(lost, default=1 << 40)
        whole = max(made.captured[side], default=-1) + 1
        expected = [at for at, one in right.items() if at + one["length"] <= min(first, whole)]
        assert [one["offset"] for one in mine[: len(expected)]] == expected and not any(
            one in wrong for one in mine[: len(expected)]
        )
        assert all(one["error"] for one in wrong)
        if lost and not made.cut:
            assert f"{runs(lost)[0][1]} bytes are missing" in wrong[0]["error"]["reason"]
