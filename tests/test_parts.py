"""``make test``: every test is in a part, and the end names the parts that failed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tools import test as runner


def test_every_test_is_in_one_part() -> None:
    parts = dict(runner.FOLDERS)
    assert parts.pop("repetitive") == parts["inner"]
    # two parts share these folders: one runs the tests with either mark, the other those without
    assert [marks[-1] for marks in runner.MARKED.values()] == [
        "not repetitive and not hypothesis and not long",
        "(repetitive or hypothesis) and not long",
    ]
    folders = [folder for folders in parts.values() for folder in folders]
    assert len(folders) == len(set(folders)) and all((runner.ROOT / folder).exists() for folder in folders)
    named = [runner.ROOT / path for path in [*folders, *runner.rest()]]
    for path in sorted(runner.ROOT.glob("tests/**/test_*.py")):
        found = sorted(
            (part for part in named if part == path or part in path.parents), key=lambda part: len(part.parts)
        )
        assert len(found) == 1 or found[1:] == [path], path


def test_a_part_that_fails_is_named_at_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def part(text: str, code: int) -> list[list[str]]:
        return [[sys.executable, "-c", f"print({text!r}, 'more'); raise SystemExit({code})"]]

    good, bad = part("a good part", 0), part("a bad part", 3) + part("what is left of it", 0)
    monkeypatch.setattr(runner, "PARTS", {"good": good, "bad": bad})
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "LOGS", tmp_path / "logs")
    assert runner.main(["good"]) == 0
    assert capfd.readouterr().out.endswith("== all passed\n")
    assert runner.main([]) == 1
    shown = capfd.readouterr().out
    assert shown.endswith("== failed: bad\n")
    assert "a good part more\n" in shown and "a bad part more\n" in shown and "left of it" not in shown
    assert runner.main(["none"]) == 2


def test_the_processes_of_a_part_write_bytecode(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = "import sys; print('without bytecode:', sys.dont_write_bytecode)"
    monkeypatch.setattr(runner, "PARTS", {"one": [[sys.executable, "-c", shown]]})
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "LOGS", tmp_path / "logs")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert runner.main(["one"]) == 0
    assert "without bytecode: False\n" in capfd.readouterr().out


def test_a_quick_part_that_fails_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert {*runner.FIRST} < {*runner.PARTS}
    program = "print('the pages are old'); raise SystemExit(1)"
    slow = [[sys.executable, "-c", "print('a slow part')"]]
    monkeypatch.setattr(runner, "PARTS", {"slow": slow, "lint": [[sys.executable, "-c", program]]})
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "LOGS", tmp_path / "logs")
    assert runner.main([]) == 1
    shown = capfd.readouterr().out
    assert "the pages are old\n" in shown and "a slow part" not in shown
    assert shown.endswith("s  FAILED\n== failed: lint\n") and "not started, because of the failure: slow\n" in shown
    assert runner.main(["slow"]) == 0
