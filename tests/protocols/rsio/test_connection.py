"""Connections: hello, versions, extensions, goodbye, time, and what a bad message costs."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import (
    ConnectionClosed,
    LocalProtocolError,
    Rejected,
    RemoteProtocolError,
    SetupRefused,
    Unsupported,
)
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsio import Engine, frames
from afflux.protocols.rsio.codes import Extension
from afflux.protocols.rsio.frames import ClientHello, Goodbye, GoodbyeAck, ServerHello

from .playbook import (
    BOTH,
    Mode,
    Playbook,
    answer,
    ask,
    bye,
    cancel,
    client,
    closed,
    complete,
    error,
    failed,
    item,
    part,
    publishing,
    server,
    subscribed,
)

TINY = Limits.tiny()


# -- hello --------------------------------------------------------------------------------------------------------


def test_R_9_hello_is_the_first_message_of_each_side(mode: Mode) -> None:
    """R-9, R-10, D-5: neither side waits for the other."""
    play = Playbook(Engine("client"), mode) << ClientHello()
    play >> ServerHello() << ev.Established(None)
    play = Playbook(Engine("server"), mode) << ServerHello()
    play >> ClientHello() << ev.Established(ClientHello())
    play.quiet()


def test_R_10_a_server_that_decides_waits_for_the_client(mode: Mode) -> None:
    play = Playbook(Engine("server", decide=True, extensions=BOTH), mode).quiet()
    play >> (ClientHello(), ask()) << ev.Established(ClientHello())
    play.do(lambda engine: engine.accept(0.0)) << ServerHello(extensions=BOTH) << ev.Opened << answer()
    play.quiet()


def test_R_11_a_client_sends_more_at_once(mode: Mode) -> None:
    play = Playbook(Engine("client"), mode) << ClientHello()
    play.do(lambda engine: engine.subscribe("p", 3)) << ask(demand=3)
    play.do(lambda engine: engine.request(1, 2)) << frames.Request(subscriber=1, demand=2)
    play >> (ServerHello(), answer(), item(b"x")) << ev.Established(None) << (ev.Items, {"stream": 1})
    play.quiet()


def test_a_server_may_not_speak_first() -> None:
    """R-10: after its hello it waits for the client's."""
    with pytest.raises(ConnectionClosed, match="is WAIT"):
        Engine("server").subscribe("p")


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("first", [ask(), item(b"x"), cancel(), GoodbyeAck(message="")], ids=lambda m: m.NAME)
def test_HS_23_the_first_message_is_no_hello(mode: Mode, role: Any, first: frames.Message) -> None:
    """R-9."""
    play = Playbook(Engine(role, extensions=BOTH), mode).forget()
    play >> first.encode() << Goodbye
    assert play.engine.shared.state.name == "CLOSING"
    play.at(1.0) << closed(RemoteProtocolError)


@pytest.mark.parametrize(("role", "said"), [("client", ClientHello()), ("server", ServerHello())])
def test_the_hello_of_the_wrong_side(mode: Mode, role: Any, said: frames.Message) -> None:
    play = Playbook(Engine(role), mode).forget() >> said
    play << bye(f"{said.NAME} is not legal here")
    play >> bye() << closed(RemoteProtocolError, rule="R-9")


def test_a_second_hello_is_fatal(mode: Mode) -> None:
    """3.1: hello in OPEN; good messages before it count."""
    play = server(mode) >> (ask(), ClientHello())
    play << ev.Opened << ev.Canceled(2, True)
    play << answer() << bye("clientHello is not legal here")
    play >> bye() << closed(RemoteProtocolError)


def test_R_12_a_server_meets_another_version(mode: Mode) -> None:
    """R-12, HS-23: the text names the version that is supported."""
    play = Playbook(Engine("server"), mode) << ServerHello()
    play >> ClientHello(version=1) << bye("version 1 is not supported; supported: 0")
    play << closed(RemoteProtocolError, rule="R-12")
    assert play.engine.closed


def test_R_13_requests_sent_early_count_as_discarded(mode: Mode) -> None:
    """R-13, HS-25: it is safe to try again."""
    play = Playbook(Engine("client"), mode) << ClientHello()
    play.do(lambda engine: engine.subscribe("p", 3)).forget()
    play.do(lambda engine: engine.subscribe("q", 3)).forget()
    play >> ServerHello(version=7) << failed(1, Rejected, rule="R-13") << failed(3, Rejected, rule="R-13")
    play << closed(SetupRefused, rule="R-12") << Goodbye
    play.quiet()


@pytest.mark.parametrize("ours", [(), (12,), (14,), (12, 14)])
@pytest.mark.parametrize("theirs", [(), (12,), (14, 99), (7, 14, 12)])
def test_R_15_extensions_in_use_are_those_of_both(mode: Mode, ours: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    play = Playbook(Engine("client", extensions=ours), mode) << ClientHello(extensions=ours)
    play >> ServerHello(extensions=theirs) << ev.Established(None)
    assert play.engine.connection.agreed == set(ours) & set(theirs)
    assert play.engine.connection.hello == ServerHello(extensions=theirs)  # D-6: it may know more


@pytest.mark.parametrize("message", [part(0, b"x"), part(0, b"x", last=True), GoodbyeAck(message="")])
def test_R_14_messages_of_an_extension_that_is_not_in_use(mode: Mode, message: frames.Message) -> None:
    """R-14, R-16, R-17: an unknown type cannot be skipped."""
    play = Playbook(Engine("server"), mode).forget() >> ClientHello(extensions=BOTH) << ev.Established
    play >> message << bye(f"a message of the unknown type {message.TYPE}")
    play.at(1.0) << closed(RemoteProtocolError, rule="R-17")


def test_R_14_nothing_of_an_extension_is_sent_before_hello() -> None:
    """I-5: what is large goes whole to a peer that cannot put it together."""
    play = Playbook(Engine("server", extensions=BOTH, mtu=64)).forget() >> ClientHello() << ev.Established
    play >> ask(demand=5) << ev.Opened << answer()
    play.do(lambda engine: engine.send(2, [b"x" * 1000])) << item(b"x" * 1000)
    play >> bye() << ev.Canceled(2, True) << ev.Closed(None) << bye()


def test_unknown_extensions_cannot_be_offered() -> None:
    """R-15: there is nothing behind them."""
    with pytest.raises(LocalProtocolError, match="unknown extension 7"):
        Engine("client", extensions=(7, 12))
    with pytest.raises(LocalProtocolError, match="64 bytes or more, not 63"):
        Engine("client", mtu=63)
    assert {extension.name for extension in Extension} == {"SPLIT_MESSAGES", "GOODBYE_ACK"}


# -- deciding -------------------------------------------------------------------------------------------------------


def test_a_client_is_refused(mode: Mode) -> None:
    """It hears goodbye in place of a hello: nothing was taken."""
    play = Playbook(Engine("server", decide=True), mode) >> (ClientHello(), ask()) << ev.Established
    play.do(lambda engine: engine.refuse("not you", 0.0)) << bye("not you") << closed(ConnectionClosed)
    play = Playbook(Engine("client"), mode).forget()
    play.do(lambda engine: engine.subscribe("p")).forget()
    play >> bye("not you") << failed(1, SetupRefused) << closed(SetupRefused) << bye()


def test_nothing_to_decide() -> None:
    engine = Engine("server")
    for verb in (lambda: engine.accept(0.0), lambda: engine.refuse("no", 0.0)):
        with pytest.raises(LocalProtocolError, match="no hello waits"):
            verb()
    engine.receive_eof(0.0)
    assert engine.accept(0.0) == engine.refuse("no", 0.0) == []


def test_a_flood_while_deciding() -> None:
    """What waits for the decision is bounded: reading stops, and it is treated afterwards."""
    play = Playbook(Engine("server", decide=True, limits=TINY)) >> ClientHello() << ev.Established
    asks = b"".join(ask(id).encode() for id in range(1, 9))
    play >> asks
    assert play.engine.wants_read
    play >> frames.Subscribe(publisher="x" * 100, subscriber=20).encode() * 200
    assert not play.engine.wants_read
    play.do(lambda engine: engine.accept(0.0))
    assert [event.stream for event in play.events if isinstance(event, ev.Opened)] == list(range(2, 20, 2))


def test_a_bad_message_behind_a_hello_that_is_decided_on() -> None:
    play = Playbook(Engine("server", decide=True)) >> (ClientHello(), ask(), b"\x00") << ev.Established
    play.do(lambda engine: engine.accept(0.0)) << ServerHello() << ev.Opened << ev.Canceled(2, True)
    play << answer() << Goodbye
    play.at(1.0) << closed(RemoteProtocolError, rule="R-17")


def test_a_decision_that_takes_too_long() -> None:
    """HS-01."""
    play = Playbook(Engine("server", decide=True)) >> ClientHello() << ev.Established
    assert play.engine.deadline == 10.0
    play.at(9.9).quiet().at(10.0) << bye("handshake-timeout") << closed(ConnectionClosed)


@pytest.mark.parametrize("drain", [False, True])
def test_a_server_closes_before_it_has_decided(drain: bool) -> None:
    play = Playbook(Engine("server", decide=True)) >> ClientHello() << ev.Established
    play.do(lambda engine: engine.close(0.0, drain=drain, reason="later")) << bye("later") << closed(ConnectionClosed)
    play = Playbook(Engine("server", decide=True)) >> ClientHello() << ev.Established
    play.eof() << closed(ConnectionClosed)


# -- goodbye --------------------------------------------------------------------------------------------------------


def test_R_42_goodbye_is_answered_by_one_goodbye(mode: Mode) -> None:
    play = subscribed(3, mode=mode) >> (bye("gone"), item(b"x"), bye())
    play << failed(1, ConnectionClosed, message="gone") << closed(ConnectionClosed) << bye()
    assert play.engine.closed and play.engine.receive(b"\x00", 0.0) == []
    play.quiet()


def test_a_goodbye_without_words_is_an_end_in_order(mode: Mode) -> None:
    """R-45: the publisher sees a cancel."""
    play = publishing(3, mode=mode) >> bye() << ev.Canceled(2, True) << ev.Closed(None) << bye()
    play.do(lambda engine: engine.send(2, [b"x"])).quiet()


def test_goodbye_is_acknowledged_by_an_extension(mode: Mode) -> None:
    """D-11, I-4: goodbyeAck, where both sides know it."""
    play = server(mode, extensions=BOTH) >> bye() << ev.Closed(None) << GoodbyeAck(message="")
    play = server(mode, extensions=BOTH).do(lambda engine: engine.close(0.0)) << bye()
    play >> GoodbyeAck(message="thanks") << ev.Closed(None)


def test_an_acknowledgement_of_nothing_is_fatal(mode: Mode) -> None:
    server(mode, extensions=BOTH) >> GoodbyeAck(message="") << bye("goodbyeAck is not legal here")


def test_R_43_goodbyes_that_cross_acknowledge_each_other(mode: Mode) -> None:
    play = server(mode, extensions=BOTH).do(lambda engine: engine.close(0.0, reason="done")) << bye("done")
    play >> bye("me too") << ev.Closed(None)
    play.quiet()


def test_R_44_nothing_follows_a_goodbye(mode: Mode) -> None:
    """What comes is read, to find the answer, and changes nothing."""
    play = subscribed(5, mode=mode)
    play >> ask(9, 5) << ev.Opened << answer(9)
    play.do(lambda engine: engine.send(2, [b"queued"])) << item(b"queued", 9)
    play.do(lambda engine: engine.close(0.0)) << failed(1, ConnectionClosed) << ev.Canceled(2, True) << bye()
    for verb in ("complete", "cancel", "release"):
        getattr(play.engine, verb)(2 if verb != "cancel" else 1)
    play.engine.request(1, 5)
    play.engine.send(2, [b"late"])
    play.engine.fail(2, ValueError())
    play >> (item(b"x"), ask(3), cancel(9), ServerHello(), ClientHello(), complete(), error("no", 77)) >> bye()
    play << ev.Closed(None)
    play.quiet()


def test_what_is_queued_goes_or_is_forgotten() -> None:
    """R-44: subscribers of a side that leaves get nothing more."""
    play = publishing(5)
    play.engine.send(2, [b"x" * 1000])
    play.do(lambda engine: engine.close(0.0)) << ev.Canceled(2, True) << bye()


def test_elements_of_a_size_are_read_on_after_goodbye(mode: Mode) -> None:
    """R-37: to find the answer behind them, also when the size is told only now."""
    play = subscribed(5, 4, mode=mode).do(lambda engine: engine.subscribe("q", 5)).forget()
    play.do(lambda engine: engine.close(0.0)) << failed(1, ConnectionClosed) << failed(3, ConnectionClosed) << bye()
    packed = frames.OnNextPacked(subscriber=2, count=2, elements=b"\x0b" * 6, element_size=3)
    play >> (item(b"\x0b" * 4, size=4), answer(2, 3), item(b"\x0b" * 3, 2, size=3), packed, bye()) << ev.Closed(None)


def test_what_cannot_be_read_after_goodbye_ends_the_reading() -> None:
    play = server().do(lambda engine: engine.close(0.0)) << bye()
    play >> (b"\x00", bye())
    play.quiet().at(1.0) << ev.Closed(None)


def test_goodbye_without_an_answer() -> None:
    """BYE: ``goodbye_s``, then the end."""
    play = server().do(lambda engine: engine.close(5.0)) << bye()
    assert play.engine.deadline == 6.0
    play.at(5.9).quiet().at(6.0) << ev.Closed(None)
    assert play.engine.deadline is None
    play.at(9.0).quiet()
    assert play.engine.close(9.0) == []
    assert play.engine.receive_eof(9.0) == []


def test_a_transport_that_ends_is_an_answer() -> None:
    play = server().do(lambda engine: engine.close(0.0)) << bye()
    play.eof() << ev.Closed(None)


def test_R_45_a_lost_transport_ends_all_subscriptions(mode: Mode) -> None:
    """R-45, SL-03: as an error here, as a cancel there. What had begun is not safe to try again."""
    play = subscribed(3, mode=mode) >> ask(9, 5) << ev.Opened << answer(9)
    play.eof() << failed(1, ConnectionClosed, rule="R-45") << ev.Canceled(2, True) << closed(ConnectionClosed)
    play.eof().quiet()


def test_R_46_nothing_survives() -> None:
    """An engine is one connection; ids and subscriptions begin anew with the next one."""
    first, second = subscribed(3), subscribed(3)
    first.eof()
    assert second.engine.credit(1) == 0


def test_a_closed_connection_takes_no_subscriptions() -> None:
    play = server().eof().forget()
    with pytest.raises(ConnectionClosed, match="is CLOSED"):
        play.engine.subscribe("p")


# -- draining -------------------------------------------------------------------------------------------------------


def test_draining_waits_for_the_last(mode: Mode) -> None:
    """What lives goes on; what is new is refused on both sides."""
    play = subscribed(3, mode=mode) >> ask(9, 5) << ev.Opened << answer(9)
    play.do(lambda engine: engine.close(0.0, drain=True, reason="noon")).quiet()
    play >> ask(10) << (ev.Ignored, {"reason": "the connection is closing"})
    play << answer(10) << error("the connection is closing", 10)
    with pytest.raises(ConnectionClosed, match="is DRAINING"):
        play.engine.subscribe("q")
    play >> (item(b"x"), complete()) << ev.Items << ev.Completed(1)
    assert play.engine.deadline is None
    play.do(lambda engine: engine.complete(2)) << complete(9)
    assert play.engine.deadline == 0.0
    play.at(0.0) << bye("noon")
    play >> bye() << ev.Closed(None)


def test_draining_with_nothing_to_wait_for() -> None:
    play = server().do(lambda engine: engine.close(0.0, drain=True)) << bye()
    play >> bye() << ev.Closed(None)


def test_a_client_drains_before_the_hello_came(mode: Mode) -> None:
    play = Playbook(Engine("client"), mode).forget()
    play.do(lambda engine: engine.subscribe("p", 3)).forget()
    play.do(lambda engine: engine.close(0.0, drain=True, reason="noon")).quiet()
    play.do(lambda engine: engine.close(0.0, drain=True, reason="again")).quiet()
    with pytest.raises(ConnectionClosed, match="is DRAINING"):
        play.engine.subscribe("q")
    play >> (ServerHello(), answer()) << ev.Established(None)
    play >> complete() << ev.Completed(1) << bye("noon")


def test_a_client_closes_before_the_hello_came() -> None:
    play = Playbook(Engine("client")).forget().do(lambda engine: engine.close(0.0, reason="no")) << bye("no")
    play >> ServerHello()
    play >> bye() << ev.Closed(None)


def test_what_the_last_ones_have_queued_goes_before_goodbye() -> None:
    """However slowly the peer reads: the answer is waited for from when goodbye has gone."""
    play = publishing(100)
    play.engine.send(2, [b"x" * 60_000] * 10, complete=True)
    engine = play.engine
    assert engine.close(0.0, drain=True) == []
    for now in (1.0, 2.0, 3.0, 4.0):
        assert engine.tick(now) == []
        assert engine.outgoing(60_000).startswith(b"\x07\x01")
    while play.engine.queued:
        last = engine.outgoing()
    assert last.endswith(complete().encode() + bye().encode())
    assert engine.tick(5.0) == [ev.Closed(None)]


# -- time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["client", "server"])
def test_HS_01_a_silent_stranger_is_closed_without_a_word(role: Any) -> None:
    play = Playbook(Engine(role, now=100.0)).forget()
    assert play.engine.deadline == 110.0
    play.at(109.9).quiet()
    play.at(110.0) << closed(ConnectionClosed, rule="handshake_s")


def test_an_idle_client_is_let_go() -> None:
    """limits.md: BYE "idle"; what is live is not idle."""
    play = server() >> ask(demand=1) << ev.Opened << answer()
    play.at(1000.0).quiet()
    assert play.engine.deadline is None
    play.do(lambda engine: engine.complete(2)) << complete()
    assert play.engine.deadline == 1000.0
    play.at(1000.0).quiet()
    assert play.engine.deadline == 1300.0
    play.at(1299.0) >> cancel() << ev.Ignored
    assert play.engine.deadline == 1599.0
    play.at(1599.0) << bye("idle")
    play >> bye() << ev.Closed(None)


def test_a_client_does_not_mind_idleness() -> None:
    assert client().engine.deadline is None
    assert server(limits=Limits.trusted()).engine.deadline is None


def test_a_message_that_never_ends() -> None:
    """FR-05: ``frame_s`` from the last message that was whole; bytes alone do not help."""
    play = client() >> b"\x09\x01\x05ab"
    assert play.engine.deadline == 30.0
    play.at(20.0) >> b"c"
    play.at(30.0) << bye("frame-timeout")
    play.at(31.0) << closed(RemoteProtocolError, rule="frame_s")
    play = client() >> b"\x08\x09\x09\x01\x05ab" << ev.Ignored
    play.at(20.0) >> b"cde" << ev.Ignored
    assert play.engine.deadline is None


def test_who_does_not_read_has_no_claims() -> None:
    """The time in which this side took nothing is not held against the peer."""
    play = subscribed(1000, limits=TINY)
    play >> item(b"x" * 1000).encode() * 250 << ev.Items
    assert not play.engine.wants_read
    play >> b"\x07\x01\x05"
    play.at(9.0).at(18.0)
    assert play.engine.deadline == 28.0
    play.engine.consumed(250_000, 250)
    assert play.engine.wants_read
    play.at(20.0).at(29.0)
    assert play.engine.deadline == 30.0
    play >> b"12345" << ev.Items


# -- what there is not ----------------------------------------------------------------------------------------------


def test_verbs_that_there_are_not() -> None:
    engine = client().engine
    for verb in (
        lambda: engine.open("request", b"x"),
        lambda: engine.open("channel", b"x", credit=1),
        lambda: engine.ask([Payload(b"x")]),
    ):
        with pytest.raises(Unsupported, match=r"reactive-streams-io has no .*; it has: stream"):
            verb()
    with pytest.raises(Unsupported, match="does not support push"):
        engine.push(b"m")
    with pytest.raises(LocalProtocolError, match="a subscriber sends no elements"):
        engine.answer([1], [Payload(b"x")])


def test_an_early_tick_does_no_harm() -> None:
    server().at(0.0).at(1.0).quiet()
