"""Every row of the catalogue has its tests: one that tells its outcome, and one that measures what it costs.

Tests of this package that have a row in their name tell it; those elsewhere are cited here and not told twice. What
rows cost is in test_memory.py.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.catalogue import ROWS, TAGS, rows_of
from tests.hostile.test_memory import BOUNDS, Bound
from tests.protocols.generic.every import WIRES

TESTS = Path(__file__).resolve().parent.parent
HOME = TESTS / "hostile"

EVERYWHERE: dict[str, tuple[str, ...]] = {
    "FR-06": ("generic/test_bytes::test_every_truncation_ends_in_order",),
    "FR-08": (
        "generic/test_bytes::test_every_split_gives_the_same_events",
        "generic/test_bytes::test_random_splits_give_the_same_events",
    ),
    "FR-09": (
        "generic/test_bytes::test_constant_garbage",
        "generic/test_bytes::test_garbage_never_raises",
        "generic/test_bytes::test_no_bytes_of_a_peer_raise",
    ),
    "FR-29": ("generic/test_bytes::test_every_flipped_bit_has_a_documented_outcome",),
    "HS-27": ("aio/test_closing::test_accepts_have_a_rate",),
    "HS-28": (
        "transports/test_recognition::test_HS_28_it_is_closed_counted_and_logged",
        "transports/test_recognition::test_HS_28_silence_ends_with_the_handshake",
        "transports/test_recognition::test_HS_28_garbage_of_many_connections",
    ),
}
"Rows that the generic suites tell of each protocol."
FLOODS = "generic/test_floods::test_a_flood_comes_to_its_end"

ELSEWHERE: dict[str, dict[str, tuple[str, ...]]] = {
    "jmux": {
        "FR-05": ("jmux/test_connection::test_FR_05_half_a_message",),
        "FR-22": (
            "jmux/test_frames::test_R_9_first_bytes",
            "jmux/test_connection::test_bad_messages",
            "jmux/test_states::test_what_a_first_byte_means",
        ),
        "FR-23": ("jmux/test_frames::test_R_10_reserved_bytes", "jmux/test_connection::test_bad_messages"),
        "HS-19": ("jmux/test_connection::test_R_3_a_bad_client_header",),
        "HS-20": ("jmux/test_connection::test_HS_20_a_bad_server_header",),
        "HS-21": (
            "jmux/test_connection::test_R_8_no_header_in_time",
            "jmux/test_connection::test_D_3_an_idle_connection",
        ),
        "HS-22": ("jmux/test_connection::test_R_4_initial_rations", "jmux/test_rations::test_R_36_without_end"),
        "SI-18": (
            "jmux/test_server::test_violations_of_a_client",
            "jmux/test_client::test_violations_of_a_server",
            "jmux/test_states::test_the_engine_keeps_to_the_table_of_server_sessions",
        ),
        "SI-19": (
            "jmux/test_server::test_SI_19_what_crosses_a_close",
            "jmux/test_client::test_D_15_the_ration_counts_after_an_abort",
        ),
        "SI-22": (
            "jmux/test_client::test_SI_22_an_abort_is_not_answered",
            "jmux/test_server::test_SI_22_a_close_is_not_answered",
            "jmux/test_wire::test_a_pool_opens_another_connection",
        ),
        "SI-23": ("jmux/test_server::test_SI_23_opened_again_too_early",),
        "FC-13": ("jmux/test_rations::test_FC_13_the_first_byte_over_the_ration",),
        "FC-14": ("jmux/test_rations::test_R_35_FC_14_too_much",),
        "FC-17": (
            "jmux/test_rations::test_127_sessions_stall_and_one_flows",
            "jmux/test_rations::test_FC_17_the_stalled_ones_are_given_up",
            "jmux/test_server::test_FC_17_a_session_without_increments",
            "jmux/test_client::test_stalled_by_the_server",
            "jmux/test_wire::test_127_stall_and_one_flows",
        ),
        "FC-18": (
            "jmux/test_rations::test_FC_18_every_ration_is_full",
            "jmux/test_rations::test_payloads_that_wait_count",
            "jmux/test_rations::test_growth_stops_when_memory_is_tight",
        ),
        "FC-19": ("jmux/test_rations::test_127_sessions_stall_and_one_flows",),
        "TM-03": ("jmux/test_connection::test_TM_03_this_side_slept",),
        "KA-08": (
            "jmux/test_connection::test_R_13_every_ping_is_answered",
            "jmux/test_connection::test_KA_08_a_flood_of_pings",
            "jmux/test_connection::test_unread_answers_stop_the_reading",
        ),
        "KA-10": ("jmux/test_connection::test_KA_10_no_answer_to_a_ping",),
        "FL-07": ("jmux/test_server::test_FL_07_opening_and_aborting",),
        "FL-08": ("jmux/test_server::test_FL_08_a_session_without_data",),
        "SL-03": (
            "jmux/test_connection::test_SL_03_the_client_ends_its_half",
            "jmux/test_connection::test_SL_03_no_stream_can_continue",
            "jmux/test_wire::test_SL_03_a_client_that_ends_its_half",
        ),
        "JA-01": ("jmux/test_connection::test_JA_01_the_server_shuts_down",),
        "JA-02": ("jmux/test_connection::test_JA_02_the_server_finds_an_error",),
        "JA-03": (
            "jmux/test_connection::test_JA_03_the_connection_is_lost",
            "jmux/test_connection::test_KA_10_no_answer_to_a_ping",
        ),
        "JA-04": (
            "jmux/test_client::test_JA_04_the_server_aborts",
            "jmux/test_wire::test_whether_it_may_have_been_processed",
        ),
        "JA-06": (
            "jmux/test_server::test_JA_06_a_handler_that_fails",
            "jmux/test_server::test_R_30_a_request_that_was_never_sent",
        ),
        "JA-07": (
            "jmux/test_connection::test_JA_07_closing_a_server_that_works",
            "jmux/test_connection::test_R_30_closing_a_server_that_has_done_nothing",
            "jmux/test_connection::test_draining",
        ),
        "JA-09": (
            "jmux/test_server::test_R_45_never_acknowledged",
            "jmux/test_server::test_JA_09_the_connection_is_lost",
            "jmux/test_server::test_R_42_an_acknowledgement_that_must_not_be",
        ),
        "JA-11": ("jmux/test_frames::test_JA_11_details_that_are_not_text",),
        "JA-12": ("jmux/test_wire::test_a_pool_tries_again_only_what_is_safe",),
    },
    "reactivesocket": {
        "FR-03": (
            "reactivesocket/test_connection::test_a_length_above_the_ceiling",
            "reactivesocket/test_connection::test_the_reserved_bit_of_a_length",
        ),
        "FR-05": ("reactivesocket/test_connection::test_a_frame_that_never_ends",),
        "FR-17": ("reactivesocket/test_connection::test_extensions",),
        "HS-01": ("reactivesocket/test_connection::test_a_silent_client",),
        "HS-02": ("reactivesocket/test_connection::test_anything_before_setup_is_an_invalid_setup",),
        "HS-03": ("reactivesocket/test_connection::test_anything_before_setup_is_an_invalid_setup",),
        "HS-12": ("reactivesocket/test_connection::test_the_first_frame_is_small",),
        "HS-18": ("reactivesocket/test_connection::test_a_setup_that_is_refused",),
        "SI-07": ("reactivesocket/test_streams::test_unknown_streams_are_ignored",),
        "SI-11": ("reactivesocket/test_streams::test_a_response_completes_with_c_or_without",),
        "SI-16": ("reactivesocket/test_streams::test_a_fragmented_request_that_comes_when_all_handlers_run",),
        "SI-17": ("reactivesocket/test_streams::test_a_subscription_does_not_complete",),
        "FC-12": (
            "reactivesocket/test_streams::test_an_initial_n_of_zero",
            "reactivesocket/test_streams::test_serving_a_stream",
            "reactivesocket/test_streams::test_a_request_that_opens_a_channel_is_cut",
        ),
        "LE-10": ("reactivesocket/test_connection::test_a_request_beyond_the_lease",),
        "KA-01": ("reactivesocket/test_connection::test_keepalive_is_answered_with_the_same_data",),
        "KA-02": ("reactivesocket/test_connection::test_keepalive_is_bounded",),
        "KA-03": ("reactivesocket/test_connection::test_keepalive_is_bounded",),
        "FL-03": (
            "reactivesocket/test_bytes::test_a_flood_of_fire_and_forget",
            "aio/test_fires::test_no_more_run_than_may_and_requests_go_beside_them",
        ),
    },
    "limit": {
        "FR-01": ("limit/test_hostile::test_FR_01_a_frame_shorter_than_its_header",),
        "FR-02": ("limit/test_hostile::test_FR_02_a_frame_above_the_limit_is_refused_by_its_length",),
        "FR-05": ("limit/test_connection::test_FR_05_a_frame_that_does_not_end",),
        "FR-13": (
            "limit/test_connection::test_R_8_FR_13_what_is_not_understood",
            "limit/test_hostile::test_FR_13_frames_that_are_skipped_are_charged",
        ),
        "HS-01": ("limit/test_connection::test_HS_01_a_silent_client",),
        "HS-02": ("limit/test_connection::test_HS_02_another_frame_before_SETUP",),
        "HS-03": ("limit/test_connection::test_HS_03_a_SETUP_that_names_no_channel",),
        "HS-12": ("limit/test_hostile::test_HS_12_a_first_frame_that_is_too_large",),
        "SI-16": ("limit/test_hostile::test_SI_16_handlers_that_are_too_many",),
        "SI-24": ("limit/test_numbers::test_R_21_SI_24_another_number_than_the_next",),
        "SI-25": (
            "limit/test_sessions::test_R_32_SI_25_a_step_of_the_peer_that_is_not_legal",
            "limit/test_sessions::test_SI_25_a_step_that_is_not_legal_is_not_sent",
        ),
        "SI-27": (
            "aio/test_typed::test_SI_27_two_tasks_that_use_one_endpoint",
            "aio/test_typed::test_SI_25_an_own_mistake_is_refused_before_anything_is_sent",
        ),
        "SI-28": ("limit/test_numbers::test_R_19_SI_28_an_id_that_is_in_use",),
        "FG-14": ("limit/test_connection::test_R_10_FG_14_a_length_that_lies",),
        "FG-19": ("limit/test_connection::test_FG_19_bytes_behind_the_end_of_a_frame",),
        "FL-01": ("limit/test_hostile::test_FL_01_sessions_that_are_opened_and_ended",),
        "FL-06": ("limit/test_hostile::test_FL_06_a_peer_that_does_not_read",),
    },
    "rsio": {
        "FR-05": ("rsio/test_connection::test_a_message_that_never_ends", "rsio/test_hostile::test_bytes_one_by_one"),
        "FR-25": (
            "rsio/test_frames::test_numbers_above_64_bits",
            "rsio/test_frames::test_numbers_may_be_written_long",
        ),
        "FR-26": (
            "rsio/test_frames::test_lengths_are_bounded_before_anything_is_stored",
            "rsio/test_hostile::test_long_lengths",
        ),
        "HS-01": ("rsio/test_connection::test_HS_01_a_silent_stranger_is_closed_without_a_word",),
        "HS-23": (
            "rsio/test_connection::test_HS_23_the_first_message_is_no_hello",
            "rsio/test_connection::test_R_12_a_server_meets_another_version",
        ),
        "HS-25": ("rsio/test_connection::test_R_13_requests_sent_early_count_as_discarded",),
        "SI-29": (
            "rsio/test_publishing::test_SI_29_an_id_that_is_in_use",
            "rsio/test_subscribing::test_R_28_nothing_follows_an_end",
        ),
        "SI-31": (
            "rsio/test_publishing::test_SI_31_names_have_a_limit",
            "rsio/test_publishing::test_R_19_the_application_gets_the_name_as_it_is",
        ),
        "FC-09": ("rsio/test_hostile::test_who_asks_for_all_and_reads_nothing",),
        "FC-20": (
            "rsio/test_subscribing::test_R_27_more_than_was_demanded",
            "rsio/test_subscribing::test_R_27_a_pack_that_is_too_large_for_the_demand",
        ),
        "FC-21": (
            "rsio/test_publishing::test_FC_21_a_demand_out_of_range",
            "rsio/test_publishing::test_R_5_a_first_demand_above_all_numbers",
        ),
        "FC-23": (
            "rsio/test_subscribing::test_FC_23_elements_that_are_too_large_from_the_start",
            "rsio/test_subscribing::test_elements_that_are_too_large",
            "rsio/test_subscribing::test_R_39_a_pack_where_elements_have_no_size_is_fatal",
            "rsio/test_hostile::test_packs_of_nothing_for_ever",
        ),
        "TM-01": ("rsio/test_hostile::test_time_that_goes_backwards",),
        "TM-03": ("rsio/test_hostile::test_a_process_that_was_stopped",),
        "AU-05": ("rsio/test_publishing::test_what_a_subscriber_learns_of_an_error",),
        "AU-06": ("rsio/test_hostile::test_a_pack_is_read_as_it_is",),
    },
    "rsocket-draft": {
        "KA-01": ("rsocket_draft/test_negotiation::test_R_27_R_28_keepalives_are_entries_of_EXT",),
        "EX-01": (
            "rsocket_draft/test_entries::test_a_length_that_lies_is_malformed_and_nothing_is_allocated",
            "rsocket_draft/test_entries::test_counts_that_lie_and_chains_that_end_early",
            "rsocket_draft/test_extending::test_first_frames_that_cannot_be_read",
        ),
        "EX-02": (
            "rsocket_draft/test_frames::test_R_18_D_7_an_unknown_extension_that_must_be_understood",
            "rsocket_draft/test_extending::test_R_18_an_entry_that_must_be_understood_ends_the_stream",
            "rsocket_draft/test_negotiation::test_a_setup_that_is_refused",
        ),
        "EX-03": (
            "rsocket_draft/test_entries::test_D_17_a_chain_is_short",
            "rsocket_draft/test_extending::test_D_17_long_entries_on_a_payload",
        ),
        "EX-05": ("rsocket_draft/test_resume::test_R_35_a_position_beyond_what_was_sent",),
        "EX-06": (
            "rsocket_draft/test_resume::test_R_40_the_server_does_not_continue_a_stream",
            "rsocket_draft/test_resume::test_R_40_the_client_does_not_list_a_stream",
        ),
        "EX-07": (
            "rsocket_draft/test_negotiation::test_R_23_anything_else_than_SETUP_OK_ends_the_connection",
            "rsocket_draft/test_negotiation::test_D_15_SETUP_OK_that_does_not_come",
            "rsocket_draft/test_negotiation::test_a_SETUP_OK_that_breaks_a_rule",
        ),
    },
}
"Protocol and row to the tests that tell it: a module of tests/protocols, or of tests, and the test."


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of a module's tests."""
    found = ast.parse(path.read_text(encoding="utf-8")).body
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in found if isinstance(node, functions) and node.name.startswith("test_"))


def exists(case: str) -> bool:
    """Whether a test that is cited is there."""
    module, _, name = case.partition("::")
    paths = [home / f"{module}.py" for home in (TESTS / "protocols", TESTS)]
    return any(path.exists() and (name in names_in(path) if name else bool(names_in(path))) for path in paths)


def told_here(protocol: str) -> set[str]:
    """Rows in the names of this package's tests of a protocol, and of all."""
    modules = [*HOME.glob(f"test_{protocol.replace('-', '_')}*.py"), HOME / "test_every_wire.py"]
    names = [name for path in modules if path.exists() for name in names_in(path)]
    return {f"{group}-{number}" for name in names for group, number in re.findall(r"([A-Z]{2})_(\d\d)(?=_|$)", name)}


def cited(protocol: str) -> dict[str, tuple[str, ...]]:
    """Row to tests elsewhere; the floods of its declaration are those of the generic suite."""
    own, concerned = ELSEWHERE[protocol], {row.name for row in rows_of(protocol)}
    (wire,) = (wire for wire in WIRES if wire.name == protocol)
    floods = {flood.row: (FLOODS,) for flood in wire.floods if flood.row in concerned}
    found = {**EVERYWHERE, **own, **floods}
    return {row: EVERYWHERE.get(row, ()) + own.get(row, ()) + floods.get(row, ()) for row in found}


def unproved(protocol: str, proofs: Any) -> list[str]:
    """Rows of a protocol that ``proofs`` does not have."""
    return [row.name for row in rows_of(protocol) if row.name not in proofs]


@pytest.mark.parametrize("protocol", TAGS)
def test_every_row_has_a_test_of_its_outcome(protocol: str) -> None:
    assert not unproved(protocol, told_here(protocol) | cited(protocol).keys())


@pytest.mark.parametrize("protocol", TAGS)
def test_every_row_has_a_test_of_its_cost(protocol: str) -> None:
    costs = {row.name for row in rows_of(protocol) if row.memory != "-"}
    assert costs == BOUNDS[protocol].keys()
    for row, bound in BOUNDS[protocol].items():
        assert isinstance(bound, Bound) or exists(bound), f"{row}: {bound}"


@pytest.mark.parametrize("protocol", TAGS)
def test_every_test_that_is_cited_exists(protocol: str) -> None:
    concerned = {row.name for row in rows_of(protocol)}
    for row, cases in cited(protocol).items():
        assert row in concerned, f"{row} is not a row of {protocol}"
        for case in cases:
            assert exists(case), f"{row}: {case}"
    assert told_here(protocol) <= ROWS.keys()


@pytest.mark.parametrize("protocol", TAGS)
def test_a_row_without_a_test_is_seen(protocol: str) -> None:
    """The check itself: it names what is missing, and does not take a test for another."""
    everything = {row.name for row in rows_of(protocol)}
    for row in everything:
        assert unproved(protocol, everything - {row}) == [row]
    assert not exists("jmux/test_server::test_that_is_not_there")
    assert not exists("jmux/test_that_is_not_there::test_SI_18")


def test_the_catalogue_is_of_every_protocol_but_the_first() -> None:
    assert {"rsocket", *TAGS} == {wire.name for wire in WIRES}
    assert [len(rows_of(protocol)) for protocol in TAGS] == [46, 34, 45, 29, 46]
