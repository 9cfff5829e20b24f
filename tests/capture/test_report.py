"""The report of a capture: what the page says, what it leaves out, and that texts of the capture stay texts."""

from __future__ import annotations

import html
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="reports need the extra report")
pytest.importorskip("altair", reason="reports need the extra report")
pytest.importorskip("vl_convert", reason="reports need the extra report")

from afflux.capture import CaptureError, OutputRefused
from afflux.capture.report import Bounds, write
from afflux.capture.report.creditline import CreditLine, thin
from afflux.capture.report.percentiles import Percentiles
from afflux.capture.report.plots import credit
from afflux.capture.report.timeline import Timeline
from afflux.capture.report.words import clean, seconds, size
from afflux.core.errors import MissingExtra
from tests.capture.reporting import Tables, hostile, stalled

LARGEST = 2_500_000
"Bytes of the largest page; 900,000 are the libraries of the plots."


class Page(HTMLParser):
    """The parts of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.scripts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._text: list[str] = []
        self._inside = ""
        self.feed(self.source)
        self.text = " ".join("".join(self._text).split())
        self.report: dict[str, Any] = json.loads(self.scripts[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self._text.append(data + " ")


def report(source: Any, path: Path, **bounds: int) -> Page:
    size = write(source, path / "report.html", title="a.pcapng", bounds=Bounds(**bounds))
    assert size == (path / "report.html").stat().st_size <= LARGEST
    return Page(path / "report.html")


def test_the_page_begins_with_who_stopped_which_stream(tmp_path: Path) -> None:
    page = report(stalled(), tmp_path)
    assert "The client 10.0.0.7:51000 stopped stream 5 ( prices.EUR ) for 2.50 s : it granted no credit." in page.text
    assert "The stall began after PAYLOAD from the server, byte 512 at 14:13:20.017000" in page.text
    order = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    assert order[:6] == ["stalls", "causes", "credit", "traffic", "latencies", "violations"]
    assert "too-many-items state" in page.text
    assert "at most 8 items" in page.text
    assert "5 10.0.0.7:51000 stream prices.EUR" in page.text  # the table of streams
    assert "echo (request) 3 20.0 ms 200 ms 200 ms 200 ms 200 ms" in page.text


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("peer", "The client 10.0.0.7:51000 stopped stream 5 ( prices.EUR ) for 2.50 s : it granted no credit"),
        ("transport", "The client 10.0.0.7:51000 stopped stream 5 ( prices.EUR ) for 2.50 s : it did not empty its"),
        (
            "producer",
            "The server 10.0.0.9:7000 stopped stream 5 ( prices.EUR ) for 2.50 s : it had credit, and sent nothing",
        ),
        (
            "local",
            "The server 10.0.0.9:7000 stopped stream 5 ( prices.EUR ) for 2.50 s : it sent frames of other streams",
        ),
        ("lease", "The server 10.0.0.9:7000 stopped stream 5 ( prices.EUR ) for 2.50 s : it granted no lease"),
    ],
)
def test_each_cause_names_a_side(cause: str, words: str, tmp_path: Path) -> None:
    tables = stalled()
    tables.rows["stalls"][0]["cause"] = cause
    assert words in report(tables, tmp_path).text


def test_a_ladder_has_the_frames_the_stall_and_the_credit_left(tmp_path: Path) -> None:
    page = report(stalled(), tmp_path)
    ladder = next(one for one in page.report["ladders"] if one["stream"] == 5)
    shown = [(row[4], row[5], row[6], row[9]) if row[0] == "f" else (row[0], row[2], row[5]) for row in ladder["rows"]]
    assert shown == [
        ("REQUEST_STREAM", 1, 8, 8),
        ("PAYLOAD", 8, None, 0),
        ("s", 2.5, "the client granted no credit"),
        ("REQUEST_N", 1, 8, 8),
        ("PAYLOAD", 8, None, 0),
    ]


def test_a_directory_a_function_and_batches_make_the_same_page(tmp_path: Path) -> None:
    tables = stalled()
    pages = [report(source, tmp_path).source for source in (tables, tables.once(), tables.write(tmp_path / "tables"))]
    assert pages[0] == pages[1] == pages[2]


def test_tables_that_are_read_once_and_too_large_say_what_is_missing(tmp_path: Path) -> None:
    page = report(stalled().once(), tmp_path, kept_bytes=1)
    assert "The tables were read only once" in page.text
    assert "No frames of a stream." in page.text
    assert "Peaks:" in page.text  # the traffic is counted all the same


# -- what loads and what runs -----------------------------------------------------------------------------------


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    page = report(stalled(), tmp_path)
    loading = {"src", "srcset", "data", "poster", "action", "formaction", "background"}
    assert [one for one in page.tags if loading & one[1].keys()] == []
    links = [attributes["href"] for tag, attributes in page.tags if "href" in attributes]
    assert [link for link in links if not str(link).startswith("#")] == []
    assert {tag for tag, _ in page.tags} & {"link", "iframe", "object", "embed", "base", "form"} == set()
    policy = next(attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes)
    assert str(policy).startswith("default-src 'none'; script-src 'sha256-")
    style = re.search("<style>(.*?)</style>", page.source, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    page = report(hostile(), tmp_path)
    assert len(page.scripts) == 3
    assert [tag for tag, _ in page.tags if tag in ("img", "svg")] == []
    assert [name for _, attributes in page.tags for name in attributes if name.startswith("on")] == []
    own = page.source.replace(page.scripts[1], "")  # the libraries name such letters
    assert [letter for letter in own if letter in "\x1b\u202e"] == []
    assert html.unescape("\\x1b[31m=cmd()") in page.text
    assert "\\u202e" in page.text


def test_words_of_the_page_are_clean() -> None:
    assert clean("a\tb\x9b\u2066é") == "a\\tb\\x9b\\u2066é"
    assert clean("abcdef", 4) == "abc…"
    assert clean("\ud800") == "\\ud800"
    assert [seconds(one) for one in (None, 0, 4.2e-6, 0.0999, 1, 119, 125, 7265)] == [
        *("–", "0.00 µs", "4.20 µs", "99.9 ms", "1.00 s", "119 s", "2 min 05 s", "2 h 01 min")
    ]
    assert [size(one) for one in (0, 999, 1000, 12_345, 2.5e15)] == ["0 B", "999 B", "1.00 kB", "12.3 kB", "2500 TB"]


# -- sizes --------------------------------------------------------------------------------------------------------


def test_an_empty_capture(tmp_path: Path) -> None:
    page = report(Tables(), tmp_path)
    for words in ("No stream stalled.", "No connections.", "No violations.", "No requests.", "No packet with a time."):
        assert words in page.text
    assert page.report == {"plots": [], "ladders": []}


def test_a_capture_with_nothing_of_ours(tmp_path: Path) -> None:
    tables = Tables()
    for at in range(3):
        tables.add("connections", conn=f"C{at}", protocol=None, content="not ours (HTTP)", opened=0, closed=at)
    tables.add("connections", conn="C3", protocol=None, content="encrypted (TLS; server name a.b)", opened=0, closed=9)
    page = report(tables, tmp_path)
    assert "not ours 3 " in page.text
    assert "encrypted 1 " in page.text
    assert "No stream stalled." in page.text


def test_ten_thousand_streams_and_a_long_one(tmp_path: Path) -> None:
    tables = Tables()
    tables.add("connections", opened=0, closed=100, frames=60_000, streams=10_001)
    for at in range(10_000):
        stall = {"stalls": 1, "stalled_s": at / 1e3, "longest_stall_s": at / 1e3} if at % 2 else {}
        tables.stream(2 * at + 1, (at / 100, ">", "REQUEST_STREAM", 1), route=f"route.{at}", **stall)
        if stall:
            tables.add("stalls", stream=2 * at + 1, start=at / 100, stop=at / 100 + at / 1e3, seconds=at / 1e3)
        tables.add("latencies", route=f"route.{at}", first_s=at / 1e4, total_s=None)
        tables.add("violations", stream=2 * at + 1, rule=f"rule-{at}", type="PAYLOAD", ts=1, offset=at, kind="state")
    long = [(at / 1000, "><"[at % 2], ("REQUEST_N", "PAYLOAD")[at % 2], 1 - at % 2 or None) for at in range(20_000)]
    tables.stream(40_001, *long, stalls=1, stalled_s=99, longest_stall_s=99)
    for at in range(20_000):
        tables.add("credit", stream=40_001, ts=at / 1000, n=1 - at % 2, granted=at, used=at, balance=1 - at % 2)
    page = report(tables, tmp_path)
    assert len(page.report["ladders"]) == 40
    assert max(len(ladder["rows"]) for ladder in page.report["ladders"]) <= 150 + 8
    assert "Ladders exist for 40 of 10,001 streams" in page.text
    assert "12 of 5,000 stalls" in page.text
    assert "Only 256 routes, kinds of violations or contents were counted separately." in page.text
    ladder = page.report["ladders"][0]
    kept = sum(row[5] for row in ladder["rows"] if row[0] == "f")
    assert kept + sum(row[1] for row in ladder["rows"] if row[0] == "o") == ladder["frames"] == 20_000


@pytest.mark.parametrize("name", ["ladders", "times", "kept_bytes"])
def test_a_bound_below_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"invalid bound {name}"):
        Bounds(**{name: 0})


# -- the parts ----------------------------------------------------------------------------------------------------


def test_percentiles_are_those_of_the_values() -> None:
    values = np.random.default_rng(1).lognormal(-6, 2, 10_000)
    found = Percentiles()
    for part in np.split(values, 10):
        found.add(part)
    found.add(np.array([np.nan]))
    for share in (0.5, 0.9, 0.99, 0.999):
        exact = np.sort(values)[int(np.ceil(share * len(values))) - 1]
        assert found.at(share) == pytest.approx(exact, rel=0.0051)
    assert found.at(1) == values.max()
    assert found.count == 10_000
    assert Percentiles().at(0.5) is None


def test_a_timeline_keeps_its_sums_when_it_grows() -> None:
    line = Timeline(2, 16, width=10)
    times = np.random.default_rng(2).integers(0, 1 << 40, 1000)
    for part in np.split(times, 20):
        line.add(0, part, np.ones(len(part)))
    line.spread(1, np.array([5, 1 << 39]), np.array([25, 3 << 38]))
    rows = line.rows()
    assert len(rows) <= 16
    assert sum(sums[0] for _, sums in rows) == 1000
    assert sum(sums[1] for _, sums in rows) == pytest.approx(20 + (1 << 38))
    for start, sums in rows:
        assert sums[0] == np.count_nonzero((times >= start) & (times < start + line.width))


def test_credit_between_two_events() -> None:
    line = CreditLine()
    for ts, n, granted, used in ((0, 10, 10, 0), (100, 10, 20, 8)):
        line.add({"ts": ts, "n": n, "granted": granted, "used": used, "balance": granted - used})
    assert [line.at(ts) for ts in (-1, 0, 50, 99, 100, 200)] == [None, 10, 6, 2, 12, 12]
    line.stalls = [(50, 100)]  # all eight items were sent before the stall
    assert [line.at(ts) for ts in (25, 50, 75)] == [6, 2, 2]


def test_credit_goes_on_to_the_last_frame(tmp_path: Path) -> None:
    """The capture ends before the stream does, and has one grant."""
    tables = Tables()
    tables.add("connections", opened=0, closed=4, frames=9, streams=1, closing="open")
    items = [(0.1 * at, "<", "PAYLOAD", None) for at in range(1, 8)]
    tables.stream(5, (0.0, ">", "REQUEST_STREAM", 9), *items, ended="open", items_in=7)
    tables.add("credit", stream=5, ts=0.0, n=9, granted=9, used=0, balance=9)
    write(tables, tmp_path / "a.html")
    page = Page(tmp_path / "a.html")
    title = "Stream 5 prices of Caaaaaaaaaaa : items of the server, 7 items sent of 9 granted"
    assert title in " ".join(page.text.split()) and "No credit" not in page.text and "the axis ends" not in page.text
    tables.rows["credit"][0]["granted"] = 29
    write(tables, tmp_path / "d.html")
    assert "7 items sent of 29 granted; the axis ends at 28 items" in Page(tmp_path / "d.html").text
    tables.rows["credit"][0]["granted"] = 28
    write(tables, tmp_path / "d.html")
    assert "7 items sent of 28 granted" in Page(tmp_path / "d.html").text
    assert "the axis ends" not in Page(tmp_path / "d.html").text
    tables.rows["streams"][0]["last"] = tables.rows["credit"][0]["ts"]
    write(tables, tmp_path / "b.html")
    assert "The capture has one grant of each stream, and nothing after it." in Page(tmp_path / "b.html").text
    tables.rows["credit"].clear()
    write(tables, tmp_path / "c.html")
    assert "No credit was granted." in Page(tmp_path / "c.html").text


def test_thinned_credit_keeps_where_there_was_none() -> None:
    line = CreditLine()
    for at in range(10_000):
        line.add({"ts": at, "n": 0, "granted": 9, "used": 9 * (at == 5_000), "balance": 0 if at == 5_000 else 9})
    assert len(line.points) <= 4096
    assert min(point.balance for point in thin(line.points, 90)) == 0
    assert len(thin(line.points, 90)) <= 93


# -- errors -------------------------------------------------------------------------------------------------------


def test_a_directory_without_tables(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no capture tables"):
        write(tmp_path, tmp_path / "a.html")
    assert list(tmp_path.iterdir()) == []


def test_tables_that_are_damaged_or_of_another_version(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = stalled().write(tmp_path / "tables")
    pq.write_table(pa.table({"conn": ["C"]}), place / "stalls" / "part-0.parquet")
    with pytest.raises(CaptureError, match=r"no column 'stream'; another version"):
        write(place, tmp_path / "a.html")
    (place / "stalls" / "part-0.parquet").write_bytes(b"not Parquet")
    with pytest.raises(CaptureError, match="not readable as Parquet"):
        write(place, tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.html").mkdir()
    with pytest.raises(OutputRefused, match="is not a file"):
        write(Tables(), tmp_path / "a.html")
    assert [one.name for one in tmp_path.iterdir()] == ["a.html"]


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtra, match=r"afflux\[report\]"):
        write(Tables(), tmp_path / "a.html")


@pytest.mark.parametrize("items", [1, 2, 3, 4])
def test_axes_of_few_items_have_whole_numbers(items: int) -> None:
    line = CreditLine()
    for ts, used in ((0, 0), (1, items)):
        n = items - used
        line.add({"ts": ts, "granted": items, "used": used, "balance": n, "n": n})
    above, below = credit(line, [], 100)
    whole = [*range(items + 1)]
    assert {str(layer["encoding"]["y"]["axis"]["values"]) for layer in above["layer"]} == {str(whole)}
    axis = below["layer"][0]["encoding"]["y"]["axis"]
    assert axis.get("values", whole) == whole and ("tickCount" in axis) is (items > 2)
