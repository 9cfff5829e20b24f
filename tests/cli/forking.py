"""Runs ``afflux`` in processes forked from one that has imported it, which is 20 times as fast. Contains no tests.

A forked process skips the start of the interpreter, most imports, and the clearing of modules at the end. Fresh
processes run in ``test_start.py``.

The test and the importer share a socket. A request carries the words, the folder, the environment and four descriptors:
standard input, output and error, and a pipe on which the importer reports the process id and later the exit code.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NoReturn

from afflux import cli

__all__ = ["Process"]

ROOT = Path(__file__).resolve().parent.parent.parent
PIPE = subprocess.PIPE
WARM_UP = (
    *("doctor", "decode --hex 00", "request tcp://127.0.0.1:1", "serve tcp://127.0.0.1:70000 --demo"),
    *(f"{name} --help" for name in cli.COMMANDS),
)
"Commands that import what most others need, and end at once: nothing listens at port 1, and there is no port 70000."
IMPORTED = (
    "afflux.bench.load",
    "afflux.bench.workers",
    "afflux.capture.proxy",
    "afflux.transports.ws_client",
    "uvloop",
)
"What some commands import besides, for a fifth of a second or more."
LATER = {
    "check": ("afflux.sessions.recorded",),
    "inspect": ("pandas", "pyarrow.compute", "pyarrow.parquet"),
    "--html": ("afflux.capture.report", "altair", "jsonschema"),
    "wireshark": ("afflux.wireshark.generating",),
}
"What commands with a word import besides, for up to a second: imported before the first of them is forked."

_importer: socket.socket | None = None


class Process:
    """``afflux`` with these words in a process of its own; a subset of ``subprocess.Popen``. It runs the text
    ``program`` instead, as ``python -W error -c`` does, where there is one."""

    def __init__(
        self,
        words: Sequence[str | bytes],
        *,
        stdin: int | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        text: bool = False,
        program: str | None = None,
    ) -> None:
        self.args = list(words)
        self.returncode: int | None = None
        far_ends: list[int] = []
        ends = [_end(number, wanted, far_ends) for number, wanted in enumerate((stdin, stdout))]
        ends.append((ends[1][0], None) if stderr == subprocess.STDOUT else _end(2, stderr, far_ends))
        self._report, far_report = os.pipe()
        far_ends.append(far_report)
        try:
            _send(self.args, program, cwd, env, [theirs for theirs, _ in ends] + [far_report])
        finally:
            for descriptor in far_ends:
                os.close(descriptor)
        self.stdin, self.stdout, self.stderr = (_file(number, ours, text) for number, (_, ours) in enumerate(ends))
        self._reported = b""
        while b"\n" not in self._reported:
            if not (data := os.read(self._report, 64)):
                raise RuntimeError("the importer has ended")
            self._reported += data
        pid, _, self._reported = self._reported.partition(b"\n")
        self.pid = int(pid)

    def poll(self) -> int | None:
        """The exit code, or None while the process runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; the exit code, or a signal's number below 0."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        until = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self._report], [], [], left)[0]:
                return None
            data = os.read(self._report, 64)
            self._reported += data
            if not data:
                os.close(self._report)
                self.returncode = int(self._reported)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Write ``input``, read all output, wait for the end."""
        until = time.monotonic() + (3600.0 if timeout is None else timeout)
        if self.stdin is not None:
            # What a test writes fits into a pipe, or is read while it is written.
            with contextlib.suppress(BrokenPipeError):
                if input:
                    self.stdin.write(input)
                self.stdin.close()
        read: dict[Any, list[bytes]] = {file: [] for file in (self.stdout, self.stderr) if file is not None}
        with selectors.DefaultSelector() as waiting:
            for file in read:
                waiting.register(file, selectors.EVENT_READ)
            while waiting.get_map():
                for key, _ in waiting.select(max(0.0, until - time.monotonic())):
                    if data := os.read(key.fd, 0x10000):
                        read[key.fileobj].append(data)
                    else:
                        waiting.unregister(key.fileobj)
                if time.monotonic() >= until:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
        for file in read:
            file.close()
        self.wait(max(0.0, until - time.monotonic()))
        return _joined(self.stdout, read), _joined(self.stderr, read)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()
        self.wait()


def _end(number: int, wanted: int | IO[bytes] | None, far_ends: list[int]) -> tuple[int, int | None]:
    """The descriptor for the process, and this side's end of a pipe."""
    if wanted is None:
        return number, None
    if wanted == subprocess.DEVNULL:
        far_ends.append(os.open(os.devnull, os.O_RDWR))
        return far_ends[-1], None
    if wanted != PIPE:
        return wanted if isinstance(wanted, int) else wanted.fileno(), None
    reads, writes = os.pipe()
    theirs, ours = (reads, writes) if number == 0 else (writes, reads)
    far_ends.append(theirs)
    return theirs, ours


def _file(number: int, descriptor: int | None, text: bool) -> Any:
    if descriptor is None:
        return None
    # What is read of bytes is not read ahead: communicate takes the rest from the descriptor.
    return open(descriptor, ("w" if number == 0 else "r") + ("" if text else "b"), -1 if text else 0)


def _joined(file: Any, read: Mapping[Any, list[bytes]]) -> Any:
    if file is None:
        return None
    data = b"".join(read[file])
    return data.decode(file.encoding).replace("\r\n", "\n") if hasattr(file, "encoding") else data


def _send(
    words: Sequence[str | bytes],
    program: str | None,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    descriptors: list[int],
) -> None:
    """Send a request to the importer, which the first request starts."""
    global _importer
    if _importer is None:
        _importer, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            subprocess.run(command, pass_fds=[theirs.fileno()], cwd=ROOT, check=True)
    environment = dict(os.environ if env is None else env)
    folder = str(cwd or Path.cwd())
    request = json.dumps([[os.fsdecode(word) for word in words], program, folder, environment]).encode()
    socket.send_fds(_importer, [len(request).to_bytes(4)], descriptors)
    _importer.sendall(request)


# -- in the importer's process ----------------------------------------------------------------------------------


def _serve(requests: socket.socket) -> tuple[list[str], str | None]:
    """Fork a process for each request. Returns in a forked process, with its words and its program."""
    reports: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready = select.select([requests, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 0x1000)
            _reap(reports)
        if requests not in ready:
            continue
        size, descriptors, _, _ = socket.recv_fds(requests, 4, 4)
        if not size:
            os._exit(0)
        body = b""
        while len(body) < int.from_bytes(size):
            body += requests.recv(int.from_bytes(size) - len(body))
        *standard, report = descriptors
        _import(module for word in json.loads(body)[0] for module in LATER.get(word, ()))
        if pid := os.fork():
            os.write(report, b"%d\n" % pid)
            reports[pid] = report
            for descriptor in standard:
                os.close(descriptor)
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (woken, wake, report, requests.detach(), *reports.values()):
            os.close(descriptor)
        return _become(standard, json.loads(body))


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        with contextlib.suppress(ImportError):  # an extra
            importlib.import_module(module)


def _reap(reports: dict[int, int]) -> None:
    while reports:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        report = reports.pop(pid)
        os.write(report, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(report)


def _become(standard: list[int], request: Any) -> tuple[list[str], str | None]:
    """Take the descriptors, the directory and the environment of the request."""
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
    for descriptor in standard:
        os.close(descriptor)
    # The files that Python opened on the importer's descriptors know of no terminal.
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, closefd=False, errors="backslashreplace")
    words, program, directory, environment = request
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    os.chdir(directory)
    sys.path[0] = directory
    sys.argv = ["afflux" if program is None else "-c", *words]
    return words, program


def _run(program: str) -> int:
    """Run a text as ``python -W error -c`` does. What it leaves open warns before the end."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    warnings.simplefilter("error")
    exec(compile(program, "<string>", "exec"), main.__dict__)
    vars(main).clear()
    gc.collect()
    return 0


def _main() -> NoReturn:
    if os.fork():
        os._exit(0)  # no child of the test's process, which may count its children; it ends with the socket
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        for command in WARM_UP:
            cli.main(command.split())
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy starts no threads, which a forked process would lack
    _import(IMPORTED)
    words, program = _serve(socket.socket(fileno=int(sys.argv[1])))
    code = cli.main(words) if program is None else _run(program)
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without freeing every module, which takes longer than most commands


if __name__ == "__main__":
    _main()
