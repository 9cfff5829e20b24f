"""Session types on live connections under asyncio, on Limit-Stream and on channels of RSocket. Rule numbers are
Limit-Stream's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import afflux
from afflux.demo.responder import Responder
from afflux.demo.sum import SUM, Done, SumClient, SumServer, add
from afflux.sessions import Chan, Monitored, SessionType, SessionTypeError, SessionViolation, session_type
from afflux.sessions.monitor import CHOICE

WIRES = pytest.mark.parametrize("wire", ["limit", "rsocket", "rsocket-draft", "reactivesocket"])
TALK: SessionType[Any, Any] = session_type(
    {
        "name": "talk",
        "states": [["send", "string", 1], ["choose", 0, 2], ["recv", "int", 3], ["offer", 4, 5], ["end"], ["end"]],
        "types": {},
    }
)
"The server speaks first, and chooses; the client chooses between two ends."


@asynccontextmanager
async def connected(wire: str, handler: object, **more: Any) -> AsyncIterator[afflux.Peer]:
    async with (
        afflux.serve(f"{wire}+mem://typed", handler, **more) as server,
        afflux.connect(server.uri) as peer,
    ):
        yield peer


def adding() -> afflux.Router:
    router = afflux.Router()
    router.session(SUM)(add)
    return router


async def summed(chan: Chan[SumClient], *numbers: int) -> int:
    first, *others = numbers
    choice = await chan.send(first)
    for number in others:
        choice = await (await choice.choose(1)).send(number)
    total, last = await (await (await choice.choose(2)).send(Done())).recv()
    await last.end()
    return total


@WIRES
async def test_the_example_of_the_specification(wire: str) -> None:
    async with connected(wire, adding()) as peer:
        for _ in range(3):  # one after the other
            async with peer.open(SUM) as chan:
                assert await summed(chan, 1, 2) == 3
        assert peer.streams() == []


@WIRES
async def test_the_demo_has_it(wire: str) -> None:
    async with connected(wire, Responder()) as peer, peer.open(SUM.server, route="sum") as chan:
        assert await summed(chan, *range(1000)) == 499_500


@WIRES
async def test_a_server_that_speaks_first(wire: str) -> None:
    router = afflux.Router()

    @router.session(TALK, "speak")
    async def speak(chan: Chan[Any]) -> None:
        for word in ("a", "b", "c"):
            chan = await chan.send(word)
            chan = await chan.choose(1 if word != "c" else 2)
        number, chan = await chan.recv()
        branch, chan = await chan.offer()
        assert (number, branch) == (3, 2)
        await chan.end()

    async with connected(wire, router) as peer, peer.open(TALK, route="speak") as chan:
        words = []
        while True:
            word, chan = await chan.recv()
            words.append(word)
            branch, chan = await chan.offer()
            if branch == 2:
                break
        chan = await (await chan.send(len(words))).choose(2)
        await chan.end()
        assert words == ["a", "b", "c"]


async def refused(step: Any, *words: str) -> None:
    with pytest.raises(SessionTypeError) as caught:
        await step
    assert all(word in caught.value.message for word in words), caught.value.message


@WIRES
async def test_SI_25_an_own_mistake_is_refused_before_anything_is_sent(wire: str) -> None:
    """SI-27: so is the second use of an endpoint. The session goes on."""
    async with connected(wire, adding()) as peer, peer.open(SUM) as chan:
        wrong: Any = chan
        for step in (wrong.recv(), wrong.choose(1), wrong.end(), wrong.send("1"), wrong.send(1 << 63)):
            await refused(step, "expects send int", "(state 0)")
        choice = await chan.send(1)
        await refused(chan.send(1), "this endpoint was used")
        await refused(wrong.send(1), "this endpoint was used")
        last = await (await choice.choose(2)).send(Done())
        total, end = await last.recv()
        await end.end()
        assert total == 1
        await refused(end.end(), "this endpoint was used")


@WIRES
async def test_SI_27_two_tasks_that_use_one_endpoint(wire: str) -> None:
    """One of them takes the step, and the others are refused; the peer sees a single one."""
    router, seen, go = afflux.Router(), list[int](), asyncio.Event()

    @router.session(SUM)
    async def serve(chan: Chan[SumServer]) -> None:
        await go.wait()
        number, choice = await chan.recv()
        seen.append(number)
        _, last = await choice.offer()
        _, answer = await last.recv()  # type: ignore[arg-type, misc]  # the second branch
        await (await answer.send(number)).end()

    async with connected(wire, router) as peer, peer.open(SUM) as chan:
        sent = await asyncio.gather(*(chan.send(number) for number in range(5)), return_exceptions=True)
        choices = [each for each in sent if isinstance(each, Chan)]
        refusals = [each for each in sent if isinstance(each, SessionTypeError)]
        assert (len(choices), len(refusals)) == (1, 4)
        assert {each.rule for each in refusals} == {"SI-27"}
        last = await (await choices[0].choose(2)).send(Done())
        waiting = asyncio.create_task(last.recv())
        await asyncio.sleep(0)
        await refused(last.recv(), "this endpoint was used")
        go.set()
        total, end = await waiting
        await end.end()
        assert seen == [total]


@WIRES
async def test_a_wrapped_peer_opens_sessions(wire: str) -> None:
    """Middleware does not see their steps, neither here nor around a router."""
    calls: list[str] = []

    class Count(afflux.Middleware):
        async def request(self, call: afflux.Call, proceed: Any) -> Any:
            calls.append(call.verb)
            return await proceed(call)

    async with connected(wire, afflux.wrap(adding(), Count())) as peer:
        wrapped = afflux.wrap(peer, Count())
        async with wrapped.open(SUM) as chan:
            assert await summed(chan, 1, 2) == 3
    assert calls == []


@WIRES
async def test_SI_25_a_mistake_of_the_peer_has_state_expected_and_seen(wire: str) -> None:
    """The server sends a text instead of the sum."""
    wrong = session_type(
        {
            "name": "sum",
            "states": [["recv", "int", 1], ["offer", 0, 2], ["recv", "Done", 3], ["send", "string", 4], ["end"]],
            "types": {"Done": ["struct"]},
        }
    )
    router, failed = afflux.Router(), asyncio.Event()

    @router.session(wrong)
    async def serve(chan: Any) -> None:
        try:
            _, chan = await chan.recv()
            _, chan = await chan.offer()
            _, chan = await chan.recv()
            await (await chan.send("three")).end()
            await asyncio.Event().wait()
        finally:
            failed.set()

    async with connected(wire, router) as peer:
        with pytest.raises(SessionViolation) as caught:
            async with peer.open(SUM) as chan:
                await summed(chan, 1)
        assert (caught.value.state, caught.value.expected) == (3, "recv int")
        assert caught.value.seen == "a string"
        await asyncio.wait_for(failed.wait(), 5)


@WIRES
async def test_a_client_that_leaves_ends_the_session(wire: str) -> None:
    router, taken, left = afflux.Router(), asyncio.Event(), asyncio.Event()

    @router.session(SUM)
    async def serve(chan: Any) -> None:
        try:
            _, chan = await chan.recv()
            taken.set()
            await chan.offer()
        finally:
            left.set()

    async with connected(wire, router) as peer:
        async with peer.open(SUM) as chan:
            await chan.send(1)
            await asyncio.wait_for(taken.wait(), 5)
        await asyncio.wait_for(left.wait(), 5)


@WIRES
async def test_a_handler_that_returns_early_fails_the_session(wire: str) -> None:
    router = afflux.Router()

    @router.session(SUM)
    async def serve(chan: Any) -> None:
        await chan.recv()

    async with connected(wire, router) as peer:
        with pytest.raises(afflux.Error):
            async with peer.open(SUM) as chan:
                await summed(chan, 1)


@WIRES
async def test_a_cancelled_step_can_be_taken_again(wire: str) -> None:
    router, go = afflux.Router(), asyncio.Event()

    @router.session(SUM)
    async def serve(chan: Chan[SumServer]) -> None:
        await go.wait()
        await add(chan)

    async with connected(wire, router) as peer, peer.open(SUM) as chan:
        last = await (await (await chan.send(5)).choose(2)).send(Done())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await last.recv()
        go.set()
        total, end = await last.recv()
        await end.end()
        assert total == 5


async def test_an_unknown_channel_is_refused() -> None:
    async with connected("limit", adding()) as peer:
        with pytest.raises(afflux.SetupRefused, match="unknown channel"):
            async with peer.open(TALK) as chan:
                await chan.recv()
    async with connected("rsocket", adding()) as peer:
        with pytest.raises(afflux.Rejected, match="talk"):
            async with peer.open(TALK) as chan:
                await chan.recv()


async def test_R_25_one_session_at_a_time() -> None:
    async with connected("limit", adding()) as peer, peer.open(SUM):
        with pytest.raises(afflux.LimitExceeded, match="one session at a time"):
            async with peer.open(SUM):
                pass


async def test_a_route_is_the_name_of_a_channel() -> None:
    """Also with verbs that have no session type."""
    router = afflux.Router()

    @router.channel("words.{kind}")
    async def words(items: AsyncIterator[bytes], kind: str) -> AsyncIterator[bytes]:
        async for item in items:
            yield kind.encode() + item

    async with connected("limit", router) as peer:
        async with peer.channel([b"", b"a", b"b"], route="words.x") as items:
            assert [item.text async for item in items] == ["x", "xa", "xb"]
        with pytest.raises(afflux.Error, match="cannot contain"):
            async with peer.channel([b""], route="words.x", metadata=[("a/b", b"c")]) as items:
                await anext(items)


@WIRES
async def test_what_cannot_be_opened(wire: str) -> None:
    async with connected(wire, adding()) as peer:
        with pytest.raises(TypeError, match="expected a SessionType"):
            peer.open("sum")  # type: ignore[call-overload]  # what a program may try
        session = peer.open(SUM)
        async with session as chan:
            await summed(chan, 1)
        with pytest.raises(afflux.LocalProtocolError, match="open another one"):
            async with session:
                pass


async def test_a_protocol_without_channels() -> None:
    async with connected("jmux", Responder()) as peer:
        with pytest.raises(afflux.Unsupported, match="channel"):
            peer.open(SUM)


# Loops

NUMBERS: SessionType[Any, Any] = session_type(
    {
        "name": "numbers",
        "states": [["recv", "int", 1], ["choose", 2, 3], ["send", "int", 1], ["send", "string", 4], ["end"]],
        "types": {},
    }
)


def numbering(*more: Any) -> afflux.Router:
    """A server that counts up to what it is asked for, sends ``more``, and a text."""
    router = afflux.Router()

    @router.session(NUMBERS)
    async def serve(chan: Chan[Any]) -> None:
        count, chan = await chan.recv()
        await chan.loop().send_each(range(count))
        await chan.loop().send_each(more)
        chan = await (await chan.choose(2)).send("done")
        await chan.end()

    return router


@WIRES
@pytest.mark.parametrize("credit", [1, 7, 256])
async def test_the_values_of_a_loop(wire: str, credit: int) -> None:
    async with connected(wire, numbering(7, 8)) as peer:
        for count in (0, 1, 500):
            async with peer.open(NUMBERS, credit=credit) as chan:
                chan = await chan.send(count)
                assert [value async for value in chan.loop().recv_each()] == [*range(count), 7, 8]
                assert [value async for value in chan.loop().recv_each()] == [], "the other branch waits"
                branch, chan = await chan.offer()
                assert branch == 2
                text, chan = await chan.recv()
                await chan.end()
                assert text == "done"


@WIRES
async def test_a_loop_that_is_left_early(wire: str) -> None:
    """Steps and loops take turns; nothing is lost between them."""
    async with connected(wire, numbering()) as peer, peer.open(NUMBERS) as chan:
        chan, taken = await chan.send(300), list[int]()
        while len(taken) < 250:
            async for value in chan.loop().recv_each():
                taken.append(value)
                if value % 7 == 0:
                    break
            _, chan = await chan.offer()
            value, chan = await chan.recv()
            taken.append(value)
        taken += [value async for value in chan.loop().recv_each()]
        _, chan = await chan.offer()
        await (await chan.recv())[1].end()
        assert taken == list(range(300))


@WIRES
async def test_a_source_of_a_loop_that_waits(wire: str) -> None:
    async def slow() -> AsyncIterator[int]:
        for number in range(5):
            await asyncio.sleep(0)
            yield number

    router = afflux.Router()

    @router.session(NUMBERS)
    async def serve(chan: Chan[Any]) -> None:
        _, chan = await chan.recv()
        await chan.loop().send_each(slow())
        await (await (await chan.choose(2)).send("")).end()

    async with connected(wire, router) as peer, peer.open(NUMBERS) as chan:
        chan = await chan.send(1)
        assert [value async for value in chan.loop().recv_each()] == [0, 1, 2, 3, 4]
        _, chan = await chan.offer()
        await (await chan.recv())[1].end()


@WIRES
async def test_SI_25_a_wrong_value_of_a_loop(wire: str) -> None:
    """Those before it are sent, and the session goes on."""
    router = afflux.Router()

    @router.session(NUMBERS)
    async def serve(chan: Chan[Any]) -> None:
        _, chan = await chan.recv()
        await refused(chan.loop().send_each([1, 2, "3", 4]), "expects send int", "str '3'")
        await chan.loop().send_each([5])
        await (await (await chan.choose(2)).send("")).end()

    async with connected(wire, router) as peer, peer.open(NUMBERS) as chan:
        chan = await chan.send(1)
        assert [value async for value in chan.loop().recv_each()] == [1, 2, 5]
        _, chan = await chan.offer()
        await (await chan.recv())[1].end()


@WIRES
async def test_SI_25_a_peer_that_breaks_a_loop(wire: str) -> None:
    wrong: SessionType[Any, Any] = session_type(
        {
            "name": "numbers",
            "states": [["recv", "int", 1], ["choose", 2, 3], ["send", "string", 1], ["send", "string", 4], ["end"]],
            "types": {},
        }
    )
    router = afflux.Router()

    @router.session(wrong)
    async def serve(chan: Chan[Any]) -> None:
        _, chan = await chan.recv()
        await chan.loop().send_each(["a", "b"])
        await asyncio.Event().wait()

    async with connected(wire, router) as peer:
        with pytest.raises(SessionViolation) as caught:
            async with peer.open(NUMBERS) as chan:
                chan = await chan.send(1)
                await anext(chan.loop().recv_each())
        assert (caught.value.state, caught.value.expected, caught.value.seen) == (1, "recv int", "a string")


@WIRES
async def test_a_loop_that_the_peer_leaves(wire: str) -> None:
    router, left = afflux.Router(), asyncio.Event()

    @router.session(NUMBERS)
    async def serve(chan: Chan[Any]) -> None:
        try:
            _, chan = await chan.recv()
            await chan.loop().send_each(iter(int, 1))  # zeros without end
        finally:
            left.set()

    async with connected(wire, router) as peer:
        async with peer.open(NUMBERS, credit=16) as chan:
            chan = await chan.send(1)
            async for _ in chan.loop().recv_each():
                break
        await asyncio.wait_for(left.wait(), 5)


@WIRES
async def test_a_connection_that_is_lost_in_a_loop(wire: str) -> None:
    router = afflux.Router()

    @router.session(NUMBERS)
    async def serve(chan: Chan[Any]) -> None:
        _, chan = await chan.recv()
        await chan.loop().send_each([1, 2, 3])
        await asyncio.Event().wait()

    async with connected(wire, router) as peer, peer.open(NUMBERS) as chan:
        chan = await chan.send(1)
        with pytest.raises(afflux.ConnectionClosed):
            async for value in chan.loop().recv_each():
                if value == 3:
                    peer.cut()


# Items that the program writes itself


def steps(*parts: Any) -> list[bytes]:
    """The items of a client of ``sum``: numbers, and None for the end."""
    notation = Monitored(SUM.client)
    made = [notation.value(part) for part in parts]
    return [*made, CHOICE + b"\x01", b"\x90"]


@pytest.mark.parametrize("wire", ["rsocket", "rsocket-draft", "reactivesocket"])
async def test_a_channel_is_monitored(wire: str) -> None:
    async with connected(wire, adding()) as peer:
        source = steps(1, 2)
        async with peer.channel(source, route="sum", session=SUM) as items:
            assert [item.data async for item in items] == [b"\x03"]
        async with peer.channel([source], route="sum", session=SUM.server) as items:
            assert [batch async for batch in items.batches()] == [[afflux.Payload(b"\x03")]]


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ([b"\x01", b"\xa1x"], "a string"),
        ([b"\x01", b"\xd4\x00\x05"], "branch 6"),
        ([b"\x01"], "the end of the items"),
    ],
)
async def test_a_monitored_source_that_breaks_the_type(source: list[bytes], seen: str) -> None:
    async with connected("rsocket", adding()) as peer:
        with pytest.raises(SessionTypeError, match=seen):
            async with peer.channel(source, route="sum", session=SUM) as items:
                await anext(items)


@pytest.mark.parametrize("answer", [[b"\xa1x"], [], [b"\x03", b"\x04"]])
async def test_a_monitored_peer_that_breaks_the_type(answer: list[bytes]) -> None:
    class Wrong:
        async def channel(self, items: AsyncIterator[afflux.Payload]) -> AsyncIterator[bytes]:
            async for item in items:
                if item.data == b"\x90":
                    break
            for item in answer:
                yield item

    async with connected("rsocket", Wrong()) as peer:
        with pytest.raises(SessionViolation):
            async with peer.channel(steps(3), session=SUM) as items:
                async for _ in items:
                    pass
        with pytest.raises(SessionViolation):
            async with peer.open(SUM, route="x") as chan:
                await summed(chan, 3)
    async with connected("limit", adding()) as peer:
        with pytest.raises(afflux.Unsupported, match="use open"):
            peer.channel([], session=SUM)


@WIRES
async def test_a_value_that_is_too_large_ends_the_session(wire: str) -> None:
    limits = afflux.Limits.server(payload_bytes=1000, frame_bytes=1000, first_frame_bytes=1000)
    texts = session_type({"name": "texts", "states": [["recv", "string", 1], ["end"]], "types": {}})
    router = afflux.Router()

    @router.session(texts)
    async def serve(chan: Any) -> None:
        _, chan = await chan.recv()
        await chan.end()

    async with (
        afflux.serve(f"{wire}+mem://typed", router, limits=limits) as server,
        afflux.connect(server.uri, limits=limits) as peer,
        peer.open(texts) as chan,
    ):
        with pytest.raises(afflux.Error):
            await chan.send("x" * 2000)
            await chan.send("x")


@WIRES
async def test_a_lost_connection_fails_the_step(wire: str) -> None:
    router = afflux.Router()

    @router.session(SUM)
    async def serve(chan: Any) -> None:
        await asyncio.Event().wait()

    async with connected(wire, router) as peer, peer.open(SUM) as chan:
        last = await (await (await chan.send(1)).choose(2)).send(Done())
        asyncio.get_running_loop().call_later(0.01, peer.cut)
        with pytest.raises(afflux.ConnectionClosed):
            await last.recv()
        with pytest.raises(afflux.ConnectionClosed):
            await last.recv()
