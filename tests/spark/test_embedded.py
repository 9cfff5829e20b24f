"""A stream without a cursor, stored by a relay in the process that plans the batches."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux.core.errors import Rejected, SetupRefused
from afflux.journal import Journal, JournalError, Journalled
from afflux.spark import embedding
from afflux.spark.declaring import OptionError
from afflux.spark.offsets import Span
from afflux.spark.options import Options
from afflux.spark.reading import DataLost, SpanReader
from tests.spark.conftest import HERE, asked, beside, listening, running, until
from tests.spark.embedded import writing
from tests.spark.serving import item

pytest.importorskip("pyspark")

Start = Callable[..., Any]


@pytest.fixture
def start(uri: str, tmp_path: Path) -> Iterator[Start]:
    """The readers of queries, as Spark creates them; they are closed after the test."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    from afflux.spark.source import AffluxSource

    readers: list[Any] = []

    def started(**options: str) -> Any:
        given = {"uri": uri, "pollTimeoutMs": "50", "journalDir": str(tmp_path / "journal")} | options
        readers.append(AffluxSource(given).streamReader(StructType([StructField("data", BinaryType())])))
        return readers[-1]

    yield started
    for reader in readers:
        reader.stop()


def plan(reader: Any, until: int, start: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[Any]]:
    """Plan batches until a position; return the end, and the items of all batches."""
    begin = reader.initialOffset() if start is None else start
    items: list[Any] = []
    end = begin
    while end.get("0", {"pos": 0})["pos"] < until:
        end = reader.latestOffset(begin)
        for part in reader.partitions(begin, end):
            if part.value is not None:
                for chunk in SpanReader(reader.options, part.value):
                    items += [payload.data for payload in chunk.payloads] if chunk.block is None else _data(chunk)
        begin = end
    return end, items


def _data(chunk: Any) -> list[Any]:
    from afflux.spark.arrow import data_column

    return list(data_column(chunk).to_pylist())


def test_a_stream_that_replays_is_read_exactly_over_restarts_of_the_reader(start: Start, tmp_path: Path) -> None:
    given = {"route": "replayed", "requestData": asked(count=500, open=True, every_ms=2), "replays": "true"}
    one = start(**given)
    end, items = plan(one, 500)
    relay = one.reportLatestOffset()["relay"]
    assert relay["connected"] and relay["room"] > 1 << 29 and relay["stall"] is None and relay["gaps"] == 0
    one.stop()
    again = start(**given)
    end, more = plan(again, end["0"]["pos"] + 100, end)
    assert items + more == [item(None, number, 16) for number in range(end["0"]["pos"])]
    assert (tmp_path / "journal" / "0.journal").exists()
    assert os.stat(tmp_path / "journal").st_mode & 0o077 == 0


def test_a_remote_that_is_away_shows_in_the_progress_and_is_continued(start: Start, tmp_path: Path) -> None:
    given = {"route": "replayed", "requestData": asked(count=500, open=True, every_ms=2), "replays": "true"}
    with running(tmp_path / "remote") as at:
        reader = start(uri=at, **given)
        end, items = plan(reader, 500)
    while reader.reportLatestOffset()["relay"]["connected"]:
        reader.latestOffset(end)
    with running(tmp_path / "remote", at=at):
        end, more = plan(reader, end["0"]["pos"] + 600, end)
        relay = reader.reportLatestOffset()["relay"]
    assert items + more == [item(None, number, 16) for number in range(end["0"]["pos"])]
    assert relay["gaps"] == 0


def test_a_live_stream_has_a_gap_after_a_restart_and_it_is_data_loss(start: Start) -> None:
    one = start(route="live")
    end, _ = plan(one, 50)
    one.stop()
    with pytest.raises(
        DataLost, match=r"records a gap: an unknown number of items is missing: the relay was restarted"
    ):
        plan(start(route="live"), 1 << 62, end)  # up to the gap: the journal may have had many more items


def test_one_query_has_the_journal(start: Start) -> None:
    """A second one has another checkpoint: it is refused, while the first one runs and afterwards."""
    one = start(route="live")
    begin, _ = plan(one, 50)
    end = one.latestOffset(begin)
    one.commit(begin)
    one.latestOffset(end)
    one.stop()
    other = start(route="live")
    first = other.latestOffset(other.initialOffset())
    with pytest.raises(Exception, match=r"acknowledgeAs=spark on .*'spark'"):
        other.latestOffset(first)


def test_what_the_query_has_finished_is_trimmed(start: Start, tmp_path: Path) -> None:
    """The journal has room for a fraction of the stream, which goes on nevertheless."""
    reader = start(
        route="replayed", requestData=asked(count=30_000, size=200, open=True), replays="true", journalBytes="2000000"
    )
    begin, total = reader.initialOffset(), 0
    while total < 30_000:
        end = reader.latestOffset(begin)
        total += sum(len(part.value) for part in reader.partitions(begin, end) if part.value is not None)
        reader.commit(end)
        begin = end
    assert end["0"]["pos"] == 30_000
    reader.stop()
    with Journal(tmp_path / "journal" / "0.journal", key=_key(tmp_path / "journal" / "0.journal")) as journal:
        assert journal.first > 10_000


def _key(path: Path) -> bytes:
    import sqlite3

    with sqlite3.connect(path) as database:
        key: bytes = database.execute("SELECT key FROM state").fetchone()[0]
    database.close()
    return key


def test_a_server_with_a_cursor_is_read_directly(start: Start, tmp_path: Path) -> None:
    reader = start(requestData=asked(count=300))
    end, items = plan(reader, 300)
    assert items == [item(None, number, 16) for number in range(300)]
    assert not (tmp_path / "journal").exists()
    spans = [part.value for part in reader.partitions(reader.initialOffset(), end | {"0": end["0"] | {"from": 0}})]
    assert spans == [Span(shard=0, epoch=end["0"]["epoch"], first=0, end=300)]
    reader.commit(end)
    assert reader._acknowledger.requests({}) == {}


class Published:
    """A stream and a publisher of numbers."""

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        for number in range(300):
            yield b"%d" % number
        await asyncio.Event().wait()

    subscribe = stream

    async def channel(self, payloads: AsyncIterator[afflux.Payload]) -> AsyncIterator[bytes]:
        async for payload in payloads:
            for number in range(int(payload.text), 300):
                yield b"%d" % number
        await asyncio.Event().wait()


@asynccontextmanager
async def publishing(wire: str = "rsio", **given: Any) -> AsyncIterator[str]:
    async with afflux.serve(f"{wire}+tcp://127.0.0.1:0", Published(), **given) as server:
        yield server.uri


def test_another_protocol(start: Start) -> None:
    """reactive-streams-io has neither routes nor a cursor."""
    with beside(publishing()) as remote:
        reader = start(uri=remote, requestData="numbers")
        end, items = plan(reader, 300)
        reader.stop()
    assert items == [b"%d" % number for number in range(300)] and end["0"]["pos"] == 300


@pytest.mark.parametrize(
    ("wire", "verb", "data", "first"),
    [("rsocket", "channel", "7", 7), ("reactivesocket", "subscribe", "", 0), ("rsocket", "stream", "", 0)],
)
def test_other_verbs(start: Start, wire: str, verb: str, data: str, first: int) -> None:
    with beside(publishing(wire)) as remote:
        reader = start(uri=remote, verb=verb, requestData=data)
        assert plan(reader, 300 - first)[1] == [b"%d" % number for number in range(first, 300)]
        reader.stop()


@pytest.mark.parametrize("relayed", [True, False])
def test_credentials_are_those_of_a_file(start: Start, tmp_path: Path, relayed: bool) -> None:
    file = tmp_path / "auth"
    file.touch(0o600)
    file.write_text("simple me hunter2\n")
    check = afflux.auth.verify_password({"me": afflux.auth.hash_password("hunter2")})
    if relayed:
        serving = publishing("rsocket", on_setup=afflux.auth.at_setup(check))
    else:
        serving = journalled(tmp_path / "remote", on_setup=afflux.auth.at_setup(check))
    with beside(serving) as remote:
        refused = start(uri=remote)
        with pytest.raises(SetupRefused):
            refused.latestOffset(refused.initialOffset())
        reader = start(uri=remote, authFile=str(file))
        assert plan(reader, 300)[1] == [b"%d" % number for number in range(300)]
        reader.stop()
    assert (tmp_path / "journal").exists() == relayed


@asynccontextmanager
async def journalled(directory: Path, **given: Any) -> AsyncIterator[str]:
    async with (
        Journalled(Published(), directory, linger_s=0) as handler,
        afflux.serve("tcp://127.0.0.1:0", handler, **given) as server,
    ):
        yield server.uri


def test_a_stream_that_sends_nothing_yet(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "PROBE_S", 0.3)
    reader = start(route="replayed", requestData=asked(count=0, open=True))
    begin = reader.initialOffset()
    end = reader.latestOffset(begin)
    assert end["0"]["pos"] == 0 and "relay" in reader.reportLatestOffset()


def test_a_remote_that_refuses_ends_the_query(start: Start) -> None:
    with pytest.raises(Rejected, match='no route "refused"'):
        start(route="refused").latestOffset(start(route="refused").initialOffset())


def test_a_directory_of_something_else(start: Start, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "0.journal").write_bytes(b"x" * 5000)
    reader = start(route="live")
    with pytest.raises(JournalError, match=r"0\.journal"):
        reader.latestOffset(reader.initialOffset())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"uri": "jmux+tcp://h:1"}, "option uri must be an RSocket address"),
        ({"replays": "true"}, "option replays requires journalDir"),
        ({"journalBytes": "7"}, "option journalBytes requires journalDir"),
        ({"framing": "lines"}, "option framing requires journalDir"),
        ({"verb": "channel"}, "option verb requires journalDir"),
        ({"session": "f"}, "option session requires journalDir"),
        ({"uri": "nats://h/s", "authFile": "f"}, "option authFile is not for JetStream streams"),
        ({"journalListen": "tcp://h:0"}, "option journalListen requires journalDir"),
        ({"journalDir": " "}, "option journalDir is empty"),
        ({"journalDir": "j", "framing": "words"}, "option framing must be"),
        ({"journalDir": "j", "journalListen": "jmux+tcp://h:0"}, "option journalListen must be an RSocket address"),
    ],
)
def test_what_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        Options.parse({"uri": "tcp://h:1"} | given)


def test_a_session_is_read_through_the_relay(start: Start, tmp_path: Path) -> None:
    sessions = pytest.importorskip("afflux.sessions")
    pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')
    file, router = tmp_path / "squares.lstr", afflux.Router()
    file.write_text("""
        channel squares = recv uint -> choose | more | end
        channel more = send uint -> choose | more | end
    """)

    @router.session(sessions.load(file)["squares"])
    async def squares(chan: Any) -> None:
        count, chan = await chan.recv()
        await chan.loop().send_each(number * number for number in range(count))
        chan = await chan.choose(2)
        await chan.end()

    with beside(listening(router, "limit+tcp://127.0.0.1:0")) as uri:
        given = {"uri": uri, "requestData": "100", "session": str(file)}
        with pytest.raises(OptionError, match=r"option route must be a channel of .*: squares, more"):
            plan(start(**given), 1)
        _, items = plan(start(**given, route="squares"), 100)
    assert items == [b"%d" % (number * number) for number in range(100)]


def test_bytes_need_a_framing(start: Start) -> None:
    reader = start(uri="jmux+tcp://127.0.0.1:1")
    with pytest.raises(ValueError, match="choose its framing"):
        reader.latestOffset(reader.initialOffset())


@pytest.mark.spark
def test_a_driver_is_killed_with_its_relay_and_nothing_is_lost(spark: Any, tmp_path: Path) -> None:
    """SIGKILL of the driver's Python and JVM, and so of the reader with its relay. Another driver continues, is
    stopped, and started again."""
    data = asked(count=2000, open=True, every_ms=5)
    with running(tmp_path / "journals") as uri:
        command = [sys.executable, "-m", "tests.spark.embedded", uri, data, str(tmp_path)]
        with subprocess.Popen(
            command, cwd=HERE.parents[1], stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as driver:
            assert driver.stdout is not None
            rows = [int(driver.stdout.readline()) for _ in range(2)]
            os.killpg(driver.pid, signal.SIGKILL)
        assert rows[1] > rows[0] > 0
        for _ in range(2):
            query = writing(spark, uri, data, str(tmp_path))
            until(query, lambda progress: progress["numInputRows"])
            query.stop()
    found = spark.read.parquet(str(tmp_path / "table")).orderBy("offset").select("offset", "data").collect()
    assert [(row.offset, bytes(row.data)) for row in found] == [(n, item(None, n, 16)) for n in range(len(found))]
    assert len(found) > 2000
