"""Offsets and the arithmetic of batches."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.core.errors import Invalid
from afflux.spark.offsets import (
    Mark,
    Offsets,
    Span,
    StreamShard,
    fair,
    fingerprint,
    moved_from,
    offsets_of,
    split,
    to_json,
)

SOURCE = fingerprint("flights", "{}")
counts = st.dictionaries(st.integers(0, 0xFFFF), st.integers(0, 10_000), min_size=1, max_size=6)


def test_an_offset_as_spark_logs_it() -> None:
    offset = to_json({10: Mark(5, 1), 9: Mark(6, 2)}, SOURCE)
    assert json.dumps(offset) == json.dumps(offset, sort_keys=True)
    assert offset["9"] == {"epoch": 6, "pos": 2, "source": SOURCE}


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 0xFFFF), st.builds(Mark, st.integers(1, 1 << 62), st.integers(0, 1 << 62))))
def test_an_offset_comes_back_as_it_went(offsets: dict[int, Mark]) -> None:
    if offsets:
        assert offsets_of(json.loads(json.dumps(to_json(offsets, SOURCE))), SOURCE) == offsets


def test_another_stream_s_checkpoint_is_refused() -> None:
    logged = to_json({0: Mark(5, 1)}, fingerprint("trains", "{}"))
    with pytest.raises(Invalid, match="belongs to another source"):
        offsets_of(logged, SOURCE)


def test_the_error_about_another_stream_says_what_differs() -> None:
    was = to_json({0: Mark(5, 1)}, fingerprint("trains", "{}", "tcp://a:1"))
    with pytest.raises(Invalid) as raised:
        offsets_of(was, fingerprint(None, "{}", "tcp://b:1"))
    text = str(raised.value)
    assert "another source: route was 'trains' and is not given, uri was 'tcp://a:1' and is 'tcp://b:1'. " in text
    assert text.endswith("Give the former options, or use a separate checkpointLocation for this query")
    assert offsets_of(was, fingerprint("trains", "{}", "tcp://b:1")) == {0: Mark(5, 1)}  # a server may move
    del was["0"]["asked"]
    with pytest.raises(Invalid, match="route or requestData was another one; the fingerprint of both was"):
        offsets_of(was, SOURCE)  # as earlier versions have logged it
    long = to_json({0: Mark(5, 1)}, fingerprint(None, "x" * 201))
    with pytest.raises(Invalid, match="route or requestData differs after 200 characters"):
        offsets_of(long, fingerprint(None, "x" * 202))


def test_an_offset_of_many_streams_stays_small() -> None:
    several = {f"s{number}": fingerprint("r" * 500, "d" * 500) for number in range(33)}
    marks: Offsets = {StreamShard("s0", shard): Mark(5, 1) for shard in range(100)}
    assert all("asked" not in mark for mark in to_json(marks, several).values())
    del several["s32"]
    (asked,) = [mark["asked"] for mark in to_json(marks, several).values() if "asked" in mark]
    assert len(asked["route"]) == 200


@pytest.mark.parametrize("about", [None, 5, {}, {"route": 5}, {"uri": []}])
def test_a_damaged_description_decides_nothing(about: object) -> None:
    logged = to_json({0: Mark(5, 1)}, SOURCE)
    logged["0"]["asked"] = about
    assert offsets_of(logged, SOURCE) == {0: Mark(5, 1)}
    moved_from(logged, SOURCE)
    with pytest.raises(Invalid, match="another source"):
        offsets_of(logged, fingerprint("other", ""))


def test_route_and_data_make_the_fingerprint() -> None:
    made = {fingerprint(route, data) for route in (None, "", "a", "b") for data in ("", "a", "b")}
    assert len(made) == 12


@pytest.mark.parametrize(
    "logged",
    [
        None,
        {},
        [],
        "x",
        7,
        {"0": 5},
        {"a": {"epoch": 1, "pos": 1, "source": SOURCE}},
        {"0": {"pos": 1, "source": SOURCE}},
        {"0": {"epoch": 0, "pos": 1, "source": SOURCE}},
        {"0": {"epoch": 1, "pos": -1, "source": SOURCE}},
        {"0": {"epoch": 1, "pos": True, "source": SOURCE}},
        {"0": {"epoch": 1 << 63, "pos": 1, "source": SOURCE}},
        {"0": {"epoch": 1, "pos": 1, "source": SOURCE, "skipped": 3}},  # of a newer version
        {"0": {"epoch": 1, "pos": 1, "source": SOURCE}, "version": 2},
    ],
)
def test_a_damaged_checkpoint_is_refused(logged: object) -> None:
    with pytest.raises(Invalid, match="which is not an offset of this source"):
        offsets_of(logged, SOURCE)


@settings(deadline=None)
@given(counts, st.integers(0, 50_000))
def test_a_batch_is_as_large_as_it_may_be_and_fair(available: dict[int, int], budget: int) -> None:
    taken = fair(available, budget)
    assert taken.keys() == available.keys()
    assert sum(taken.values()) == min(budget, sum(available.values()))
    assert all(0 <= taken[shard] <= available[shard] for shard in available)
    least = min((taken[shard] for shard in available if taken[shard] < available[shard]), default=None)
    if least is not None:
        assert max(taken.values()) <= least + 1


def test_a_batch_without_a_bound_is_all() -> None:
    assert fair({0: 5, 1: 0}, None) == {0: 5, 1: 0}


@settings(deadline=None)
@given(counts, st.integers(1, 3000), st.integers(1, 1024))
def test_spans_are_cut_without_a_gap(available: dict[int, int], pieces: int, most: int) -> None:
    spans = [Span(shard=shard, epoch=1, first=3, end=3 + count) for shard, count in available.items()]
    cut = split(spans, pieces, most)
    for span in spans:
        own = [piece for piece in cut if piece.shard == span.shard]
        assert sum(len(piece) for piece in own) == len(span)
        assert all(len(piece) for piece in own)
        if own:
            assert own[0].first == span.first and own[-1].end == span.end
            assert all(before.end == after.first for before, after in pairwise(own))
            assert max(len(piece) for piece in own) - min(len(piece) for piece in own) <= 1
    assert min(pieces, most, sum(available.values())) <= len(cut) <= most + len(spans)


def test_a_span_in_words() -> None:
    assert str(Span(shard=0, epoch=9, first=5, end=8)) == "shard 0, epoch 9, offsets 5 to 7"
