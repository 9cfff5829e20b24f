"""Every cell of the tables, against grids written by hand from the specification, and the engine against both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from afflux.core.errors import Rejected
from afflux.core.limits import Limits
from afflux.protocols.rsio import Engine, frames
from afflux.protocols.rsio.states import (
    CLIENT,
    PUBLISHER,
    SERVER,
    SUBSCRIBER,
    ConnectionInput,
    ConnectionState,
    PublisherAction,
    PublisherInput,
    PublisherState,
    SubscriberAction,
    SubscriberInput,
    SubscriberState,
)

from .playbook import BOTH, Playbook, answer, ask, bye, cancel, complete, error, item, request


def test_what_does_nothing_changes_nothing() -> None:
    for state, _, step in (*SUBSCRIBER.cells(), *PUBLISHER.cells()):
        if step.action.name in ("IGNORE", "DROP", "REMEMBER", "NOTHING", "FATAL", "GRANT", "REQUEST"):
            assert step.next == state


# -- the engine does what the cell of a connection says -------------------------------------------------------

_S, _I = ConnectionState, ConnectionInput
HELLOS = {"client": frames.ServerHello, "server": frames.ClientHello}
WRONG = {"client": frames.ClientHello, "server": frames.ServerHello}


def said(role: str, input: ConnectionInput) -> bytes | None:
    """What the peer says for an input."""
    return {
        _I.HELLO: HELLOS[role]().encode(),
        _I.HELLO_OTHER: HELLOS[role](version=1).encode(),
        _I.HELLO_WRONG: WRONG[role]().encode(),
        _I.SIGNAL: cancel(9).encode(),
        _I.GOODBYE: bye().encode(),
        _I.GOODBYE_ACK: frames.GoodbyeAck(message="").encode(),
        _I.BROKEN: b"\x00",
    }.get(input)


VERBS: dict[ConnectionInput, Callable[[Engine], Any]] = {
    _I.APP_DRAIN: lambda engine: engine.close(0.0, drain=True),
    _I.APP_CLOSE: lambda engine: engine.close(0.0),
    _I.APP_ACCEPT: lambda engine: engine.accept(0.0),
    _I.APP_REFUSE: lambda engine: engine.refuse("no", 0.0),
    _I.SILENT: lambda engine: engine.tick(100.0),
    _I.REPLY_LATE: lambda engine: engine.tick(100.0),
    _I.LOST: lambda engine: engine.receive_eof(0.0),
}
ELSEWHERE = {_I.APP_START: "every engine", _I.LAST_ENDED: "test_connection::test_draining_waits_for_the_last"}


def connection(role: str, state: ConnectionState) -> Playbook:
    """An end in ``state``, with a live subscription so that draining goes on."""
    engine = Engine(role, decide=state is _S.DECIDING, extensions=BOTH)  # type: ignore[arg-type] # one of two
    play = Playbook(engine).forget()
    if state is _S.WAIT:
        return play
    if state is _S.LEAVING:
        play.do(lambda engine: engine.subscribe("p")).forget()
        return play.do(lambda engine: engine.close(0.0, drain=True))
    play >> HELLOS[role](extensions=BOTH)
    play.forget()
    if state is not _S.DECIDING:
        play.do(lambda engine: engine.subscribe("p")).forget()
    if state in (_S.DRAINING, _S.FINISHING):
        play.do(lambda engine: engine.close(0.0, drain=True)).forget()
    if state is _S.FINISHING:
        play.do(lambda engine: engine.cancel(1)).forget().at(0.0).forget()
    if state in (_S.CLOSING, _S.CLOSED):
        play.do(lambda engine: engine.close(0.0)).forget()
    if state is _S.CLOSED:
        (play >> bye()).forget()
    return play


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("input", [input for input in ConnectionInput if input not in ELSEWHERE])
def test_the_engine_keeps_to_the_table_of_connections(role: str, input: ConnectionInput) -> None:
    table = CLIENT if role == "client" else SERVER
    for state in table.states:
        if state is _S.START:
            continue  # no engine stays there
        play = connection(role, state)
        assert play.engine.shared.state is state
        wanted = table.step(state, input).next
        if state is _S.WAIT and role == "server" and input is _I.HELLO:
            wanted = _S.OPEN  # accepted at once
        if state in (_S.WAIT, _S.LEAVING) and input is _I.GOODBYE_ACK:
            wanted = _S.CLOSING  # it is not known yet what it is
        if input in (_I.APP_ACCEPT, _I.APP_REFUSE) and state not in (_S.DECIDING, _S.CLOSED):
            continue  # test_connection::test_nothing_to_decide
        if input in (_I.SILENT, _I.REPLY_LATE) and (state in (_S.CLOSING, _S.FINISHING)) is (input is _I.SILENT):
            continue  # what time means is what the state waits for
        if input is _I.BROKEN and state is _S.DECIDING:
            continue  # nothing is read meanwhile: test_connection::test_a_flood_while_deciding
        if input in VERBS:
            VERBS[input](play.engine)
        else:
            play.engine.receive(said(role, input) or b"", 0.0)
        assert play.engine.shared.state is wanted, (state, input)
        assert play.engine.closed is (wanted is _S.CLOSED)


def test_every_input_of_a_connection_is_tried() -> None:
    messages = {input for input in ConnectionInput if said("client", input) is not None}
    assert messages | set(VERBS) | set(ELSEWHERE) == set(ConnectionInput)


# -- the engine does what the cell of an id says --------------------------------------------------------------

_T, _N = SubscriberState, SubscriberInput


def newest(engine: Engine) -> int:
    """The stream of the newest subscription; the first one if none is live."""
    live = engine.streams()
    return live[-1].stream if live else 1


SUBSCRIBER_SAYS: dict[SubscriberInput, Any] = {
    _N.SUBSCRIBED: answer(),
    _N.SUBSCRIBED_BIG: answer(size=1 << 40),
    _N.NEXT: item(b"x"),
    _N.COMPLETE: complete(),
    _N.ERROR: error("no"),
}
SUBSCRIBER_VERBS: dict[SubscriberInput, Callable[[Engine], Any]] = {
    _N.APP_REQUEST: lambda engine: engine.request(newest(engine), 1),
    _N.APP_REQUEST_BAD: lambda engine: engine.request(newest(engine), 0),
    _N.APP_CANCEL: lambda engine: engine.cancel(newest(engine)),
}
SUBSCRIBER_ELSEWHERE = {
    _N.SUBSCRIBED_OLD: "test_subscribing::test_R_36_used_again_behind_a_cancel",
    _N.OLD_ENDED: "test_subscribing::test_R_36_used_again_behind_a_cancel",
    _N.NEXT_EXCESS: "test_subscribing::test_R_27_more_than_was_demanded",
    _N.NEXT_BIG: "test_subscribing::test_elements_that_are_too_large",
    _N.APP_SUBSCRIBE: "test_subscribing::test_R_35_which_ids_are_used",
}


def subscriber(state: SubscriberState) -> Playbook:
    """A client whose id 1 is in ``state``, with demand for five."""
    play = Playbook(Engine("client", limits=Limits.server(tombstones=1))).forget() >> frames.ServerHello()
    engine = play.forget().engine
    if state is not _T.FREE:
        engine.subscribe("p", 5)
    if state is _T.ACTIVE:
        play.forget() >> answer()
    if state in (_T.CANCELLED, _T.REUSED):
        engine.cancel(1)
    if state is _T.REUSED:
        engine.subscribe("p", 5)
        play.forget() >> (answer(), complete())  # those of the older one
    return play.forget()


@pytest.mark.parametrize("state", SubscriberState)
@pytest.mark.parametrize("input", [*SUBSCRIBER_SAYS, *SUBSCRIBER_VERBS])
def test_the_engine_keeps_to_the_table_of_subscribers(state: SubscriberState, input: SubscriberInput) -> None:
    play = subscriber(state)
    record = play.engine.subscriptions.ids.records.get(1)
    assert (record.state if record else _T.FREE) is state
    if input in SUBSCRIBER_SAYS:
        play >> SUBSCRIBER_SAYS[input]
    else:
        play.do(SUBSCRIBER_VERBS[input])
    step = SUBSCRIBER.step(state, input)
    if input is _N.COMPLETE and state is _T.CANCELLED:
        step = SUBSCRIBER.step(state, _N.OLD_ENDED)  # it ends what has not begun, and is of nobody
    record = play.engine.subscriptions.ids.records.get(1)
    if step.action is SubscriberAction.FATAL:
        assert play.engine.shared.state is _S.CLOSING
        return
    assert play.engine.shared.state is _S.OPEN
    assert (record.state if record else _T.FREE) is step.next
    if step.action is SubscriberAction.IGNORE:
        assert [event.price for event in play.events] == [1]


_P, _M = PublisherState, PublisherInput
PUBLISHER_SAYS: dict[PublisherInput, Any] = {
    _M.SUBSCRIBE: ask(),
    _M.SUBSCRIBE_BAD: ask(name="x" * 5000),
    _M.REQUEST: request(3),
    _M.REQUEST_BAD: request(0),
    _M.CANCEL: cancel(),
}
PUBLISHER_VERBS: dict[PublisherInput, Callable[[Engine], Any]] = {
    _M.APP_ITEM: lambda engine: engine.send(2, [b"xx"]),
    _M.APP_COMPLETE: lambda engine: engine.complete(2),
    _M.APP_FAIL: lambda engine: engine.fail(2, Rejected("x")),
}
PUBLISHER_ELSEWHERE = {_M.APP_ITEM_BAD: "test_publishing::test_an_element_of_a_wrong_size"}


@pytest.mark.parametrize("state", PublisherState)
@pytest.mark.parametrize("input", [*PUBLISHER_SAYS, *PUBLISHER_VERBS])
def test_the_engine_keeps_to_the_table_of_publishers(state: PublisherState, input: PublisherInput) -> None:
    play = Playbook(Engine("server")).forget() >> frames.ClientHello()
    engine = play.forget().engine
    if state is not _P.FREE:
        play >> ask(demand=5)
    play.forget()
    wanted = PUBLISHER.step(state, input).next
    if input in PUBLISHER_SAYS:
        play >> PUBLISHER_SAYS[input]
    else:
        play.do(PUBLISHER_VERBS[input])
    publication = engine.publications.by_id.get(1)
    if PUBLISHER.step(state, input).action is PublisherAction.FATAL:
        assert engine.shared.state is _S.CLOSING
        return
    assert engine.shared.state is _S.OPEN
    assert (publication.state if publication else _P.FREE) is wanted


def test_every_input_of_an_id_is_tried() -> None:
    assert {*SUBSCRIBER_SAYS, *SUBSCRIBER_VERBS, *SUBSCRIBER_ELSEWHERE} == set(SubscriberInput)
    assert {*PUBLISHER_SAYS, *PUBLISHER_VERBS, *PUBLISHER_ELSEWHERE} == set(PublisherInput)
