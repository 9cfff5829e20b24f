"""Where rsocket-java comes from: a class path that is named, or Maven; and what is said where there is neither."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest
from interop.__main__ import main
from interop.cases import CASES
from interop.known import absent, known
from interop.peers import PEERS
from interop.report import page
from interop.runner import ROLES, TRANSPORTS, Result, Results

from interop import rsocket_java

JAVAC = pytest.mark.skipif(shutil.which("javac") is None, reason="needs javac: install a JDK, 11 or newer")


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing that was found out before counts, and nothing is left for later."""
    monkeypatch.setattr(rsocket_java, "CLASSES", tmp_path / "build")
    monkeypatch.delenv(rsocket_java.JARS, raising=False)
    for found in (rsocket_java._path, rsocket_java._compiled):
        monkeypatch.setattr(rsocket_java, found.__name__, found.__wrapped__)


def maven(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> Path:
    """A Maven that writes down how it was called, then does this with ``out``, the file for the class path."""
    tools = folder / "tools"
    tools.mkdir()
    called = folder / "called"
    for tool in ("java", "javac"):
        (tools / tool).write_text("#!/bin/sh\n")
    (tools / "mvn").write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"open({str(called)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "out = sys.argv[-1].removeprefix('-Dmdep.outputFile=')\n" + script
    )
    for tool in tools.iterdir():
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tools))
    return called


def test_without_a_jdk_the_reason_states_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert rsocket_java.why_not() == "java not found: install a JDK, 11 or newer (Debian: default-jdk-headless)"


def test_maven_is_asked_once_for_what_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jar = tmp_path / "rsocket-core-1.1.5.jar"
    jar.touch()
    called = maven(monkeypatch, tmp_path, f"open(out, 'w').write({str(jar)!r})\n")
    assert rsocket_java._path("") == (str(jar), None)
    assert rsocket_java._path("") == (str(jar), None)
    (line,) = called.read_text().splitlines()
    assert "--offline" in line
    jar.unlink()  # what was kept is of no use without the jars
    assert rsocket_java._path("") == (str(jar), None)
    assert len(called.read_text().splitlines()) == 2


def test_a_refusal_of_maven_is_remembered_for_an_hour(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called = maven(monkeypatch, tmp_path, "sys.exit(1)\n")
    reason = rsocket_java.why_not()
    assert reason is not None
    assert reason.startswith("Maven cannot resolve interop/java/pom.xml: is its registry reachable?")
    assert rsocket_java.JARS in reason
    assert rsocket_java.why_not() == reason
    assert ["--offline" in line for line in called.read_text().splitlines()] == [True, False]
    mark = tmp_path / "build" / "maven.json"
    said = json.loads(mark.read_text())
    mark.write_text(json.dumps(said | {"at": said["at"] - 3601}))
    assert rsocket_java.why_not() == reason
    assert len(called.read_text().splitlines()) == 4


def test_without_maven_the_reason_names_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maven(monkeypatch, tmp_path, "")
    (tmp_path / "tools" / "mvn").unlink()
    reason = rsocket_java.why_not()
    assert reason is not None
    assert rsocket_java.JARS in reason
    assert "install Maven" in reason


@JAVAC
def test_jars_of_something_else_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(rsocket_java.JARS, str(tmp_path / "none.jar"))
    reason = rsocket_java.why_not()
    assert reason is not None
    assert reason.startswith(f"javac fails with the jars of {rsocket_java.JARS} (package io.")
    assert [path.name for path in (tmp_path / "build").iterdir()] == []


def test_the_version_is_that_of_the_jar_or_of_the_pom(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", rsocket_java.version())
    monkeypatch.setenv(rsocket_java.JARS, os.pathsep.join(("/x/netty-common-4.1.0.jar", "/x/rsocket-core-1.1.4.jar")))
    assert rsocket_java.version() == "1.1.4"
    monkeypatch.setenv(rsocket_java.JARS, "/x/classes")
    assert rsocket_java.version().startswith("not named by its jars")


def test_the_pom_names_no_registry() -> None:
    pom = (rsocket_java.HOME / "pom.xml").read_text()
    assert re.findall(r"[a-z]+://[^\"]+", pom) == ["http://maven.apache.org/POM/4.0.0"]  # the name of its language
    assert "repositor" not in pom


def test_a_run_without_it_is_a_good_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    out = tmp_path / "page.md"
    assert main(["--peer", "rsocket-java", "--case", "fire.data", "--out", str(out)]) == 0
    text = out.read_text()
    assert "Not run: rsocket-java 1.1. Java not found: install a JDK" in text
    assert "rsocket-java client" not in text


def test_the_page_of_a_run_without_it_shows_the_others() -> None:
    results = Results(away={"rsocket-java": "there is no java here"})
    for peer in PEERS:
        if peer not in results.away:
            for role in ROLES:
                for transport in TRANSPORTS:
                    for case in CASES:
                        key = (peer, role, transport, case.name)
                        why, fault = absent(*key), known(*key)
                        results.results[key] = Result(fault and "as declared", why.why if why else None)
    rows = [line for line in page(results).splitlines() if line.startswith("| echo | data and metadata")]
    assert len(rows) == 1
    assert rows[0].count(" | ") == 2 * (len(PEERS) - 1) + 1
