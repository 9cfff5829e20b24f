"""Metadata extensions, seen through the router. Rule numbers are RSocket's. R-54 to R-59, I-3, I-8."""

from __future__ import annotations

import pytest

import afflux
from afflux import Accept, Bearer, Credentials, Entries, Invalid, MimeType, Payload, Router, Zipkin
from afflux.protocols.rsocket.metadata import COMPOSITE_MIME, ROUTING_MIME, compose, encode_mime


def test_R_54_entries_come_in_the_order_they_were_written() -> None:
    given = [("a/b", b"1"), ("text/plain", b"2"), ("a/b", b"3"), ("a/b", b"1"), (COMPOSITE_MIME, b"")]
    assert list(Entries(compose(given))) == given
    assert Entries(compose(given)).all("a/b") == [b"1", b"3", b"1"]


@pytest.mark.parametrize("broken", [b"\x85", b"\x85\x00\x00", b"\x85\x00\x00\x02x", b"\x03ab", b"\x85\xff\xff\xff"])
def test_R_55_what_stands_before_an_overrun_is_kept(broken: bytes) -> None:
    view = Entries(compose([Bearer("t")], route="r") + broken)
    assert (view.route, view.credentials) == ("r", Bearer("t"))
    with pytest.raises(Invalid) as caught:
        view.get("application/json")
    assert caught.value.rule == "R-55"
    assert view.route == "r"


@pytest.mark.parametrize("size", [0, 1, 127, 128, 254, 255])
def test_R_56_a_tag_has_0_to_255_bytes(size: int) -> None:
    """One length byte, all of its values."""
    value = bytes((size,)) + b"t" * size + b"\x01u"
    assert afflux.entries(compose([(ROUTING_MIME, value)])).tags == ("t" * size, "u")
    assert afflux.Route("t" * size, "u").encode() == value


async def test_R_57_an_answer_of_a_type_outside_the_accept_list_names_its_type() -> None:
    """The connection's data is JSON: only what a requester can not expect is named, and its own list is not echoed."""
    router = Router()

    @router.request("json", codec="application/json")
    async def as_json(data: dict[str, int]) -> dict[str, int]:
        return {"n": data["n"] + 1}

    json = "application/json"
    uri = "mem://conformance-r-57"
    async with afflux.serve(uri, router) as server, afflux.connect(server.uri, data_mime=json) as peer:
        for accept, named in (([json], None), ([], None), (["text/plain"], json)):
            answer = await peer.request(b'{"n": 1}', route="json", metadata=Accept(accept))
            assert answer.data == b'{"n":2}'
            assert afflux.entries(answer).mime_type == named
            assert afflux.entries(answer).accept == ()


async def test_R_57_a_requester_ignores_an_accept_list_in_an_answer() -> None:
    class Wrong:
        async def request(self, payload: Payload) -> Payload:
            return Payload(payload.data, compose([Accept(["no/such"]), MimeType("text/plain")]))

    async with afflux.serve("mem://conformance-r-57b", Wrong()) as server, afflux.connect(server.uri) as peer:
        answer = await peer.request(b"x")
        assert answer.data == b"x"
        assert afflux.entries(answer).mime_type == "text/plain"


IDS = bytes(range(1, 33))


@pytest.mark.parametrize(
    ("data", "span"),
    [
        (b"\x7f" + IDS, Zipkin(sampling="debug")),
        (b"\x30" + IDS, Zipkin(sampling="sampled")),
        (b"\x10", Zipkin(sampling="not-sampled")),
        (b"\x80" + IDS, Zipkin(trace_id=IDS[:8].hex(), span_id=IDS[8:16].hex())),
        (
            b"\xfc" + IDS,
            Zipkin(trace_id=IDS[:16].hex(), span_id=IDS[16:24].hex(), parent_id=IDS[24:].hex(), sampling="debug"),
        ),
        (
            b"\xb4" + IDS[:24],
            Zipkin(trace_id=IDS[:8].hex(), span_id=IDS[8:16].hex(), parent_id=IDS[16:24].hex(), sampling="sampled"),
        ),
    ],
)
def test_R_58_ids_by_i_and_sampling_by_rank(data: bytes, span: Zipkin) -> None:
    assert Zipkin.decode(data) == span


def test_R_59_an_unknown_kind_of_credentials_comes_as_it_is() -> None:
    for entry, kind in ((b"\x85\x00\xff", "0x05"), (b"\x02own\x00\xff", "own")):
        view = Entries(compose([("message/x.rsocket.authentication.v0", entry)]))
        assert view.credentials == Credentials(kind, b"\x00\xff")


def test_I_3_plain_lengths_are_read_and_written_when_asked_for() -> None:
    metadata = compose([MimeType("own/type")], route="r", compact_len="plain")
    assert metadata.endswith(encode_mime("own/type", "plain"))
    assert encode_mime("own/type", "plain") == b"\x08own/type"
    assert encode_mime("own/type") == b"\x07own/type"
    assert Entries(metadata, compact_len="plain").mime_type == "own/type"
    with pytest.raises(Invalid):
        _ = Entries(metadata).mime_type
