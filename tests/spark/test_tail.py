"""`afflux spark tail`: a stream becomes a table, each item once, and what cannot be done is said in one line."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from afflux.cli.examples import EXAMPLES
from afflux.spark.tail import Tail, TailFailed, follow, java_reason_of, reason_of
from tests.cli.running import Ran, here
from tests.cli.running import afflux as run
from tests.spark.conftest import QUICK, asked
from tests.spark.starting import quick_start

WRITTEN = "tcp://127.0.0.1:7100"
CONF = [word for name, value in QUICK.items() for word in ("--conf", f"{name}={value}")]


def offsets(spark: Any, table: Path) -> list[int]:
    return sorted(row.offset for row in spark.read.parquet(str(table)).select("offset").collect())


def tail(uri: str, out: Path, *more: str) -> Ran:
    return here("spark", "tail", uri, "--out", str(out), "--available-now", *more)


@pytest.mark.spark
@pytest.mark.parametrize("line", EXAMPLES["spark"])
def test_an_example_writes_the_table(line: str, uri: str, spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    command, *words = shlex.split(line.replace(WRITTEN, uri))
    out = tmp_path / words[words.index("--out") + 1]
    words[words.index("--out") + 1] = str(out)
    left = out / "_checkpoint" / "offsets"  # by a call that was killed while Spark wrote the first offset
    left.mkdir(parents=True)
    for name in (".0.5e2b.tmp", "..0.5e2b.tmp.crc"):
        (left / name).touch()
    ran = here(*words)
    assert (command, ran.code) == ("afflux", 0), ran.errors
    told = json.loads(ran.out)
    assert (told["rows"], told["end"]) == (1000, {"0": 1000})
    assert spark.read.parquet(str(out)).count() == 1000
    assert ("credit 500 of 500" in ran.errors) == ("--max-rows" in words)
    again = here(*words)
    assert (again.code, json.loads(again.out)["rows"]) == (0, 0)
    assert "no new items were stored" in again.errors
    assert spark.read.parquet(str(out)).count() == 1000


@pytest.mark.spark
@pytest.mark.slow
def test_a_stopped_call_is_continued_by_the_next(uri: str, spark: Any, tmp_path: Path) -> None:
    endless = asked(count=300, open=True, every_ms=20)
    command = [sys.executable, "-m", "afflux", "spark", "tail", uri, "-d", endless, "--out", str(tmp_path / "table")]
    command += ["--master", "local[2]", *CONF]
    environment = os.environ | quick_start()
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        batches = 0
        for line in process.stderr:
            batches += " rows/s" in line
            if batches == 2:
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
                break
        rest = process.stderr.read()
        first = json.loads(process.stdout.read())
    assert process.returncode == 130
    assert "stops after this batch" in rest
    assert not re.search(r'File "[^"]*/src/afflux/', rest)  # Spark's own process of the source may print a traceback
    assert first["rows"] == first["end"]["0"] > 300
    written = offsets(spark, tmp_path / "table")
    assert written == list(range(len(written)))
    assert len(written) >= first["rows"]  # one more batch may have begun
    next = tail(uri, tmp_path / "table", "-d", endless)
    second = json.loads(next.out)
    assert next.code == 0
    assert second["end"]["0"] > first["end"]["0"]
    assert offsets(spark, tmp_path / "table") == list(range(second["end"]["0"]))


@pytest.mark.spark
def test_errors_of_spark_are_one_line(uri: str, spark: Any, tmp_path: Path) -> None:
    for code, words, text in (
        (1, ("-r", "refused"), 'no route "refused"'),
        (2, ("--format", "hudi"), "Failed to find the data source: hudi"),
        (2, ("--format", "hudi"), "spark.jars.packages"),
        (2, ("-O", "format=json", "--schema", "carrier STRNG"), "STRNG"),
        (2, ("--partition-by", "carrier"), "carrier"),
    ):
        ran = tail(uri, tmp_path / "table", *words)
        assert (ran.code, ran.out) == (code, "")
        last = ran.errors.splitlines()[-1]
        assert last.startswith("afflux: ")
        assert text in last
        assert "Traceback" not in ran.errors


@pytest.mark.spark
@pytest.mark.slow
def test_a_master_that_spark_refuses_is_one_line(tmp_path: Path) -> None:
    words = ["spark", "tail", "tcp://127.0.0.1:1", "--out", str(tmp_path / "table"), "--master", "nonsense"]
    ran = run(words, env=quick_start())
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[-1].startswith("afflux: Spark does not start with master nonsense: ")
    assert not re.search(r'File "[^"]*/src/afflux/', ran.stderr)


def test_a_reason_has_the_last_cause() -> None:
    trace = "\tat org.apache.spark.Job\nCaused by: org.apache.spark.SparkException: Task failed"
    text = (
        f"Task failed while writing rows\n\nJVM stacktrace:\n{trace}\nCaused by: java.io.IOException: No space left\n"
    )
    assert reason_of(text) == "Task failed while writing rows (No space left)"
    assert reason_of(f"{text}\nafflux.core.errors.DataLost: offsets 5 to 7\n") == "offsets 5 to 7"
    assert reason_of("no such column") == "no such column"


def test_an_error_of_a_python_worker_is_its_reason() -> None:
    """Spark introduces it, and writes the traceback after that; an error may have more lines than one."""
    traces = [format_exc(error) for error in (OSError(28, "No space left", "/tables"), MemoryError(), KeyError("a"))]
    introduced = ["An exception was thrown from the Python worker:\n" + trace for trace in traces]
    expected = ["OSError: [Errno 28] No space left: '/tables'", "MemoryError", "KeyError: 'a'"]
    assert [*map(reason_of, introduced)] == expected
    java = "\n\nJVM stacktrace:\n\tat org.apache.spark.Job\nCaused by: java.lang.Exception: x\n"
    assert [reason_of(text + java) for text in introduced] == expected
    assert reason_of(introduced[0].replace("left", "left\n  here")) == "OSError: [Errno 28] No space left"


def format_exc(error: Exception) -> str:
    """The traceback of an error that another one has caused."""
    try:
        raise error from ValueError("first\nsecond")
    except Exception:
        return traceback.format_exc()


class Thrown:
    """An exception of Java."""

    def __init__(self, text: str, cause: Thrown | None = None) -> None:
        self.getMessage = lambda: text
        self.getCause = lambda: cause


class Gone:
    """A session, and all that it returns; its JVM ends while the query runs."""

    def __getattr__(self, name: str) -> Gone:
        return self

    def __call__(self, *_: object, **__: object) -> Gone:
        return self

    def awaitTermination(self, seconds: float) -> bool:
        raise ConnectionRefusedError

    def stop(self) -> None:
        raise ConnectionRefusedError


def test_a_jvm_that_has_ended_is_named(tmp_path: Path) -> None:
    what = Tail(options={"uri": "tcp://127.0.0.1:1"}, out=str(tmp_path / "table"))
    with pytest.raises(TailFailed, match=r"Spark.s JVM has ended, .*; the same command continues"):
        follow(Gone(), what, print, int)  # type: ignore[arg-type] # a double


class Starting(Gone):
    """A session, and all that it returns; its query starts, and ends at the fourth look."""

    recentProgress = ()  # noqa: N815 -- Spark's name
    states = ("Initializing sources", "Initializing sources", "Getting offsets from X", "Stopped")

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.looks = 0

    @property
    def status(self) -> dict[str, Any]:
        return {"message": self.states[self.looks - 1], "isTriggerActive": True, "isDataAvailable": False}

    def awaitTermination(self, seconds: float) -> bool:
        self.clock[0] *= 2
        self.looks += 1
        return self.looks == 4

    def stop(self) -> None:
        pass


def test_a_query_that_starts_tells_what_spark_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = [5.0], list[Any]()
    monkeypatch.setattr("afflux.spark.tail.time", SimpleNamespace(monotonic=lambda: clock[0]))
    what = Tail(options={"uri": "tcp://127.0.0.1:1"}, out=str(tmp_path / "table"))
    follow(Starting(clock), what, told.append, int)  # type: ignore[arg-type] # a double
    assert [one.cause for one in told[:3]] == [
        "Spark is starting the query: Initializing sources",
        "Spark is starting the query: Initializing sources",
        "the query waits for the first answer of the server (see the log above)",
    ]


def test_a_text_that_only_introduces_the_reason_is_completed() -> None:
    cause = Thrown("partitions should be int\n\tat org.apache")
    assert java_reason_of(Thrown("Error while instantiating:", Thrown("x", cause))).endswith("should be int")
    assert java_reason_of(Thrown("no such column\nmore", cause)) == "no such column"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-O", "frmat=json"), "unknown option frmat; did you mean format?"),
        (("-O", "json"), "--option must be NAME=VALUE, not 'json'"),
        (("-O", "pollTimeoutMs=1", "-O", "polltimeoutms=2"), "--option polltimeoutms is given twice"),
        (("-O", "URI=tcp://127.0.0.1:2"), "-O uri and URI exclude each other"),
        (("-O", "route=a", "-r", "b"), "-O route and -r exclude each other"),
        (("-O", "maxRowsPerBatch=1", "--max-rows", "2"), "-O maxRowsPerBatch and --max-rows exclude each other"),
        (("--conf", "=1"), "--conf must be NAME=VALUE, not '=1'"),
        (("-O", "format=json"), "--schema and -O format=json (or msgpack, cbor, arrow) need each other"),
        (("--schema", "data BINARY"), "--schema and -O format=json (or msgpack, cbor, arrow) need each other"),
        (("--schema", "@missing.ddl"), "--schema: file 'missing.ddl' not found"),
        (("-O", "format=json", "--schema", "@binary.ddl"), "--schema: 'binary.ddl' is not UTF-8 text (byte 1)"),
        (("--every", "soon"), "invalid --every 'soon'"),
        (("--out", ""), "the table needs a directory, and its name is empty"),
        (("--out", "README.md"), "README.md is a file: the table needs a directory"),
        (("--out", "full"), "full has files that are no table of this command: choose a new directory"),
        (("--out", "delta"), "delta has a Delta table, not --format parquet: choose a new directory"),
        (("--out", "parquet", "--format", "delta"), "parquet has other files of Spark, such as Parquet, not --format"),
        (("--out", "lost"), "lost has a table, but not its checkpoint _checkpoint"),
    ],
)
def test_usage_errors_come_before_spark_starts(
    words: tuple[str, ...], text: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("# A file")
    (tmp_path / "binary.ddl").write_bytes(b"a\xff INT")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other.csv").touch()
    logs = {
        "delta": "_delta_log/00000000000000000001.json",
        "parquet": "_spark_metadata/0",
        "lost": "_spark_metadata/0",
    }
    for table, log in logs.items():
        (tmp_path / table / log).parent.mkdir(parents=True)
        (tmp_path / table / log).touch()
        if table != "lost":
            (tmp_path / table / "_checkpoint").mkdir()
    ran = tail("tcp://127.0.0.1:1", tmp_path / "table", *words)
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.errors
    assert ran.errors.count("\n") == 1
