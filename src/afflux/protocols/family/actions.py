"""Map the actions of the connection tables to functions, as far as all members share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from afflux.protocols.family import arrivals, endings, extensions, handshake, leases, liveness
from afflux.protocols.family.connection import Connection
from afflux.protocols.family.states import ConnectionAction

__all__ = ["ACTIONS"]


def _ignore(connection: Connection, frame: Any) -> None:
    connection.ignore(frame)


def _request(connection: Connection, frame: Any) -> None:
    arrivals.on_request(connection.stream_table, frame)


def _reject(connection: Connection, frame: Any) -> None:
    arrivals.on_request(connection.stream_table, frame, "the connection is closing")


def _stream_frame(connection: Connection, frame: Any) -> None:
    connection.member.on_stream[type(frame)](connection.stream_table, frame)


ACTIONS: Final[dict[ConnectionAction, Callable[[Connection, Any], None]]] = {
    ConnectionAction.IGNORE: _ignore,
    ConnectionAction.JUDGE_SETUP: handshake.judge_setup,
    ConnectionAction.ESTABLISH: handshake.establish,
    ConnectionAction.REFUSE_FIRST: handshake.refuse_first,
    ConnectionAction.REFUSE_SETUP: handshake.refuse_setup,
    ConnectionAction.SETUP_FAILED: handshake.setup_failed,
    ConnectionAction.FAIL: endings.fail,
    ConnectionAction.ABORT: endings.abort,
    ConnectionAction.ECHO: liveness.echo,
    ConnectionAction.PUSH: liveness.on_push,
    ConnectionAction.PEER_DRAINS: endings.peer_drains,
    ConnectionAction.DRAIN: endings.drain,
    ConnectionAction.FINISH: endings.finish,
    ConnectionAction.REQUEST: _request,
    ConnectionAction.REJECT: _reject,
    ConnectionAction.STREAM_FRAME: _stream_frame,
    ConnectionAction.EXTENSION: extensions.on_extension,
    ConnectionAction.EXPIRE: endings.expire,
    ConnectionAction.LOSE: endings.lose,
    ConnectionAction.NOTHING: endings.nothing,
    ConnectionAction.LEASE: leases.on_lease,
}
