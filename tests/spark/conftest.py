"""A server process and one Spark session for all tests of this folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"A JVM that starts sooner and runs slower: tests mostly start."


@contextmanager
def running(directory: Path, *more: str) -> Iterator[str]:
    """A server whose journals are in ``directory``; yields its address. ``more`` are other arguments of serving.py."""
    command = [sys.executable, str(HERE / "serving.py"), str(directory), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.fixture(scope="session")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that lives as long as the tests."""
    with running(tmp_path_factory.mktemp("journals")) as address:
        yield address


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session; a task may fail three times."""
    from afflux.spark.session import build

    session = build("afflux-tests", "local[2,4]", **QUICK)
    yield session
    session.stop()


def asked(**asked: object) -> str:
    """The data of a request for numbered items (serving.Asked)."""
    return json.dumps(asked)
