"""What happens before a command is chosen: the version, its speed, unknown and planned commands, a missing extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import afflux as package
from afflux.cli import COMMANDS, PLANNED
from tests.cli.running import COMMAND, afflux


def test_the_version() -> None:
    ran = afflux("--version")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"afflux {package.__version__}\n", "")


def test_the_version_answers_at_once() -> None:
    """It is measured in CPU time, which other processes of the machine do not change much."""

    def seconds() -> float:
        process = subprocess.Popen([*COMMAND, "--version"], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime

    assert min(seconds() for _ in range(7)) < 0.15


def test_the_version_loads_nothing_heavy() -> None:
    program = "import sys; from afflux.cli import main; main(['--version']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert {"typer", "rich", "pyspark", "numpy", "pyarrow", "asyncio"} & set(loaded) == set()


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_help_lists_the_commands_there_are(arguments: list[str]) -> None:
    told = afflux(arguments)
    assert all(f"  {command} " in told.stdout + told.stderr for command in COMMANDS)
    assert not any(f"  {command} " in told.stdout + told.stderr for command in PLANNED)
    assert told.stderr == "" or not arguments


@pytest.mark.parametrize("command", PLANNED)
def test_a_planned_command_reports_it(command: str) -> None:
    ran = afflux([command, "whatever"])
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert f"{command} is not built yet in 0.1" in ran.stderr


def test_an_unknown_command_gets_the_nearest_name() -> None:
    ran = afflux("requst tcp://127.0.0.1:7000")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "afflux: unknown command 'requst'; did you mean request?\n"


@pytest.mark.parametrize("name", ["zzz", "nope"])
def test_a_command_like_no_other_gets_the_list(name: str) -> None:
    named = (
        "serve, request, relay, bench, decode, inspect, capture, wireshark, check, demo, journal, spark, shell, doctor"
    )
    assert afflux(name).stderr == f"afflux: unknown command {name!r}; available commands: {named}\n"


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_its_name_is_printed(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from afflux.cli import main; sys.exit(main(['decode']))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert (
        ran.stderr
        == 'afflux: the command line needs the extra "cli": pip install "afflux[cli]"; afflux doctor shows more\n'
    )


def test_commands_work_with_the_extra_cli_alone(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(bytes.fromhex("0000060000000004 0000"))
    lines = [*([command, "--help"] for command in COMMANDS), ["decode", str(tmp_path / "dump")], ["wireshark"]]
    program = f"""
import sys
for package in ("numpy", "pyarrow", "numba", "pandas", "pyspark", "altair", "lark", "zstandard", "nats"):
    sys.modules[package] = None
from afflux.cli.app import run
print([line for line in {lines!r} if run(line) != 0], file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr.splitlines()[-1] == "[]"


def test_an_unknown_option_is_a_usage_error() -> None:
    ran = afflux("doctor --nope")
    assert ran.returncode == 2
    assert "--nope" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_colour_follows_no_color() -> None:
    green = "\x1b[32m"
    assert green in afflux("doctor -o table", env={"FORCE_COLOR": "1", "TERM": "xterm"}).stdout
    assert green not in afflux("doctor -o table", env={"FORCE_COLOR": "1", "TERM": "xterm", "NO_COLOR": "1"}).stdout
    assert "\x1b" not in afflux("doctor -o table").stdout


@pytest.mark.parametrize(
    ("command", "formats", "refused"),
    [
        ("request tcp://127.0.0.1:1", "text|table|json|ndjson|csv|raw|hex", "yaml"),
        ("bench tcp://127.0.0.1:1", "table|json|ndjson|csv", "raw"),
        ("decode --hex 00", "ndjson|json|table|csv", "hex"),
        ("doctor", "table|json|ndjson", "csv"),
        ("journal .", "table|json|ndjson", "csv"),
        ("check -", "text|json|ndjson", "table"),
    ],
)
def test_the_help_lists_the_formats_that_a_command_has(command: str, formats: str, refused: str) -> None:
    assert f"<{formats}>" in afflux(f"{command.partition(' ')[0]} --help").stdout
    ran = afflux(f"{command} -o {refused}")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert all(name in ran.stderr for name in formats.split("|"))
