"""A handful of cases with every peer, in both roles, over both transports: what `make interop` does at length."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from interop.cases import CASES
from interop.peers import HERE, PEERS, _node
from interop.runner import ROLES, TRANSPORTS, Plan, run

SMOKE = [case for case in CASES if case.smoke]


def quiet(line: str) -> None:
    """Progress is for terminals."""


@pytest.mark.parametrize("name", PEERS)
def test_the_peer_and_afflux_understand_each_other(name: str) -> None:
    if reason := PEERS[name].why_not():
        pytest.skip(reason)
    results = asyncio.run(run(Plan(peers=[PEERS[name]], cases=SMOKE), quiet))
    assert results.unexpected() == []
    assert len(results.results) == len(SMOKE) * len(ROLES) * len(TRANSPORTS)
    done = [result for result in results.results.values() if result.absent is None]
    assert sum(result.failure is None for result in done) > 0.8 * len(done)


def test_without_node_the_reason_states_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert _node(tmp_path) == "node not found: install Node.js 18 or newer (Debian: apt-get install nodejs npm)"
    assert PEERS["rsocket-py"].why_not() is None


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: install Node.js 18 or newer")
def test_when_npm_cannot_install_the_reason_states_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (".npmrc", "package.json", "package-lock.json", "js0/package.json", "js1/package.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(HERE / name, tmp_path / name)
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    reason = _node(tmp_path)
    assert reason is not None
    assert reason.startswith("npm ci in interop/ failed (npm error")
    assert reason.endswith("is the npm registry reachable?")
