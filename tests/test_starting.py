"""The first ``connect`` or ``serve`` does not stop a running loop: it imports in a thread. Each test is a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.transports.certificates import Certificates

HEAD = """
import asyncio, sys, threading
import afflux

on_loop = []

class Watch:
    "Notes what is imported on the thread of the loop."
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            on_loop.append(name)

class Echo:
    async def request(self, payload):
        return payload
    async def stream(self, payload):
        yield payload

def watched(main):
    async def watching():
        sys.meta_path.insert(0, Watch())
        await main()
    asyncio.run(watching())
"""


def output(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", HEAD + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("uri", ["ws://127.0.0.1:0", "tls://127.0.0.1:0?{}", "wss://127.0.0.1:0?{}", "mem://first"])
def test_no_transport_is_imported_on_the_thread_of_the_loop(uri: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    shown, trusted = uri.format(f"cert={certificates.server}"), f"?ca={certificates.ca}"
    told = output(f"""
async def main():
    async with afflux.serve("{shown}", Echo()) as server:
        trusted = server.uri.partition("?")[0] + ("{trusted}" if "?" in "{shown}" else "")
        async with afflux.connect(trusted) as peer:
            await peer.request(b"ping")

watched(main)
wanted = ("afflux.aio", "afflux.aio.starting")
print(*[name for name in on_loop if name.startswith(("afflux", "encodings")) and name not in wanted])
""")
    assert told == "\n"


@pytest.mark.parametrize("uri", ["tcp://127.0.0.1:0", "rsocket-draft+tcp://127.0.0.1:0"])
def test_no_module_of_ours_is_imported_on_the_thread_of_the_loop(uri: str) -> None:
    told = output(f"""
async def main():
    async with afflux.serve("{uri}", Echo()) as server, afflux.connect(server.uri) as peer:
        await peer.request(b"ping")
        async for _ in peer.stream(b"more"):
            pass

watched(main)
print(*[name for name in on_loop if name.startswith("afflux") and name not in ("afflux.aio", "afflux.aio.starting")])
""")
    assert told == "\n"


def test_imported_before_the_loop_runs_all_that_tcp_needs_is_there() -> None:
    told = output("""
from afflux import connect, serve

async def main():
    async with serve("tcp://127.0.0.1:0", Echo()) as server, connect(server.uri) as peer:
        await peer.request(b"ping")

watched(main)
print(*[name for name in on_loop if name.startswith("afflux") and name not in ("afflux.aio", "afflux.aio.starting")])
""")
    assert told == "\n"


def test_it_awaits_starts_and_closes_as_what_it_stands_for() -> None:
    told = output("""
async def main():
    serving = afflux.serve("tcp://127.0.0.1:0", Echo())
    server = await serving.start()
    peer = await afflux.connect(server.uri)
    print((await peer.request(b"ping")).text)
    await peer.close()
    await serving.close()
    print(type(server) is afflux.Server, server.uri == serving.uri)

asyncio.run(main())
""")
    assert told == "ping\nTrue True\n"


def test_an_error_of_the_call_is_raised_when_it_is_entered() -> None:
    told = output("""
async def main():
    connecting = afflux.connect("tpc://127.0.0.1:1")
    try:
        await connecting
    except afflux.AddressError as error:
        print(error)
    try:
        afflux.connect("tpc://127.0.0.1:1")
    except afflux.AddressError as error:
        print(error)

asyncio.run(main())
""")
    first, second = told.splitlines()
    assert first == second
    assert 'did you mean "tcp"?' in first


def test_several_tasks_may_begin_at_once() -> None:
    told = output("""
async def main():
    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server:
        async def one(number):
            async with afflux.connect(server.uri) as peer:
                return (await peer.request(str(number))).text
        print(*await asyncio.gather(*map(one, range(20))))

asyncio.run(main())
""")
    assert told == " ".join(map(str, range(20))) + "\n"


def test_a_task_that_is_cancelled_meanwhile_ends() -> None:
    told = output("""
async def main():
    task = asyncio.create_task(afflux.connect("tcp://127.0.0.1:1").__aenter__())
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print("cancelled")
    async with afflux.serve("tcp://127.0.0.1:0", Echo()) as server:
        print(server.connections)

asyncio.run(main())
""")
    assert told == "cancelled\n()\n"


def test_threads_change_often_while_one_imports_and_as_before_afterwards() -> None:
    told = output("""
intervals = []

class Seen:
    "Notes the interval of threads at every import that is not the loop's."
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread():
            intervals.append(sys.getswitchinterval())

async def main():
    async with afflux.serve("mem://first", Echo()) as server:
        await asyncio.gather(*(afflux.connect(server.uri).__aenter__() for _ in range(5)))

sys.setswitchinterval(0.004)
sys.meta_path.insert(0, Seen())
asyncio.run(main())
print(len(intervals) > 10, max(intervals) < 0.001, sys.getswitchinterval())
""")
    assert told == "True True 0.004\n"
