"""Gap records: what is written is read, and anything else is an item."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from afflux.protocols.rsocket.gap import GAP_MIME, Gap, Place, gap_of
from afflux.protocols.rsocket.metadata import compose

WHOLE = Gap(cause="the remote has dropped them", before=Place(77, 10), after=Place(77, 100), lost=90)


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (WHOLE, "90 items are missing from epoch 77, offset 10 to epoch 77, offset 100: the remote has dropped them"),
        (Gap(cause="é"), "an unknown number of items is missing: é"),
        (
            Gap(cause="c", before=Place(1, 2)),
            "an unknown number of items is missing from epoch 1, offset 2 to an unknown position: c",
        ),
    ],
)
def test_a_gap_survives_its_item(gap: Gap, text: str) -> None:
    item = gap.item()
    assert item.data == b""
    assert gap_of(item.metadata) == gap
    assert str(gap) == text


def test_the_page_shows_one() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cursor.md").read_text()
    (shown,) = re.findall(r'^\{"cause".*\}$', page, re.MULTILINE)
    assert gap_of(entry(shown.encode())) == WHOLE
    assert json.loads(shown) == WHOLE.value()


def test_a_long_cause_is_cut() -> None:
    gap = gap_of(Gap(cause="x" * 5000).item().metadata)
    assert gap == Gap(cause="x" * 1024)
    assert gap_of(entry(json.dumps(WHOLE.value() | {"cause": "y" * 5000}).encode())) is not None


def entry(value: bytes) -> bytes:
    return compose([(GAP_MIME, value)])


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        b"",
        b"own",
        compose([("text/plain", b"{}")]),
        entry(b""),
        entry(b"\xff"),
        entry(b"[]"),
        entry(b"{}"),
        entry(b"[" * 100_000),
        entry(b'{"cause": 1, "before": null, "after": null, "lost": null}'),
        entry(b'{"cause": "c", "before": null, "after": null, "lost": "1"}'),
        entry(b'{"cause": "c", "before": 1, "after": null, "lost": null}'),
        entry(b'{"cause": "c", "before": {"epoch": 1}, "after": null, "lost": null}'),
        entry(b'{"cause": "c", "before": {"epoch": 1.5, "offset": 1}, "after": null, "lost": null}'),
        entry(b'{"cause": "c", "before": null, "after": null, "lost": null}')[:-3],
    ],
)
def test_anything_else_is_an_item(metadata: bytes | None) -> None:
    assert gap_of(metadata) is None
