"""Leases and resumption."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from afflux.protocols.rsocket import frames as f
from interop.cases.base import case, echoes
from interop.conversation import Conversation, Failed, Skip, check
from interop.program import digest, fill, read, shown
from interop.responder import expected_sum

RATE = {"resume_rate": (1000, 0.0001)}
"These cases come back faster than a server should let anyone."


def _requests(c: Conversation) -> int:
    """How many requests the client has sent."""
    return sum(seen.direction == ">" and 4 <= seen.type <= 7 for seen in c.seen)


async def _beats(c: Conversation, count: int) -> None:
    """Let the client's keepalive go round: what was to be sent before has been sent."""
    so_far = sum(seen.type == f.Keepalive.TYPE and seen.direction == "<" for seen in c.seen)
    await c.frame(f.Keepalive, "<", so_far + count)


@case("lease.granted", "requests are sent once there is a lease", lease=(20, 5))
async def _granted(c: Conversation) -> None:
    lease = f.decode((await c.frame(f.Lease, "<")).frame)
    check((lease.ttl_ms, lease.requests) == (20_000, 5), f"the lease is {lease}")  # type: ignore[attr-defined]
    await c.asker.leased()
    for _ in range(5):
        await echoes(c)


@case("lease.honoured", "no request is sent beyond the lease", lease=(20, 2), keepalive=0.1, lifetime=5, smoke=True)
async def _honoured(c: Conversation) -> None:
    await c.asker.leased()
    await echoes(c)
    await echoes(c)
    await c.asker.start_request(b"one too many")
    await _beats(c, 2)
    check(_requests(c) == 2, f"{_requests(c)} requests under a lease for 2")


@case("lease.enforced", "a request beyond the lease is rejected by the responder", lease=(20, 1), audited=False)
async def _enforced(c: Conversation) -> None:
    await c.asker.leased()
    await echoes(c)
    c.proxy.link.inject(">", f.RequestResponse(stream=3, data=b"one too many").encode())
    await c.proxy.wait(lambda: any(seen.stream == 3 and seen.direction == "<" for seen in c.seen))
    answer = f.decode(next(seen.frame for seen in c.seen if seen.stream == 3 and seen.direction == "<"))
    check(isinstance(answer, f.ErrorFrame) and answer.code == 0x202, f"the answer is {answer}")


@case("lease.renewed", "requests that wait are sent under the next leases", lease=(0.3, 2), limit=10)
async def _renewed(c: Conversation) -> None:
    if c.role == "server":
        raise Skip("it grants only one lease")
    await asyncio.gather(*(echoes(c, b"request %d" % i) for i in range(6)))
    check(sum(seen.type == f.Lease.TYPE for seen in c.seen) >= 3, "six requests under fewer than three leases")


@case("lease.expires", "an expired lease allows no request", lease=(0.3, 100), keepalive=0.1, lifetime=5)
async def _expires(c: Conversation) -> None:
    if c.role == "client":
        raise Skip("afflux grants repeatedly: see lease.renewed")
    lease = f.decode((await c.frame(f.Lease, "<")).frame)
    await c.asker.leased()
    await echoes(c)
    await asyncio.sleep(lease.ttl_ms / 1000)  # type: ignore[attr-defined]
    await c.asker.start_request(b"too late")
    await _beats(c, 2)
    check(_requests(c) == 1, f"{_requests(c)} requests, though the lease was over")


@case("lease.back", "the server's requests use the client's lease", lease=(20, 5), lease_back=(20, 2))
async def _back(c: Conversation) -> None:
    await c.frame(f.Lease, ">")
    assert c.back is not None
    await c.back.leased()
    item = await c.back.request(b"under a lease")
    check(item is not None and item.data == shown(b"under a lease"), f"got {item}")


@case(
    "lease.kinds",
    "each interaction uses one request of the lease; a fifth needs none",
    lease=(20, 4),
    keepalive=0.1,
    lifetime=5,
)
async def _kinds(c: Conversation) -> None:
    await c.asker.leased()
    await echoes(c)
    await c.asker.fire(b"fired")
    await c.facts.wait("fired", data=shown(b"fired"))
    stream = await c.asker.stream(b"!count 20 1", 3)
    for _ in range(4):
        await stream.take(3)
        await stream.more(3)  # what is asked for later costs nothing
    channel = await c.asker.channel([b"one", b"two"], 5)
    await channel.take(2)
    await c.asker.start_request(b"one too many")
    await _beats(c, 2)
    check(_requests(c) == 4, f"{_requests(c)} requests under a lease for 4")


@case("lease.largest", "a lease for 2³¹ - 1 requests", lease=(20, 0x7FFFFFFF))
async def _largest(c: Conversation) -> None:
    await c.asker.leased()
    await asyncio.gather(*(echoes(c, b"request %d" % i) for i in range(50)))


@case("lease.refused", "a server without leases answers UNSUPPORTED_SETUP", lease_alone=True, audited=False)
async def _refused(c: Conversation) -> None:
    code = await c.asker.refused()
    check(code == 2, f"it says {code}")


async def _count(c: Conversation, items: int) -> None:
    """Take a stream of so many items; the connection breaks while more of them are asked for."""
    third = items // 3
    flow = await c.asker.stream(b"!count %d 16" % items, third)
    got = await flow.take(third)
    await flow.more(third)
    c.proxy.link.cut()
    got += await flow.take(third)
    await flow.more(items - 2 * third + 1)
    got += await flow.take(items - 2 * third)
    await flow.end()
    expected = [shown(str(i).ljust(16, ".").encode()) for i in range(items)]
    check([item.data for item in got] == expected, "not each item once and in order")


@case("resume.idle", "the connection breaks while idle", resume=True, limits=RATE, limit=10)
async def _idle(c: Conversation) -> None:
    await echoes(c)
    c.proxy.link.cut()
    await c.proxy.wait(lambda: len(c.proxy.links) == 2)
    await c.frame(f.ResumeOk, "<")
    await echoes(c)


@case("resume.request", "a pending answer arrives after the break", resume=True, limits=RATE, limit=10)
async def _request(c: Conversation) -> None:
    await echoes(c)
    flow = await c.asker.start_request(b"!slow 400")
    await c.frame(f.RequestResponse, ">", 2)
    c.proxy.link.cut()
    check((await flow.take(1))[0].data == shown(b"slow"), "another answer")


@case("resume.stream", "a stream continues: each item once, in order", resume=True, limits=RATE, limit=10, smoke=True)
async def _stream(c: Conversation) -> None:
    await _count(c, 600)


@case("resume.lost-up", "frames lost from the client are sent again", resume=True, limits=RATE, limit=10)
async def _lost_up(c: Conversation) -> None:
    await echoes(c)
    c.proxy.link.frozen = True
    flow = await c.asker.start_request(b"lost on the way")
    await c.frame(f.RequestResponse, ">", 2)
    c.proxy.link.cut()
    check((await flow.take(1))[0].data == shown(b"lost on the way"), "another answer")


@case("resume.lost-down", "frames lost from the server are sent again", resume=True, limits=RATE, limit=10)
async def _lost_down(c: Conversation) -> None:
    flow = await c.asker.stream(b"!count 40 16", 10)
    got = await flow.take(10)
    c.proxy.link.mute = True
    await flow.more(31)
    await c.frame(f.PayloadFrame, "<", 20)
    c.proxy.link.cut()
    got += await flow.take(30)
    await flow.end()
    expected = [shown(str(i).ljust(16, ".").encode()) for i in range(40)]
    check([item.data for item in got] == expected, "not each item once and in order")


@case("resume.channel", "a channel continues in both directions", resume=True, limits=RATE, limit=10)
async def _channel(c: Conversation) -> None:
    items = [b"!sum", *(b"item %d" % i for i in range(300))]
    flow = await c.asker.channel(items, 10)
    await c.proxy.wait(lambda: sum(seen.direction == ">" for seen in c.seen) > 20)
    c.proxy.link.cut()
    check((await flow.take(1))[0].data == shown(expected_sum(items)), "not each item once and in order")


@case("resume.twice", "two breaks", resume=True, limits=RATE, limit=10)
async def _twice(c: Conversation) -> None:
    await _count(c, 60)
    await c.proxy.wait(lambda: len(c.proxy.links) == 2)
    await echoes(c)
    await _count(c, 60)
    await echoes(c)


@case("resume.cuts", "five breaks within one stream of 1,200 items", resume=True, limits=RATE, limit=20)
async def _cuts(c: Conversation) -> None:
    flow = await c.asker.stream(b"!count 1200 16", 100)
    got = []
    for cut in range(12):
        await flow.more(100)
        got += await flow.take(100)
        if cut % 2:
            continue
        links = len(c.proxy.links)
        c.proxy.link.cut()
        await c.proxy.wait(lambda links=links: len(c.proxy.links) > links)  # type: ignore[misc]
    await flow.end()
    expected = [shown(str(i).ljust(16, ".").encode()) for i in range(1200)]
    check([item.data for item in got] == expected, "not each item once and in order")


@case(
    "resume.requests",
    "twenty answers pending at the break arrive once each",
    resume=True,
    limits=RATE,
    limit=10,
)
async def _requests_under_way(c: Conversation) -> None:
    await echoes(c)
    flows = [await c.asker.start_request(b"!slow 300") for _ in range(20)]
    await c.frame(f.RequestResponse, ">", 21)
    c.proxy.link.cut()
    for flow in flows:
        check((await flow.take(1))[0].data == shown(b"slow"), "another answer")
    await echoes(c)


@case("resume.fragments-up", "a break within the fragments of a request", resume=True, limits=RATE, limit=10, mtu=1500)
async def _fragments_up(c: Conversation) -> None:
    await echoes(c)
    c.proxy.link.frozen = True
    flow = await c.asker.start_request(b"!digest " + fill(40_000, 3))
    await c.frame(f.PayloadFrame, ">", 9)
    c.proxy.link.cut()
    data = b"!digest " + fill(40_000, 3)
    got = read((await flow.take(1))[0].data) or b""
    check(got.startswith(f"{len(data)} {digest(data)}".encode()), f"arrived as {got!r}")


@case(
    "resume.fragments-down", "a break within the fragments of an answer", resume=True, limits=RATE, limit=10, mtu=1500
)
async def _fragments_down(c: Conversation) -> None:
    await echoes(c)
    c.proxy.link.mute = True
    flow = await c.asker.start_request(b"!size 40000 0")
    await c.frame(f.PayloadFrame, "<", 10)
    c.proxy.link.cut()
    check((await flow.take(1))[0].data == shown(fill(40_000, 1)), "another answer")


@case("resume.lost-cancel", "a lost CANCEL is sent again", resume=True, limits=RATE, limit=10)
async def _lost_cancel(c: Conversation) -> None:
    flow = await c.asker.start_request(b"!never a")
    await c.facts.wait("never", tag="a")
    c.proxy.link.frozen = True
    await flow.cancel()
    await c.frame(f.Cancel, ">")
    c.proxy.link.cut()
    await c.facts.wait("canceled", tag="a")
    await echoes(c)


@case("resume.refused", "a server without resumption answers REJECTED_SETUP", resume_alone=True, audited=False)
async def _resume_refused(c: Conversation) -> None:
    code = await c.asker.refused()
    check(code == 3, f"it says {code}")


@case(
    "resume.unknown",
    "an unknown token receives REJECTED_RESUME, and other sessions are unaffected",
    transports=("tcp",),
    resume=True,
    limits=RATE,
)
async def _unknown(c: Conversation) -> None:
    await echoes(c)
    host, _, port = c.proxy.uri.partition("://")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    frame = f.Resume(
        token=b"nobody has this", last_received_server_position=0, first_available_client_position=0
    ).encode(prefixed=True)
    writer.write(frame)
    size = int.from_bytes(await reader.readexactly(3), "big")
    answer = f.decode(await reader.readexactly(size))
    check(isinstance(answer, f.ErrorFrame) and answer.code == 4, f"the answer is {answer}")
    check(await reader.read() == b"", "the connection stays open")
    writer.close()
    with suppress(Failed):
        await echoes(c)
        return
    raise AssertionError("another session was harmed")
