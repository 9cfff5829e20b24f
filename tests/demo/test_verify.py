"""The check of the main job: exact tables pass, and each way of being wrong is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afflux.demo import flights
from afflux.demo.verify import Verdict, verify

ROWS = 500


def tables(out: Path) -> dict[str, Any]:
    """What an exact run of ``ROWS`` flights writes."""
    lines = [line.split(",") for line in flights.ordered()[:ROWS]]
    carrier, hour, delay = map(flights.COLUMNS.index, ("carrier", "hour", "dep_delay"))
    true = flights.totals(ROWS)
    return {
        "flights": {
            "offset": list(range(ROWS)),
            "carrier": [line[carrier] for line in lines],
            "hour": [int(line[hour]) for line in lines],
            "dep_delay": [None if line[delay] == "NA" else int(line[delay]) for line in lines],
        },
        "by_carrier": delays("carrier", true.by_carrier),
        "by_hour": delays("hour", true.by_hour),
    }


def delays(column: str, groups: dict[Any, flights.Delay]) -> dict[str, list[Any]]:
    return {
        column: list(groups),
        "flights": [delay.flights for delay in groups.values()],
        "departures": [delay.departures for delay in groups.values()],
        "minutes": [delay.minutes for delay in groups.values()],
    }


def judged(out: Path, change: Callable[[dict[str, Any]], object] = lambda made: None) -> Verdict:
    made = tables(out)
    change(made)
    for name, columns in made.items():
        (out / name).mkdir()
        pq.write_table(pa.table(columns), out / name / "part-0.parquet")
    return verify(out, ROWS)


def test_exact_tables_pass(tmp_path: Path) -> None:
    verdict = judged(tmp_path)
    assert verdict.exact
    assert (verdict.rows, verdict.lost, verdict.duplicated, verdict.differences) == (ROWS, 0, 0, ())
    assert verdict.by_carrier == flights.totals(ROWS).by_carrier


def test_a_lost_row_is_found(tmp_path: Path) -> None:
    verdict = judged(tmp_path, lambda made: [column.pop(7) for column in made["flights"].values()])
    assert (verdict.exact, verdict.lost, verdict.duplicated) == (False, 1, 0)
    assert "499 rows, the file has 500" in verdict.differences


def test_a_doubled_row_is_found(tmp_path: Path) -> None:
    verdict = judged(tmp_path, lambda made: [column.append(column[7]) for column in made["flights"].values()])
    assert (verdict.exact, verdict.lost, verdict.duplicated) == (False, 0, 1)


def test_a_row_instead_of_another_is_both(tmp_path: Path) -> None:
    verdict = judged(tmp_path, lambda made: made["flights"]["offset"].__setitem__(3, 4))
    assert (verdict.exact, verdict.lost, verdict.duplicated) == (False, 1, 1)


@pytest.mark.parametrize("table", ["by_carrier", "by_hour"])
def test_a_wrong_sum_is_found(tmp_path: Path, table: str) -> None:
    verdict = judged(tmp_path, lambda made: made[table]["minutes"].__setitem__(0, 10**6))
    assert not verdict.exact
    assert verdict.differences == (f"{table} differs from the file",)


def test_a_changed_row_is_found(tmp_path: Path) -> None:
    verdict = judged(tmp_path, lambda made: made["flights"]["carrier"].__setitem__(0, "XX"))
    assert (verdict.exact, verdict.lost, verdict.duplicated) == (False, 0, 0)
    assert verdict.differences == ("flights by carrier differs from the file",)
