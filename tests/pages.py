"""Pages as a reader follows them: files are saved under their titles, commands are typed in order. No test lives here.

1. A block ``python title="NAME"`` or ``text title="NAME"`` is a file. A later one of the same name replaces it.
2. A block ``console`` has commands, behind ``$ ``, and what a terminal shows then. They run in one folder with the
   files of the page, which it may call ``/srv``. ``\\`` at the end of a command's line continues it.
3. A command that answers ``ready ADDRESS`` (uvicorn: ``running on``) is a server: it stays until the page ends, or
   another one listens at the same address. It gets a free port; wherever the page has its own, the free one is meant.
   ``…`` in a line before stands for what it says until it is ready.
   nats-server is one as well, whatever it shows.
4. ``…`` alone stands for whatever is shown. ``<!-- numbers differ -->`` before a block: numbers and bars are those
   of one run, any others will do.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.cli.forking import Process

__all__ = ["Block", "Reader", "blocks_of", "blurred"]

PATIENCE = 60.0
ANYTHING = "…\n"
"What a page shows of a command that says much."

_TOOLS = {
    "python": "-W error",
    "afflux": "-m afflux",
    "pytest": "-m pytest -p no:cacheprovider -p no:asyncio",
    "uvicorn": "-m uvicorn",
}
"""Commands of the Python that runs the tests. ``afflux`` and ``python FILE`` are forked (``tests/cli/forking.py``) if
they need no shell."""
_SHELL = re.compile(r"[|&;<>()$`*?~]")

_BLOCK = re.compile(
    r"(?P<differ>^<!-- numbers differ -->\n+)?"
    r"^```(?:console|(?:python|text) title=\"(?P<title>[^\"]+)\")\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n(?P<shown>(?:(?!\$ ).*\n)*)", re.MULTILINE)
_READY = re.compile(r"(?:^ready |running on )\S+", re.MULTILINE)
_PORT = re.compile(r"(?:(?<=127\.0\.0\.1:)|(?<=--port ))\d+\b")
_PLACE = re.compile(r"(?:(?<=127\.0\.0\.1:)|(?<=--port ))7\d\d\d\b")


class Block(NamedTuple):
    """A file or a session of a page."""

    title: str | None
    "The file's name; None for a session at the terminal."
    text: str
    differ: bool
    "Numbers are those of one run."


def blocks_of(text: str) -> list[Block]:
    """The files and the sessions of a page, in order."""
    return [Block(found["title"], found["text"], found["differ"] is not None) for found in _BLOCK.finditer(text)]


class Reader:
    """Somebody who does in ``folder`` what a page says. Leaving ``with`` stops the servers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, str] = {}
        self._servers: dict[str, Process | subprocess.Popen[str]] = {}
        "By the port that the page gives them."
        self._ports: dict[str, str] = {}
        "The real ones, by those of the page."
        tools = folder / "bin"
        tools.mkdir()
        for name, words in _TOOLS.items():
            (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            (tools / name).chmod(0o755)
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        self._env = os.environ | {"PATH": path, "NO_COLOR": "1", "COLUMNS": "80", "PYTHONDONTWRITEBYTECODE": "1"}

    def follow(self, block: Block) -> None:
        """Save a file, or type what a session shows and compare."""
        if block.title is not None:
            self._files[block.title] = block.text
            return
        for found in _COMMAND.finditer(block.text):
            command, shown = found["command"], found["shown"]
            if command.startswith("nats-server "):
                self._serve_nats(command)
                continue
            if _READY.search(shown):
                self._serve(command, shown)
                continue
            self._save(self._ports)
            wanted, got = self._real(shown, self._ports), self._typed(self._real(command, self._ports))
            same = blurred(wanted) == blurred(got) if block.differ else wanted == got
            if not same and shown != ANYTHING:
                raise AssertionError(f"$ {command}\nshows\n{got}\ninstead of\n{wanted}")

    def _real(self, text: str, ports: dict[str, str]) -> str:
        text = text.replace("/srv/", f"{self._folder}/")
        return _PLACE.sub(lambda found: ports.get(found[0], found[0]), text)

    def _save(self, ports: dict[str, str]) -> None:
        for name, text in self._files.items():
            (self._folder / name).write_text(self._real(text, ports), encoding="utf-8")

    def _serve(self, command: str, shown: str) -> None:
        port = _PLACE.search(shown)
        name = shown if port is None else port[0]
        if (before := self._servers.pop(name, None)) is not None:
            _stop(before)
        free = self._ports if port is None else self._ports | {port[0]: "0"}
        self._save(free)
        process = self._start(self._real(command, free), subprocess.PIPE, "exec ")
        self._servers[name] = process
        lines: list[str] = []
        for line in process.stdout or ():
            lines.append(line)
            if _READY.search(line):
                break
        ready = "".join(lines[-1:] if shown.startswith(ANYTHING) else lines)
        if port is not None and (found := _PORT.search(ready)) is not None:
            self._ports[port[0]] = found[0]
        if ready != self._real(shown.removeprefix(ANYTHING), self._ports):
            raise AssertionError(f"$ {command}\nshows\n{ready}instead of\n{shown}")

    def _serve_nats(self, command: str) -> None:
        place = _PLACE.findall(command)[0]
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._ports[place] = str(probe.getsockname()[1])
        process = self._servers[place] = self._start(self._real(command, self._ports), subprocess.PIPE, "exec ")
        for line in process.stdout or ():
            if "Server is ready" in line:
                return
        raise AssertionError(f"$ {command}\ndoes not get ready")

    def _start(self, command: str, output: int, before: str = "") -> Process | subprocess.Popen[str]:
        """Start a command, with ``before`` in front of it where a shell runs it."""
        name, *words = shlex.split(command.replace("\\\n", ""))
        ends = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        if name in ("afflux", "python") and not _SHELL.search(command):
            program = (self._folder / words.pop(0)).read_text(encoding="utf-8") if name == "python" else None
            return Process(words, program=program, cwd=self._folder, env=self._env, text=True, **ends)
        shell = ["bash", "-c", before + command]
        return subprocess.Popen(shell, cwd=self._folder, env=self._env, text=True, **ends)

    def _typed(self, command: str) -> str:
        """What a terminal shows."""
        terminal, far_end = pty.openpty()
        try:
            process = self._start(command, far_end)
            os.close(far_end)
            shown = b""
            with contextlib.suppress(OSError):  # EIO: the other end is closed
                while data := os.read(terminal, 0x1000):
                    shown += data
            process.wait(timeout=PATIENCE)
        finally:
            os.close(terminal)
        return shown.decode().replace("\r\n", "\n")

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._servers.values():
            _stop(process)


def _stop(process: Process | subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=PATIENCE)


def blurred(text: str) -> str:
    """Return a text with ``#`` for each number and bar. Spaces before a number that begins a line align it."""
    return re.sub(r"(?m)[ ▁▂▃▄▅▆▇█]*[▁▂▃▄▅▆▇█][ ▁▂▃▄▅▆▇█]*|(?:^ +)?\d+(?:[.,]\d+)*", "#", text)
