"""The connection: setup, signs of life, its end, and requests from the server's side."""

from __future__ import annotations

import asyncio

from afflux.protocols.rsocket import frames as f
from interop.cases.base import case, echoes, fails
from interop.conversation import Conversation, Failed, check
from interop.program import fill, shown


@case("setup.payload", "the setup's data and metadata reach the server", setup=(b"who am I", b"credentials"))
async def _payload(c: Conversation) -> None:
    await c.facts.wait("setup", data=shown(b"who am I"), metadata=shown(b"credentials"))
    await echoes(c)


@case(
    "setup.mime",
    "MIME types of 128 characters reach the server",
    data_mime="d/" + 126 * "x",
    metadata_mime="m/" + 126 * "y",
)
async def _mime(c: Conversation) -> None:
    fact = await c.facts.wait("setup")
    check("data_mime" in fact, "the peer's interface does not show them")
    check(fact["data_mime"] == "d/" + 126 * "x" and fact["metadata_mime"] == "m/" + 126 * "y", f"they are {fact}")
    await echoes(c)


@case("setup.times", "the setup announces the configured times", keepalive=1.5, lifetime=4.25)
async def _times(c: Conversation) -> None:
    setup = f.decode((await c.frame(f.Setup, ">")).frame)
    times = setup.keepalive_ms, setup.lifetime_ms  # type: ignore[attr-defined]
    check(times == (1500, 4250), f"{times[0]} and {times[1]} ms")


@case("setup.no-subprotocol", "a WebSocket without the subprotocol", transports=("ws",), subprotocol=False)
async def _no_subprotocol(c: Conversation) -> None:
    await echoes(c)


@case("setup.rejected", "a refused client receives REJECTED_SETUP", reject=True, smoke=True)
async def _rejected(c: Conversation) -> None:
    check(await c.asker.refused() == 3, "another code")


@case("setup.rejected-serves", "a refused client is not served, and the connection ends", reject=True, audited=False)
async def _serves_nothing(c: Conversation) -> None:
    knock = asyncio.ensure_future(c.asker.fire(b"knock"))  # it may never return, or fail: the client may know already
    try:
        await c.frame(f.ErrorFrame, "<", stream=0)
        await c.proxy.wait(lambda: c.proxy.link.over)
        check(not c.facts.named("fired"), "the request was served")
    finally:
        knock.cancel()
        await asyncio.wait((knock,))


@case("keepalive.client", "the client's keepalives are sent and answered", keepalive=0.2, lifetime=5, smoke=True)
async def _keepalive(c: Conversation) -> None:
    await c.frame(f.Keepalive, ">", 2, respond=True)
    await c.frame(f.Keepalive, "<", 2, respond=False)


@case("keepalive.server-answers", "the server answers with the same data")
async def _server_answers(c: Conversation) -> None:
    await echoes(c)
    c.proxy.link.inject(">", f.Keepalive(respond=True, data=b"tick tock").encode())
    await c.frame(f.Keepalive, "<", respond=False, data=b"tick tock")
    await echoes(c)


@case("keepalive.client-answers", "the client answers with the same data")
async def _client_answers(c: Conversation) -> None:
    await echoes(c)
    c.proxy.link.inject("<", f.Keepalive(respond=True, data=b"tick tock").encode())
    await c.frame(f.Keepalive, ">", respond=False, data=b"tick tock")
    await echoes(c)


@case("keepalive.short", "a keepalive every 50 ms is answered", keepalive=0.05, lifetime=2, limit=10)
async def _short(c: Conversation) -> None:
    await c.frame(f.Keepalive, "<", 40, respond=False)
    await echoes(c)


@case("keepalive.data", "0, 1 and 1,000 bytes of data are echoed unchanged, in both directions")
async def _data(c: Conversation) -> None:
    await echoes(c)
    for data in (b"", b"!", fill(1000, 6)):
        for way, back in ((">", "<"), ("<", ">")):
            c.proxy.link.inject(way, f.Keepalive(respond=True, data=data).encode())  # type: ignore[arg-type]
            await c.frame(f.Keepalive, back, respond=False, data=data)
    await echoes(c)


@case("keepalive.many", "thirty together, each answered")
async def _many(c: Conversation) -> None:
    await echoes(c)
    for i in range(30):
        c.proxy.link.inject(">", f.Keepalive(respond=True, data=b"%d" % i).encode())
    await c.frame(f.Keepalive, "<", 30, respond=False)
    await echoes(c)


@case("keepalive.dead-server", "a silent server is detected: pending requests fail", keepalive=0.2, lifetime=0.6)
async def _dead_server(c: Conversation) -> None:
    flow = await c.asker.start_request(b"!never a")
    await c.facts.wait("never", tag="a")
    c.proxy.link.frozen = True
    try:
        await flow.take(1)
    except Failed:
        return
    raise AssertionError("an answer out of nowhere")


@case("keepalive.dead-client", "a silent client is detected: its handlers end", keepalive=0.2, lifetime=0.6)
async def _dead_client(c: Conversation) -> None:
    await c.asker.start_request(b"!never a")
    await c.facts.wait("never", tag="a")
    c.proxy.link.frozen = True
    await c.facts.wait("canceled", tag="a")


@case("close.cut", "a broken connection fails open streams and requests at both ends")
async def _cut(c: Conversation) -> None:
    stream = await c.asker.stream(b"!endless s", 2)
    await stream.take(2)
    request = await c.asker.start_request(b"!never r")
    await c.facts.wait("never", tag="r")
    c.proxy.link.cut()
    await _ends(stream.end())
    await _ends(request.take(1))
    await c.facts.wait("canceled", tag="s")
    await c.facts.wait("canceled", tag="r")


@case("close.client", "when a client disconnects, its handlers end")
async def _client(c: Conversation) -> None:
    stream = await c.asker.stream(b"!endless s", 2)
    await stream.take(2)
    await c.asker.start_request(b"!never r")
    await c.facts.wait("never", tag="r")
    await c.asker.close()
    await c.facts.wait("canceled", tag="s")
    await c.facts.wait("canceled", tag="r")


@case("close.server", "when a server disconnects, pending requests fail")
async def _server(c: Conversation) -> None:
    stream = await c.asker.stream(b"!endless s", 2)
    await stream.take(2)
    request = await c.asker.start_request(b"!never r")
    await c.facts.wait("never", tag="r")
    assert c.back is not None
    await c.back.hangup()
    await _ends(stream.end())
    await _ends(request.take(1))


async def _ends(call: object) -> None:
    try:
        await call  # type: ignore[misc]
    except Failed:
        return
    raise AssertionError("it ended in order, though the connection did not")


@case("back.request", "the server sends a request to the client")
async def _back(c: Conversation) -> None:
    await echoes(c)
    assert c.back is not None
    item = await c.back.request(b"your turn", b"meta")
    check(item is not None and (item.data, item.metadata) == (shown(b"your turn"), shown(b"meta")), f"got {item}")
    await fails(c.back.request(b"!fail no"), 0x201, "no")


@case("back.stream", "the server requests a stream from the client")
async def _back_stream(c: Conversation) -> None:
    await echoes(c)
    assert c.back is not None
    flow = await c.back.stream(b"!count 5 2", 2)
    await flow.take(2)
    await flow.more(4)
    await flow.take(3)
    await flow.end()


@case("back.fire", "the server sends a fire-and-forget to the client")
async def _back_fire(c: Conversation) -> None:
    await echoes(c)
    assert c.back is not None
    await c.back.fire(b"note", b"meta")
    await c.back_facts.wait("fired", data=shown(b"note"), metadata=shown(b"meta"))


@case("back.channel", "the server opens a channel to the client")
async def _back_channel(c: Conversation) -> None:
    await echoes(c)
    assert c.back is not None
    flow = await c.back.channel([b"one", b"two", b"three"], 10)
    got = [item.data for item in await flow.take(3)]
    check(got == [shown(b"one"), shown(b"two"), shown(b"three")], f"got {got}")
    await flow.end()
