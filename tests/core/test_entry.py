"""What a protocol declares: the reading of its options, its verbs and features, what an unknown name suggests."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core.entry import ProtocolEntry, nearest, seconds, size
from afflux.core.errors import Unsupported


def entry(**parts: Any) -> ProtocolEntry:
    return ProtocolEntry(name="toy", make=lambda *_, **__: None, **parts)  # type: ignore[arg-type,return-value] # no engine


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [(seconds, ["0.5", "86400"], ["0", "86401"]), (size, ["64", "16777215"], ["63", "16777216"])],
)
def test_an_option_has_bounds(read: Any, good: list[str], bad: list[str]) -> None:
    assert [read(text) for text in good] == [float(text) for text in good]
    for text in [*bad, "much"]:
        with pytest.raises(ValueError):
            read(text)


def test_what_it_has_not_is_refused_with_what_it_has() -> None:
    toy = entry(verbs=("request",), features=("subscribe", "lease"), options=(("keepalive", seconds),))
    toy.check("request")
    toy.require("lease")
    with pytest.raises(Unsupported, match='toy has no "stream"; it offers: request, subscribe'):
        toy.check("stream")
    with pytest.raises(Unsupported, match='toy has no "resume"; it has: subscribe, lease'):
        toy.require("resume")
    with pytest.raises(Unsupported, match="it has: nothing beyond its verbs"):
        entry().require("resume")


def test_what_its_features_and_options_mean() -> None:
    assert entry(options=(("keepalive", seconds),)).keepalives
    assert not entry().keepalives
    assert (entry(verbs=("subscribe",)).subscribes, entry().subscribes) == ("subscribe", "stream")


def test_an_unknown_name_suggests_the_nearest() -> None:
    assert str(nearest("wire", "rsockt", ["rsocket", "jmux"])) == (
        'unknown wire "rsockt"; did you mean "rsocket"? Known: rsocket, jmux'
    )
    assert str(nearest("wire", "x", ["jmux"], meant="jmux")).startswith('unknown wire "x"; did you mean "jmux"?')
    assert str(nearest("wire", "x" * 99, ["jmux"])) == f'unknown wire "{"x" * 64}"; known: jmux'
    assert str(nearest("wire", "x", [])) == 'unknown wire "x"; known: none'
