"""Cells of `make chaos` (SP-03, SP-08, SP-10), and the ledger finds what is wrong.

`make test` runs four of the twelve of `python -m chaos --smoke`, which kill, cut and fill; `make long` runs the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chaos.cells import CELLS, SMOKE
from chaos.ledger import Ledger, count_read, count_written
from chaos.page import PAGE, RESULTS, rewritten

from tests.examples import short

ROOT = Path(__file__).parents[2]
ROWS = 20_000


QUICK = ("source-reader-kill-task", "source-storage-full-task", "relay-relay-kill-task", "sink-network-cut-task")
"Cells of ``make test``. None kills the driver, so that one JVM serves all; ``test_driver_killed.py`` kills one."


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest) -> str:
    """What the cells print of which there are tests in this run."""
    names = [item.callspec.params["name"] for item in request.session.items if CELL in item.nodeid]  # type: ignore[attr-defined]  # pytest.Function has it
    command = [sys.executable, "-m", "chaos", "--smoke", "--rows", str(ROWS), "--only", *names]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout


CELL = "test_chaos.py::test_no_row_is_lost_or_doubled["


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", short([cell.name for cell in SMOKE], smoke=QUICK))
def test_no_row_is_lost_or_doubled(name: str, told: str) -> None:
    (line,) = (line for line in told.splitlines() if line.startswith(f"{name}: "))
    if "skipped" in line:
        pytest.skip(line)
    assert f"passed; {ROWS:,} rows, lost 0, doubled 0, out of order 0;" in line


def test_there_are_enough_cells() -> None:
    assert len(SMOKE) == 12
    assert len({cell.name for cell in CELLS}) == len(CELLS) >= 120


def write(path: Path, numbers: Sequence[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"data": [b"%d..." % number for number in numbers]}), path)


def test_the_ledger_counts_what_is_wrong(tmp_path: Path) -> None:
    batches = tmp_path / "query=1"
    write(batches / "batch=0" / "part-0.parquet", [0, 1, 2, 3])
    write(batches / "batch=1" / "part-0.parquet", [5, 4])
    write(batches / "batch=1" / "part-1.parquet", [3, 7, 8])
    assert count_written(tmp_path, 10) == Ledger(rows=9, lost=2, doubled=1, disordered=1)
    assert count_written(tmp_path, 0) == Ledger(rows=9, lost=0, doubled=1, disordered=1)
    assert not count_written(tmp_path, 9).exact


def test_only_listed_files_of_spark_count(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name, numbers in (("a", [0, 1]), ("b", [2]), ("c", [1])):
        write(tmp_path / f"part-{name}.parquet", numbers)

    def entries(*names: str) -> str:
        paths = (tmp_path / f"part-{name}.parquet" for name in names)
        return "\n".join(("v1", *(json.dumps({"path": path.as_uri(), "action": "add"}) for path in paths))) + "\n"

    (log / "0").write_text(entries("a"))
    assert count_read(tmp_path, 3) == Ledger(rows=2, lost=1, doubled=0, disordered=0)
    (log / "1").write_text(entries("b"))
    assert count_read(tmp_path, 3).exact
    (log / "1.compact").write_text(entries("a", "b"))
    assert count_read(tmp_path, 3).exact
    (log / "2").write_text(entries("c"))
    assert count_read(tmp_path, 3) == Ledger(rows=4, lost=0, doubled=1, disordered=0)


@pytest.mark.skipif(not RESULTS.exists(), reason="make chaos has not written its results")
def test_the_page_has_the_results() -> None:
    assert rewritten(PAGE.read_text(), json.loads(RESULTS.read_text())) == PAGE.read_text()
