"""A server process and one Spark session for all tests of this folder."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import afflux
from afflux.testing import Proxy
from tests.spark.starting import quick_start

HERE = Path(__file__).parent
FORKING = HERE / "forking.py"
PATIENCE_S = 300
QUICK = {
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # A new Python worker gives the JVM 15 s to answer, which may be too few on a busy machine.
    "spark.python.authenticate.socketTimeout": "100s",
    "spark.python.daemon.module": "tests.spark.daemon",
    "spark.sql.streaming.noDataProgressEventInterval": "100",
}
"Settings of all sessions."


def session(app: str, master: str, **conf: str) -> Any:
    """A session for tests."""
    from afflux.spark.session import build

    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick_start().items():
            patch.setenv(name, value)
        return build(app, master, **QUICK | conf)


def until(query: Any, done: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Wait for a progress of which something holds, and return it. Raises the error of a query that fails."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for progress in query.recentProgress:
            if done(progress):
                return dict(progress)
        assert not query.awaitTermination(0.05), "the query has ended"
    raise AssertionError([dict(progress)["sources"] for progress in query.recentProgress][-3:])


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


@contextmanager
def beside(serving: AbstractAsyncContextManager[str]) -> Iterator[str]:
    """Enter a context in a thread of its own; yields what it yields."""
    loop, over = asyncio.new_event_loop(), asyncio.Event()
    entered: Future[str] = Future()

    async def live() -> None:
        async with serving as value:
            entered.set_result(value)
            await over.wait()

    thread = Thread(target=loop.run_until_complete, args=(live(),))
    thread.start()
    try:
        yield entered.result(30)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@asynccontextmanager
async def listening(handler: Any, uri: str = "tcp://127.0.0.1:0", **options: Any) -> AsyncIterator[str]:
    """A server, for ``beside``; yields its address."""
    async with afflux.serve(uri, handler, **options) as server:
        yield server.uri


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

    def until_ended(self) -> None:
        """Wait until an end of the last connection has closed it."""
        self._run(self.proxy.relays[-1].ended.wait())

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


@contextmanager
def forking(directory: Path) -> Iterator[str]:
    """A Python for a session, which forks readers (forking.py)."""
    python, path = directory / "python", directory / "socket"
    python.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-IS", str(FORKING), str(path)])} "$@"\n')
    python.chmod(0o700)
    command = [sys.executable, "-m", "tests.spark.forking", str(path)]
    with subprocess.Popen(command, cwd=HERE.parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield str(python)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session; a task may fail three times. Readers are forked where ``make test`` runs most tests of Spark."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        if "AFFLUX_FORKED_READERS" in os.environ:
            patch.setenv("PYSPARK_PYTHON", stack.enter_context(forking(tmp_path_factory.mktemp("forking"))))
        made = session("afflux-tests", "local[2,4]")
        patch.undo()
        yield made
        made.stop()


def asked(**asked: object) -> str:
    """The data of a request for numbered items (serving.Asked)."""
    return json.dumps(asked)
