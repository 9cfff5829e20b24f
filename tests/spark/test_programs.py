"""The programs on the pages about Spark run, one page after another, and print what the pages say."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Server
from tests.examples import short
from tests.pages import Reader, blurred
from tests.test_docs import MADE, PROGRAMS, SESSIONS, Program

PAGES: dict[str, list[Program]] = {}
for each in PROGRAMS:
    if each.needs == "spark":
        PAGES.setdefault(each.name.partition(":")[0], []).append(each)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The servers of the pages: their real addresses, by those that the pages show."""
    journals, table = (str(tmp_path_factory.mktemp(name)) for name in ("journals", "table"))
    with Server("--demo", "--journal", journals) as source, Server("--sink", table) as sink:
        shown = {f"tcp://127.0.0.1:{port}": source.uri for port in (7000, 7001)}
        yield shown | {"tcp://127.0.0.1:7002": sink.uri}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("page", short(PAGES, smoke=[page for page in PAGES if page != MADE]))
def test_the_programs_of_a_page_run(page: str, spark: Any, servers: dict[str, str], tmp_path: Path) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    names: dict[str, Any] = {"spark": spark}
    if page == MADE:
        with Reader(tmp_path) as reader:
            for block in SESSIONS[page]:
                reader.follow(block)
    try:
        for program in PAGES[page]:
            code = program.code.replace('"out/', f'"{tmp_path}/out/')  # the JVM is in another directory
            for shown, address in servers.items():
                code = code.replace(shown, address)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, program.name, "exec"), names)
            if program.prints is not None:
                seen = table_of if program.differ else str
                assert seen(printed.getvalue()) == seen(program.prints)
        for query in spark.streams.active:  # a program that does not end by itself
            while not query.lastProgress:
                query.awaitTermination(1)
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
        spark.sql("DROP TABLE IF EXISTS flights")


def table_of(text: str) -> str:
    """A table that was printed, without its numbers and the widths of its columns."""
    return re.sub(r" *\| *", "|", re.sub(r"-+", "-", blurred(text)))


def test_there_are_pages() -> None:
    assert sorted(PAGES) == [MADE, "docs/how-to/jetstream.md", "docs/how-to/spark-pipelines.md", "docs/spark.md"]


def test_only_numbers_and_widths_are_left_out() -> None:
    assert table_of("|a |  1.5|") == table_of("|a| 10|") != table_of("|b| 10|")
