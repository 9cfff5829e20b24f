"""The auditor finds each rule that is broken once, and nothing in correct conversations. Rule numbers are RSocket's."""

from __future__ import annotations

import pytest
from interop.audit import audit
from interop.proxy import Direction, Seen

from afflux.core.frame import Frame
from afflux.protocols.rsocket import frames as f

Said = tuple[Direction, Frame | bytes]


def client(frame: Frame | bytes) -> Said:
    return ">", frame


def server(frame: Frame | bytes) -> Said:
    return "<", frame


def item(stream: int, **more: bool | bytes) -> f.PayloadFrame:
    values: dict[str, bool | bytes] = {"next": True, "data": b"x", **more}
    return f.PayloadFrame(stream=stream, **values)  # type: ignore[arg-type]


def found(*said: Said) -> list[tuple[str, str]]:
    record = [Seen(way, frame if isinstance(frame, bytes) else frame.encode()) for way, frame in said]
    return [(finding.direction, finding.rule) for finding in audit(record)]


SETUP = client(f.Setup())
STREAM = client(f.RequestStream(stream=1, initial_n=2))
CHANNEL = client(f.RequestChannel(stream=1, initial_n=2))


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    beat = f.Keepalive(respond=True, data=b"a")
    assert (
        found(
            SETUP,
            client(f.RequestResponse(stream=1, follows=True, metadata=b"m")),
            client(item(1, follows=True, metadata=b"m", data=b"")),
            client(item(1)),
            server(item(1, complete=True)),
            client(f.RequestStream(stream=3, initial_n=1)),
            server(item(3, follows=True)),
            server(item(3)),
            client(f.RequestN(stream=3, n=1)),
            server(item(3)),
            server(f.PayloadFrame(stream=3, complete=True)),
            client(beat),
            server(f.Keepalive(data=b"a")),
            client(f.RequestChannel(stream=5, initial_n=1)),
            server(f.RequestN(stream=5, n=1)),
            client(item(5, complete=True)),
            server(f.ErrorFrame(stream=5, code=0x201)),
            client(f.RequestFnf(stream=7)),
            client(f.MetadataPush(metadata=b"m")),
            server(f.RequestResponse(stream=2)),
            client(item(2, complete=True)),
        )
        == []
    )


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("R-11", [client(f.RequestFnf(stream=1))]),
        (
            "R-52",
            [
                client(
                    f.Resume(
                        major=0, minor=1, token=b"t", last_received_server_position=0, first_available_client_position=0
                    )
                )
            ],
        ),
        ("R-7", [SETUP, client(b"\0\0\0\1")]),
        ("R-5", [SETUP, client(bytes.fromhex("00000001fa00")[:4] + b"\x7c\x00")]),
        ("R-4", [SETUP, client(f.Cancel(stream=1).encode()[:5] + b"\x01"), client(f.RequestFnf(stream=3))]),
        ("2.3", [SETUP, client(bytes.fromhex("000000003000") + b"meta")]),
        ("2.3", [SETUP, client(f.Cancel(stream=0))]),
        ("R-19", [SETUP, client(f.Keepalive(respond=True, data=b"a")), server(f.Keepalive(data=b"b"))]),
        ("R-51", [SETUP, client(f.Keepalive(respond=True, position=9))]),
        ("R-8", [SETUP, client(f.RequestFnf(stream=2))]),
        ("R-8", [SETUP, client(f.RequestFnf(stream=3)), client(f.RequestFnf(stream=1))]),
        ("R-10", [SETUP, client(f.RequestFnf(stream=1)), client(f.RequestFnf(stream=1))]),
        ("R-24", [SETUP, CHANNEL, CHANNEL]),
        ("R-25", [SETUP, CHANNEL, client(item(1))]),
        ("R-27", [SETUP, STREAM, server(item(1)), server(item(1)), server(item(1))]),
        ("R-27", [SETUP, client(f.RequestResponse(stream=1)), server(item(1)), server(item(1))]),
        ("R-28", [SETUP, STREAM, server(item(1, complete=True)), server(f.ErrorFrame(stream=1, code=0x201))]),
        ("R-29", [SETUP, STREAM, server(item(1, complete=True)), server(item(1))]),
        ("R-30", [SETUP, STREAM, server(f.PayloadFrame(stream=1, data=b"x"))]),
        ("R-31", [SETUP, server(f.Cancel(stream=9))]),
        ("R-34", [SETUP, STREAM, server(item(1, follows=True)), server(item(1, metadata=b"m"))]),
        ("R-36", [SETUP, STREAM, server(item(1, follows=True)), server(item(1, next=False))]),
        ("R-42", [SETUP, client(f.RequestFnf(stream=1)), server(f.ErrorFrame(stream=1, code=0x202))]),
        ("R-42", [SETUP, client(f.RequestFnf(stream=1)), server(item(1))]),
        ("D-5", [SETUP, client(bytes.fromhex("00000001180000000000"))]),
        ("D-5", [SETUP, STREAM, client(bytes.fromhex("00000001200000000000"))]),
    ],
)
def test_a_broken_rule_is_found(rule: str, said: list[Said]) -> None:
    way = said[-1][0] if rule != "R-4" else ">"
    assert (way, rule) in found(*said)


def test_a_position_is_right_with_resumption() -> None:
    beat = client(f.Keepalive(respond=True, position=9))
    assert found(client(f.Setup(token=b"token")), beat) == []


def test_items_that_cross_a_cancel_are_no_fault() -> None:
    assert found(SETUP, STREAM, client(f.Cancel(stream=1)), server(item(1)), server(item(1))) == []


def test_a_position_may_be_sent_unasked_where_there_is_resumption() -> None:
    told = client(f.Keepalive(position=80))
    resumable = client(f.Setup(token=b"token"))
    assert found(resumable, told) == []
    assert found(resumable, client(f.Keepalive(position=80, data=b"unasked"))) == [(">", "R-19")]
    assert found(SETUP, told) == [(">", "R-19"), (">", "R-51")]
