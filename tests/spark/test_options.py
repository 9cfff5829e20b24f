"""Options: what each may be, and that nothing else is taken."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable

import pytest

from afflux.core.errors import AddressError, Invalid
from afflux.core.limits import Limits
from afflux.spark.declaring import OptionError, reference
from afflux.spark.options import EARLIEST, Options
from afflux.spark.sinkoptions import SinkOptions

URI = {"uri": "tcp://127.0.0.1:7000"}
MOST = Limits.server().partitions


def test_only_the_address_is_required() -> None:
    options = Options.parse(URI)
    assert options.starting_offsets == EARLIEST
    assert options.partitions == 1
    assert options.fail_on_data_loss and options.acknowledge_as is None and not options.include_metadata
    assert options.max_rows_per_batch is None and options.max_bytes_per_batch is None


def test_names_have_any_case() -> None:
    assert Options.parse({"URI": URI["uri"], "maxrowsperbatch": "5"}).max_rows_per_batch == 5


def test_options_travel_into_tasks() -> None:
    options = Options.parse(URI | {"startingOffsets": '{"0": 4}'})
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("maxRowPerBatch", "maxRowsPerBatch"),
        ("URL", "uri"),
        ("startingoffset", "startingOffsets"),
        ("rout", "route"),
        ("acknowledge", "acknowledgeAs"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name: str, near: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option {name}; did you mean {near}"):
        Options.parse(URI | {name: "1"})


def test_an_option_like_no_other_is_refused_with_all_names() -> None:
    with pytest.raises(OptionError, match=r"known: acknowledgeAs, .*, uri"):
        Options.parse(URI | {"zzzzzz": "1"})


def test_a_path_is_refused_in_words_of_its_own() -> None:
    with pytest.raises(OptionError, match=r"load\(\) does not accept a path"):
        Options.parse(URI | {"path": "tcp://127.0.0.1:7000"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partitions", "0"),
        ("partitions", str(MOST + 1)),
        ("partitions", "1000000"),
        ("partitions", "two"),
        ("partitions", "-1"),
        ("partitions", "²"),
        ("maxRowsPerBatch", "0"),
        ("maxRowsPerBatch", "1e3"),
        ("maxRowsPerBatch", "9" * 5000),
        ("maxBytesPerBatch", "10m"),
        ("failOnDataLoss", "no"),
        ("includeMetadata", ""),
        ("format", "csv"),
        ("mode", "drop"),
        ("timeZone", "Mars/Olympus"),
        ("columnNameOfCorruptRecord", " "),
        ("pollTimeoutMs", "60001"),
        ("startingOffsets", "newest"),
        ("startingOffsets", "{}"),
        ("startingOffsets", "[1]"),
        ("startingOffsets", '{"0": -1}'),
        ("startingOffsets", '{"0": true}'),
        ("startingOffsets", '{"0": "1"}'),
        ("startingOffsets", '{"65536": 1}'),
        ("startingOffsets", '{"x": 1}'),
        ("startingOffsets", '{"00": 1}'),
        ("startingOffsets", '{"0": 1, "0": 2}'),
        ("startingOffsets", '{"0": 9223372036854775808}'),
        ("uri", "mem://here"),
        ("acknowledgeAs", ""),
        ("acknowledgeAs", "a\n"),
        ("acknowledgeAs", "a" * 65),
    ],
)
def test_a_value_that_can_not_be_is_refused_by_name(name: str, value: str) -> None:
    """SP-22, among others."""
    with pytest.raises(OptionError, match=f"option {name}"):
        Options.parse(URI | {name: value})


@pytest.mark.parametrize("parse", [Options.parse, SinkOptions.parse])
def test_a_route_that_fits_in_no_request_is_refused(parse: Callable[[dict[str, str]], object]) -> None:
    parse(URI | {"route": "é" * 127 + "x"})
    with pytest.raises(
        OptionError, match=r"option route has 256 bytes of UTF-8; a route has at most 255 \(RSocket R-56\)"
    ):
        parse(URI | {"route": "é" * 128})


def test_the_route_of_one_of_several_streams_is_checked() -> None:
    streams = json.dumps({"a": {"route": "r" * 256}})
    with pytest.raises(OptionError, match="option streams: stream 'a': route has 256 bytes"):
        Options.parse(URI | {"streams": streams})


def test_the_address_is_read_before_anything_is_opened() -> None:
    with pytest.raises(AddressError, match="carrier"):
        Options.parse({"uri": "carrier-pigeon://loft:1"})


def test_the_address_is_missing() -> None:
    with pytest.raises(OptionError, match="option uri is missing"):
        Options.parse({"route": "a"})
    assert issubclass(OptionError, Invalid)


@pytest.mark.parametrize(("value", "wanted"), [("1", 1), (str(MOST - 1), MOST - 1), (str(MOST), MOST)])
def test_partitions_up_to_the_limit(value: str, wanted: int) -> None:
    assert Options.parse(URI | {"partitions": value}).partitions == wanted


def test_offsets_by_shard() -> None:
    assert Options.parse(URI | {"startingOffsets": '{"0": 7, "3": 0}'}).starting_offsets == {0: 7, 3: 0}


def test_the_reference_lists_every_option() -> None:
    table = reference(Options)
    names = ("uri", "route", "requestData", "partitions", "maxRowsPerBatch", "maxBytesPerBatch", "startingOffsets")
    for name in (*names, "failOnDataLoss", "includeMetadata", "format"):
        assert f"| `{name}` |" in table
