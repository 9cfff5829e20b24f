"""What the site needs beyond Markdown; mkdocs loads this file as a hook, mkdocstrings as an extension.

1. The pages link to files outside docs/ by their paths, as a reader of the repository wants it. On the site each such
   file becomes a page of its own, and ``#name`` behind a module leads to the line of that function or class.
2. Mermaid drawings need a script from elsewhere: on the site they are folded away. The tables beside them say the same.
3. The front page of the site begins with the first screen of the README, as docs/README.md says in a comment.
4. The reference has contracts in plain Markdown: mkdocstrings writes those of the site.
5. Docstrings are plain text with a few marks of reStructuredText: those become Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, relpath
from typing import Any

from griffe import Extension, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from tools.contracts import plain, site_page
from tools.specs import symbols

__all__ = ["Docstrings", "first_screen", "markdown_of", "on_files", "on_page_content", "on_page_markdown", "outward"]

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

_LINK = re.compile(r"\]\((?!\w+:)(?P<path>[^)#\s]+)(?:#(?P<name>[^)\s]*))?\)")
_LINE = re.compile(r'id="(__codelineno-\d+-\d+)"')
_MERMAID = re.compile(r"^```mermaid\n(?P<drawing>.*?)^```$", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".yml": "yaml", ".sh": "bash"}
_SCREEN = "<!-- The site begins with the first screen of ../README.md. -->\n\n# "
_SCREEN_END = "<!-- the first screen ends here -->\n"
_HIDDEN = "---\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n"
"What is at the head of a page that is a file: the search is for documentation."


# -- files outside docs/ --------------------------------------------------------------------------------------


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make a page of every file outside docs/ that a page links to, and that those link to."""
    found = set()
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    while waiting:
        path = waiting.pop()
        for target in outward(path):
            if target not in found:
                found.add(target)
                if target.suffix == ".md":
                    waiting.append(target)
    for path in sorted(found):
        files.append(File.generated(config, _uri(path), content=markdown_of(path)))
    return files


def outward(path: Path) -> Iterator[Path]:
    """The files outside docs/ that a Markdown file links to."""
    for link in _LINK.finditer(path.read_text(encoding="utf-8")):
        target = (path.parent / link["path"]).resolve()
        if target.is_file() and target.is_relative_to(ROOT) and not target.is_relative_to(DOCS):
            yield target


def _uri(path: Path) -> str:
    """Where the page of a file stands: below files/, Markdown under its own name and the rest with .md behind it.

    A README is no index there.
    """
    name = path.relative_to(ROOT).as_posix()
    if path.suffix != ".md":
        name += ".md"
    return f"files/{name.replace('README.md', 'readme.md')}"


def markdown_of(path: Path) -> str:
    """The page of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return _HIDDEN + text
    fence = "`" * 5
    language = _LANGUAGES.get(path.suffix, "text")
    title = f"# {path.name}\n\n`{path.relative_to(ROOT).as_posix()}`"
    return f'{_HIDDEN}{title}\n\n{fence}{language} linenums="1"\n{text}{fence}\n'


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to the pages of files, and fold drawings away."""
    uri = page.file.src_uri
    here = _sources(files).get(uri, DOCS / uri)
    if here.suffix != ".md":
        return markdown
    if here == DOCS / "README.md":
        markdown = markdown.replace(_SCREEN, f"{first_screen()}\n## ", 1)
    markdown = site_page(markdown)
    markdown = _LINK.sub(lambda link: _rewritten(link, here, uri), markdown)
    return _MERMAID.sub(lambda found: _folded(found["drawing"]), markdown)


def first_screen() -> str:
    """Return the README up to the end of its first screen, with links from docs/README.md."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition(_SCREEN_END)[0]
    return _LINK.sub(lambda link: link[0].replace(link["path"], relpath(ROOT / link["path"], DOCS), 1), text)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The lines of a module can be linked to: mkdocs does not look for them in what was highlighted."""
    if page.present_anchor_ids is not None:
        page.present_anchor_ids |= set(_LINE.findall(html))
    return html


def _sources(files: Files) -> dict[str, Path]:
    """The file behind each page below files/."""
    inside = [file.src_uri for file in files if file.src_uri.startswith("files/")]
    return {uri: _source(uri) for uri in inside}


def _source(uri: str) -> Path:
    name = uri.removeprefix("files/").replace("readme.md", "README.md")
    path = ROOT / name
    return path if path.is_file() else ROOT / name.removesuffix(".md")


def _rewritten(link: re.Match[str], here: Path, uri: str) -> str:
    target, name = (here.parent / link["path"]).resolve(), link["name"] or ""
    if not target.is_file() or not target.is_relative_to(ROOT):
        return link[0]
    to = target.relative_to(DOCS).as_posix() if target.is_relative_to(DOCS) else _uri(target)
    if target.suffix == ".py" and name:
        name = _line(target, name)
    return f"]({relpath(to, dirname(uri) or '.')}{f'#{name}' if name else ''})"


def _line(path: Path, name: str) -> str:
    """The anchor of the line where a module defines a name; none when it does not."""
    return next((f"__codelineno-0-{symbol.line}" for symbol in symbols(path) if symbol.name == name), "")


def _folded(drawing: str) -> str:
    text = "".join(f"    {line}\n" if line else "\n" for line in drawing.splitlines())
    return f'??? note "The same as a Mermaid drawing"\n\n    ```text\n{text}    ```\n'


# -- docstrings -----------------------------------------------------------------------------------------------


class Docstrings(Extension):
    """Docstrings as Markdown."""

    def on_object(self, *, obj: Object, loader: Any, **kwargs: Any) -> None:
        """An object has been read, with its docstring."""
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value.splitlines())
