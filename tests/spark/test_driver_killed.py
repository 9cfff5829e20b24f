"""SP-03: what is left of three queries whose driver was killed. No row is lost, and none comes twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import HERE, asked, running

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

from afflux.spark.options import Options  # noqa: E402
from afflux.spark.reading import Driver  # noqa: E402
from tests.spark.querying import ROWS, query  # noqa: E402
from tests.spark.test_sink import Receiving, rows, wanted  # noqa: E402

POINTS = ("staging", "committed")
DATA = asked(count=ROWS, size=300, open=True)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Receiving]]]:
    """The directory of a driver that was killed when one query had staged rows, one had committed them and got no
    answer, and one had read all items; and the receivers of the first two, which go on."""
    directory = tmp_path_factory.mktemp("killed")
    (directory / "input").mkdir()
    for first in (0, 1000):
        text = "".join(f"{number}\n" for number in range(first, first + 1000))
        (directory / "input" / f"{first:06}.txt").write_text(text)
    receivers = {point: Receiving(directory / f"received-{point}") for point in POINTS}
    try:
        with running(directory / "journals") as uri:
            kill_a_driver(directory, receivers, uri)
        yield directory, receivers
    finally:
        for receiving in receivers.values():
            receiving.kill()


def kill_a_driver(directory: Path, receivers: dict[str, Receiving], uri: str) -> None:
    for point, receiving in receivers.items():
        receiving.stop_at(point)
    addresses = [receivers[point].uri for point in POINTS]
    words = [str(directory / "input"), str(directory), *addresses, uri, DATA]
    program = [sys.executable, "-m", "tests.spark.querying", *words]
    with subprocess.Popen(program, cwd=HERE.parents[1], start_new_session=True, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None and driver.stdout.readline() == b"read\n"
        for point, receiving in receivers.items():
            receiving.until(point)
        os.killpg(driver.pid, signal.SIGKILL)
    for receiving in receivers.values():
        receiving.stop_at("")


@pytest.mark.parametrize("point", POINTS)
def test_a_query_that_writes(spark: Any, killed: tuple[Path, dict[str, Receiving]], point: str) -> None:
    directory, receivers = killed
    receiving = receivers[point]
    query(spark, str(directory / "input"), str(directory / point), receiving.uri).awaitTermination()
    assert Counter(rows(receiving.directory)) == wanted(2000)


def test_asynchronous_progress_is_acknowledged_only_as_far_as_it_is_logged(
    killed: tuple[Path, dict[str, Receiving]],
) -> None:
    """The query logs its offsets every minute: what its checkpoint requests again is there."""
    directory, _ = killed
    logged = [json.loads(path.read_text().splitlines()[2]) for path in (directory / "read").glob("offsets/[0-9]*")]
    positions = [each["0"]["pos"] for each in logged]
    assert max(positions) < ROWS, "the last batches were not logged"
    with running(directory / "journals") as uri, Driver(Options.parse({"uri": uri, "requestData": DATA})) as driver:
        assert driver.heads()[0].first <= min(positions)
