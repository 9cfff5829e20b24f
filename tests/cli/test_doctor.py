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
from afflux.cli import doctor
from tests.cli.running import afflux

ROOT = Path(__file__).resolve().parent.parent.parent


def looked() -> dict[str, doctor.Finding]:
    return {finding.name: finding for finding in doctor.findings()}


def test_it_finds_what_is_installed() -> None:
    found = looked()
    assert found["afflux"].version == package.__version__
    assert found["typer"].version == importlib.metadata.version("typer")
    assert found["typer"].remedy is None


def test_it_tells_how_to_get_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", (("no-such-package", "fast", "speed"),))
    finding = looked()["no-such-package"]
    assert (finding.version, finding.remedy) == (None, 'pip install "afflux[fast]"')


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "17.0.15"),
        ('openjdk version "25" 2025-09-16', "25"),
        ('java version "1.8.0_402"', None),
        ("not java at all", None),
    ],
)
def test_java_counts_from_17_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: str | None
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    found = looked()["java"]
    assert found.version == version
    assert (found.remedy is None) == (version is not None)


def test_every_package_is_in_the_extra_it_names() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, extra, _ in doctor.PACKAGES:
        assert name in [re.split(r"[^\w-]", requirement)[0] for requirement in extras[extra]]


def test_its_outputs_say_the_same() -> None:
    lines = [json.loads(line) for line in afflux("doctor").stdout.splitlines()]
    assert json.loads(afflux("doctor -o json").stdout) == lines
    table = afflux("doctor -o table").stdout
    assert all(line["name"] in table for line in lines)
    assert afflux("doctor -o csv").returncode == 2


def test_it_works_without_anything_on_path() -> None:
    bare = {"PATH": "/nowhere", "JAVA_HOME": "", "HOME": os.environ.get("HOME", "/")}
    assert afflux("doctor", env=bare).returncode == 0
