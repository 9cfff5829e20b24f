"""The site: every page is in its navigation, it builds without a warning, and it asks nobody else for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs", reason="the site is built with mkdocs: the extra docs")

import tools.docs as site
import yaml
from tools.contracts import plain
from tools.docs import DOCS, ROOT, first_screen, markdown_of, outward
from tools.specs import symbols

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


def entries(nav: Any) -> Iterator[str]:
    """The pages that a navigation names, in order."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else (entry,):
            yield from entries(value) if isinstance(value, list) else (value,)


def test_every_page_is_in_the_navigation_once_and_every_entry_is_a_page() -> None:
    named = list(entries(CONFIG["nav"]))
    assert sorted(named) == sorted(PAGES)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_it_builds_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    nobody = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    built = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | nobody | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    html = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")
    }
    assert {page.removesuffix(".md").replace("README", "index") + ".html" for page in PAGES} <= set(html)
    fetched = re.compile(r"<(?:script|img|iframe|link|source)\b[^>]*\b(?:src|href)=[\"'](?:https?:)?//", re.IGNORECASE)
    assert [page for page, text in html.items() if fetched.search(text)] == []
    imported = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")
    assert [path.name for path in tmp_path.rglob("*.css") if imported.search(path.read_text(encoding="utf-8"))] == []
    assert '<h1 id="afflux">' in html["index.html"]
    _the_docstrings_are_there(html["reference/api.html"])
    _links_into_the_source_lead_to_lines(html, "conformance/rsocket.html")


def _the_docstrings_are_there(page: str) -> None:
    assert 'id="afflux.connect"' in page
    assert 'id="afflux.Peer.request"' in page
    assert ":::" not in page
    assert "<strong>Args</strong>" not in page


def _links_into_the_source_lead_to_lines(html: dict[str, str], page: str) -> None:
    links = re.findall(r'href="\.\./(files/[^"#]+)#([^"]+)"', html[page])
    assert len(links) > 100
    assert [link for link in links if f'id="{link[1]}"' not in html[link[0]]] == []


def test_links_that_leave_the_documentation_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "README.md").write_text("[start](docs/page.md)")
    (tmp_path / "code.py").write_text("def f():\n    return 1\n")
    (docs / "other.md").write_text("")
    page = docs / "page.md"
    page.write_text(
        "[a](../README.md) [b](../code.py#f) [c](other.md) "
        "[d](https://x/y.md) [e](#here) [f](../gone.md) [g](/etc/passwd)"
    )
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "DOCS", docs)
    assert list(outward(page)) == [tmp_path / "README.md", tmp_path / "code.py"]
    assert list(outward(tmp_path / "README.md")) == []


def test_a_file_becomes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "ROOT", tmp_path)
    (tmp_path / "code.py").write_text("x = 1\n")
    (tmp_path / "README.md").write_text("# Hello\n")
    assert markdown_of(tmp_path / "code.py").endswith(
        '# code.py\n\n`code.py`\n\n`````python linenums="1"\nx = 1\n`````\n'
    )
    assert markdown_of(tmp_path / "README.md").endswith("---\n\n# Hello\n")


def test_docstrings_become_markdown() -> None:
    lines = ["Of :class:`Peer` and ``x``:", "::", "", "    code", "", "Such as::", "", "    more::"]
    assert plain(lines).splitlines() == [
        "Of `Peer` and ``x``:",
        "",
        "",
        "    code",
        "",
        "Such as:",
        "",
        "    more:",
    ]


def test_the_front_page_begins_as_the_readme_does() -> None:
    screen = first_screen()
    assert screen.startswith("# afflux\n")
    assert "](img/way.svg)" in screen
    assert "](how-to/inspect.md)" in screen
    assert "\n## " not in screen
    assert (DOCS / "README.md").read_text(encoding="utf-8").startswith(site._SCREEN)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_names_behind_modules_exist(page: str) -> None:
    """``path.py#name`` is no anchor that anybody else checks."""
    links = re.findall(r"\]\(([^)#\s]+\.py)#([^)\s]+)\)", (DOCS / page).read_text(encoding="utf-8"))
    known: dict[Path, set[str]] = {}
    dead = []
    for target, name in links:
        path = ((DOCS / page).parent / target).resolve()
        if path not in known:
            known[path] = {symbol.name for symbol in symbols(path)}
        if name not in known[path]:
            dead.append(f"{target}#{name}")
    assert dead == []
