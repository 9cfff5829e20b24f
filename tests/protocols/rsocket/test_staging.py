"""The staging entry: round trips, every truncation, every rule, and the examples of docs/staging.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import LocalProtocolError, Violation
from afflux.protocols.rsocket import staging as module
from afflux.protocols.rsocket.metadata import compose, entries
from afflux.protocols.rsocket.staging import (
    STAGING_MIME,
    Abort,
    Commit,
    Committed,
    Key,
    Part,
    Stage,
    Staged,
    Staging,
    decode_staging,
    encode_staging,
    staging_of,
)

DOCS = Path(__file__).parents[3] / "docs" / "staging.md"
Q = bytes.fromhex("00112233445566778899aabbccddeeff")
R = bytes.fromhex("f0e1d2c3b4a5968778695a4b3c2d1e0f")
NONE = bytes(16)
TOP = (1 << 63) - 1
KINDS = (Stage, Staged, Commit, Committed, Abort, Key)

ids = st.binary(min_size=16, max_size=16).filter(any)
counts = st.integers(0, TOP)
partitions = st.integers(0, (1 << 31) - 1)
attempts = st.integers(1, (1 << 64) - 1)
batches = {"query": ids, "batch": counts, "run": ids}
parts = st.lists(st.builds(Part, partitions, attempts, st.integers(1, TOP)), unique_by=lambda part: part[0]).map(
    lambda found: tuple(sorted(found))
)
entries_of_all_kinds = st.one_of(
    st.builds(Stage, **batches, partition=partitions, attempt=attempts),
    st.builds(Staged, rows=counts, duplicate=st.booleans()),
    st.builds(Commit, **batches, parts=parts),
    st.builds(Committed, rows=counts, duplicate=st.booleans()),
    st.builds(Abort, **batches),
    st.builds(Key, query=ids, batch=counts, partition=partitions, sequence=counts),
)

EXAMPLES: list[Staging] = [
    Stage(query=Q, batch=1, run=R, partition=2, attempt=3),
    Staged(rows=4),
    Staged(rows=0, duplicate=True),
    Commit(query=Q, batch=1, run=R),
    Commit(query=Q, batch=1, run=R, parts=(Part(0, 1, 2), Part(1, 2, 3))),
    Committed(rows=4),
    Committed(rows=0, duplicate=True),
    Abort(query=Q, batch=1, run=R),
    Key(query=Q, batch=1, partition=2, sequence=3),
]


@pytest.mark.parametrize("entry", EXAMPLES, ids=lambda entry: type(entry).__name__)
def test_an_entry_is_decoded_and_every_truncation_is_refused(entry: Staging) -> None:
    data = entry.encode()
    assert decode_staging(data) == entry
    assert decode_staging(data[:2] + b"\xff\xff" + data[4:]) == entry
    whole = {44 + 20 * count for count in range(2)} if isinstance(entry, Commit) else set()
    for cut in [data[:size] for size in range(len(data)) if size not in whole] + [data + b"."]:
        with pytest.raises(Violation) as caught:
            decode_staging(cut)
        assert (caught.value.rule, caught.value.code) == ("SK-1", 0x204)


@given(entries_of_all_kinds)
def test_what_is_encoded_is_decoded(entry: Staging) -> None:
    assert decode_staging(entry.encode()) == entry


@given(st.binary(max_size=70))
def test_garbage_is_an_entry_or_a_violation(data: bytes) -> None:
    try:
        entry = decode_staging(data)
    except Violation as violation:
        assert violation.code == 0x204
    else:
        assert entry.encode() == data[:2] + bytes(2) + data[4:]


@pytest.mark.parametrize("kind", [0x00, 0x07, 0xFF])
def test_an_unknown_kind(kind: int) -> None:
    with pytest.raises(Violation, match=f"0x{kind:02X}") as caught:
        decode_staging(bytes((kind,)) + bytes(55))
    assert caught.value.rule == "SK-2"


@pytest.mark.parametrize("entry", EXAMPLES, ids=lambda entry: type(entry).__name__)
def test_an_unknown_flag(entry: Staging) -> None:
    data = bytearray(entry.encode())
    data[1] = 0x02 if isinstance(entry, (Staged, Committed)) else 0x01
    with pytest.raises(Violation) as caught:
        decode_staging(bytes(data))
    assert caught.value.rule == "SK-3"


BATCH = {"query": Q, "batch": 0, "run": R}


@pytest.mark.parametrize(
    ("make", "values", "rule"),
    [
        (Stage, BATCH | {"batch": 1 << 63, "partition": 0, "attempt": 1}, "SK-4"),
        (Stage, BATCH | {"partition": 1 << 31, "attempt": 1}, "SK-4"),
        (Stage, BATCH | {"partition": -1, "attempt": 1}, "SK-4"),
        (Stage, BATCH | {"partition": 0, "attempt": 1 << 64}, "SK-4"),
        (Stage, BATCH | {"partition": 0, "attempt": 0}, "SK-5"),
        (Stage, BATCH | {"query": NONE, "partition": 0, "attempt": 1}, "SK-5"),
        (Stage, BATCH | {"run": R[:15], "partition": 0, "attempt": 1}, "SK-5"),
        (Staged, {"rows": -1}, "SK-4"),
        (Commit, BATCH | {"run": NONE}, "SK-5"),
        (Commit, BATCH | {"parts": (Part(0, 1, 1 << 63),)}, "SK-4"),
        (Commit, BATCH | {"parts": (Part(0, 0, 1),)}, "SK-5"),
        (Commit, BATCH | {"parts": (Part(0, 1, 0),)}, "SK-6"),
        (Commit, BATCH | {"parts": (Part(1, 1, 1), Part(1, 2, 1))}, "SK-6"),
        (Committed, {"rows": 1 << 63}, "SK-4"),
        (Abort, BATCH | {"query": Q + b"."}, "SK-5"),
        (Key, {"query": NONE, "batch": 0, "partition": 0, "sequence": 0}, "SK-5"),
        (Key, {"query": Q, "batch": 0, "partition": 1 << 31, "sequence": 0}, "SK-4"),
        (Key, {"query": Q, "batch": 0, "partition": 0, "sequence": -1}, "SK-4"),
    ],
)
def test_what_the_rules_forbid_can_not_be_made(make: Any, values: dict[str, Any], rule: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        make(**values)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        ("05 00 0000 00000000000000000000000000000000 0000000000000007 f0e1d2c3b4a5968778695a4b3c2d1e0f", "SK-5"),
        ("04 00 0000 8000000000000000", "SK-4"),
        (
            "03 00 0000 00112233445566778899aabbccddeeff 0000000000000007 f0e1d2c3b4a5968778695a4b3c2d1e0f"
            "00000000 0000000000000005 0000000000000000",
            "SK-6",
        ),
    ],
)
def test_what_the_rules_forbid_is_refused(data: str, rule: str) -> None:
    with pytest.raises(Violation, match="entry is wrong") as caught:
        decode_staging(bytes.fromhex(data))
    assert (caught.value.rule, caught.value.code) == (rule, 0x204)


ROUTE = ("message/x.rsocket.routing.v0", b"\x05table")


def test_metadata_has_at_most_one_entry() -> None:
    stage = EXAMPLES[0]
    assert staging_of(None) is None
    assert staging_of(b"") is None
    assert staging_of(compose([ROUTE])) is None
    assert staging_of(compose([ROUTE]) + encode_staging(stage) + compose([("text/plain", b"x")])) == stage
    with pytest.raises(Violation) as caught:
        staging_of(encode_staging(stage) * 2)
    assert caught.value.rule == "SK-7"
    with pytest.raises(Violation):
        staging_of(encode_staging(stage)[:-1])


def examples() -> list[tuple[str, str, str]]:
    return re.findall(r"```(hex|hex-entry) (.+)\n([0-9a-f\s]+)```", DOCS.read_text(encoding="utf-8"))


def test_the_page_has_an_example_of_each_kind() -> None:
    assert {code.split("(")[0] for _, code, _ in examples()} == {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize(("kind", "code", "text"), examples())
def test_the_examples_of_the_page(kind: str, code: str, text: str) -> None:
    entry: Staging = eval(code, {"Q": Q, "R": R, "Part": Part, **{each.__name__: each for each in KINDS}})
    data = bytes.fromhex(text)
    if kind == "hex-entry":
        assert encode_staging(entry) == data
        [(mime, data)] = entries(data)
        assert mime == STAGING_MIME
    assert entry.encode() == data
    assert decode_staging(data) == entry


def test_the_rules_and_codes_of_the_page_are_those_of_the_module() -> None:
    page = DOCS.read_text(encoding="utf-8")
    rules = re.findall(r"^- (SK-\d)", module.__doc__ or "", re.MULTILINE)
    assert re.findall(r"^\| <a id=\"sk-\d\"></a>(SK-\d) ", page, re.MULTILINE) == rules
    codes = re.findall(r"^\| ([A-Z_]+) \| 0x(B[0-9]+) ", page, re.MULTILINE)
    assert len(codes) == 4
    for name, code in codes:
        assert getattr(module, name) == int(code, 16)
