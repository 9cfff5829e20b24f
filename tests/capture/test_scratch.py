"""Directories for what is being made: those of killed processes are removed, and no others."""

from __future__ import annotations

import threading
from pathlib import Path

from afflux.capture.scratch import scratch, sweep


def test_one_in_use_is_not_swept(tmp_path: Path) -> None:
    over = threading.Event()

    def sweeping() -> None:
        while not over.is_set():
            sweep(tmp_path, ".tmp-")

    threads = [threading.Thread(target=sweeping) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(300):
            with scratch(tmp_path, ".tmp-") as path:
                (path / "made").write_text(str(number))
                assert (path / "made").read_text() == str(number)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert list(tmp_path.iterdir()) == []


def test_one_that_was_left_is_swept(tmp_path: Path) -> None:
    left = tmp_path / ".tmp-left"
    left.mkdir()
    (left / ".lock").touch()
    (left / "part").touch()
    with scratch(tmp_path, ".tmp-") as path:
        sweep(tmp_path, ".tmp-")
        assert list(tmp_path.iterdir()) == [path]
