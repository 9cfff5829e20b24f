"""Every interaction, what is carried, and errors."""

from __future__ import annotations

from interop.cases.base import case, echoes, fails
from interop.conversation import Conversation, check
from interop.program import shown
from interop.responder import expected_sum
from interop.sides import Item


def _same(item: Item | None, data: bytes, metadata: bytes | None) -> None:
    check(item == Item(shown(data), shown(metadata)), f"sent {data!r} and {metadata!r}, got {item}")


def _data(item: Item | None, data: bytes) -> None:
    check(item is not None and item.data == shown(data), f"expected {data!r}, got {item}")


@case("request.echo", "data and metadata are echoed unchanged", smoke=True)
async def _echo(c: Conversation) -> None:
    _same(await c.asker.request(b"data", b"metadata"), b"data", b"metadata")


@case("request.no-metadata", "missing metadata stays missing", smoke=True)
async def _none(c: Conversation) -> None:
    _same(await c.asker.request(b"data"), b"data", None)


@case("request.empty-metadata", "empty metadata differs from missing metadata")
async def _empty_metadata(c: Conversation) -> None:
    _same(await c.asker.request(b"data", b""), b"data", b"")


@case("request.empty-data", "empty data, with and without metadata")
async def _empty_data(c: Conversation) -> None:
    _same(await c.asker.request(b"", b"metadata"), b"", b"metadata")
    _data(await c.asker.request(b""), b"")


@case("request.bytes", "every byte value, in data and metadata")
async def _bytes(c: Conversation) -> None:
    every = bytes(range(256))
    _same(await c.asker.request(every, every[::-1]), every, every[::-1])


@case("request.later", "a slow answer does not delay others")
async def _later(c: Conversation) -> None:
    slow = await c.asker.start_request(b"!slow 300")
    await echoes(c)
    _data((await slow.take(1))[0], b"slow")


@case("request.route", "composite metadata with a route, decoded by the responder's own library", smoke=True)
async def _route(c: Conversation) -> None:
    item = await c.asker.request(b"!route", route="prices.de")
    check(item is not None and item.data == shown(b"prices.de text/x-interop=5"), f"read as {item}")


@case("fire.data", "fire-and-forget arrives, with metadata and without", smoke=True)
async def _fire(c: Conversation) -> None:
    await c.asker.fire(b"one", b"meta")
    await c.facts.wait("fired", data=shown(b"one"), metadata=shown(b"meta"))
    await c.asker.fire(b"two")
    await c.facts.wait("fired", data=shown(b"two"))
    await echoes(c)


@case("push.metadata", "metadata push arrives")
async def _push(c: Conversation) -> None:
    await c.asker.push(b"about the connection")
    await c.facts.wait("pushed", metadata=shown(b"about the connection"))


@case("stream.items", "ten items, in order, then completion", smoke=True)
async def _items(c: Conversation) -> None:
    flow = await c.asker.stream(b"!count 10 8", 11)
    got = [item.data for item in await flow.take(10)]
    check(got == [shown(str(i).ljust(8, ".").encode()) for i in range(10)], f"got {got}")
    await flow.end()


@case("stream.metadata", "items with metadata")
async def _metadata(c: Conversation) -> None:
    flow = await c.asker.stream(b"!meta 3", 5)
    got = await flow.take(3)
    check(got == [Item(shown(b"%d" % i), shown(b"m%d" % i)) for i in range(3)], f"got {got}")
    await flow.end()


@case("stream.request", "the request's data and metadata reach the responder")
async def _payload(c: Conversation) -> None:
    flow = await c.asker.stream(b"one item", 5, b"its metadata")
    _same((await flow.take(1))[0], b"one item", b"its metadata")
    await flow.end()


@case("stream.empty", "a stream without items completes")
async def _empty(c: Conversation) -> None:
    await (await c.asker.stream(b"!empty", 1)).end()


@case("channel.echo", "items are echoed", smoke=True)
async def _channel(c: Conversation) -> None:
    items = [b"item %d" % i for i in range(5)]
    flow = await c.asker.channel(items, 100)
    got = [item.data for item in await flow.take(5)]
    check(got == [shown(item) for item in items], f"got {got}")
    await flow.end()


@case("channel.metadata", "items with metadata, both ways")
async def _channel_metadata(c: Conversation) -> None:
    items = [(b"item %d" % i, b"metadata %d" % i) for i in range(3)]
    flow = await c.asker.channel(items, 100)
    got = await flow.take(3)
    check(got == [Item(shown(data), shown(metadata)) for data, metadata in items], f"got {got}")
    await flow.end()


@case("channel.single", "a channel of one item")
async def _single(c: Conversation) -> None:
    flow = await c.asker.channel([b"alone"], 10)
    _data((await flow.take(1))[0], b"alone")
    await flow.end()


@case("channel.requester-first", "the requester completes, then the responder answers")
async def _sum(c: Conversation) -> None:
    items = [b"!sum", *(b"item %d" % i for i in range(100))]
    flow = await c.asker.channel(items, 10)
    got = (await flow.take(1))[0].data
    check(got == shown(expected_sum(items)), f"{got} is not {expected_sum(items)!r}")
    await flow.end()


@case("channel.responder-first", "the responder completes, then the requester", smoke=True)
async def _half(c: Conversation) -> None:
    items = [b"!half", *(b"item %d" % i for i in range(100))]
    flow = await c.asker.channel(items, 10)
    _data((await flow.take(1))[0], b"half")
    await flow.end()
    ended = await c.facts.wait("ended", tag="half")
    check(ended["count"] == len(items), f"{ended['count']} of {len(items)} items arrived")


@case("error.application", "an application error with its text, for a request", smoke=True)
async def _fail(c: Conversation) -> None:
    await fails(c.asker.request("!fail it is Sunday, schön".encode("latin-1")), 0x201, "it is Sunday, schön")
    await echoes(c)


@case("error.empty-text", "an error without a text")
async def _no_text(c: Conversation) -> None:
    await fails(c.asker.request(b"!fail "), 0x201, "")


@case("error.stream", "an error after two items")
async def _fail_stream(c: Conversation) -> None:
    flow = await c.asker.stream(b"!fail 2 no more", 10)
    await flow.take(2)
    await fails(flow.end(), 0x201, "no more")


@case("error.channel-responder", "a channel that fails at the responder")
async def _fail_channel(c: Conversation) -> None:
    flow = await c.asker.channel([b"!fail 2 no more", b"two"], 10, open=True)
    await fails(flow.end(), 0x201, "no more")
    await echoes(c)


@case("error.channel-requester", "a channel that fails at the requester")
async def _fail_requester(c: Conversation) -> None:
    await c.asker.channel([b"first", b"second"], 10, fail="source broke")
    failed = await c.facts.wait("failed")
    check("source broke" in failed["message"], f"the responder heard {failed}")
    await echoes(c)


@case("error.code-301", "the smallest application error code, with its text")
async def _code(c: Conversation) -> None:
    await fails(c.asker.request(b"!code 301 out of stock"), 0x301, "out of stock")


@case("error.code-stream", "the same for a stream")
async def _code_stream(c: Conversation) -> None:
    flow = await c.asker.stream(b"!code 1 301 out of stock", 10)
    await flow.take(1)
    await fails(flow.end(), 0x301, "out of stock")


@case("error.code-largest", "the largest application error code")
async def _largest(c: Conversation) -> None:
    await fails(c.asker.request(b"!code fffffffe the end"), 0xFFFFFFFE, "the end")
    await echoes(c)


@case("error.rejected", "REJECTED")
async def _rejected(c: Conversation) -> None:
    await fails(c.asker.request(b"!code 202 later"), 0x202, "later")


@case("error.canceled", "CANCELED")
async def _canceled(c: Conversation) -> None:
    await fails(c.asker.request(b"!code 203 enough"), 0x203, "enough")


@case("error.invalid", "INVALID")
async def _invalid(c: Conversation) -> None:
    await fails(c.asker.request(b"!code 204 what?"), 0x204, "what?")
