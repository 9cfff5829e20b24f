"""Which pages may open a WebSocket (TR-10): those of the same host, or those of ``origins=``, at both servers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import afflux
import afflux.asgi
from afflux.transports.ws_origins import refusal_of
from tests.aio.handlers import Demo
from tests.transports.test_asgi import Caller, running
from tests.transports.test_websocket import SETUP, http, raw, request, upgrade
from tests.transports.test_websocket import answer as answer_of

OURS = "https://app.example"
EVIL = "https://evil.example"
HINT = "; origins=, or --origin of afflux serve, admits them"


async def status_of(server: afflux.Server, said: list[str], hosts: list[str]) -> int:
    """The status that the server answers to a request with these Origin and Host headers."""
    lines = [f"Origin: {origin}" for origin in said] + [f"Host: {host}" for host in hosts]
    words = upgrade().replace(b"Host: here\r\n", "".join(f"{line}\r\n" for line in lines).encode())
    return int((await http(server.uri, words + b"\x88\x80....")).split()[1])


async def both(origins: list[str] | None, said: list[str], hosts: list[str]) -> tuple[int, int]:
    """The status that afflux's own server answers, and that of the ASGI application."""
    async with afflux.serve("ws://127.0.0.1:0", Demo(), origins=origins) as server:
        own = await status_of(server, said, hosts)
        assert server.refused == ({"origin": 1} if own == 403 else {})
    app = afflux.asgi.app(Demo(), origins=origins)
    headers = [(b"origin", origin.encode()) for origin in said] + [(b"host", host.encode()) for host in hosts]
    caller = Caller(headers=headers, extensions={"websocket.http.response": {}})
    caller.inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})
    await app(caller.scope, caller.receive, caller.send)
    first: Any = caller.said[0] if caller.said else {"type": "websocket.accept"}
    await app.close()
    return own, first.get("status", 101)


@pytest.mark.parametrize(
    ("said", "host", "status"),
    [
        ([], "here", 101),
        ([], "", 101),
        (["http://here"], "here", 101),
        (["https://here"], "here:7000", 101),
        (["http://here:8000"], "here:7000", 101),
        (["http://HERE"], "Here", 101),
        (["http://127.0.0.1:8000"], "127.0.0.1:7000", 101),
        (["http://[::1]:8000"], "[::1]:7000", 101),
        (["http://[::1]"], "[0:0::1]", 101),
        ([EVIL], "here", 403),
        (["http://here.evil.example"], "here", 403),
        (["http://evil.example:80"], "here:80", 403),
        (["http://localhost"], "127.0.0.1", 403),
        (["http://[::2]"], "[::1]", 403),
        (["http://[::1"], "[::1", 403),
        (["http://[1]"], "[1]", 403),
        (["http://here:99999"], "here", 403),
        (["http://here/"], "here", 403),
        (["http://evil@here"], "here", 403),
        (["here"], "here", 403),
        (["://here"], "here", 403),
        (["null"], "null", 403),
        (["file://"], "", 403),
        ([""], "", 403),
        (["http://here", "http://here"], "here", 403),
        (["http://here", EVIL], "here", 403),
        (["http://here, http://here"], "here", 403),
    ],
)
async def test_by_default_a_page_of_the_same_host_may_connect(said: list[str], host: str, status: int) -> None:
    assert await both(None, said, [host]) == (status, status)


@pytest.mark.parametrize("hosts", [[], ["here", "here"], ["here", "evil.example"]])
async def test_without_one_host_no_page_may_connect(hosts: list[str]) -> None:
    assert await both(None, ["http://here"], hosts) == (403, 403)


@pytest.mark.parametrize(
    ("origins", "said", "status"),
    [
        ([OURS], [OURS], 101),
        ([OURS], ["https://APP.example"], 101),
        ([OURS], [f"{OURS}:443"], 101),
        (["HTTPS://App.Example:443"], [OURS], 101),
        (["http://[0::1]:8000"], ["http://[::1]:8000"], 101),
        ([OURS, "http://localhost:8000"], ["http://localhost:8000"], 101),
        ([OURS], [], 101),
        ([OURS], [EVIL], 403),
        ([OURS], ["https://app.example.evil.example"], 403),
        ([OURS], ["http://app.example"], 403),
        ([OURS], ["https://app.example:8443"], 403),
        ([OURS], ["https://here"], 403),
        ([OURS], ["null"], 403),
        ([OURS], [""], 403),
        ([OURS], ["*"], 403),
        ([OURS], [OURS, OURS], 403),
        (["null"], ["null"], 101),
        (["file://"], ["file://"], 101),
        (["chrome-extension://abcd"], ["chrome-extension://abcd"], 101),
        ([], ["https://here"], 403),
        ([], [], 101),
        (["*"], [EVIL], 101),
        (["*"], ["null"], 101),
        (["*"], [], 101),
    ],
)
async def test_a_list_of_origins_replaces_the_rule(origins: list[str], said: list[str], status: int) -> None:
    assert await both(origins, said, ["here"]) == (status, status)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (EVIL, EVIL),
        ("null", "null"),
        ("https://x\xe9", "https://xé"),
        ("https://" + "x" * 5000, "https://" + "x" * 56),
    ],
)
async def test_the_reason_is_in_the_answer_and_in_the_log(
    said: str, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    words = upgrade(Host="here:7000").replace(b"Host", b"Origin: " + said.encode("latin-1") + b"\r\nHost")
    reason = f"pages of {shown} may not connect to here:7000{HINT}"
    async with afflux.serve("ws://127.0.0.1:0", Demo()) as server:
        answer = await http(server.uri, words)
        assert answer.startswith(b"HTTP/1.1 403 ") and answer.partition(b"\r\n\r\n")[2].decode() == f"{reason}\n"
        async with afflux.connect(server.uri) as peer:  # no browser
            assert (await peer.request(b"x")).data == b"x"
        (line,) = caplog.messages
        assert line == f"afflux: connections to {server.uri} refused: 1 ({reason})"


def test_control_characters_are_not_repeated() -> None:
    assert refusal_of(None, ["http://x\r\ny: z"], ["a\n"]) == f"pages of http://x??y: z may not connect to a{HINT}"
    assert refusal_of(None, ["http://x"], ["a\x1b[1m"]) == f"pages of http://x may not connect to a?[1m{HINT}"


async def test_several_origins_get_the_reason() -> None:
    words = upgrade().replace(b"Host", f"Origin: {OURS}\r\nOrigin: {OURS}\r\nHost".encode())
    async with afflux.serve("ws://127.0.0.1:0", Demo(), origins=[OURS]) as server:
        assert (await http(server.uri, words)).endswith(b"\r\n\r\nthe request has several Origin headers\n")


@pytest.mark.parametrize("ws", ["websockets-sansio", "wsproto"])
async def test_under_uvicorn(ws: str) -> None:
    app = afflux.asgi.app(Demo())
    async with running(app, ws=ws) as uri:
        port = uri.rpartition(":")[2]
        answer = await http(uri, upgrade(Host=f"127.0.0.1:{port}", Origin=EVIL))
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert f"pages of {EVIL} may not connect to 127.0.0.1:{port}{HINT}".encode() in answer
        async with raw(uri, origin="http://127.0.0.1:8000") as client:
            await client.send(SETUP)
            await client.send(request(b"hello"))
            assert await client.recv() == answer_of(b"hello")
    assert app.server.refused == {"origin": 1}


async def test_an_asgi_server_without_refusals_gets_the_start_of_the_reason() -> None:
    caller = Caller(headers=[(b"origin", EVIL.encode()), (b"host", b"127.0.0.1:7000")])
    await afflux.asgi.app(Demo())(caller.scope, caller.receive, caller.send)
    (said,) = caller.said
    assert (said["type"], said["code"]) == ("websocket.close", 1008) and "--origin" in said["reason"]


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        (OURS, rf'origins are a list, such as \["{OURS}"\]'),
        (["app.example"], 'not "app.example"; write "https://app.example"$'),
        (["https://app.example/"], f'; write "{OURS}"$'),
        (["https://app.example/chat?x#y"], f'; write "{OURS}"$'),
        (["ws://localhost:7000"], '; write "http://localhost:7000"$'),
        (["https://bücher.example"], r"; write its host as browsers send it, in Punycode \(xn--…\)$"),
        (["https://*.example"], r'; there are no patterns: list each origin, or give "\*" alone for all$'),
        (["*", OURS], r'the origin "\*" admits every page: give it alone'),
        (["https://"], 'not "https://"$'),
        (["https://user@app.example"], 'not "https://user@app.example"$'),
        (["http://app.example:99999"], 'not "http://app.example:99999"$'),
        (["http://[::1"], "not"),
        (["http://[1]"], "not"),
        ([""], 'not ""$'),
    ],
)
def test_invalid_origins(wrong: Any, remedy: str) -> None:
    for serve in (partial(afflux.serve, "ws://127.0.0.1:0"), afflux.asgi.app):
        with pytest.raises(ValueError, match=remedy):
            serve(Demo(), origins=wrong)


def test_origins_are_for_websockets() -> None:
    with pytest.raises(ValueError, match="origins= is for ws:// and wss://, not for tcp://"):
        afflux.serve("tcp://127.0.0.1:0", Demo(), origins=[OURS])
