"""The commands against every protocol: ``request``, ``serve --demo`` and ``bench``, and what is told of verbs that a
protocol does not have. Servers are processes, the commands run in this one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Server, here

OTHERS = ("jmux", "limit", "reactivesocket", "rsio")


@pytest.fixture(scope="module")
def uris() -> Iterator[dict[str, str]]:
    with (
        Server("--demo", uri="jmux+tcp://127.0.0.1:0") as jmux,
        Server("--demo", uri="reactivesocket+tcp://127.0.0.1:0") as old,
        Server("--demo", uri="rsio+tcp://127.0.0.1:0") as rsio,
        Server("--demo", uri="limit+tcp://127.0.0.1:0") as limit,
    ):
        yield {"jmux": jmux.uri, "reactivesocket": old.uri, "rsio": rsio.uri, "limit": limit.uri}


@pytest.mark.parametrize(
    ("protocol", "words", "out"),
    [
        ("jmux", "-d hello", "hello"),
        ("jmux", "-d gen\t5", "....."),
        ("reactivesocket", "-d hello -m beside", "hello"),
        ("reactivesocket", "-d hello -r echo", "hello"),
        ("reactivesocket", "--stream -d count:3:4", "0...1...2..."),
        ("reactivesocket", "--stream -d count:1000000:1 --take 4 --credit 2", "0123"),
        ("reactivesocket", "--stream -d count:40:2 --credit auto", "".join(f"{i:.<2}" for i in range(40))),
        ("reactivesocket", "--channel -d a -d b", "ab"),
        ("reactivesocket", "--fnf -d x", ""),
        ("reactivesocket", "--push -m x", ""),
        ("limit", "--channel -d a -d b", "ab"),
        ("limit", "--channel -d a -d b -m name", "ab"),
        ("rsio", "--stream -d count:3:4", "0...1...2..."),
        ("rsio", "--stream -d count:1000000:1 --take 4 --credit 2", "0123"),
    ],
)
def test_what_a_protocol_has(uris: dict[str, str], protocol: str, words: str, out: str) -> None:
    given = [word.replace("\t", " ") for word in words.split(" ")]
    assert here("request", uris[protocol], *given, *(["-o", "raw"] if out else [])) == (0, out, "")


SUM = "struct Done {} channel sum = recv int -> offer | sum | recv Done -> send int -> end"


@pytest.mark.parametrize("protocol", ["limit", "reactivesocket"])
@pytest.mark.parametrize(
    ("items", "code", "out", "told"),
    [
        (["1", "2", "choose 2", "[]"], 0, "3", ""),
        (["1", "choose 1", "-2", "choose 2", "[]"], 0, "-1", ""),
        (["1", "choose 3"], 2, "", "choose of branches 1 to 2"),
        (['"x"'], 2, "", "expects send int (state 0), not str 'x'"),
        (["1", "choose 1", "-2", "choose 2", "[]", "7"], 2, "-1", "the session is over: '7' was not sent"),
        (["1", "2"], 2, "", "the session is not over: the type expects choose of branches 1 to 2"),
        (["one"], 2, "", "'one' is neither JSON nor a choice"),
        (["[" * 100_000], 2, "", "[' is neither JSON nor a choice"),
    ],
)
def test_a_session_of_a_session_type(
    uris: dict[str, str], tmp_path: Path, protocol: str, items: list[str], code: int, out: str, told: str
) -> None:
    pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')
    (tmp_path / "sum.lstr").write_text(SUM)
    words = [word for item in items for word in ("-d", item)]
    asked = ["--channel", "-r", "sum", "--session", str(tmp_path / "sum.lstr"), *words, "-o", "raw"]
    ran = here("request", uris[protocol], *asked)
    assert (ran.code, ran.out) == (code, out), ran.errors
    assert told in ran.errors


def test_session_types_with_a_problem(uris: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')
    file = tmp_path / "sum.lstr"
    file.write_text("channel sum =\n  recv Int ->\n  end\n")
    ran = here("request", uris["reactivesocket"], "--channel", "-r", "sum", "--session", str(file), "-d", "1")
    assert (ran.code, ran.out) == (2, "")
    first, *shown = ran.errors.splitlines()
    assert first.startswith(f"afflux: {file}:2:8: Int is not defined")
    assert shown == ["    recv Int ->", "         ^"]


def test_a_session_has_a_channel(uris: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')
    (tmp_path / "sum.lstr").write_text(SUM)
    types = f"--session {tmp_path / 'sum.lstr'}"
    for words, told in (
        (f"--channel {types}", "--session requires --channel and -r CHANNEL"),
        (f"-r sum {types}", "--session requires --channel and -r CHANNEL"),
        (f"--channel -r other {types}", 'has no channel "other"; it has: sum'),
        ("--channel -r sum --session missing.lstr", "--session: file 'missing.lstr' not found"),
    ):
        ran = here("request", uris["limit"], *words.split())
        assert (ran.code, ran.out) == (2, "")
        assert told in ran.errors


@pytest.mark.parametrize(
    ("protocol", "words", "told"),
    [
        *(
            ("jmux", option, f'jmux has no "{verb}"; it offers: request, session')
            for option, verb in (
                ("--stream", "stream"),
                ("--channel", "channel"),
                ("--fnf", "fire"),
                ("--push", "push"),
            )
        ),
        *(
            ("rsio", option, f'rsio has no "{verb}"; it offers: stream, subscribe')
            for option, verb in (("", "request"), ("--channel", "channel"), ("--fnf", "fire"), ("--push", "push"))
        ),
        ("jmux", "-m x", "jmux carries no metadata"),
        ("jmux", "-r echo", "jmux carries no metadata"),
        ("jmux", "--dmt text/plain", "no setup"),
        ("jmux", "--lease", 'jmux has no "lease"'),
        ("rsio", "--stream -m x", "it has no metadata"),
        ("rsio", "--stream --mmt text/plain", "no setup"),
        ("rsio", "--stream --resume", 'rsio has no "resume"'),
        ("reactivesocket", "--resume", 'reactivesocket has no "resume"'),
    ],
)
def test_what_a_protocol_has_not(uris: dict[str, str], protocol: str, words: str, told: str) -> None:
    ran = here("request", uris[protocol], "-d", "x", *words.split())
    assert (ran.code, ran.out, ran.errors.count("\n")) == (2, "", 1)
    assert told in ran.errors


@pytest.mark.parametrize(
    ("protocol", "words", "code", "told"),
    [
        ("jmux", "-d gen\tx", 66, "N must be 0 to"),
        ("reactivesocket", "-r fail -d no", 64, "no (0x021)"),
        ("reactivesocket", "-r nosuch -d no", 65, "unknown route"),
        ("reactivesocket", "--stream -d nobody", 67, "JSON object"),
        (
            "reactivesocket",
            "--channel -r sum -d x",
            67,
            "the session type expects offer of branches 1 to 2, not the end",
        ),
        ("reactivesocket", "--lease -d x --max-time 5s", 69, "leases are not supported"),
        ("rsio", "--stream -d nobody", 64, "JSON object"),
    ],
)
def test_a_failure_has_the_exit_code_of_its_kind(
    uris: dict[str, str], protocol: str, words: str, code: int, told: str
) -> None:
    """Whatever numbers the protocol has for it, or none."""
    ran = here("request", uris[protocol], *(word.replace("\t", " ") for word in words.split(" ")))
    assert (ran.code, ran.out) == (code, "")
    assert told in ran.errors


@pytest.mark.parametrize(
    ("protocol", "words", "succeeded", "received"),
    [
        ("jmux", "-n 50 -c 2 -m 4 --size 100", 50, 5000),
        ("reactivesocket", "-n 50 -c 2 -m 4 --size 100", 50, 5000),
        ("reactivesocket", "--stream --items 20 --size 10 -n 3", 3, 600),
        ("reactivesocket", "--channel --items 5 --size 10 -n 3", 3, 150),
        ("reactivesocket", "--fnf -n 5", 5, 0),
        ("limit", "--channel --items 5 --size 10 -n 3", 3, 150),
        ("rsio", "--stream --items 20 --size 10 -n 3", 3, 600),
        ("rsio", "--stream -d count:20:10 -n 3 --credit 4", 3, 600),
    ],
)
def test_load(uris: dict[str, str], protocol: str, words: str, succeeded: int, received: int) -> None:
    """A protocol that has no KEEPALIVE is not waited for, and it is told why there is no round trip."""
    ran = here("bench", uris[protocol], "-q", *words.split())
    assert ran.code == 0
    found = json.loads(ran.out)
    assert (found["succeeded"], found["failed"], found["received_bytes"]) == (succeeded, 0, received)
    if protocol in ("limit", "rsio"):
        assert found["round_trip_ms"] is None
        assert ran.errors == f"afflux: {protocol} has no KEEPALIVE: the round trip and the cost of credit are unknown\n"
    else:
        assert found["round_trip_ms"] > 0


@pytest.mark.parametrize(
    ("protocol", "option", "told"), [("jmux", "--stream", "request, session"), ("rsio", "--fnf", "stream, subscribe")]
)
def test_load_by_a_verb_that_is_not_there(uris: dict[str, str], protocol: str, option: str, told: str) -> None:
    ran = here("bench", uris[protocol], "-q", option, "-n", "1")
    assert (ran.code, ran.out) == (2, "")
    assert f"it offers: {told}" in ran.errors


@pytest.mark.parametrize("protocol", OTHERS)
def test_an_option_of_the_address_is_checked(protocol: str) -> None:
    ran = here("request", f"{protocol}+tcp://127.0.0.1:1?nosuch=1", "-d", "x")
    assert (ran.code, ran.out) == (2, "")
    assert 'unknown option "nosuch"' in ran.errors


WORDS = {"limit": ("--channel", "-r", "sum"), "rsio": ("--stream",)}


@pytest.mark.parametrize(
    ("protocol", "server", "told"),
    [
        ("reactivesocket", "jmux", "the peer speaks jmux, not reactivesocket"),
        ("rsocket", "jmux", "the peer speaks jmux, not rsocket"),
        ("limit", "jmux", "the peer speaks jmux, not limit"),
        ("jmux", "rsio", "the peer speaks rsio, not jmux"),
        ("jmux", "reactivesocket", "the peer speaks reactivesocket, not jmux"),
        ("jmux", "limit", "the peer speaks limit, not jmux"),
        ("rsio", "jmux", "the peer speaks jmux, not rsio"),
    ],
)
def test_a_server_of_another_protocol(uris: dict[str, str], protocol: str, server: str, told: str) -> None:
    uri = uris[server].replace(server, protocol)
    assert here("request", uri, "-d", "1", *WORDS.get(protocol, ())) == (69, "", f"afflux: {told}\n")


def test_a_server_that_is_known_by_its_bytes_or_by_an_answer_is_not_doubted(uris: dict[str, str]) -> None:
    assert "does" not in here("request", uris["reactivesocket"], "-r", "fail", "-d", "no").errors
    assert "does" not in here("request", uris["rsio"], "--stream", "-d", "nobody").errors


HANDLERS = """
class Asked:
    async def request(self, payload):
        return b"asked"

class Session:
    async def session(self, session):
        await session.write((await session.read_all()).upper())
        session.finish()

class Streams:
    async def stream(self, payload):
        yield b"item"
"""


def test_a_handler_may_have_sessions_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hands.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    with Server("--handler", "hands:Session", uri="jmux+tcp://127.0.0.1:0") as server:
        assert here("request", server.uri, "-d", "hello", "-o", "raw") == (0, "HELLO", "")


@pytest.mark.parametrize(
    ("uri", "words", "told"),
    [
        ("jmux", "--handler hands:Streams", "offers request, session, but the handler has only stream"),
        ("jmux", "--file hands.py", "offers request, session, but the handler has only stream"),
        ("rsio", "--handler hands:Asked", "offers stream, subscribe, but the handler has only request"),
        ("rsocket", "--handler hands:Session", "but the handler has only session"),
        ("carrier", "--handler hands:Asked", 'unknown protocol "carrier"'),
        ("limit", "--handler hands:Asked", "offers channel, open, but the handler has only request"),
        ("jmux", "--demo --auth-file secret", "a jmux connection has no setup"),
        ("rsio", "--demo --auth-file secret", "reactive-streams-io has no setup"),
    ],
)
def test_what_no_client_could_ask_for_is_not_served(
    uri: str, words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hands.py").write_text(HANDLERS)
    (tmp_path / "secret").write_text("bearer abcd")
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    ran = here("serve", f"{uri}+tcp://127.0.0.1:0", *words.split())
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.errors


def test_help_names_every_protocol_that_can_be_decoded() -> None:
    told = " ".join(here("decode", "--help").out.split())
    assert "Protocol: jmux, limit, reactivesocket, rsio, rsocket, rsocket-draft." in told
