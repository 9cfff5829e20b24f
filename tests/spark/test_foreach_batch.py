"""``foreachBatch``: a batch has the rows of its range, and the same ones each time, whatever is killed or repeated."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import asked
from tests.spark.serving import item

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

ROWS, EACH, SIZE = 1_200, 400, 24
FAILS = 1
"The batch after whose rows the function raises once."


def killing_once(mark: str, offset: int) -> Any:
    """Return a function for tasks that passes rows, and once, behind an offset, kills all Python workers: those that
    read, this one, and those of the other task."""

    def work(batches: Any) -> Any:
        import os
        import signal

        for batch in batches:
            yield batch
            if batch.num_rows and batch.column(0)[0].as_py() >= offset and not os.path.exists(mark):
                open(mark, "x").close()
                for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=lambda each: int(each) == os.getpid()):
                    with open(f"/proc/{name}/stat") as stat:
                        if int(stat.read().rpartition(") ")[2].split()[1]) == os.getppid():
                            os.kill(int(name), signal.SIGKILL)

    return work


def ranges(checkpoint: Path) -> dict[int, range]:
    """The offsets of each batch by Spark's log."""
    last, found = 0, {}
    for number in sorted(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*")):
        logged = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[2])
        found[number] = range(last, logged["0"]["pos"])
        last = logged["0"]["pos"]
    return found


def forget_the_end(checkpoint: Path) -> int:
    """Leave the checkpoint as a crash before the end of the last batch does; return its number."""
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink()
    return last


def test_a_batch_has_the_same_rows_however_often_it_is_written(spark: Any, uri: str, tmp_path: Path) -> None:
    """SP-01, SP-03: workers are killed in a task of the function, the function fails, and a batch is repeated."""
    checkpoint, mark = tmp_path / "checkpoint", tmp_path / "killed"
    work, tries = killing_once(str(mark), 0), Counter[int]()

    def write(rows: Any, batch: int) -> None:
        tries[batch] += 1
        place = tmp_path / "table" / f"{batch}-{tries[batch]}"
        rows.select("offset", "data").mapInArrow(work, "offset long, data binary").write.parquet(str(place))
        if batch == FAILS and tries[batch] == 1:
            raise RuntimeError("the sink has failed")

    def run() -> None:
        source = spark.readStream.format("afflux").options(
            uri=uri, requestData=asked(count=ROWS, size=SIZE), maxRowsPerBatch=EACH, partitions=2, pollTimeoutMs=30_000
        )
        writer = source.load().writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        assert writer.foreachBatch(write).start().awaitTermination(90)

    with pytest.raises(Exception, match="the sink has failed"):
        run()
    run()
    last = forget_the_end(checkpoint)
    run()
    assert mark.exists()
    planned = ranges(checkpoint)
    assert sum(map(len, planned.values())) == ROWS and max(map(len, planned.values())) == EACH
    assert {batch: count for batch, count in tries.items() if count > 1} == {FAILS: 2, last: 2}
    for batch, count in tries.items():
        for one in range(1, count + 1):
            rows = spark.read.parquet(str(tmp_path / "table" / f"{batch}-{one}")).orderBy("offset").collect()
            assert [(row.offset, bytes(row.data)) for row in rows] == [(n, item(None, n, SIZE)) for n in planned[batch]]
    assert set(tries) == set(planned)
