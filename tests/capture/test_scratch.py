"""Directories for what is being made: those of killed processes are removed, and no others."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from afflux.capture.scratch import replace_directory, scratch, sweep


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


class Killed(BaseException):
    pass


@pytest.mark.parametrize("returns", [True, False])
def test_where_directories_cannot_change_places_the_old_one_returns(
    returns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS, for example. An interruption between both moves, and a kill, after which the next run finds the old one
    in the directory that was left."""
    place, move = tmp_path / "out", Path.rename
    place.mkdir()
    (place / "old").touch()
    monkeypatch.setattr("afflux.capture.scratch._exchanged", lambda made, place: False)

    def rename(path: Path, target: Path) -> Path:
        if path.name == "final" and place.exists() is False:
            raise Killed
        if path.name == "final.old" and not returns:
            raise OSError
        return move(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    left = tmp_path / ".out.tmp-left"
    (left / "final").mkdir(parents=True)
    (left / ".lock").touch()
    with pytest.raises(Killed):
        replace_directory(left / "final", place)
    monkeypatch.undo()
    assert place.exists() is returns
    sweep(tmp_path, ".out.tmp-", place)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["out", "out/old"]
