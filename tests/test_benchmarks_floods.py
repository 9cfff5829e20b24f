"""What floods cost is measured of real processes; what is told of it is what was measured. No figure is judged here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import flood_ends, floods
from benchmarks.flood_ends import FLOODS
from benchmarks.floods import figures_of, main, report, run

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


def one(growth: float, p99: float) -> dict[str, Any]:
    """Made-up figures of a flood."""
    times = {"n": 10, "p50_ms": 0.2, "p99_ms": p99, "worst_ms": p99}
    rss = {"rss_before_mib": 40.0, "rss_peak_mib": 50.0, "rss_after_mib": 41.0}
    return {"wire": "jmux", "written_mib": 1.0, "connections": 4, **rss} | {
        "growth_per_attacker_mib": growth,
        "alone": times,
        "flooded": times,
    }


@pytest.mark.parametrize("wire", ["rsocket", "reactivesocket", "jmux", "rsio"])
def test_a_flood_on_each_wire(wire: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "floods.json"
    name = {"rsocket": "pings", "reactivesocket": "old-echoes", "jmux": "jmux-pings", "rsio": "rsio"}[wire]
    assert main(["--only", name, "--seconds", "0.3", "--attackers", "2", "--out", str(out)]) == 0
    figures = json.loads(out.read_text())
    (found,) = figures["floods"].values()
    assert found["wire"] == wire
    assert found["connections"] >= 2
    assert found["rss_peak_mib"] >= found["rss_before_mib"] > 0
    assert found["flooded"]["n"] > 0
    assert figures["failed"] == {}
    assert name in capsys.readouterr().out


def test_the_worst_is_reported() -> None:
    figures = figures_of({"a": one(1.0, 9.0), "b": one(20.0, 3.0)}, 1.0, 4)
    assert figures["worst"] == {"flood": "b", "mib_per_attacker": 20.0}
    assert figures["slowest"] == {"flood": "a", "p99_ms": 9.0}
    assert figures["above_bar"] == ["b"]
    assert "Worst: b, 20.0 MiB an attacker" in report(figures)


def test_a_server_that_does_not_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = flood_ends.Flood("nonsense", "no such wire", lambda: iter(()))
    monkeypatch.setitem(FLOODS, "wrong", wrong)
    found = run(["wrong"], 0.1, 1, lambda _: None)
    assert found["floods"] == {}
    assert "unknown protocol" in found["failed"]["wrong"]


def test_a_part_is_not_published(capsys: pytest.CaptureFixture[str]) -> None:
    before = floods.RESULTS.read_bytes() if floods.RESULTS.exists() else None
    assert main(["--only", "resume", "--seconds", "0.2", "--attackers", "1"]) == 0
    assert "resume" in capsys.readouterr().out
    assert (floods.RESULTS.read_bytes() if floods.RESULTS.exists() else None) == before


def test_every_wire_is_flooded() -> None:
    assert len(FLOODS) >= 16
    assert {flood.wire for flood in FLOODS.values()} == {"rsocket", "reactivesocket", "jmux", "rsio"}
