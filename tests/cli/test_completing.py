"""Shell completion: typer's script asks ``afflux`` for commands, options and values. A real bash runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from afflux.cli import COMMANDS
from afflux.cli.completing import addresses, protocols
from afflux.cli.output import End, Format
from afflux.protocols.registry import PROTOCOLS
from tests.cli.forking import Process


def completed(line: str, shell: str = "bash") -> set[str]:
    """What the last word of a command line may become."""
    env = os.environ | {
        "_AFFLUX_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    with Process([], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True) as process:
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return set(out.split())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("afflux ", set(COMMANDS)),
        ("afflux re", {"request", "relay"}),
        ("afflux spark ", {"tail", "decode"}),
        ("afflux request --rou", {"--route", "--routes"}),
        ("afflux serve --list", {"--list-routes"}),
        ("afflux shell --his", {"--history"}),
        ("afflux request -o ", set(Format)),
        ("afflux request --end n", set(End)),
        ("afflux bench -o ", {"table", "json", "ndjson", "csv"}),
        ("afflux doctor -o n", {"ndjson"}),
        ("afflux decode --protocol ", {*PROTOCOLS, "auto"}),
        ("afflux request --limit payload_b", {"payload_bytes="}),
        ("afflux decode --framing ", {"length", "none"}),
        ("afflux inspect --protocol js", set()),
        ("afflux request t", {"tcp://", "tls://"}),
        ("afflux serve jmux+t", {"jmux+tcp://", "jmux+tls://"}),
        ("afflux shell un", {"unix://"}),
    ],
)
def test_completion(line: str, words: set[str]) -> None:
    assert completed(line) == words


def test_addresses_have_every_protocol() -> None:
    assert {f"{name}+" for name in PROTOCOLS} <= set(addresses(""))
    assert addresses("rsio+w") == ["rsio+ws://", "rsio+wss://"]
    assert addresses("x") == protocols("x") == []
    assert not [each for each in addresses("") if "mem" in each]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        (["afflux", "do"], "doctor"),
        (["afflux", "request", "tcp", ":", "//127.0.0.1", ":", "7000", "--strea"], "--stream"),
        (["afflux", "request", "tcp", ":", "//127.0.0.1", ":", "7000", "-o", "nd"], "ndjson"),
    ],
)
def test_bash_completes_with_the_script(tmp_path: Path, words: list[str], replies: str) -> None:
    command = tmp_path / "afflux"
    command.write_text(f"#!/bin/sh\nexec {sys.executable} -m afflux\n")
    command.chmod(0o755)
    script = f"""
        eval "$(_AFFLUX_COMPLETE=source_bash afflux)"
        COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1}
        complete=$(complete -p afflux)
        complete=${{complete#*-F }}
        ${{complete%% *}} afflux
        echo "${{COMPREPLY[@]}}"
    """
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, env=env)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{replies}\n", "")


def test_the_help_offers_to_install_it() -> None:
    with Process(["--help"], stdout=subprocess.PIPE, text=True) as process:
        assert "--install-completion" in process.communicate(timeout=60)[0]
