"""Forks the Python process that plans the batches of a query, which otherwise imports Spark and Arrow for each query.

Spark has a daemon that forks the workers of tasks; the reader of a stream is a fresh process each time, for almost a
second. ``forking`` makes a Python for a session: a reader's command is handed, with its environment and descriptors, to
a process that has imported everything and forks. Any other command is executed as it is. Contains no tests.
"""

from __future__ import annotations

import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

READER = ["-m", "pyspark.sql.streaming.python_streaming_source_runner"]
"The command of a reader."
IMPORTED = ("numpy", "pandas", "pyarrow", "afflux.spark.arrow", "afflux.spark.format", "afflux.spark.reading")


def main(path: str, *words: str) -> None:
    """Be the process that forks, without words, or a process that Spark starts."""
    if not words:
        _serve(path)
    elif list(words) == READER:
        _hand_over(path)
    else:
        os.execv(sys.executable, [sys.executable, *words])


def _hand_over(path: str) -> None:
    """Ask for a fork that has this process's directory, environment and descriptors; end when it ends.

    Nothing but the modules above is imported here, not even the site packages.
    """
    variables = (name + b"=" + value for name, value in os.environb.items())
    request = b"\0".join([os.fsencode(os.getcwd()), *variables])
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [len(request).to_bytes(4)], [0, 1, 2])
        server.sendall(request)
        server.recv(1)


def _serve(path: str) -> None:
    """Fork a reader for each connection, until the standard input ends."""
    from importlib import import_module
    from select import select
    from signal import SIG_DFL, SIG_IGN, SIGCHLD, signal

    for name in (READER[1], *IMPORTED):
        import_module(name)
    del sys.modules[READER[1]]  # a reader runs it as its main module
    signal(SIGCHLD, SIG_IGN)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    print("ready", flush=True)
    while 0 not in select([0, listening], [], [])[0]:
        asking, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal(SIGCHLD, SIG_DFL)
            _read(asking)
        asking.close()


def _read(asking: socket.socket) -> NoReturn:
    """Be the process that asked: run the reader's module."""
    import runpy
    import threading
    import traceback

    size, descriptors, _, _ = socket.recv_fds(asking, 4, 3)
    with asking.makefile("rb") as file:
        directory, *variables = file.read(int.from_bytes(size)).split(b"\0")
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environb.clear()
    os.environb.update(variable.split(b"=", 1) for variable in variables)
    os.chdir(directory)
    code = 0
    try:
        runpy.run_module(READER[1], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)  # without freeing every module


if __name__ == "__main__":
    main(*sys.argv[1:])
