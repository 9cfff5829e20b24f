"""Hypothesis strategies for frame records with routes, and for filters over them. Rule numbers are RSocket's."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from afflux.filters.columns import columns, flags
from afflux.filters.nodes import And, Column, Compare, Has, IsNull, Match, Node, Not, Or, Type, Within

NUMBERS = [0, 1, 2, 4, 5, 255, 2**31 - 1, 2**32 - 1, 2**63 - 1]
TEXTS = ["", "a", "PAYLOAD", "prices.eu", "prices\neu", "a'b\"c\\", "é𝄞", "\x00\x1b", "<script>", "R-5"]
TIMES = [f"2026-11-21T02:37:{second:02}.{micro:06}Z" for second in (0, 44) for micro in (0, 123_456)]
PATTERNS = [
    "", "a", "^a", "eu$", "^prices.eu$", r"\w+", r"[^a-z]", "prices|R", "a{0,2}b?", "(?:e|p)+?u", r"\.", "['\"]", "é.",
]  # fmt: skip
NAMES = ("PAYLOAD", "REQUEST_N", "0x2A", None)


def _maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


numbers = st.sampled_from(NUMBERS)
texts = st.sampled_from(TEXTS)
letters = st.sampled_from(sorted(flags()))
_COLUMNS = columns(True)


def _fields() -> st.SearchStrategy[dict[str, Any]]:
    known = {"keepalive_ms": numbers, "position": st.just(2**63) | numbers, "metadata_mime": texts, "publisher": texts}
    return st.fixed_dictionaries({}, optional={name: _maybe(values) for name, values in known.items()})


def records() -> st.SearchStrategy[dict[str, Any]]:
    """Any row of the table of frames, as a record with ``route``, ``file`` and ``packet``."""
    error = st.fixed_dictionaries({"rule": texts, "reason": texts})
    return st.fixed_dictionaries(
        {
            "ts": _maybe(st.sampled_from(TIMES)),
            "conn": _maybe(texts),
            "dir": st.sampled_from(("<", ">")),
            "protocol": st.sampled_from(("rsocket", "jmux")),
            "type": st.sampled_from(NAMES),
            "flags": st.lists(letters, max_size=3, unique=True),
            **{
                name: _maybe(numbers)
                for name in ("stream", "n", "metadata_len", "data_len", "code", "offset", "length", "packet")
            },
            "error": _maybe(error),
            "fields": _fields(),
            "route": _maybe(texts),
            "file": _maybe(texts),
        }
    )


def tests() -> st.SearchStrategy[Node]:
    """Any test of one column."""

    def of(column: Column) -> st.SearchStrategy[Node]:
        null = st.just(IsNull(column))
        values = {Type.NUMBER: numbers, Type.TEXT: texts, Type.TIME: st.sampled_from(TIMES)}.get(column.type)
        if column.type is Type.FLAGS:
            return null | st.builds(Has, st.just(column), letters)
        if values is None:
            return null
        signs = ["=="] if column.type is Type.TEXT else ["==", "<", "<=", ">", ">="]
        found = null | st.builds(Compare, st.just(column), st.sampled_from(signs), values)
        found |= st.builds(Within, st.just(column), st.lists(values, min_size=1, max_size=3).map(tuple))
        if column.type is Type.TEXT:
            found |= st.builds(Match, st.just(column), st.sampled_from(PATTERNS))
        return found

    return st.sampled_from([one for one in _COLUMNS.values() if one.name != "fields.extensions"]).flatmap(of)


def nodes() -> st.SearchStrategy[Node]:
    """Any filter."""
    return st.recursive(
        tests(),
        lambda inner: (
            st.builds(Not, inner)
            | st.lists(inner, min_size=2, max_size=3).map(lambda some: And(tuple(some)))
            | st.lists(inner, min_size=2, max_size=3).map(lambda some: Or(tuple(some)))
        ),
        max_leaves=6,
    )
