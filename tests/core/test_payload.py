"""Payloads are values."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core.payload import Payload, Plain, Run, check_items, payload_of, size_of


def test_equality() -> None:
    assert Payload(b"a") == Payload(b"a", None)
    assert Payload(b"a", b"") != Payload(b"a")
    assert Payload(b"a") != b"a"
    assert hash(Payload(b"a", b"m")) == hash(Payload(b"a", b"m"))


def test_sizes_and_truth() -> None:
    assert len(Payload(b"abc", b"de")) == 5
    assert len(Payload()) == 0
    assert Payload()


def test_looks() -> None:
    assert repr(Payload(b"a")) == "Payload(b'a')"
    assert repr(Payload(b"a", b"m")) == "Payload(b'a', metadata=(1 bytes))"
    assert repr(Payload(bytes(100))).endswith("… (100 bytes))")
    assert Payload(b"a\xff").text == "a\ufffd"


@pytest.mark.parametrize("value", [b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc", Payload(b"abc")])
def test_what_stands_for_a_payload(value: object) -> None:
    assert payload_of(value) == Payload(b"abc")  # type: ignore[arg-type]  # each of the accepted types in turn
    assert type(payload_of(value).data) is bytes  # type: ignore[arg-type]  # as above


def test_what_does_not() -> None:
    with pytest.raises(TypeError, match="not int"):
        payload_of(5)  # type: ignore[arg-type]  # the mistake under test


def run_of(*items: bytes, before: bytes = b"") -> Run:
    """A run whose heads are two dots."""
    return Run(before + b"".join(b".." + item for item in items) + b"rest", len(before), 2, len(items[0]), len(items))


def test_a_run_is_a_sequence_of_payloads() -> None:
    run = run_of(b"abc", b"def", b"ghi", before=b"xx")
    wanted = [Payload(b"abc"), Payload(b"def"), Payload(b"ghi")]
    assert list(run) == wanted
    assert run == wanted
    assert run == run_of(b"abc", b"def", b"ghi")
    assert run != run_of(b"abc", b"def")
    assert run != 3
    assert [run[0], run[1], run[-1]] == wanted
    assert (len(run), run.size, repr(run), hash(run)) == (3, 9, repr(wanted), hash(run[:]))
    assert [type(payload.data) for payload in run] == [bytes] * 3


def test_parts_of_a_run_are_runs() -> None:
    run = run_of(b"abc", b"def", b"ghi")
    assert run[1:] == [Payload(b"def"), Payload(b"ghi")]
    assert run[:2].size == 6
    assert list(run[2:1]) == list(run[3:]) == []
    assert isinstance(run[:1], Run)


def test_a_run_with_metadata_is_a_sequence_of_payloads() -> None:
    run = Run(b"xx..mabc..ndef..oghi", 2, 2, 3, 3, 1)
    wanted = [Payload(b"abc", b"m"), Payload(b"def", b"n"), Payload(b"ghi", b"o")]
    assert list(run) == wanted
    assert list(run.parts()) == [b"abc", b"def", b"ghi"]
    assert [run[0], run[1], run[-1]] == wanted
    assert (len(run), run.size, size_of(run)) == (3, 12, 12)
    assert run[1:] == wanted[1:]
    assert run[1:][1] == wanted[2]
    assert (run.bare, run[1:].bare, run_of(b"abc").bare, Plain([b"abc"]).bare) == (False, False, True, True)
    assert list(Run(b"..abc..def", 0, 2, 3, 2, 0)) == [Payload(b"abc", b""), Payload(b"def", b"")]


def test_payloads_of_several_sizes_are_a_sequence() -> None:
    plain = Plain([b"abc", b"", b"defgh"])
    wanted = [Payload(b"abc"), Payload(), Payload(b"defgh")]
    assert list(plain) == wanted
    assert plain == wanted
    assert list(plain.parts()) == [b"abc", b"", b"defgh"]
    assert [plain[0], plain[1], plain[-1]] == wanted
    assert plain[1:] == wanted[1:]
    assert (len(plain), plain.size, size_of(plain[:2]), repr(plain)) == (3, 8, 3, repr(wanted))
    assert Plain([b"abc", b"def"], 3).size == 6


@pytest.mark.parametrize("index", [3, -4])
def test_a_run_ends(index: int) -> None:
    with pytest.raises(IndexError, match=f"payload {index} of 3"):
        run_of(b"abc", b"def", b"ghi")[index]


def test_empty_payloads_in_a_run() -> None:
    assert list(run_of(b"", b"")) == [Payload(), Payload()]


def test_sizes_of_many() -> None:
    assert size_of(run_of(b"abc", b"def")) == 6
    assert size_of([Payload(b"abc", b"de"), Payload(b"f"), Payload(b"", b"")]) == 6


def test_parts_of_a_payload_that_are_nearly_bytes() -> None:
    odd = Payload(bytearray(b"d"), memoryview(b"m"))  # type: ignore[arg-type]  # what a caller may do without mypy
    assert not odd.proper
    assert payload_of(odd) == Payload(b"d", b"m")
    assert payload_of(odd).proper
    assert payload_of(Payload(bytearray(b"d"))) == Payload(b"d")  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("odd", [Payload("text"), Payload(b"d", "text")])  # type: ignore[arg-type]  # the mistake
def test_parts_that_are_not(odd: Payload) -> None:
    with pytest.raises(TypeError, match="are bytes, not str"):
        payload_of(odd)


class Later:
    def __await__(self) -> None: ...


class Several:
    def __aiter__(self) -> None: ...


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (Later(), "Later: an await is missing"),
        (Several(), "Several: a method that yields several items is a stream or a channel"),
        ({"a": 1}, "dict: encode it, as json.dumps does"),
        (None, "NoneType: encode it"),
        (object(), "not object$"),
    ],
)
def test_what_is_no_payload(value: Any, hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        payload_of(value)


async def items() -> Any:
    yield b"x"


@pytest.mark.parametrize("source", [[b"x"], (), iter([b"x"]), range(3), items(), {b"x"}])
def test_items_come_from_what_can_be_iterated_over(source: Any) -> None:
    check_items(source)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("text", "not from str: yield it, or put it into a list"),
        (b"x", "not from bytes: yield it"),
        ({"a": 1}, "not from dict: yield it"),
        (Payload(b"x"), "not from Payload: yield it"),
        (7, "not from int$"),
        (items, "not from function: call it"),
    ],
)
def test_one_value_is_no_source_of_items(source: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        check_items(source)
