"""Whose pages may open a WebSocket (TR-10): a browser says the Origin of the page, and ``origins=`` decides."""

from __future__ import annotations

from typing import Any

import pytest

import afflux
import afflux.asgi
from tests.aio.handlers import Demo
from tests.transports.test_asgi import Caller
from tests.transports.test_websocket import http, upgrade

OURS = "https://app.example"


async def status_of(server: afflux.Server, said: list[str]) -> int:
    """What a request with these Origin headers is answered."""
    words = upgrade().removesuffix(b"\r\n") + b"".join(b"Origin: %s\r\n" % origin.encode() for origin in said)
    reader = await http(server.uri, words + b"\r\n" + b"\x88\x80....")
    return int(reader.split()[1])


@pytest.mark.parametrize(
    ("origins", "said", "status"),
    [
        (None, ["https://evil.example"], 101),
        ([OURS], [OURS], 101),
        ([OURS], ["https://APP.example"], 101),
        (["HTTPS://App.Example"], [OURS], 101),
        ([OURS], [], 101),
        ([OURS], ["https://evil.example"], 403),
        ([OURS], ["https://app.example.evil.example"], 403),
        ([OURS], ["http://app.example"], 403),
        ([OURS], ["https://app.example:8443"], 403),
        ([OURS], ["null"], 403),
        ([OURS], [""], 403),
        ([OURS], [OURS, OURS], 403),
        (["null"], ["null"], 101),
        ([], [OURS], 403),
        ([], [], 101),
    ],
)
async def test_pages(origins: list[str] | None, said: list[str], status: int) -> None:
    async with afflux.serve("ws://127.0.0.1:0", Demo(), origins=origins) as server:
        assert await status_of(server, said) == status
    app = afflux.asgi.app(Demo(), origins=origins)
    headers = [(b"origin", origin.encode()) for origin in said]
    caller = Caller(headers=headers, extensions={"websocket.http.response": {}})
    caller.inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})
    await app(caller.scope, caller.receive, caller.send)
    first: Any = caller.said[0] if caller.said else {"type": "websocket.accept"}
    assert first.get("status", 101) == status
    await app.close()


async def test_a_page_gets_the_reason() -> None:
    async with afflux.serve("ws://127.0.0.1:0", Demo(), origins=[OURS]) as server:
        said = await http(server.uri, upgrade(Origin="https://evil.example"))
        assert said.startswith(b"HTTP/1.1 403 ") and said.endswith(b"pages of this origin may not connect\n")
        async with afflux.connect(server.uri) as peer:  # no browser
            assert (await peer.request(b"x")).data == b"x"


@pytest.mark.parametrize("wrong", [OURS, ["app.example"], ["https://app.example/"], ["https://"], ["*"], [""]])
def test_origins_that_can_not_be(wrong: Any) -> None:
    with pytest.raises(ValueError, match="origin"):
        afflux.serve("ws://127.0.0.1:0", Demo(), origins=wrong)


def test_origins_are_for_websockets() -> None:
    with pytest.raises(ValueError, match="origins= is for ws:// and wss://, not for tcp://"):
        afflux.serve("tcp://127.0.0.1:0", Demo(), origins=[OURS])
