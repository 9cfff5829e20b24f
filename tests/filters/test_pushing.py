"""What Spark pushes down to a data source, as filters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import datasource as ds

from afflux.filters import Filter, pushed
from tests.filters.test_filter import BROKEN, FRAME

TIME = datetime(2026, 11, 21, 2, 37, 44, tzinfo=UTC)
ROWS = [FRAME, BROKEN, FRAME | {"n": None, "route": None, "ts": None}, FRAME | {"n": 7, "route": "a.b$"}]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (ds.EqualTo(("type",), "REQUEST_N"), "type == REQUEST_N"),
        (ds.EqualNullSafe(("n",), 3), "n is not null and n == 3"),
        (ds.EqualNullSafe(("n",), None), "n is null"),
        (ds.GreaterThan(("n",), 3), "n > 3"),
        (ds.GreaterThanOrEqual(("ts",), TIME), 'ts >= "2026-11-21T02:37:44Z"'),
        (ds.LessThan(("ts",), TIME.replace(tzinfo=None)), 'ts < "2026-11-21T02:37:44Z"'),
        (ds.LessThanOrEqual(("n",), 3), "n <= 3"),
        (ds.In(("n",), (3, 7)), "n in (3, 7)"),
        (ds.Not(ds.In(("n",), (3,))), "n not in (3)"),
        (ds.IsNull(("error",)), "not error"),
        (ds.IsNotNull(("error", "rule")), "error.rule is not null"),
        (ds.StringStartsWith(("route",), "prices."), r'route ~ "^prices\."'),
        (ds.StringEndsWith(("route",), ".b$"), r'route ~ "\.b\$$"'),
        (ds.StringContains(("route",), "s.e"), r'route ~ "s\.e"'),
        (ds.EqualTo(("packet",), 4), "packet == 4"),
    ],
)
def test_a_filter_that_is_pushed(one: Any, text: str) -> None:
    for given, negated in ((one, text), (ds.Not(one), f"not ({text})")):
        found, others = pushed([given])
        assert found is not None and others == []
        expected = Filter.of(negated, table=True).predicate()
        assert [found.predicate()(row) for row in ROWS] == [expected(row) for row in ROWS]


def test_what_cannot_be_translated_is_left_to_spark() -> None:
    left = [
        ds.EqualTo(("unknown",), 1),
        ds.EqualTo(("n",), "a"),
        ds.EqualTo(("n",), True),
        ds.GreaterThan(("type",), "A"),
        ds.In(("n",), (1, None)),
        ds.EqualTo(("error",), {"rule": "a"}),
        ds.Not(ds.EqualTo(("fields",), "{}")),
        ds.EqualTo(("n",), 1 << 63),
        ds.StringContains(("route",), "a" * 2_000),
        ds.StringContains(("n",), "a"),
    ]
    assert pushed(left) == (None, left)
    found, others = pushed([ds.EqualTo(("n",), 3), left[0], ds.IsNotNull(("type",))])
    assert found is not None and others == [left[0]]
    assert [found.predicate()(row) for row in ROWS] == [True, False, False, False]
