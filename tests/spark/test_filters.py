"""Filters as columns of Spark: they select what the predicates select."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession, functions

from afflux.filters import Filter
from afflux.filters.nodes import Node
from tests.examples import share
from tests.filters.tables import table_of
from tests.strategies.filters import nodes, records

pytestmark = pytest.mark.spark


@given(st.lists(records(), min_size=5, max_size=40), st.lists(nodes(), min_size=20, max_size=60))
@settings(max_examples=share(0.12), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_dataframe_and_its_records_are_selected_alike(
    spark: SparkSession, found: list[dict[str, Any]], trees: list[Node]
) -> None:
    frame = spark.createDataFrame(table_of(found))
    filters = [Filter(tree) for tree in trees]
    named = [functions.coalesce(one.column(), functions.lit(False)).alias(f"c{n}") for n, one in enumerate(filters)]
    rows = frame.select(*named).collect()
    for number, one in enumerate(filters):
        expected = [one.predicate()(record) for record in found]
        assert [row[number] for row in rows] == expected, one
