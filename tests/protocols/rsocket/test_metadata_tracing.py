"""Tracing entries: Zipkin's vectors both ways and its flags; W3C trace context by the rules of W3C."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import LocalProtocolError, Violation
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.metadata import TRACING_MIME, TraceContext, Zipkin

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "rsocket.json").read_text())
SAMPLINGS = [None, "not-sampled", "sampled", "debug"]

TRACE, SPAN, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


def hexadecimal(digits: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=digits // 2, max_size=digits // 2).map(bytes.hex)


SPANS = st.builds(
    Zipkin,
    trace_id=hexadecimal(16) | hexadecimal(32),
    span_id=hexadecimal(16),
    parent_id=st.none() | hexadecimal(16),
    sampling=st.sampled_from(SAMPLINGS),
) | st.builds(Zipkin, sampling=st.sampled_from(SAMPLINGS))


# Zipkin.


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["id"]) for v in VECTORS if "zipkin" in v["decoded"]])
def test_a_vector_is_read_and_written_as_published(vector: dict[str, Any]) -> None:
    data, expected = bytes.fromhex(vector["hex"]), vector["decoded"]["zipkin"]
    span = Zipkin.decode(data)
    assert (span.trace_id, span.span_id, span.parent_id) == (
        expected["trace_id_hex"],
        expected["span_id_hex"],
        expected["parent_id_hex"],
    )
    assert span.sampling == {0x10: "not-sampled", 0x20: "sampled"}[expected["flags"] & 0x70]
    assert span.encode() == data


@pytest.mark.parametrize("trace", [TRACE, TRACE[16:]])
@pytest.mark.parametrize("parent", [None, SPAN])
def test_ids_of_a_span_are_read_and_every_truncation_is_refused(trace: str, parent: str | None) -> None:
    span = Zipkin(trace_id=trace, span_id=SPAN, parent_id=parent, sampling="sampled")
    data = span.encode()
    assert Zipkin.decode(data) == span
    for end in range(len(data)):
        with pytest.raises(Violation) as caught:
            Zipkin.decode(data[:end])
        assert (caught.value.rule, caught.value.code) == ("R-58", Code.INVALID)


@given(SPANS)
def test_any_span_survives(span: Zipkin) -> None:
    data = span.encode()
    assert Zipkin.decode(data) == span
    assert Zipkin.decode(data + b"more") == span
    assert Zipkin.MIME == TRACING_MIME


@pytest.mark.parametrize(
    ("flags", "sampling"),
    [
        (0x00, None),
        (0x10, "not-sampled"),
        (0x20, "sampled"),
        (0x30, "sampled"),
        (0x40, "debug"),
        (0x50, "debug"),
        (0x60, "debug"),
        (0x70, "debug"),
    ],
)
def test_debug_overrides_sampled_overrides_not_sampled(flags: int, sampling: str | None) -> None:
    """R-58: D overrides S, S overrides N; unassigned bits mean nothing."""
    for unassigned in (0, 1, 2, 3):
        assert Zipkin.decode(bytes((flags | unassigned,))) == Zipkin(sampling=sampling)  # type: ignore[arg-type]


def test_ids_are_read_only_if_they_are_announced() -> None:
    """R-58: read zipkin ids only if I is set, whatever T and P say."""
    assert Zipkin.decode(bytes((0x2C,)) + bytes(range(32))) == Zipkin(sampling="sampled")


@given(SPANS)
def test_every_truncation_is_a_violation(span: Zipkin) -> None:
    data = span.encode()
    for end in range(len(data)):
        with pytest.raises(Violation) as caught:
            Zipkin.decode(data[:end])
        assert (caught.value.rule, caught.value.code) == ("R-58", Code.INVALID)


@given(st.binary(max_size=40))
def test_garbage_is_read_or_a_violation(data: bytes) -> None:
    for read in (Zipkin.decode, TraceContext.decode):
        try:
            value = read(data)
        except Violation as violation:
            assert violation.code == Code.INVALID
        else:
            assert read(value.encode()) == value


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"trace_id": "0" * 16}, "come together"),
        ({"span_id": "0" * 16}, "come together"),
        ({"parent_id": "0" * 16}, "a parent id comes with"),
        ({"trace_id": "0" * 15, "span_id": "0" * 16}, "a trace id has 16 or 32"),
        ({"trace_id": "0" * 24, "span_id": "0" * 16}, "a trace id has 16 or 32"),
        ({"trace_id": "A" * 16, "span_id": "0" * 16}, "a trace id has 16 or 32"),
        ({"trace_id": "0" * 16, "span_id": "0" * 32}, "a span id has 16"),
        ({"trace_id": "0" * 16, "span_id": "0" * 15 + "g"}, "a span id has 16"),
        ({"trace_id": "0" * 16, "span_id": "0" * 16, "parent_id": ""}, "a parent id has 16"),
        ({"sampling": "maybe"}, "sampling is one of debug, sampled, not-sampled"),
    ],
)
def test_a_span_that_can_not_be_is_refused(fields: Any, why: str) -> None:
    with pytest.raises(LocalProtocolError, match=why):
        Zipkin(**fields)


# W3C trace context.

KEYS = st.from_regex(r"[a-z0-9][a-z0-9_\-*/@]{0,20}", fullmatch=True)
VALUES = st.from_regex(r"[ -+\--<>-~]{0,20}[!-+\--<>-~]", fullmatch=True)
STATES = st.dictionaries(KEYS, VALUES, max_size=8).map(lambda d: ",".join(f"{k}={v}" for k, v in d.items()))
CONTEXTS = st.builds(
    lambda trace, span, flags, state: TraceContext(f"00-{trace}-{span}-{flags:02x}", state),
    hexadecimal(32).filter(lambda id: int(id, 16)),
    hexadecimal(16).filter(lambda id: int(id, 16)),
    st.integers(0, 255),
    STATES,
)


def test_the_published_example() -> None:
    context = TraceContext(TRACEPARENT, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
    assert (context.trace_id, context.span_id, context.sampled) == (TRACE, SPAN, True)
    data = b"\x37" + TRACEPARENT.encode() + b"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
    assert context.encode() == data
    assert TraceContext.decode(data) == context
    assert TraceContext.MIME == "message/x.afflux.trace-context.v0"


@pytest.mark.repetitive
@given(CONTEXTS)
def test_any_context_survives(context: TraceContext) -> None:
    assert TraceContext.decode(context.encode()) == context


@pytest.mark.repetitive
@given(CONTEXTS)
def test_a_context_cut_within_the_traceparent_is_a_violation(context: TraceContext) -> None:
    data = context.encode()
    for end in range(56):
        with pytest.raises(Violation) as caught:
            TraceContext.decode(data[:end])
        assert caught.value.code == Code.INVALID
    for end in range(56, len(data)):
        assert TraceContext.decode(data[:end]).traceparent == context.traceparent


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("fe", False), ("09", True)])
def test_only_the_last_flag_means_sampled(flags: str, sampled: bool) -> None:
    assert TraceContext(f"00-{TRACE}-{SPAN}-{flags}").sampled is sampled


def test_a_child_has_the_trace_and_a_span_of_its_own() -> None:
    context = TraceContext(TRACEPARENT, "congo=1")
    assert context.child(PARENT) == TraceContext(f"00-{TRACE}-{PARENT}-01", "congo=1")
    assert context.child(PARENT, sampled=False) == TraceContext(f"00-{TRACE}-{PARENT}-00", "congo=1")
    assert not context.child(PARENT, sampled=False).child(SPAN).sampled
    for span in ("0" * 16, "short", SPAN.upper(), ""):
        with pytest.raises(LocalProtocolError):
            context.child(span)


def test_flags_that_are_not_known_are_not_passed_on() -> None:
    """W3C: vendors must set other flags to zero."""
    assert TraceContext(f"00-{TRACE}-{SPAN}-ff").child(PARENT).traceparent.endswith("-01")


@pytest.mark.parametrize("more", ["", "-", "-what-comes-then", "-" + "x" * 199])
def test_a_version_to_come_is_read_as_far_as_it_is_known(more: str) -> None:
    """W3C: if a higher version is detected, try to parse it; what is made of it is of version 00."""
    context = TraceContext(f"cc-{TRACE}-{SPAN}-01{more}")
    assert (context.trace_id, context.span_id, context.sampled) == (TRACE, SPAN, True)
    assert context.child(PARENT).traceparent == f"00-{TRACE}-{PARENT}-01"
    assert TraceContext.decode(context.encode()) == context


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        TRACEPARENT[:-1],
        TRACEPARENT + "0",
        TRACEPARENT + "-",
        TRACEPARENT + "-00",
        TRACEPARENT.upper(),
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"00_{TRACE}_{SPAN}_01",
        f"0-{TRACE}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"cc-{TRACE}-{'0' * 16}-01",
        f"cc-{TRACE}-{SPAN}-01x",
        TRACEPARENT + "\n",
        f"cc-{TRACE}-{SPAN}-01-é",
    ],
)
def test_a_traceparent_that_breaks_a_rule_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="traceparent"):
        TraceContext(text)
    data = text.encode("latin-1")
    with pytest.raises(Violation):
        TraceContext.decode(bytes((min(255, len(data)),)) + data)


def test_a_traceparent_has_at_most_255_characters() -> None:
    longest = f"cc-{TRACE}-{SPAN}-01-" + "x" * 199
    assert TraceContext(longest).encode() == b"\xff" + longest.encode()
    with pytest.raises(LocalProtocolError, match="traceparent"):
        TraceContext(longest + "x")


LONGEST = "k=" + "v" * 256 + ",l=" + "v" * 251


@pytest.mark.parametrize(
    "state",
    [
        "a=1",
        "a=1,b=2",
        " a=1 ,\tb=2\t",
        "a=1,,b=2",
        ",",
        "tenant@system=x",
        "0a_-*/@=x y",
        "k" * 256 + "=v",
        ",".join(f"k{i}=v" for i in range(32)),
        LONGEST,
    ],
)
def test_a_tracestate_that_keeps_the_rules(state: str) -> None:
    context = TraceContext(TRACEPARENT, state)
    assert TraceContext.decode(context.encode()) == context
    assert len(LONGEST) == 512


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (LONGEST + "v", "513 characters"),
        (",".join(f"k{i}=v" for i in range(33)), "33 members"),
        ("a", "key=value"),
        ("a=", "key=value"),
        ("=1", "key=value"),
        ("A=1", "key=value"),
        ("a=1=2", "key=value"),
        ("a=é", "key=value"),
        ("a=1\n", "key=value"),
        ("_a=1", "key=value"),
        ("k" * 257 + "=v", "key=value"),
        ("a=1,b=2,a=3", "'a' twice"),
    ],
)
def test_a_tracestate_that_breaks_a_rule_is_dropped_and_not_written(state: str, why: str) -> None:
    """W3C: failure to parse tracestate must not affect the parsing of traceparent."""
    with pytest.raises(LocalProtocolError, match=why):
        TraceContext(TRACEPARENT, state)
    data = TraceContext(TRACEPARENT).encode() + state.encode("latin-1")
    assert TraceContext.decode(data) == TraceContext(TRACEPARENT)
