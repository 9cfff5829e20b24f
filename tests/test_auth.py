"""The gate: who comes in and who does not, over real connections; how often one may try; and that no secret leaks."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux import Bearer, Credentials, Limits, Payload, Simple, auth
from afflux.auth import AuthFileError, Failures, hash_password, read_file, verify_password, verify_token
from afflux.core.limits import REASONS
from afflux.demo.sum import SUM, Done, add
from afflux.protocols.rsocket.metadata import AUTHENTICATION_MIME, ROUTING_MIME, Authentication
from tests.aio.handlers import Demo, turns

TCP = "tcp://127.0.0.1:0"
CHEAP = (2, 8, 1)
SECRET = "s3cret-t0ken"


class Time:
    """A clock that goes on only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Guarded:
    """Remembers for whom it was entered."""

    def __init__(self) -> None:
        self.entered: list[tuple[str, Any]] = []
        self.arrived = asyncio.Event()

    def _enter(self, verb: str) -> None:
        self.entered.append((verb, auth.current_principal()))
        self.arrived.set()

    async def request(self, payload: Payload) -> Payload:
        self._enter("request")
        return payload

    async def fire(self, payload: Payload) -> None:
        self._enter("fire")

    async def push(self, metadata: bytes) -> None:
        self._enter("push")

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        self._enter("stream")
        yield b"item"

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        self._enter("channel")
        async for item in items:
            yield item.data


class Checks:
    """A check of a token that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Authentication | None] = []

    def __call__(self, credentials: Authentication | None, peer: afflux.Peer) -> object:
        self.asked.append(credentials)
        return "ada" if credentials == Bearer(SECRET) else None


async def refusal(uri: str, setup: Any = None, **options: Any) -> str | None:
    """Connect and ask once: why that was refused, or None."""
    async with afflux.connect(uri, setup=setup, **options) as peer:
        try:
            await peer.request(b"ping")
        except afflux.SetupRefused as error:
            assert error.code == 0x003
            return error.message
    return None


# At the SETUP.


async def test_who_has_the_token_comes_in() -> None:
    guarded = Guarded()
    gate = auth.at_setup(verify_token({SECRET: "ada", "other": "bob"}))
    async with afflux.serve(TCP, guarded, on_setup=gate) as server:
        async with afflux.connect(server.uri, setup=Bearer(SECRET)) as peer:
            assert await peer.request(b"ping") == Payload(b"ping")
            assert [client.principal for client in server.connections] == ["ada"]
            async with afflux.connect(server.uri, setup=Bearer("other")) as second:
                await second.fire(b"")
                await second.request(b"")
        assert guarded.entered == [("request", "ada"), ("fire", "bob"), ("request", "bob")]


@pytest.mark.parametrize(
    "setup",
    [
        None,
        b"data alone",
        Bearer("wrong"),
        Bearer(""),
        Simple("ada", SECRET),
        Credentials("own", SECRET.encode()),
        Payload(b"", b"\xfc\x00\x00\x50" + SECRET.encode()),
        Payload(b"", b"\xfc\x00\x00\x02\x81\xff"),
        [("a/b", SECRET.encode())],
    ],
    ids=["nothing", "data", "wrong", "empty", "simple", "unknown", "cut-off", "not-utf8", "other"],
)
async def test_AU_01_missing_or_wrong_credentials_get_constant_words(setup: Any) -> None:
    """AU-01: CONN[REJECTED_SETUP], constant text; the handler is never entered, other connections go on."""
    guarded = Guarded()
    async with afflux.serve(TCP, guarded, on_setup=auth.at_setup(verify_token(SECRET))) as server:
        async with afflux.connect(server.uri, setup=Bearer(SECRET)) as good:
            await good.request(b"before")
            assert await refusal(server.uri, setup) == auth.REFUSED
            assert await good.request(b"after") == Payload(b"after")
    assert guarded.entered == [("request", "bearer")] * 2


async def test_the_connections_metadata_may_be_credentials_alone() -> None:
    async with afflux.serve(TCP, Guarded(), on_setup=auth.at_setup(verify_token(SECRET))) as server:
        assert await refusal(server.uri, Bearer(SECRET), metadata_mime=AUTHENTICATION_MIME) is None
        assert await refusal(server.uri, Bearer("wrong"), metadata_mime=AUTHENTICATION_MIME) == auth.REFUSED
        routed = Payload(b"", b"\x01r")
        assert await refusal(server.uri, routed, metadata_mime=ROUTING_MIME) == auth.REFUSED


def told() -> None:
    raise afflux.ApplicationError(0x301, f"{SECRET} is wrong")


CHECKS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda credentials, peer: None,
    "false": lambda credentials, peer: False,
    "error": lambda credentials, peer: told(),
    "bug": lambda credentials, peer: {}[credentials.token],
    "timeout": lambda credentials, peer: asyncio.wait_for(asyncio.Event().wait(), 0),
}


@pytest.mark.parametrize("name", CHECKS)
async def test_no_secret_is_in_any_word(name: str, caplog: pytest.LogCaptureFixture) -> None:
    check = CHECKS[name]
    async with afflux.serve(TCP, Guarded(), on_setup=auth.at_setup(check)) as server:
        async with afflux.connect(server.uri, setup=Bearer(SECRET)) as peer:
            with pytest.raises(afflux.SetupRefused) as caught:
                await peer.request(b"")
            assert (caught.value.message, caught.value.code) == (auth.REFUSED, 0x003)
            shown = [repr(part) for part in (caught.value, peer, peer.error, server)]
    assert SECRET not in "".join(shown) + caplog.text
    if name == "bug":
        assert "an authentication check raised KeyError in test_auth.py:" in caplog.text
    elif name != "timeout":
        assert caplog.text == ""


@pytest.mark.parametrize("principal", [True, 0, "", 7, "ada", {"name": "ada"}])
async def test_a_principal_is_anything_but_none_and_false(principal: Any) -> None:
    async def check(credentials: Any, peer: afflux.Peer) -> Any:
        assert peer.host == "127.0.0.1"
        await asyncio.sleep(0)
        return principal

    async with afflux.serve(TCP, Guarded(), on_setup=auth.at_setup(check)) as server:
        async with afflux.connect(server.uri) as peer:
            await peer.request(b"")
            assert [client.principal for client in server.connections] == [principal]


async def test_without_a_gate_there_is_no_principal() -> None:
    guarded = Guarded()
    async with afflux.serve(TCP, guarded) as server, afflux.connect(server.uri) as peer:
        await peer.request(b"")
        assert guarded.entered == [("request", None)]
        assert server.connections[0].principal is None
    with pytest.raises(LookupError):
        auth.current_principal()


# At each request.


TOKEN = Bearer(SECRET)


async def test_each_request_is_let_in_by_its_own_entry() -> None:
    guarded = Guarded()
    async with afflux.serve(TCP, auth.per_request(guarded, Checks())) as server:
        async with afflux.connect(server.uri) as peer:
            assert (await peer.request(b"ping", metadata=TOKEN)).data == b"ping"
            assert [item.data async for item in peer.stream(metadata=TOKEN)] == [b"item"]
            async with peer.channel([b"1", b"2"], metadata=TOKEN) as items:
                assert [item.data async for item in items] == [b"1", b"2"]
            guarded.arrived.clear()
            await peer.fire(b"", metadata=TOKEN)
            await guarded.arrived.wait()
            guarded.arrived.clear()
            await peer.push(afflux.compose(TOKEN))
            await guarded.arrived.wait()
    assert guarded.entered == [(verb, "ada") for verb in ("request", "stream", "channel", "fire", "push")]


@pytest.mark.parametrize("metadata", [None, Bearer("wrong"), b"\xfc\x00\x00\x50x"], ids=["none", "wrong", "cut-off"])
async def test_who_is_refused_never_enters_the_handler(metadata: Any, caplog: pytest.LogCaptureFixture) -> None:
    guarded, checks = Guarded(), Checks()
    async with afflux.serve(TCP, auth.per_request(guarded, checks)) as server:
        async with afflux.connect(server.uri) as peer:
            for _ in range(2):
                with pytest.raises(afflux.Rejected) as caught:
                    await peer.request(b"", metadata=metadata)
                assert caught.value.message == auth.REFUSED
            with pytest.raises(afflux.Rejected, match=auth.REFUSED):
                [item async for item in peer.stream(metadata=metadata)]
            with pytest.raises(afflux.Rejected, match=auth.REFUSED):
                async with peer.channel([b"1", Payload(b"2", afflux.compose(TOKEN))], metadata=metadata) as items:
                    [item async for item in items]
            await peer.fire(b"", metadata=metadata)
            await peer.push(b"" if metadata is None else afflux.compose(metadata))
            assert (await peer.request(b"ping", metadata=TOKEN)).data == b"ping"
    assert guarded.entered == [("request", "ada")]
    assert "push" not in caplog.text
    assert "wrong" not in caplog.text


async def test_a_router_and_plain_functions_may_stand_behind_the_gate() -> None:
    router = afflux.Router()
    router.request("plain")(lambda payload: f"{auth.current_principal()} {payload.text}")
    router.stream("list")(lambda payload: [b"1", b"2"])

    @router.stream("later")
    async def later(payload: Payload) -> list[bytes]:
        return [b"3"]

    pushed: list[bytes] = []
    router.push(pushed.append)
    handler = auth.per_request(router, Checks())
    assert not hasattr(handler, "fire")
    async with afflux.serve(TCP, handler) as server, afflux.connect(server.uri) as peer:
        assert (await peer.request(b"x", route="plain", metadata=TOKEN)).data == b"ada x"
        assert [item.data async for item in peer.stream(route="list", metadata=TOKEN)] == [b"1", b"2"]
        assert [item.data async for item in peer.stream(route="later", metadata=TOKEN)] == [b"3"]
        with pytest.raises(afflux.Rejected, match="no route"):
            await peer.request(b"", route="none", metadata=TOKEN)
        with pytest.raises(afflux.Rejected, match='no handler for "channel"; handled here: request, stream'):
            async with peer.channel([b""], metadata=TOKEN) as items:
                await anext(items)
        await peer.push(afflux.compose(TOKEN))
        await peer.request(b"", route="plain", metadata=TOKEN)
    assert pushed == [afflux.compose(TOKEN)]


async def test_the_request_overrides_its_connection() -> None:
    guarded = Guarded()
    setup = auth.at_setup(lambda credentials, peer: "connection")
    handler = auth.per_request(guarded, lambda credentials, peer: credentials and "request")
    async with afflux.serve(TCP, handler, on_setup=setup) as server, afflux.connect(server.uri) as peer:
        await peer.request(b"", metadata=TOKEN)
    assert guarded.entered == [("request", "request")]


async def test_what_a_server_asks_its_client_may_be_gated_too() -> None:
    guarded = Guarded()

    class Asks:
        async def request(self, payload: Payload) -> Payload:
            return await afflux.current_peer().request(b"back", metadata=payload.metadata)

    async with afflux.serve(TCP, Asks()) as server:
        async with afflux.connect(server.uri, handler=auth.per_request(guarded, Checks())) as peer:
            assert (await peer.request(b"", metadata=afflux.compose(TOKEN))).data == b"back"
            with pytest.raises(afflux.Rejected, match=auth.REFUSED):
                await peer.request(b"", metadata=afflux.compose(Bearer("wrong")))
    assert guarded.entered == [("request", "ada")]


async def test_what_a_server_asks_its_client_has_the_metadata_type_of_the_connection() -> None:
    class Asks:
        async def request(self, payload: Payload) -> Payload:
            return await afflux.current_peer().request(b"back", metadata=payload.metadata)

    handler = auth.per_request(Guarded(), Checks())
    async with afflux.serve(TCP, Asks()) as server:
        async with afflux.connect(server.uri, handler=handler, metadata_mime=AUTHENTICATION_MIME) as peer:
            assert (await peer.request(b"", metadata=TOKEN.encode())).data == b"back"


async def test_the_name_of_a_channel_is_not_a_credential() -> None:
    """In Limit-Stream, the metadata of a setup is the channel's name: the check gets no credentials."""
    router, checks = afflux.Router(), Checks()
    router.session(SUM)(add)
    for options in ({"on_setup": auth.at_setup(checks)}, {}):
        handler = router if options else auth.per_request(router, checks)
        async with afflux.serve("limit+mem://gated", handler, **options) as server, afflux.connect(server.uri) as peer:
            with pytest.raises(afflux.Error):
                async with peer.open(SUM) as chan:
                    last = await (await chan.send(1)).choose(2)
                    await (await last.send(Done())).recv()
    assert checks.asked == [None, None]


async def test_metadata_of_another_type_proves_nothing() -> None:
    checks = Checks()
    async with afflux.serve(TCP, auth.per_request(Guarded(), checks)) as server:
        async with afflux.connect(server.uri, metadata_mime=AUTHENTICATION_MIME) as peer:
            await peer.request(b"", metadata=TOKEN.encode())
        async with afflux.connect(server.uri, metadata_mime="a/b") as peer:
            with pytest.raises(afflux.Rejected):
                await peer.request(b"", metadata=TOKEN.encode())
    assert checks.asked == [TOKEN, None]


def test_a_handler_without_verbs_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="at least one of the methods"):
        auth.per_request(object(), Checks())


# How often.


async def test_AU_03_an_address_that_fails_too_often_waits_for_its_answer() -> None:
    """AU-03: brute force: so many failures per minute and address, then delayed accept."""
    time, checks = Time(), Checks()
    gate = auth.at_setup(checks, clock=time.clock, sleep=time.sleep)
    async with afflux.serve(TCP, Demo(), on_setup=gate, limits=Limits.server(auth_failures=12)) as server:
        async with afflux.connect(server.uri, setup=TOKEN) as good:
            await good.request(b"")
            for _ in range(12):
                assert await refusal(server.uri, Bearer("guess")) == auth.REFUSED
            assert (time.slept, len(checks.asked)) == ([], 13)
            assert await refusal(server.uri, Bearer("guess")) == auth.REFUSED
            assert time.slept == [5.0]
            assert await refusal(server.uri, TOKEN) is None
            assert time.slept == [5.0, 5.0]
            assert await refusal(server.uri, TOKEN) is None
            assert time.slept == [5.0, 5.0]
            assert len(checks.asked) == 16
            time.now += 60
            for _ in range(12):
                assert await refusal(server.uri, Bearer("guess")) == auth.REFUSED
            assert time.slept == [5.0, 5.0]
            assert await good.request(b"other connections go on") is not None


@pytest.mark.parametrize("allowed", [0, 1, 5])
async def test_who_would_wait_too_long_is_not_even_checked(allowed: int) -> None:
    time, checks = Time(), Checks()
    gate = auth.at_setup(checks, clock=time.clock, sleep=time.sleep)
    async with afflux.serve(TCP, Demo(), on_setup=gate, limits=Limits.tiny(auth_failures=allowed)) as server:
        for _ in range(allowed):
            assert await refusal(server.uri, Bearer("guess")) == auth.REFUSED
        assert await refusal(server.uri, TOKEN) == REASONS["auth_failures"] == "auth-rate"
        assert len(checks.asked) == allowed
        assert time.slept == [2.5], "half of the handshake's time: the refusal is late, and comes before its end"


async def test_requests_are_counted_as_well() -> None:
    time, checks = Time(), Checks()
    handler = auth.per_request(Guarded(), checks, clock=time.clock, sleep=time.sleep)
    async with afflux.serve(TCP, handler, limits=Limits.server(auth_failures=6)) as server:
        async with afflux.connect(server.uri) as peer:
            for _ in range(6):
                with pytest.raises(afflux.Rejected, match=auth.REFUSED):
                    await peer.request(b"", metadata=Bearer("guess"))
            await peer.request(b"", metadata=TOKEN)
            assert time.slept == [10.0], "at the limit of handshake_s"
            for _ in range(50):
                await peer.request(b"", metadata=TOKEN)
            assert time.slept == [10.0], "who is right costs nothing"


async def test_gates_may_count_together() -> None:
    time, failures = Time(), Failures()
    limits = Limits.server(auth_failures=1)
    one = auth.at_setup(Checks(), failures=failures, clock=time.clock, sleep=time.sleep)
    other = auth.at_setup(Checks(), failures=failures, clock=time.clock, sleep=time.sleep)
    async with afflux.serve(TCP, Demo(), on_setup=one, limits=limits) as first:
        async with afflux.serve(TCP, Demo(), on_setup=other, limits=limits) as second:
            assert await refusal(first.uri) == auth.REFUSED
            assert await refusal(second.uri, TOKEN) == "auth-rate"


class Slow:
    """A check that answers when it is told to."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[asyncio.Future[object]] = asyncio.Queue()

    async def __call__(self, credentials: Any, peer: afflux.Peer) -> object:
        answer = asyncio.get_running_loop().create_future()
        await self.begun.put(answer)
        return await answer


async def test_as_many_checks_at_once_as_may_fail_and_one_more_for_each_that_passed() -> None:
    slow = Slow()
    handler = auth.per_request(Guarded(), slow)
    async with afflux.serve(TCP, handler, limits=Limits.server(auth_failures=2)) as server:
        async with afflux.connect(server.uri) as peer:
            asked = [asyncio.ensure_future(peer.request(b"")) for _ in range(6)]
            answers = [await slow.begun.get() for _ in range(2)]
            await turns(50)
            assert slow.begun.empty(), "two may fail, so two are tried at once"
            answers.pop().set_result("ada")
            answers += [await slow.begun.get() for _ in range(2)]
            await turns(50)
            assert slow.begun.empty(), "one has said yes: three at once"
            answers.pop().set_result(None)
            await turns(50)
            assert slow.begun.empty(), "one has said no: one at once, and two are at it"
            for _ in range(2):
                answers.pop().set_result("ada")
            for _ in range(2):
                (await slow.begun.get()).set_result("ada")
            said = await asyncio.gather(*asked, return_exceptions=True)
            assert sum(isinstance(one, afflux.Rejected) for one in said) == 1


def test_a_storm_of_honest_clients_of_one_address_is_checked_in_time() -> None:
    """A deploy behind one address: the checks of those who are right do not stand in a row. In virtual time."""
    at_once = most = 0

    async def check(credentials: Any, peer: afflux.Peer) -> object:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.05)  # in a row: 20 s
        at_once -= 1
        return "ada"

    async def main() -> None:
        limits = Limits.server(auth_failures=1, handshake_s=4, accepts_per_s=10_000)
        async with afflux.serve("mem://storm", Demo(), on_setup=auth.at_setup(check), limits=limits) as server:

            async def client() -> bytes:
                async with afflux.connect(server.uri, setup=TOKEN) as peer:
                    return (await peer.request(b"x")).data

            assert await asyncio.gather(*(client() for _ in range(400))) == [b"x"] * 400

    afflux.testing.run(main())
    assert 1 < most <= 257


async def test_trying_at_once_gains_nothing() -> None:
    time, slow = Time(), Slow()
    handler = auth.per_request(Guarded(), slow, clock=time.clock, sleep=time.sleep)
    async with afflux.serve(TCP, handler, limits=Limits.server(auth_failures=2)) as server:
        async with afflux.connect(server.uri) as peer:
            asked = [asyncio.ensure_future(peer.request(b"")) for _ in range(6)]
            for _ in range(2):
                (await slow.begun.get()).set_result(None)
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert sorted(str(answer) for answer in answers) == ["auth-rate"] * 4 + [auth.REFUSED] * 2
            assert slow.begun.empty()


async def test_a_check_that_never_answers_blocks_no_client_for_ever() -> None:
    slow = Slow()
    limits = Limits.server(auth_failures=1, handshake_s=0.3)
    async with afflux.serve(TCP, auth.per_request(Guarded(), slow), limits=limits) as server:
        async with afflux.connect(server.uri) as peer:
            first = asyncio.ensure_future(peer.request(b""))
            answer = await slow.begun.get()
            with pytest.raises(afflux.Rejected, match="auth-rate"):
                await peer.request(b"")
            answer.set_result("ada")
            assert (await first).data == b""


async def test_hanging_up_during_a_check_counts_as_a_failure() -> None:
    time, slow = Time(), Slow()
    handler = auth.per_request(Guarded(), slow, clock=time.clock, sleep=time.sleep)
    async with afflux.serve(TCP, handler, limits=Limits.server(auth_failures=2)) as server:
        async with afflux.connect(server.uri) as peer:
            first, second = (asyncio.ensure_future(peer.request(b"")) for _ in range(2))
            left = [await slow.begun.get(), await slow.begun.get()]
            third = asyncio.ensure_future(peer.request(b""))
            await turns(50)
            first.cancel()
            second.cancel()
            with pytest.raises(afflux.Rejected, match="auth-rate"):
                await third
            assert [answer.cancelled() for answer in left] == [True, True]
            assert time.slept == [5.0]


def test_failures_come_back_evenly_over_a_minute() -> None:
    failures = Failures()
    assert failures.left("a", 4, 0.0) == 4
    for n in range(4):
        assert failures.wait("a", 4, 0.0) == 0
        failures.add("a", 4, 0.0)
        assert failures.left("a", 4, 0.0) == 3 - n
    assert failures.wait("a", 4, 0.0) == 15.0
    assert failures.wait("a", 4, 14.0) == 1.0
    assert failures.wait("a", 4, 15.0) == 0.0
    assert failures.left("a", 4, 60.0) == 4
    assert failures.left("b", 4, 0.0) == 4
    assert failures.wait("a", 0, 0.0) == float("inf")


def test_time_that_goes_backwards_forgives_nothing() -> None:
    failures = Failures()
    for _ in range(4):
        failures.add("a", 4, 100.0)
    assert failures.left("a", 4, 50.0) < 0
    failures.add("a", 4, 50.0)
    assert failures.left("a", 4, 100.0) == -1


def test_only_so_many_addresses_are_remembered() -> None:
    failures = Failures(3)
    for address in ("a", "b", "c", "a"):
        failures.add(address, 10, 0.0)
    assert (len(failures), failures.left("b", 10, 0.0)) == (3, 9)
    failures.add("d", 10, 0.0)
    assert len(failures) == 3
    assert [failures.left(address, 10, 0.0) for address in "abcd"] == [8, 10, 9, 9]


def test_AU_03_what_ten_thousand_addresses_cost() -> None:
    """AU-03: at most 10,000 addresses remembered; 1 MiB, and 10 % and the allocator's slack."""
    failures = Failures()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for n in range(30_000):
        failures.add(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", 10, float(n))
    cost = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(failures) == 10_000
    assert cost <= 1.1 * (1 << 20) + 0x10000, cost


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::1%eth0", "2001:db8:1:2::"),
        ("", ""),
        ("/run/afflux.sock", "/run/afflux.sock"),
    ],
)
def test_what_counts_as_one_address(host: str, address: str) -> None:
    assert auth._address(host) == address


# Ready checks.


async def answer(check: auth.Check, credentials: Authentication | None) -> Any:
    found = check(credentials, None)  # type: ignore[arg-type] # these checks do not look at the peer
    return await found if asyncio.iscoroutine(found) else found


async def test_a_token_stands_for_its_principal() -> None:
    check = verify_token({"one": 1, "two": "second"})
    assert await answer(check, Bearer("one")) == 1
    assert await answer(check, Bearer("two")) == "second"
    for credentials in (None, Bearer("three"), Bearer(""), Simple("one", "one"), Credentials("bearer", b"one")):
        assert await answer(check, credentials) is None


@pytest.mark.parametrize("tokens", ["", {"": 1}, {"token": None}, {"token": False}])
def test_tokens_that_make_no_sense(tokens: Any) -> None:
    with pytest.raises(ValueError, match="a token must not be empty"):
        verify_token(tokens)


async def test_passwords_are_kept_as_hashes() -> None:
    users = {"ada": hash_password("pw", costs=CHEAP), "bob": hash_password("pü \N{SNOWMAN}", costs=(4, 1, 2))}
    assert users["ada"] != hash_password("pw", costs=CHEAP)
    check = verify_password(users)
    assert await answer(check, Simple("ada", "pw")) == "ada"
    assert await answer(check, Simple("bob", "pü \N{SNOWMAN}")) == "bob"
    for credentials in (
        None,
        Simple("ada", "PW"),
        Simple("bob", "pw"),
        Simple("eve", "pw"),
        Simple("ada", ""),
        Bearer("pw"),
    ):
        assert await answer(check, credentials) is None


async def test_the_default_costs_are_those_of_today() -> None:
    text = hash_password("pw")
    assert text.startswith("scrypt:16384:8:5:")
    assert await answer(verify_password({"ada": text}), Simple("ada", "pw")) == "ada"


async def test_an_unknown_user_costs_as_much_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    derived = auth._derived
    costs: list[Any] = []

    def counted(password: str, salt: bytes, cost: Any) -> bytes:
        costs.append(cost)
        return derived(password, salt, cost)

    users = {"ada": hash_password("pw", costs=(8, 4, 1)), "bob": hash_password("pw", costs=CHEAP)}
    check = verify_password(users)
    monkeypatch.setattr(auth, "_derived", counted)
    assert await answer(check, Simple("ada", "wrong")) is None
    assert await answer(check, Simple("eve", "wrong")) is None
    assert costs == [(8, 4, 1)] * 2
    monkeypatch.undo()
    assert await answer(verify_password({}), Simple("eve", "wrong")) is None


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        "",
        "scrypt:2:8:1:c2FsdA==",
        "scrypt:2:8:1:c2FsdA==:c2hvcnQ=",
        "scrypt:3:8:1:" + "c2FsdA==:" + "A" * 43 + "=",
        "scrypt:0:8:1:" + "c2FsdA==:" + "A" * 43 + "=",
        "scrypt:2:0:1:" + "c2FsdA==:" + "A" * 43 + "=",
        "scrypt:2:8:0:" + "c2FsdA==:" + "A" * 43 + "=",
        "scrypt:2:8:1:" + "c2FsdA==:" + "A" * 42 + "=",
        "bcrypt:2:8:1:" + "c2FsdA==:" + "A" * 43 + "=",
    ],
)
def test_a_password_that_was_not_hashed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the password of 'ada' was not hashed") as caught:
        verify_password({"ada": text})
    assert SECRET not in str(caught.value)


def test_what_can_not_be_hashed() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        hash_password("")
    with pytest.raises(ValueError):
        hash_password("pw", costs=(3, 8, 1))


async def test_passwords_over_a_connection() -> None:
    check = verify_password({"ada": hash_password("pw", costs=CHEAP)})
    guarded = Guarded()
    async with afflux.serve(TCP, guarded, on_setup=auth.at_setup(check)) as server:
        tries = [Simple("ada", "pw"), Simple("ada", "no"), Simple("eve", "pw")]
        got = await asyncio.gather(*(refusal(server.uri, credentials) for credentials in tries))
        assert got == [None, auth.REFUSED, auth.REFUSED]
    assert guarded.entered == [("request", "ada")]


# Files.


def written(folder: Path, data: str | bytes, mode: int = 0o600) -> Path:
    path = folder / "credentials"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("data", "credentials"),
    [
        ("bearer abc.def", Bearer("abc.def")),
        ("bearer abc\n", Bearer("abc")),
        ("# for the demo\n\n  bearer\tabc  \r\n# end\n", Bearer("abc")),
        ("simple ada pw", Simple("ada", "pw")),
        ("simple ada  pass word # no comment \n", Simple("ada", "pass word # no comment")),
        ("simple ädа pä\n", Simple("ädа", "pä")),
        ("bearer #1", Bearer("#1")),
        ("bearer " + "x" * (65536 - 7), Bearer("x" * (65536 - 7))),
    ],
)
def test_a_file_holds_credentials(tmp_path: Path, data: str, credentials: Any) -> None:
    path = written(tmp_path, data)
    assert read_file(path) == credentials
    assert read_file(str(path)) == credentials


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "no lines of credentials"),
        ("# bearer x\n", "no lines of credentials"),
        (f"bearer {SECRET}\nbearer {SECRET}\n", "2 lines of credentials"),
        (SECRET, "line 1: expected a line"),
        (f"\n\n{SECRET} {SECRET}", "line 3: expected a line"),
        ("bearer", "line 1: expected a line"),
        (f"bearer {SECRET} {SECRET}", "line 1: expected a line"),
        (f"simple {SECRET}", "line 1: expected a line"),
        (f"Bearer {SECRET}", "line 1: expected a line"),
        (SECRET.encode() + b"\xff", "not UTF-8"),
        (b"bearer " + b"x" * (65537 - 7), "more than 65536 bytes"),
    ],
)
def test_a_file_with_unexpected_content(tmp_path: Path, data: str | bytes, why: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(AuthFileError, match=why) as caught:
        read_file(path)
    assert str(path) in str(caught.value)
    assert SECRET not in f"{caught.value} {caught.value!r}"


def test_a_file_that_is_not_there_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(AuthFileError, match="none: No such file or directory"):
        read_file(tmp_path / "none")
    with pytest.raises(AuthFileError, match="Is a directory"):
        read_file(tmp_path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o666])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, f"bearer {SECRET}", mode)
    with pytest.raises(AuthFileError, match=f"mode {mode:04o}.*chmod 600"):
        read_file(path)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_a_file_for_its_owner_alone_is_fine(tmp_path: Path, mode: int) -> None:
    assert read_file(written(tmp_path, "bearer x", mode)) == Bearer("x")


async def test_credentials_may_come_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)
    reading = asyncio.ensure_future(asyncio.to_thread(read_file, pipe))
    await asyncio.to_thread(pipe.write_text, "simple ada pw\n")
    assert await reading == Simple("ada", "pw")
