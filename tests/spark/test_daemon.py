"""Spark's daemon of Python workers: no traceback of a worker that its task no longer needs; other errors have one."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the daemon is of Spark")

from afflux.spark.daemon import report


@pytest.mark.parametrize("module", ["afflux.spark.daemon", "pyspark.daemon"])
def test_a_worker_that_is_no_longer_needed_ends_without_a_word(module: str, tmp_path: Path) -> None:
    """Spark's own daemon shows what is left out."""
    env = os.environ | {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(tmp_path),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    command = [sys.executable, "-m", module, "pyspark.worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as daemon:
        assert daemon.stdin and daemon.stdout and daemon.stderr
        (size,) = struct.unpack(">i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(daemon.stdout.read(size).decode())
            (worker,) = struct.unpack(">i", link.recv(4, socket.MSG_WAITALL))
            ended = os.pidfd_open(worker)
        select.select([ended], [], [])
        os.close(ended)
        daemon.stdin.close()
        told = daemon.stderr.read().decode()
    assert (
        told == "" if module.startswith("afflux") else told.rstrip().endswith("BrokenPipeError: [Errno 32] Broken pipe")
    )


def test_other_errors_have_their_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (BrokenPipeError(), ConnectionResetError(), ValueError("wrong")):
        try:
            raise error
        except Exception:
            report()
    told = capsys.readouterr().err
    assert told.count("Traceback") == 1 and told.endswith("ValueError: wrong\n")
