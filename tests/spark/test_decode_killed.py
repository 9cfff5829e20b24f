"""Kill ``afflux spark decode``: the old tables stay. The next run replaces them; in ``make long`` also on executors of
their own, which are four more JVMs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

import pyarrow.parquet as pq  # noqa: E402

from afflux.capture.output import write_tables  # noqa: E402
from afflux.capture.schemas import TABLES  # noqa: E402
from tests.capture.test_decoding import CLIENT, SERVER  # noqa: E402
from tests.capture.writing import Talk, pcap  # noqa: E402
from tests.examples import short  # noqa: E402
from tests.spark.starting import quick_start  # noqa: E402

OPTIONS = "SPARK_SUBMIT_OPTS"
"The variable with the options of JVMs."


def rows(directory: Path) -> dict[str, list[str]]:
    return {table: sorted(map(repr, pq.read_table(directory / table).to_pylist())) for table in TABLES}


@pytest.mark.parametrize("master", short(["local[2]", "local-cluster[2,1,1024]"], smoke=["local[2]"]))
def test_a_killed_run_and_the_next_one(tmp_path: Path, master: str) -> None:
    talks = [Talk(("10.0.0.1", 1_000 + n)) for n in range(4)]
    (tmp_path / "a.pcap").write_bytes(pcap([packet for talk in talks for packet in talk.whole(CLIENT, SERVER, 300)]))
    out, here = tmp_path / "out", tmp_path / "here"
    write_tables([str(tmp_path / "a.pcap")], str(here))
    shutil.copytree(here, out)
    before = sorted(out.rglob("*"))
    words = ["spark", "decode", str(tmp_path / "a.pcap"), "--out", str(out)]
    command = [sys.executable, "-m", "afflux", *words, "--master"]
    environment = os.environ | quick_start()
    executors = [master, "--conf", f"spark.executor.extraJavaOptions={environment[OPTIONS]}"]
    with subprocess.Popen(
        [*command, *executors], env=environment, stderr=subprocess.PIPE, start_new_session=True, text=True
    ) as driver:
        assert driver.stderr is not None
        assert driver.stderr.readline().endswith(f"starting Spark on {master}\n")
        for line in driver.stderr:
            if "1 capture, " in line:  # the plan is made, and the tasks begin
                break
        os.killpg(driver.pid, signal.SIGKILL)
    assert sorted(out.rglob("*")) == before
    assert any(path.name.startswith(".out.tmp-") for path in tmp_path.iterdir())
    done = subprocess.run([*command, *executors], env=environment, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["rows"]["frames"] == 4 * 81
    assert rows(out) == rows(here)
    assert not any(path.name.startswith(".out.tmp-") for path in tmp_path.iterdir())
