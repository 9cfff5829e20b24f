"""Shell completion: typer's script asks ``afflux`` for commands, options and values. Real shells run it."""

from __future__ import annotations

import os
import shlex
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
from tests.cli.running import here
from tests.cli.terminal import Terminal


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


def completing(folder: Path) -> dict[str, str]:
    """Put a command ``afflux`` into a folder that only completes, and prints the words with which it is run; return the
    environment with it."""
    command = folder / "afflux"
    command.write_text(
        f"""#!/bin/sh
[ "$_AFFLUX_COMPLETE" ] || {{ echo "ran: $*"; exit; }}
exec {sys.executable} -m afflux
"""
    )
    command.chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}


LINES = [
    ("do", "doctor"),
    ("serve jmux+tc", "serve jmux+tcp://"),
    ("decode captu", "decode captured.pcapng"),
]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh: apt-get install zsh")
def test_zsh_completes_with_the_script(tmp_path: Path) -> None:
    env = completing(tmp_path)
    (tmp_path / "captured.pcapng").touch()
    with Terminal(["-f"], program=["zsh"], env=env, columns=200) as zsh:
        zsh.type(f"cd {tmp_path}; autoload -U compinit; compinit -u; PS1='%%' ; setopt no_auto_list\r")
        zsh.type('eval "$(_AFFLUX_COMPLETE=source_zsh afflux)"; echo rea""dy\r')
        zsh.until("ready")
        for typed, ran in LINES:
            zsh.type(f"afflux {typed}\t\r")
            zsh.until(f"ran: {ran}")
        zsh.type("exit\r")
        assert zsh.end()[0] == 0


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh: apt-get install zsh")
def test_the_first_tab_of_a_session_of_zsh_completes(tmp_path: Path) -> None:
    """With the file that ``--install-completion`` writes, which zsh loads at the first Tab."""
    show = f"{shlex.join([sys.executable, '-m', 'afflux', '--show-completion'])}; true"  # zsh stays the parent
    script = subprocess.run(["zsh", "-fc", show], capture_output=True, text=True, timeout=120, check=True).stdout
    env = completing(tmp_path)
    (tmp_path / "_afflux").write_text(script)
    with Terminal(["-f"], program=["zsh"], env=env, columns=200) as zsh:
        zsh.type(f"fpath+={tmp_path}; autoload -Uz compinit; compinit -u -D; PS1='%%'; echo rea''dy\r")
        zsh.until("ready")
        for typed, ran in LINES[:2]:
            zsh.type(f"afflux {typed}\t\r")
            zsh.until(f"ran: {ran}")
        zsh.type("exit\r")
        assert zsh.end()[0] == 0


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_the_shell_is_not_chosen(option: str) -> None:
    ran = here(option, "zsh")
    assert ran == (2, "", f"afflux: {option} takes no value: it is for the shell that runs it\n")


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish: apt-get install fish")
def test_fish_completes_with_the_script(tmp_path: Path) -> None:
    env = completing(tmp_path)
    (tmp_path / "captured.pcapng").touch()
    asked = "; ".join(f'complete -C "afflux {typed}"' for typed, _ in LINES)
    script = f"_AFFLUX_COMPLETE=source_fish afflux | source; {asked}"
    ran = subprocess.run(
        ["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=120, env=env, cwd=tmp_path
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    offered = [line.partition("\t")[0] for line in ran.stdout.splitlines() if line]
    assert offered == [completed.split()[-1] for _, completed in LINES]


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
    env = completing(tmp_path)
    script = f"""
        eval "$(_AFFLUX_COMPLETE=source_bash afflux)"
        COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1}
        complete=$(complete -p afflux)
        complete=${{complete#*-F }}
        ${{complete%% *}} afflux
        echo "${{COMPREPLY[@]}}"
    """
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, env=env)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{replies}\n", "")


def test_the_help_offers_to_install_it() -> None:
    with Process(["--help"], stdout=subprocess.PIPE, text=True) as process:
        assert "--install-completion" in process.communicate(timeout=60)[0]


def test_a_shell_without_completion_is_told(tmp_path: Path) -> None:
    home = os.environ | {"HOME": str(tmp_path)}
    line = f"{shlex.quote(sys.executable)} -m afflux --install-completion; echo $?"
    ran = subprocess.run(["sh", "-c", line], env=home, capture_output=True, text=True, check=False, timeout=60)
    assert ran.stdout == "2\n" and ran.stderr.startswith("afflux: this shell is ")
    assert ran.stderr.endswith("; completion is for bash, zsh, fish, powershell, pwsh\n")
    assert not list(tmp_path.iterdir())
