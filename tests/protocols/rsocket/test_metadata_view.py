"""What is read of a request's metadata: as far as somebody asks, in order, and with any metadata type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import Invalid
from afflux.protocols.rsocket.metadata import (
    ACCEPT_MIME,
    AUTHENTICATION_MIME,
    COMPOSITE_MIME,
    MIME_TYPE_MIME,
    ROUTING_MIME,
    TRACE_CONTEXT_MIME,
    TRACING_MIME,
    Accept,
    Bearer,
    Credentials,
    Entries,
    MimeType,
    Route,
    TraceContext,
    Zipkin,
    compose,
    encode_tags,
    route_of,
)

TRACE = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
WHOLE = [
    Route("first", "second"),
    Bearer("token"),
    Zipkin(sampling="debug"),
    MimeType("application/json"),
    Accept(["application/cbor", "text/plain"]),
    TRACE,
    ("a/b", b"1"),
    ("a/b", b"2"),
]
MEMBERS: dict[str, Callable[[Entries], Any]] = {
    "route": lambda e: e.route,
    "tags": lambda e: e.tags,
    "credentials": lambda e: e.credentials,
    "mime_type": lambda e: e.mime_type,
    "accept": lambda e: e.accept,
    "accepts": lambda e: e.accepts("a/b"),
    "zipkin": lambda e: e.zipkin,
    "trace": lambda e: e.trace,
    "get": lambda e: e.get("no/such"),
    "all": lambda e: e.all("a/b"),
    "iterate": list,
}


@pytest.mark.parametrize("compact_len", ["minus-one", "plain"])
def test_everything_that_is_there(compact_len: Any) -> None:
    view = Entries(compose(WHOLE, compact_len=compact_len), compact_len=compact_len)
    assert view.route == "first"
    assert view.tags == ("first", "second")
    assert view.credentials == Bearer("token")
    assert view.zipkin == Zipkin(sampling="debug")
    assert view.mime_type == "application/json"
    assert view.accept == ("application/cbor", "text/plain")
    assert view.trace == TRACE
    assert view.get("a/b") == b"1"
    assert view.all("a/b") == [b"1", b"2"]


@pytest.mark.parametrize("metadata", [None, b"", compose([("x/y", b"")])])
def test_nothing_is_there(metadata: bytes | None) -> None:
    view = Entries(metadata)
    found = {name: member(view) for name, member in MEMBERS.items() if name != "iterate"}
    assert found == {
        "route": None,
        "tags": (),
        "credentials": None,
        "mime_type": None,
        "accept": (),
        "accepts": True,
        "zipkin": None,
        "trace": None,
        "get": None,
        "all": [],
    }


@given(st.lists(st.tuples(st.sampled_from(["a/b", "c/d", ROUTING_MIME]), st.binary(max_size=9)), max_size=8))
def test_order_and_duplicates_are_kept(given: list[tuple[str, bytes]]) -> None:
    """R-54: preserve composite entry order and allow duplicates."""
    view = Entries(compose(given))
    assert list(view) == given
    assert list(view) == given
    assert view.all("a/b") == [value for mime, value in given if mime == "a/b"]


def test_two_readers_share_what_is_read() -> None:
    view = Entries(compose([("a/b", b"1"), ("a/b", b"2"), ("a/b", b"3")]))
    one, other = iter(view), iter(view)
    assert [next(one), next(other), next(other), next(one), next(one)] == [("a/b", b"%d" % i) for i in (1, 1, 2, 2, 3)]
    assert list(one) == []
    assert list(other) == [("a/b", b"3")]


def test_what_is_malformed_harms_who_asks_for_it_alone() -> None:
    broken = [
        (ROUTING_MIME, b"\x01a\x09b"),
        (AUTHENTICATION_MIME, b"\x80"),
        (TRACING_MIME, b""),
        (MIME_TYPE_MIME, b"\x05a"),
        (ACCEPT_MIME, b"\x05a"),
        ("a/b", b"fine"),
    ]
    view = Entries(compose(broken))
    assert view.route == "a"
    assert view.get("a/b") == b"fine"
    assert list(view) == broken
    for name in ("tags", "credentials", "zipkin", "mime_type", "accept", "accepts"):
        with pytest.raises(Invalid, match="the metadata cannot be read"):
            MEMBERS[name](view)


@pytest.mark.parametrize("value", [b"", b"\x09garbage", b"\x04fine"])
def test_a_trace_that_can_not_be_read_is_none(value: bytes) -> None:
    """W3C: an invalid traceparent is ignored, and the trace restarted."""
    assert Entries(compose([(TRACE_CONTEXT_MIME, value)])).trace is None


@pytest.mark.parametrize("name", MEMBERS)
def test_entries_before_a_fault_are_kept(name: str) -> None:
    """R-55: report an entry that overruns its buffer as an error, keeping the entries before it."""
    view = Entries(compose(WHOLE) + b"\x85\x00\x00\x09short")
    kept = {
        "route": "first",
        "tags": ("first", "second"),
        "credentials": Bearer("token"),
        "mime_type": "application/json",
        "zipkin": Zipkin(sampling="debug"),
        "trace": TRACE,
    }
    for _ in range(2):
        if name in kept:
            assert MEMBERS[name](view) == kept[name]
            continue
        with pytest.raises(Invalid, match="longer than what is left") as caught:
            MEMBERS[name](view)
        assert caught.value.rule == "R-55"
    assert view.get("a/b") == b"1"


def test_every_truncation_keeps_what_stands_before_it() -> None:
    pairs = list(Entries(compose(WHOLE)))
    ends = [len(compose(pairs[:n])) for n in range(len(pairs) + 1)]
    data = compose(WHOLE)
    for end in range(len(data) + 1):
        got = []
        try:
            for pair in Entries(data[:end]):
                got.append(pair)
        except Invalid:
            assert end not in ends
        else:
            assert end in ends
        assert got == pairs[: sum(boundary <= end for boundary in ends) - 1]


@given(st.binary(max_size=60), st.sampled_from([COMPOSITE_MIME, ROUTING_MIME, AUTHENTICATION_MIME, "a/b"]))
def test_garbage_is_read_or_invalid(data: bytes, mime: str) -> None:
    for member in MEMBERS.values():
        try:
            member(Entries(data, metadata_mime=mime))
        except Invalid:
            pass


def test_there_are_only_so_many_entries() -> None:
    metadata = compose([("a/b", b"")] * 4)
    assert len(list(Entries(metadata, limit=4))) == 4
    view = Entries(metadata, limit=3)
    assert view.get("a/b") == b""
    with pytest.raises(Invalid, match="too-many-entries") as caught:
        view.get("no/such")
    assert caught.value.rule == "composite_entries"


def test_metadata_of_another_type_is_one_entry() -> None:
    routed = Entries(encode_tags(("r", "s")), metadata_mime=ROUTING_MIME)
    assert (routed.route, routed.tags, routed.credentials) == ("r", ("r", "s"), None)
    bearer = Entries(Bearer("t").encode(), metadata_mime=AUTHENTICATION_MIME)
    assert (bearer.route, bearer.credentials) == (None, Bearer("t"))
    other = Entries(b"\xff", metadata_mime="a/b")
    assert (other.route, list(other)) == (None, [("a/b", b"\xff")])
    assert list(Entries(None, metadata_mime="a/b")) == []
    assert list(Entries(b"", metadata_mime="a/b")) == [("a/b", b"")]


@pytest.mark.parametrize("metadata", [compose(WHOLE), compose([(ROUTING_MIME, b"")]), b"", None])
def test_the_route_is_that_of_the_short_way(metadata: bytes | None) -> None:
    assert Entries(metadata).route == route_of(metadata)


def test_accept_lists_add_up_and_know_no_case() -> None:
    view = Entries(compose([Accept(["Application/JSON"]), Accept(["text/plain"])]))
    assert view.accept == ("Application/JSON", "text/plain")
    assert [view.accepts(mime) for mime in ("application/json", "TEXT/plain", "text/html")] == [True, True, False]


def test_an_empty_accept_list_states_nothing() -> None:
    assert Entries(compose([Accept([])])).accepts("text/html")


def test_no_secret_is_shown() -> None:
    view = Entries(compose([Bearer("s3cret"), Credentials("own", b"s3cret")], route="r"))
    assert repr(view) == "<Entries read so far: none>"
    list(view)
    assert "s3cret" not in repr(view)
    assert AUTHENTICATION_MIME in repr(view)
