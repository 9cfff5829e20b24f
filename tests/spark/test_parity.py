"""``format=json`` against Spark's own ``from_json``, and the list of what is different on purpose."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any
from zoneinfo import available_timezones

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from afflux.spark.rows import JSON, PERMISSIVE, Modes, Rows  # noqa: E402
from afflux.spark.times import zone_of  # noqa: E402
from tests.spark import generated  # noqa: E402
from tests.spark.spellings import ZONES, decimal, script  # noqa: E402

NEW_YORK = "America/New_York"
CORRUPT = pa.field("_corrupt_record", pa.string())


def ours(items: Sequence[bytes], schema: Any) -> list[dict[str, Any]]:
    zone = zone_of(NEW_YORK)
    assert zone is not None
    rows = Rows(Modes(schema, "tcp://h:1", PERMISSIVE, CORRUPT.name, text=True), JSON, zone)
    (batch,) = rows.decode(pa.array(items, pa.binary()), range(len(items)))
    return rows_of(batch)


def sparks(spark: Any, items: Sequence[bytes], schema: Any) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", NEW_YORK)
    try:
        frame = spark.createDataFrame(pa.table({"n": list(range(len(items))), "data": pa.array(items, pa.binary())}))
        read = f.from_json(
            f.col("data").cast("string"), generated.ddl(schema), {"columnNameOfCorruptRecord": CORRUPT.name}
        )
        return rows_of(frame.orderBy("n").select(read.alias("row")).select("row.*").toArrow().combine_chunks())
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def rows_of(table: Any) -> list[dict[str, Any]]:
    columns = [table.column(name) for name in table.schema.names]
    whole = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns]
    values = zip(*map(generated.plain, whole), strict=True)
    return [dict(zip(table.schema.names, row, strict=True)) for row in values]


@pytest.mark.parametrize("seed", range(2))
def test_generated_items(spark: Any, seed: int) -> None:
    """All types to a depth of three, with values that fit, nearly fit and do not fit."""
    random = Random(f"parity {seed}")
    schema = generated.schema(random, 20)
    fields = list(schema)[:-1]
    items = [generated.an_object(random, fields, random.choice((0.01, 0.03, 0.15))).encode() for _ in range(600)]
    mine, theirs = ours(items, schema), sparks(spark, items, schema)
    malformed = sum(row[CORRUPT.name] is not None for row in mine)
    assert 150 < malformed < 450
    for item, one, other in zip(items, mine, theirs, strict=True):
        assert one == other, item


def assert_same(spark: Any, wanted: Any, values: Sequence[str], *, bare: bool = False) -> list[Any]:
    """Compare a column of that type; ``bare`` for values that are JSON themselves. Returns ours."""
    schema = pa.schema([pa.field("v", wanted), CORRUPT])
    written = values if bare else [json.dumps(value, ensure_ascii=False) for value in values]
    items = [f'{{"v":{value}}}'.encode() for value in written]
    mine = ours(items, schema)
    for value, one, other in zip(values, mine, sparks(spark, items, schema), strict=True):
        assert one == other, value
    return [row["v"] for row in mine]


@pytest.mark.parametrize(("precision", "scale"), [(6, 2), (38, 18), (9, 0)])
def test_decimals(spark: Any, precision: int, scale: int) -> None:
    """Digits of other scripts, leading zeros, exponents, too many digits, and rounding."""
    random = Random(f"decimals {precision} {scale}")
    found = assert_same(spark, pa.decimal128(precision, scale), [decimal(random, far=True) for _ in range(600)])
    assert 30 < sum(value is not None for value in found) < 550
    numbers = [decimal(random, far=False) for _ in range(1200)]
    whole = [text for text in numbers if re.fullmatch(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", text)]
    assert len(whole) > 20
    assert_same(spark, pa.decimal128(precision, scale), whole, bare=True)


def test_dates_with_digits(spark: Any) -> None:
    """Dates need ASCII; numbers of days may have the digits of any script, and leading zeros."""
    random = Random("dates")
    days = ["0", "5", "-5", "+123", "0007", "00000000000000007", "12345678", "-141427", "2147483648", "1" * 1001]
    dates = ["2013-01-02", "2013-1-2", "02013-01-02", "+2013-01-02", "0002013-1-2"]
    scripts = [script(random, text) for text in [*days, *dates] for _ in range(8)]
    found = assert_same(spark, pa.date32(), [*days, *dates, *scripts])
    assert 40 < sum(value is not None for value in found) < len(found) - 40


def test_zones_of_timestamps(spark: Any) -> None:
    """Offsets, abbreviations and names of regions; Java's own zones are documented."""
    java = set(spark.sparkContext._jvm.java.time.ZoneId.getAvailableZoneIds())
    names = [name for name in ZONES if not name.startswith("SystemV/")] + sorted(java & available_timezones())
    found = assert_same(
        spark,
        pa.timestamp("us", "UTC"),
        [f"{month}-01T05:15:00{name}" for name in names for month in ("2013-01", "2024-07")],
    )
    assert 1200 < sum(value is not None for value in found) < len(found) - 80
    own = sorted(name for name in java if name.startswith("SystemV/"))
    assert all(zone_of(name) is None for name in own)


FIELDS = pa.schema(
    [
        *[("i", pa.int32()), ("s", pa.string()), ("d", pa.float64()), ("t", pa.int8()), ("b", pa.binary())],
        *[("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("m", pa.map_(pa.string(), pa.int32())), CORRUPT],
    ]
)
WHOLE = object()
"The text of the item."

DIFFERENCES: list[tuple[str, bytes, dict[str, Any], dict[str, Any]]] = [
    # what, item, what afflux returns, what from_json returns; other columns are null
    ("trailing content", b'{"i":1} x', {CORRUPT.name: WHOLE}, {"i": 1}),
    ("several values", b'{"i":1}{"i":2}', {CORRUPT.name: WHOLE}, {"i": 1}),
    ("an empty item", b"", {CORRUPT.name: WHOLE}, {}),
    ("an item of spaces", b" \n", {CORRUPT.name: WHOLE}, {}),
    ("single quotes", b"{'i':1}", {CORRUPT.name: WHOLE}, {"i": 1}),
    ("an escaped single quote", b'{"s":"\\\'"}', {CORRUPT.name: WHOLE}, {"s": "'"}),
    ("a number with a plus sign", b'{"d":+Infinity}', {CORRUPT.name: WHOLE}, {"d": float("inf")}),
    ("INF", b'{"d":-INF}', {CORRUPT.name: WHOLE}, {"d": float("-inf")}),
    ("malformed after a field", b'{"i":1,"s":"\\u12"}', {CORRUPT.name: WHOLE}, {"i": 1, CORRUPT.name: WHOLE}),
    ("malformed base64", b'{"b":"x","i":1}', {"i": 1, CORRUPT.name: WHOLE}, {CORRUPT.name: WHOLE}),
    ("a TINYINT to 255", b'{"t":200}', {CORRUPT.name: WHOLE}, {"t": -56}),
    ("too many seconds", b'{"at":9223372036855}', {CORRUPT.name: WHOLE}, {"at": -9223372036854551616}),
    ("text of a number", b'{"s":12345678.90}', {"s": "12345678.90"}, {"s": "1.23456789E7"}),
    ("text of an object", b'{"s":{"x": 1.50}}', {"s": '{"x":1.50}'}, {"s": '{"x":1.5}'}),
    ("repeated names in a map", b'{"m":{"a":1,"a":2}}', {"m": [("a", 2)]}, {"m": [("a", 1), ("a", 2)]}),
    ("a repeated field", b'{"day":"x","day":"1970-01-02"}', {"day": 1}, {"day": 1, CORRUPT.name: WHOLE}),
    ("many days before", b'{"day":"-99999999"}', {CORRUPT.name: WHOLE}, {"day": -99997958}),
    ("long numbers", b'{"i":1,"z":' + b"1" * 1001 + b"}", {"i": 1}, {CORRUPT.name: WHOLE}),
]


def test_what_is_different(spark: Any) -> None:
    items = [item for _, item, _, _ in DIFFERENCES]
    mine, theirs = ours(items, FIELDS), sparks(spark, items, FIELDS)
    for (what, item, one, other), own, their in zip(DIFFERENCES, mine, theirs, strict=True):
        for expected, got in ((one, own), (other, their)):
            row = dict.fromkeys(FIELDS.names) | expected
            assert got == row | ({CORRUPT.name: item.decode()} if expected.get(CORRUPT.name) is WHOLE else {}), what


def test_a_time_without_a_date_is_null_and_not_today(spark: Any) -> None:
    item = b'{"at":"05:15:00"}'
    assert ours([item], FIELDS)[0]["at"] is None
    assert sparks(spark, [item], FIELDS)[0]["at"] is not None


def test_deep_nesting(spark: Any) -> None:
    """Both have a limit: Python's recursion limit, and 1,000 levels."""
    items = [b'{"i":1,"z":' + b"[" * depth + b"]" * depth + b"}" for depth in (500, 5000)]
    for rows in (ours(items, FIELDS), sparks(spark, items, FIELDS)):
        assert [row["i"] for row in rows] == [1, None]
