"""``afflux serve``: one line when it listens, the handlers it takes, how it ends."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as ws_connect
from websockets.typing import Origin

from afflux import sync
from afflux.journal import inspect
from afflux.protocols.rsocket.cursor import Head, state_of
from tests.cli.forking import Process
from tests.cli.running import Server, afflux


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_closes_it_in_order(number: signal.Signals, code: int) -> None:
    with Server("--demo") as server:
        assert server.stop(number) == (code, "", "")


def test_it_prints_the_address_it_listens_on() -> None:
    with Server("--demo") as server:
        host, _, port = server.uri.removeprefix("tcp://").partition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0


def test_a_handler_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shout.py").write_text(
        "class Shout:\n    async def request(self, payload):\n        return payload.data.upper()\nready = Shout()\n"
    )
    monkeypatch.chdir(tmp_path)
    for name in ("shout:Shout", "shout:ready"):
        with Server("--handler", name) as server:
            assert afflux(f"request {server.uri} -d hello -o raw").stdout == "HELLO"


def test_the_collector_leaves_alone_what_was_there_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tell.py").write_text(
        "import gc\nclass Tell:\n    async def request(self, payload):\n"
        "        return f'{gc.isenabled()} {gc.get_freeze_count() > 10_000} {gc.get_threshold()[0]}'\n"
    )
    monkeypatch.chdir(tmp_path)
    with Server("--handler", "tell:Tell") as server:
        assert afflux(f"request {server.uri} -o raw").stdout == "True True 10000"


@pytest.mark.parametrize(("before", "after"), [((256, 2048), 2048), ((256, None), 10_240), ((512, 512), 512)])
def test_it_may_have_as_many_open_files_as_connections(
    before: tuple[int, int | None], after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 connections do not fit under the usual soft limit; the hard one is the operator's word, and stays."""
    resource = pytest.importorskip("resource", reason="this system has no limits of processes")
    (tmp_path / "tell.py").write_text(
        "import resource\nclass Tell:\n    async def request(self, payload):\n"
        "        return str(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    monkeypatch.chdir(tmp_path)
    soft, hard = before
    if hard is None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        after = after if hard == resource.RLIM_INFINITY else min(after, hard)
    limited = f"ulimit -Sn {soft}; ulimit -Hn {'unlimited' if hard == resource.RLIM_INFINITY else hard}"
    with Server("--handler", "tell:Tell", before=limited) as server:
        assert afflux(f"request {server.uri} -o raw").stdout == str((after, hard))


def test_a_file_is_a_stream_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"one\r\ntwo\n\nlast without end")
    with Server("--file", str(path)) as server:
        ran = afflux(f"request {server.uri} --stream -o ndjson")
    assert [json.loads(line)["data"] for line in ran.stdout.splitlines()] == ["one", "two", "", "last without end"]


def test_a_sink_belongs_to_one_server(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with Server("--sink", str(tmp_path / "table")) as server:
        ran = afflux(["serve", "tcp://127.0.0.1:0", "--sink", str(tmp_path / "table")])
        assert ran.returncode == 1
        assert f"{tmp_path / 'table'}: another process or object has it open" in ran.stderr
        assert "Traceback" not in ran.stderr
        ran = afflux(f"request {server.uri} -d hello")
        assert "a request to a table has COMMIT or ABORT" in ran.stderr
        assert server.stop(signal.SIGTERM)[0] == 0
    ran = afflux(["serve", "tcp://127.0.0.1:0", "--sink", str(tmp_path), "--workers", "2"])
    assert (ran.returncode, "--workers and --sink exclude each other" in ran.stderr) == (2, True)


def test_a_sink_refuses_a_directory_of_others(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "photo.jpg").touch()
    ran = afflux(["serve", "tcp://127.0.0.1:0", "--sink", str(tmp_path)])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        f"afflux: {tmp_path}: it has other files, such as 'photo.jpg', and no table of a receiver; "
        "choose a new or an empty directory\n"
    )


def test_with_a_journal_it_answers_the_same(tmp_path: Path) -> None:
    with Server("--demo", "--journal", str(tmp_path / "journal")) as server:
        ran = afflux([*f"request {server.uri} --stream -o raw -d".split(), '{"count": 3, "size": 2}'])
    assert ran.stdout == "0.1.2."


def test_journal_bytes_and_keep_bound_a_journal(tmp_path: Path) -> None:
    """About 4 MB go through a journal that keeps one of them: the stream is sealed, and its first items are gone."""
    directory = tmp_path / "journal"
    options = ("--journal", str(directory), "--journal-bytes", "2MB", "--keep", "1MB", "--keep", "1d")
    data = b'{"count": 40000, "size": 100}'
    with Server("--demo", *options) as server, sync.connect(server.uri) as peer:
        head, sealed = 0, False
        while not sealed:
            [answer] = list(peer.stream(data, cursor=Head(after=head, wait_ms=30_000), credit=1))
            state = state_of(answer.metadata)
            head, sealed = state.head, state.sealed
    [status] = inspect(directory)
    assert (status.head, status.state, status.problem) == (40_000, "sealed", None)
    assert 0 < (status.first or 0) < 40_000
    assert 0 < (status.size or 0) < 1_100_000


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("", "one of --demo, --handler"),
        ("--demo --file x", "one of --demo, --handler"),
        ("--handler nocolon", "MODULE:OBJECT"),
        ("--handler no_such_module_here:x", "no_such_module_here"),
        ("--handler json:nothing", "nothing not found in json"),
        ("--handler json:dumps", "json:dumps is a function: add it to a Router, or name an object with methods"),
        ("--file /no/such/file", "file '/no/such/file' not found"),
        ("--demo --origin https://app.example", "--origin is for ws:// and wss://, not for tcp://"),
        ("--demo --keep 24h", "--keep requires --journal"),
        ("--demo --journal-bytes 1GB", "--journal-bytes requires --journal"),
        ("--demo --journal j --journal-bytes 5", "--journal-bytes 5 is too small"),
        ("--demo --journal j --journal-bytes much", "invalid --journal-bytes 'much': write 50GB, 512MiB"),
        ("--demo --journal j --keep 1h --keep 2h", "--keep 1h and 2h: give one time and one size at most"),
        ("--demo --journal j --keep 1GB --keep 2GB", "--keep 1GB and 2GB: give one time and one size at most"),
        ("--demo --journal j --keep ever", "invalid --keep 'ever'"),
        ("--demo --journal j --keep 0s", "--keep must be longer than 0"),
        ("--demo --journal j --keep 2GB --journal-bytes 1GB", "--keep 2GB contradicts --journal-bytes 1GB"),
    ],
)
def test_a_mistake_is_reported_in_a_line(options: str, told: str) -> None:
    ran = afflux(f"serve tcp://127.0.0.1:0 {options}")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--origin", "app.example"], '--origin: an origin is the scheme and host of a page, such as "https://app.'),
        (["--origin", "*", "--origin", "https://app.example"], '--origin: the origin "*" admits every page'),
    ],
)
def test_an_invalid_origin_is_reported_before_ready(options: list[str], told: str) -> None:
    for workers in ("1", "2"):
        ran = afflux(["serve", "ws://127.0.0.1:0", "--demo", "--workers", workers, *options])
        assert (ran.returncode, ran.stdout) == (2, "")
        assert told in ran.stderr and "Traceback" not in ran.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_origins_of_pages(workers: str) -> None:
    """Without --origin those of the same host (tests/transports/test_origins.py); with it those that it names."""
    options = ("--origin", "https://app.example", "--origin", "http://localhost:8000", "--workers", workers)
    with Server("--demo", *options, uri="ws://127.0.0.1:0") as server:
        for origin, admitted in (
            ("https://app.example", True),
            ("http://localhost:8000", True),
            ("http://here", False),
        ):
            with contextlib.ExitStack() as stack:
                refused = contextlib.nullcontext() if admitted else pytest.raises(InvalidStatus, match="403")
                stack.enter_context(refused)
                stack.enter_context(ws_connect(server.uri, origin=Origin(origin), proxy=None))


@pytest.mark.parametrize(
    "uri", ["tcp:/127.0.0.1", "smtp://127.0.0.1:0", "carrier+tcp://127.0.0.1:0", "tcp://127.0.0.1"]
)
def test_an_address_it_can_not_serve_is_a_usage_error(uri: str) -> None:
    ran = afflux(["serve", uri, "--demo"])
    assert ran.returncode == 2
    assert ran.stderr.startswith("afflux: ")
    assert ran.stderr.count("\n") == 1


def test_a_port_in_use_is_a_failure() -> None:
    with Server("--demo") as server:
        ran = afflux(["serve", server.uri, "--demo"])
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1


def test_a_journal_that_cannot_be_kept_is_reported_before_ready(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    ran = afflux(["serve", "tcp://127.0.0.1:0", "--demo", "--journal", str(path)])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "is a file; it has to be a directory" in ran.stderr


def test_only_who_shows_the_credentials_comes_in(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for path, text in ((right, "simple ann a password with spaces\n"), (wrong, "simple ann another\n")):
        path.write_text(text)
        path.chmod(0o600)
    with Server("--demo", "--auth-file", str(right)) as server:
        assert afflux(f"request {server.uri} -d hi --auth-file {right} -o raw").stdout == "hi"
        for refused in (f"--auth-file {wrong}", ""):
            ran = afflux(f"request {server.uri} -d hi {refused}")
            assert (ran.returncode, ran.stdout) == (70, "")
            assert "not authenticated" in ran.stderr
            assert "another" not in ran.stderr
        assert afflux(f"request {server.uri} --fnf -d hi --auth-file {wrong}").returncode == 70
        assert afflux(f"request {server.uri} --fnf -d hi --auth-file {right}").returncode == 0


def test_leases_are_granted_and_waited_for() -> None:
    with Server("--demo", "--lease", "2/100ms") as server:
        ran = afflux(f"request {server.uri} --lease -D - -o raw", stdin="1\n2\n3\n4\n5\n")
        assert (ran.returncode, ran.stdout) == (0, "12345")
        assert afflux(f"request {server.uri} -d no-lease-wanted -o raw").stdout == "no-lease-wanted"
    with Server("--demo") as server:
        ran = afflux(f"request {server.uri} --lease -d x")
        assert ran.returncode == 69
        assert "leases are not supported" in ran.stderr


def test_a_session_that_can_be_resumed() -> None:
    with Server("--demo", "--resume") as server:
        assert afflux(f"request {server.uri} --resume -d hi -o raw").stdout == "hi"
    with Server("--demo") as server:
        ran = afflux(f"request {server.uri} --resume -d hi")
        assert ran.returncode == 70
        assert "resumption is not supported" in ran.stderr


@pytest.mark.parametrize("lease", ["ten", "10", "10/soon", "-1/1s", "10/0s", "99999999999/1s", "0/1s"])
def test_a_lease_that_can_not_be(lease: str) -> None:
    ran = afflux(["serve", "tcp://127.0.0.1:0", "--demo", f"--lease={lease}"])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr


def test_a_server_and_its_client_die_and_go_on(tmp_path: Path) -> None:
    """Each item is printed once, but for the one that was printed when its process died."""
    ours, theirs, printed = (str(tmp_path / name) for name in ("client.db", "server.db", "printed"))
    question = ["--stream", "-o", "raw", "--credit", "4", "-d", '{"count": 60, "size": 3}']
    uri = "tcp://127.0.0.1:0"
    for life in range(3):
        with Server("--demo", "--resume", "--store", theirs, uri=uri) as server:
            uri = server.uri
            words = ["request", uri, *question, "--resume", "--store", ours, "--delay", "20ms"]
            with open(printed, "ab") as out, Process(words, stdout=out) as client:
                while life < 2 and Path(printed).stat().st_size < 3 * (10 + 20 * life):
                    assert client.poll() is None
                if life < 2:
                    client.kill()
                assert client.wait() == (0 if life == 2 else -signal.SIGKILL)
            if life == 0:
                server.process.kill()
    text = Path(printed).read_text()
    items = [text[at : at + 3] for at in range(0, len(text), 3)]
    taken = [item for number, item in enumerate(items) if number == 0 or item != items[number - 1]]
    assert taken == [str(number).ljust(3, ".") for number in range(60)]
    assert len(items) <= 62


def test_clients_come_back_to_the_next_server(tmp_path: Path) -> None:
    """SIGTERM leaves the sessions in the file, and closes everything else."""
    store = str(tmp_path / "server.db")
    with Server("--demo", "--resume", "--store", store) as server:
        question = ["--stream", "-o", "raw", "--credit", "4", "-d", '{"count": 30, "size": 3}', "--delay", "20ms"]
        with Process(["request", server.uri, *question, "--resume"], stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            first = client.stdout.read(3)
            assert server.stop() == (0, "", "")
            with Server("--demo", "--resume", "--store", store, uri=server.uri):
                text = (first + client.stdout.read()).decode()
                assert client.wait() == 0
    assert [text[at : at + 3] for at in range(0, len(text), 3)] == [str(n).ljust(3, ".") for n in range(30)]


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_bytes(b"precious" * 1000)
    for command in ("serve tcp://127.0.0.1:0 --demo", "request tcp://127.0.0.1:1 -d x"):
        ran = afflux(f"{command} --resume --store {path}")
        assert (ran.returncode, ran.stdout) == (2, "")
        assert f"--store: '{path}' is not a file of sessions: choose another, or a new one" in ran.stderr
        assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("serve tcp://127.0.0.1:0 --demo --store x", "--store requires --resume"),
        ("request tcp://127.0.0.1:1 --store x", "--store requires --resume"),
        (
            "request tcp://127.0.0.1:1 --resume --fnf --store x",
            "--store requires --stream, --channel or a single --request",
        ),
        (
            "request tcp://127.0.0.1:1 --resume -D - --store x",
            "--store requires --stream, --channel or a single --request",
        ),
    ],
)
def test_a_store_that_makes_no_sense(options: str, told: str) -> None:
    ran = afflux(options)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr


def test_another_request_on_the_same_file_reports_what_it_ends(tmp_path: Path) -> None:
    store = tmp_path / "session.db"
    with Server("--demo", "--resume") as server:
        words = ["request", server.uri, "--resume", "--store", str(store)]
        stream = [*words, "--stream", "-d", '{"count": 1000, "size": 8}', "--delay", "20ms", "-o", "raw"]
        with Process(stream, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.read(1)
            process.kill()
        ran = afflux([*words, "-d", "hello", "-o", "raw"])
        assert (ran.returncode, ran.stdout) == (0, "hello")
        assert f"canceled unfinished calls of {store}: stream" in ran.stderr
