"""The row of the draft in the table of protocols: its options, and what they put on SETUP."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core.errors import AddressError, LocalProtocolError
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.core.terms import Terms
from afflux.protocols.registry import PROTOCOLS
from afflux.protocols.rsocket_draft import Engine, Entry, ExtendedPayload
from afflux.protocols.rsocket_draft.entry import ENTRY, make, refusal
from afflux.transports.address import parse

from .pair import frames_of, said


def setup(**terms: Any) -> Any:
    """The SETUP of a client with these terms."""
    engine = make("client", Terms(**terms), limits=Limits.server(), decide=False, now=0.0)
    assert isinstance(engine, Engine)
    (first,) = frames_of(said(engine))
    return first


def test_R_1_the_address_names_the_draft() -> None:
    """D-2: and nothing else does, least of all the bytes; D-18."""
    assert PROTOCOLS["rsocket-draft"] is ENTRY
    assert ENTRY.subprotocol is None
    address = parse("rsocket-draft+tcp://127.0.0.1:7000?ack=yes&strategy=streams,requests")
    assert (address.protocol, address.options["ack"], address.options["strategy"]) == ("rsocket-draft", True, (1, 0))
    for wrong in ("ack=maybe", "strategy=best", "strategy=", "window=3"):
        with pytest.raises(AddressError):
            parse(f"rsocket-draft+tcp://127.0.0.1:7000?{wrong}")


def test_terms_become_entries() -> None:
    """R-15: optional extensions may be ignored; resumption may not, and leases are refused if there are none."""
    first = setup()
    assert (first.keepalive_ms, first.lifetime_ms, first.lease, first.token, first.ack) == (
        20_000,
        90_000,
        False,
        None,
        False,
    )
    assert [entry.ignorable for entry in first.extensions] == [True]
    payload = ExtendedPayload(b"d", b"m", entries=(Entry("own", b"1", True),))
    first = setup(
        payload=payload, leases=True, token=bytes(32), data_mime="text/plain", metadata_mime="x/y", own={"ack": True}
    )
    assert [(entry.name, entry.ignorable, entry.ack) for entry in first.extensions] == [
        ("keepalive", True, False),
        ("resume", False, True),
        ("lease", True, True),
        ("own", True, False),
    ]
    assert (first.data_mime, first.metadata_mime, first.data, first.metadata) == ("text/plain", "x/y", b"d", b"m")
    assert first.ack
    assert setup(payload=Payload(b"d")).data == b"d"
    strategies = setup(leases=True, own={"strategy": (2,)}).extensions[1].payload
    assert strategies == b"\x82"


def test_terms_that_do_not_fit() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        setup(keepalive=0.0)
    assert caught.value.rule == "R-26"


def test_a_server_and_its_refusal() -> None:
    engine = make("server", Terms(), limits=Limits.server(), decide=True, now=0.0)
    assert engine.setup is None
    (frame,) = frames_of(refusal("full"))
    assert (frame.code, frame.data) == (0x003, b"full")
