"""What the objects of a program look like in a notebook, a debugger and a log: short, and without secrets."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import pytest

import afflux

pytestmark = pytest.mark.asyncio


class Numbers:
    """Counts, and adds up."""

    async def stream(self, payload: afflux.Payload) -> object:
        if payload.text == "together":
            yield ["1", "2", "3"]
        for number in range(10):
            yield f"secret {number}"

    async def channel(self, items: afflux.ItemStream) -> object:
        async for item in items:
            yield repr(items) if item.text == "show" else item


async def test_a_connection_says_how_it_is_made() -> None:
    async with afflux.serve("mem://reprs", Numbers()) as server:
        connecting = afflux.connect(server.uri, setup=afflux.Bearer("s3cret"))
        assert repr(connecting) == '<Connecting to mem://reprs: await it, or use "async with">'
        async with connecting:
            assert repr(connecting) == "<Connecting to mem://reprs: connected>"
        assert repr(connecting) == "<Connecting to mem://reprs: closed>"


async def test_a_stream_shows_its_credit_and_its_items() -> None:
    async with afflux.serve("mem://reprs", Numbers()) as server, afflux.connect(server.uri) as peer:
        items = peer.stream(b"s3cret", credit=4)
        assert repr(items) == "<ItemStream: not open, 0 unread, limited by application>"
        await anext(items)
        shown = repr(items)
        assert shown.startswith(f"<ItemStream: stream {items.id}, ")
        assert "secret" not in shown
        by_hand = peer.stream(credit=0)
        by_hand.request(2)
        assert [(await anext(by_hand)).text for _ in range(2)] == ["secret 0", "secret 1"]
        assert repr(by_hand) == f"<ItemStream: stream {by_hand.id}, 0 granted, 0 unread, limited by credit>"
        items.cancel()
        assert repr(items).endswith("0 unread, ended>")


async def test_unread_items_are_counted() -> None:
    async with afflux.serve("mem://reprs", Numbers()) as server, afflux.connect(server.uri) as peer:
        items = peer.channel([["1", "2", "3"]], credit=3)
        assert (await anext(items)).text == "1"
        assert [item.text async for item in items] == ["2", "3"]
        assert repr(items) == f"<Channel: stream {items.id}, 0 granted, 0 unread, ended>"
        together = peer.stream(b"together", credit=3)
        await anext(together)
        assert repr(together) == f"<ItemStream: stream {together.id}, 0 granted, 2 unread, limited by application>"


async def test_a_channel_has_its_name() -> None:
    async with afflux.serve("mem://reprs", Numbers()) as server, afflux.connect(server.uri) as peer:
        channel = peer.channel(["show"])
        assert repr(channel) == "<Channel: not open, 0 unread, limited by application>"
        (seen,) = [item.text async for item in channel]
        assert seen.startswith("<ItemStream: stream 1, ")


async def test_a_session_shows_its_state() -> None:
    class Echo:
        async def session(self, session: afflux.Session) -> None:
            await session.write(await session.read())

    async with afflux.serve("jmux+mem://reprs", Echo()) as server, afflux.connect(server.uri) as peer:
        async with await peer.session(b"x", finish=True) as session:
            assert repr(session) == f"<Session {session.stream}: open>"
            while await session.read():
                pass
            assert repr(session) == f"<Session {session.stream}: ended by the peer>"


async def test_a_pool_shows_its_connections() -> None:
    async with afflux.serve("mem://reprs", Numbers()) as server, afflux.Pool(server.uri, most=2) as pool:
        assert repr(pool) == "<Pool mem://reprs: 0 of 2 connections>"


async def test_a_router_shows_its_routes_up_to_a_bound() -> None:
    router = afflux.Router()
    assert repr(router) == "<Router: no routes>"

    async def answer(payload: afflux.Payload) -> afflux.Payload:
        return payload

    router.request()(answer)
    router.request("echo")(answer)
    assert repr(router) == '<Router: request fallback, request "echo">'
    for number in range(100):
        router.stream("x" * 200 + str(number))(answer)
    assert repr(router).endswith(", …>")
    assert len(repr(router)) < 500
