"""A server process and one Spark session for all tests of this folder."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from afflux.testing import Proxy

HERE = Path(__file__).parent
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"A JVM that starts sooner and runs slower: tests mostly start."


@contextmanager
def running(directory: Path, *more: str, at: str = "") -> Iterator[str]:
    """A server whose journals are in ``directory``; yields its address, ``at`` if one is given. ``more`` are other
    arguments of serving.py."""
    command = [sys.executable, str(HERE / "serving.py"), str(directory), at.rpartition(":")[2] or "0", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


class Link:
    """A proxy in a thread of its own, for blocking clients and for Spark."""

    def __init__(self, server: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever)
        self._thread.start()
        self.proxy = Proxy(server)
        self._run(self.proxy.__aenter__())
        self.uri = self.proxy.uri

    def do(self, work: Callable[[], None]) -> None:
        """Run a method of the proxy in its thread."""

        async def call() -> None:
            work()

        self._run(call())

    def close(self) -> None:
        self._run(self.proxy.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


@pytest.fixture
def link(uri: str) -> Iterator[Link]:
    """A link to the server that can be cut, held and counted."""
    made = Link(uri)
    yield made
    made.close()


@pytest.fixture(scope="session")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that lives as long as the tests."""
    with running(tmp_path_factory.mktemp("journals")) as address:
        yield address


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session; a task may fail three times."""
    from afflux.spark.session import build

    session = build("afflux-tests", "local[2,4]", **QUICK, **{"spark.sql.streaming.noDataProgressEventInterval": "100"})
    yield session
    session.stop()


def asked(**asked: object) -> str:
    """The data of a request for numbered items (serving.Asked)."""
    return json.dumps(asked)
