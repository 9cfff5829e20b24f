"""The report of a capture in a real browser: the plots and ladders are drawn, and nothing of the capture runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="reports need the extra report")
pytest.importorskip("altair", reason="reports need the extra report")
pytest.importorskip("vl_convert", reason="reports need the extra report")

from afflux.capture.report import write
from tests.capture.reporting import Tables, hostile, stalled

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--enable-logging=stderr"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,2000"),
    *("--virtual-time-budget=60000", "--dump-dom"),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (Debian, Ubuntu: apt-get install chromium)"),
]


class Tags(HTMLParser):
    """The elements of a page, in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)


def opened(tables: Tables, place: Path, mark: str = "") -> tuple[str, list[str]]:
    """The page as the browser has it when its scripts have run, and what is on its console."""
    write(tables, place / "report.html", title="a.pcapng")
    uri = (place / "report.html").as_uri() + mark
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={place / 'browser'}", uri]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    return ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


def test_plots_and_the_ladder_are_drawn_without_a_word_on_the_console(tmp_path: Path) -> None:
    page, console = opened(stalled(), tmp_path)
    assert console == []
    plots = len(re.findall(r"data-plot=", page))
    assert plots >= 6
    assert f'data-plots="{plots}"' in page
    assert len(re.findall(r'<svg[^>]*class="marks"', page)) == plots
    assert 'data-ladder="0"' in page
    assert 'class="note">Stream 5 prices.EUR of ' in page  # the choice of a stream is not printed
    assert "stalled 2.50 s</tspan><tspan>: the client granted no credit" in page


def test_a_link_opens_the_ladder_of_its_stream(tmp_path: Path) -> None:
    page, console = opened(stalled(), tmp_path, "#ladder-1")
    assert console == []
    assert 'data-ladder="1"' in page
    assert "REQUEST_RESPONSE " in page


def test_hostile_texts_do_not_run(tmp_path: Path) -> None:
    page, console = opened(hostile(), tmp_path)
    assert console == []
    assert "<title>a.pcapng</title>" in page
    tags = Tags(page).found
    assert tags.count("script") == 3
    assert "img" not in tags
    assert 'data-plots="' in page
    assert 'data-ladder="' in page


def test_an_empty_page(tmp_path: Path) -> None:
    page, console = opened(Tables(), tmp_path)
    assert console == []
    assert 'data-plots="0"' in page
