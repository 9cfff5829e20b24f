"""Limits: the profiles, the rules between the values, and what a limit says about itself."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.limits import REASONS, ROWS, Limits, explained, oversize, reached, reference

PROFILES = {"server": Limits.server, "trusted": Limits.trusted, "tiny": Limits.tiny}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_keeps_its_own_rules_and_its_column(profile: str) -> None:
    limits = PROFILES[profile]()
    for name, row in ROWS.items():
        assert getattr(limits, name) == getattr(row, profile)
    assert repr(limits) == f"Limits.{profile}()"


def test_each_field_is_declared_once() -> None:
    public = [field.name for field in fields(Limits) if not field.name.startswith("_")]
    assert list(ROWS) == public


def test_the_default_is_the_server() -> None:
    assert Limits() == Limits.server()
    assert Limits() != Limits.tiny()
    assert hash(Limits()) == hash(Limits.server())


@pytest.mark.parametrize(
    ("name", "server", "trusted", "tiny"),
    [
        ("first_frame_bytes", 65_536, 1_048_576, 16_384),
        ("frame_bytes", 4_259_840, 16_777_215, 65_536),
        ("connection_bytes", 8_388_608, 134_217_728, 262_144),
        ("cancel_bucket", (4_256, 1_000), (40_000, 10_000), (50, 5)),
        ("keepalive_rate", (10, 100), (100, 1_000), (5, 20)),
        ("idle_s", 300, None, 60),
        ("connections_per_address", 0.25, None, 16),
        ("journal_bytes", 1_073_741_824, 68_719_476_736, 16_777_216),
        ("resume_rate", (10, 1), (60, 0.1), (5, 1)),
    ],
)
def test_some_values_of_the_tables(name: str, server: object, trusted: object, tiny: object) -> None:
    assert [getattr(PROFILES[profile](), name) for profile in PROFILES] == [server, trusted, tiny]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("payload_bytes", "payload-too-large"),
        ("pending_streams", "too-many-streams"),
        ("connection_bytes", "buffer-full"),
        ("cancel_bucket", "cancel-flood"),
        ("glitch_bucket", "protocol-abuse"),
        ("resume_token_bytes", "bad-token"),
    ],
)
def test_reasons(name: str, reason: str) -> None:
    assert REASONS[name] == reason


def test_a_limit_without_a_reason_word_has_no_reason() -> None:
    assert "tombstones" not in REASONS
    assert all(ROWS[name].reason == reason for name, reason in REASONS.items())


def test_repr_shows_what_differs_from_the_profile() -> None:
    assert repr(Limits(streams=4)) == "Limits.server(streams=4)"
    assert repr(Limits.tiny(idle_s=None, streams=16)) == "Limits.tiny(idle_s=None)"
    assert repr(Limits.trusted().replace(cancel_bucket=(1, 2))) == "Limits.trusted(cancel_bucket=(1, 2))"


@pytest.mark.parametrize("profile", PROFILES)
def test_repr_makes_the_same_limits(profile: str) -> None:
    limits = PROFILES[profile](streams=7, frame_s=0.5)
    assert eval(repr(limits), {"Limits": Limits}) == limits


def test_replace_changes_only_what_it_names() -> None:
    before = Limits.tiny(streams=3)
    after = before.replace(sessions=4)
    assert (after.streams, after.sessions) == (3, 4)
    assert before.sessions == 16
    assert after.replace(streams=16, sessions=16) == Limits.tiny()


def test_limits_are_immutable() -> None:
    limits = Limits()
    with pytest.raises(FrozenInstanceError):
        limits.streams = 1  # type: ignore[misc]  # the mistake
    assert not hasattr(limits, "__dict__")


def test_who_changes_nothing_shares_one() -> None:
    """10,000 clients have one object, not one each."""
    assert Limits.server() is Limits.server()
    assert Limits.server(streams=1) is not Limits.server(streams=1)
    assert Limits.server(streams=1) == Limits.server().replace(streams=1)


def test_copies_keep_their_profile() -> None:
    limits = Limits.tiny(streams=3)
    for other in (copy.copy(limits), pickle.loads(pickle.dumps(limits))):
        assert other == limits
        assert repr(other) == repr(limits)


@pytest.mark.parametrize("make", [Limits.server, Limits.trusted, Limits.tiny, Limits().replace])
def test_an_unknown_name_is_answered_with_the_nearest(make: Any) -> None:
    with pytest.raises(TypeError, match=r"unknown limit 'strems'; did you mean 'streams'\?"):
        make(strems=4)


@pytest.mark.parametrize("name", ["_profile", "zzz", ""])
def test_even_a_name_that_is_near_to_nothing(name: str) -> None:
    with pytest.raises(TypeError, match="unknown limit"):
        Limits().replace(**{name: 1})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"streams": None}, "streams must be a number"),
        ({"streams": "4"}, "streams must be a whole number"),
        ({"streams": 4.0}, "streams must be a whole number"),
        ({"streams": True}, "streams must be a whole number"),
        ({"streams": (4, 4)}, "streams must be a number"),
        ({"frame_s": "1"}, "frame_s must be a number"),
        ({"cancel_bucket": 4}, "cancel_bucket must be a pair"),
        ({"cancel_bucket": (1, 2, 3)}, "cancel_bucket must be a pair"),
        ({"cancel_bucket": (1, 0.5)}, "cancel_bucket must be a whole number"),
        ({"cancel_bucket": None}, "cancel_bucket must be a pair"),
        ({"connections_per_address": "1/4"}, "connections_per_address must be a number"),
        ({"connections_per_address": True}, "connections_per_address must be a number"),
    ],
)
def test_a_value_of_the_wrong_type(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Limits(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"streams": -1},
        {"frame_s": float("inf")},
        {"frame_s": float("nan")},
        {"cancel_bucket": (1, -1)},
        {"varint_bytes": 11},
        {"sessions": 129},
        {"lease_queue": 257},
        {"connections_per_address": -1},
        {"connections_per_address": 0.0},
        {"connections_per_address": 1.5},
        {"connections_per_address": 100.0},
    ],
)
def test_a_value_out_of_range(changes: dict[str, Any]) -> None:
    name, value = next(iter(changes.items()))
    with pytest.raises(ValueError, match=name) as caught:
        Limits(**changes)
    assert repr(value) in str(caught.value)


def test_off_is_legal_where_a_row_allows_it() -> None:
    for name, row in ROWS.items():
        off: dict[str, Any] = {name: None}
        if row.off:
            assert getattr(Limits(**off), name) is None
        else:
            with pytest.raises(TypeError, match=name):
                Limits(**off)


def test_zero_is_a_limit_and_not_off() -> None:
    assert Limits(streams=0).streams == 0
    assert Limits(frame_s=0).frame_s == 0


@pytest.mark.parametrize(
    ("allowed", "refused", "names"),
    [
        (
            {"first_frame_bytes": 65_536},
            {"first_frame_bytes": 65_537},
            ["first_frame_bytes=65537", "frame_bytes=65536"],
        ),
        ({}, {"payload_bytes": 262_145}, ["payload_bytes=262145", "connection_bytes=262144"]),
        (
            {"payload_bytes": 229_376},
            {"payload_bytes": 229_377},
            ["payload_bytes=229377 + outbound_high_bytes=32768", "connection_bytes=262144"],
        ),
        ({"sessions": 64}, {"sessions": 65}, ["sessions=65 × ration_bytes=4096", "connection_bytes=262144"]),
        (
            {"keepalive_echoes": 8},
            {"keepalive_echoes": 9},
            ["keepalive_echoes=9 × connection_metadata_bytes=4096", "outbound_high_bytes=32768"],
        ),
        ({"outbound_low_bytes": 32_767}, {"outbound_low_bytes": 32_768}, ["outbound_low_bytes", "outbound_high_bytes"]),
        ({"connections": 1_638}, {"connections": 1_639}, ["connections=1639 × 40 Ki", "process_bytes=67108864"]),
        ({"ration_bytes": 256}, {"ration_bytes": 0}, ["ration_bytes=0 must be a positive multiple"]),
        ({"ration_bytes": 512}, {"ration_bytes": 300}, ["ration_bytes=300 must be a positive multiple"]),
        (
            {"ration_max_bytes": 8_192},
            {"ration_max_bytes": 8_191},
            ["ration_max_bytes=8191 must be a positive multiple"],
        ),
        ({"ration_max_bytes": 4_096}, {"ration_max_bytes": 256}, ["ration_bytes=4096", "ration_max_bytes=256"]),
        ({"keepalive_s": 90}, {"keepalive_s": 91}, ["keepalive_s=91", "lifetime_s=90"]),
        (
            {"peer_lifetime_s": (9, 9)},
            {"peer_lifetime_s": (9, 8)},
            ["peer_lifetime_s: the minimum, 9", "maximum, 8"],
        ),
        ({"resume_token_bytes": (16, 16)}, {"resume_token_bytes": (17, 16)}, ["resume_token_bytes: the minimum, 17,"]),
        ({}, {"frame_bytes": 0x1000000}, ["frame_bytes must be finite and 0 or more and at most 16777215"]),
    ],
)
def test_values_that_contradict_each_other(allowed: dict[str, Any], refused: dict[str, Any], names: list[str]) -> None:
    Limits.tiny(**allowed)
    with pytest.raises(ValueError) as caught:
        Limits.tiny(**refused)
    for name in names:
        assert name in str(caught.value)


@given(st.dictionaries(st.sampled_from(sorted(ROWS)), st.integers(0, 1 << 20) | st.none(), max_size=3))
def test_whatever_is_asked_for_is_made_or_refused_by_name(changes: dict[str, Any]) -> None:
    try:
        limits = Limits.tiny(**changes)
    except (TypeError, ValueError) as error:
        assert any(name in str(error) for name in changes)
        return
    assert all(getattr(limits, name) == value for name, value in changes.items())
    assert limits.payload_bytes + limits.outbound_high_bytes <= limits.connection_bytes


def test_a_frame_may_be_as_large_as_a_payload() -> None:
    """By default, whatever payload_bytes is: as far as the three bytes of RSocket's length reach."""
    assert Limits.server(payload_bytes=100).frame_bytes == 65_636
    assert Limits(payload_bytes=6 << 20).frame_bytes == (6 << 20) + 65_536
    assert Limits().replace(payload_bytes=5 << 20).replace(payload_bytes=6 << 20) == Limits(payload_bytes=6 << 20)
    assert Limits(payload_bytes=16 << 20, connection_bytes=32 << 20).frame_bytes == 0xFFFFFF
    assert Limits(frame_bytes=1 << 20).replace(payload_bytes=2 << 20).frame_bytes == 1 << 20
    assert Limits(frame_bytes=1 << 20, payload_bytes=2 << 20).frame_bytes == 1 << 20
    assert Limits.tiny(payload_bytes=100).frame_bytes == 65_536
    assert Limits.trusted(payload_bytes=100).replace(payload_bytes=200).frame_bytes == 0xFFFFFF


def test_a_share_is_a_float_and_a_count_is_an_int() -> None:
    for value in (0, 1, 100, 0.001, 1.0, None):
        limits = Limits(connections_per_address=value)
        assert limits.connections_per_address == value
        assert repr(limits) == f"Limits.server(connections_per_address={value})"


def test_what_a_peer_receives_when_a_limit_is_reached() -> None:
    """The reason word, the limit's name, its value."""
    limits = Limits(connections=8, connections_per_address=2, idle_s=5)
    assert reached(limits, "connections") == "too-many-connections: connections=8"
    assert reached(limits, "connections_per_address") == "too-many-connections: connections_per_address=2"
    assert reached(limits, "tombstones") == "tombstones: tombstones=1024"
    assert reached(limits, "glitch_bucket") == "protocol-abuse: glitch_bucket=(1000, 100)"
    assert explained(limits, "cancel-flood") == "cancel-flood: cancel_bucket=(4256, 1000)"
    assert explained(limits, "too-many-streams") == "too-many-streams: streams=256"
    assert explained(limits, "auth-rate") == "auth-rate"
    assert explained(limits, "any other text") == "any other text"
    share = limits.replace(connections_per_address=0.25)
    text = "too-many-connections: connections_per_address=0.25 of connections=8"
    assert reached(share, "connections_per_address") == text


def test_what_a_peer_receives_when_a_size_exceeds_a_limit() -> None:
    """The reason word, the size, the limit's name, its value."""
    limits = Limits.tiny()
    text = "payload-too-large: 131073 bytes exceed payload_bytes=131072"
    assert oversize(limits, "payload_bytes", 131_073) == text == explained(limits, text)
    text = "frame-too-large: 70000 bytes or more exceed frame_bytes=65536"
    assert oversize(limits, "frame_bytes", 70_000, more=True) == text
    assert oversize(limits, "ration_max_bytes", 5000) == "ration_max_bytes: 5000 bytes exceed ration_max_bytes=4096"


def test_credit_frames_follow_what_was_sent() -> None:
    assert Limits().credit_frames(streams=0, items=0) == 5
    assert Limits().credit_frames(streams=2, items=3) == 5 + 2 * (2 + 30)


def test_the_reference_page_has_every_limit() -> None:
    lines = reference().splitlines()
    assert len(lines) == 2 + len(ROWS)
    assert "|`first_frame_bytes`|bytes before the handshake|64 Ki|1 Mi|16 Ki|first-frame-too-large|" in lines
    assert "|`fragments`|count per payload|16,384|262,144|2,048|too-many-fragments|" in lines
    assert "|`idle_s`|seconds without a frame or stream|300|off|60|idle|" in lines
    assert "|`error_text_bytes`|bytes out, in|1 Ki, 64 Ki|1 Ki, 64 Ki|256, 4 Ki||" in lines
    assert "|`journal_bytes`|bytes|1 Gi|64 Gi|16 Mi||" in lines
    row = "|`connections_per_address`|count (int), or share of connections (float)|0.25|off|16|too-many-connections|"
    assert row in lines
