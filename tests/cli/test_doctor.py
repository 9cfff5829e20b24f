"""``afflux doctor``: what it looks for, and what it says when something is missing."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import tomllib
from pathlib import Path

import pytest

import afflux as package
from afflux.cli import doctor, findings
from afflux.core.errors import MissingExtra
from afflux.spark import session
from tests.cli.running import afflux

ROOT = Path(__file__).resolve().parent.parent.parent


def looked() -> dict[str, findings.Finding]:
    return {finding.name: finding for finding in findings.findings()}


def test_it_finds_what_is_installed() -> None:
    found = looked()
    assert found["afflux"].version == package.__version__
    assert found["typer"].version == importlib.metadata.version("typer")
    assert found["typer"].remedy is None


def test_it_prints_which_build_is_in_use() -> None:
    expected = "compiled" if os.environ.get("AFFLUX_EXPECT_COMPILED") else "pure Python"
    assert looked()["build"].version == expected


def test_it_prints_how_to_install_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "PACKAGES", (("no-such-package", "fast", "speed"),))
    finding = looked()["no-such-package"]
    assert (finding.version, finding.remedy) == (None, 'pip install "afflux[fast]"')


def test_it_reports_a_java_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> None:
        raise MissingExtra("Java", "java")

    monkeypatch.setattr(session, "java_home", nowhere)
    finding = looked()["java"]
    assert finding.version is None
    assert 'pip install "afflux[java]"' in (finding.remedy or "")


def test_every_package_is_in_the_extra_it_names() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, extra, _ in findings.PACKAGES:
        assert name in [re.split(r"[^\w-]", requirement)[0] for requirement in extras[extra]]


def test_every_extra_is_in_the_list() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for_users = extras.keys() - {"all", "bench", "docs", "dev", "java"}
    assert for_users == {extra for _, extra, _ in findings.PACKAGES}
    assert "java" in looked()


def test_its_outputs_agree() -> None:
    lines = [json.loads(line) for line in afflux("doctor").stdout.splitlines()]
    assert json.loads(afflux("doctor -o json").stdout) == lines
    table = afflux("doctor -o table").stdout
    assert all(line["name"] in table for line in lines)
    assert afflux("doctor -o csv").returncode == 2


def test_it_works_without_anything_on_path() -> None:
    bare = {"PATH": "/nowhere", "JAVA_HOME": "", "HOME": os.environ.get("HOME", "/")}
    assert afflux("doctor", env=bare).returncode == 0


def test_each_row_fits_on_a_line_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A remedy has a line of its own where the table is wide."""
    java = findings.Finding(name="java", version="17", purpose="Spark; /usr/lib/jvm/java-17-openjdk-amd64", remedy=None)
    widest = findings.Finding(name="vl-convert-python", version="1.9.0.post1", purpose="HTML reports", remedy=None)
    gone = findings.Finding(name="cbor2", version=None, purpose="CBOR", remedy='pip install "afflux[codecs]"')
    doctor._table([java, widest])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["found", "java", "vl-convert-python"]
    assert lines[1].rstrip().endswith("java-17-openjdk-amd64")
    doctor._table([java, widest, gone])
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[-1]) == (5, 'cbor2: pip install "afflux[codecs]"')
    doctor._table([gone])
    assert capsys.readouterr().out.splitlines()[-1].endswith('CBOR     pip install "afflux[codecs]"')
