"""The reference pages in docs/reference say what the code says: they are what the tool writes today."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("typer", reason="the reference has the exit codes of the command line: the extra cli")

from tools import contracts
from tools.reference import FOLDER, JMUX, LIMIT, REACTIVESOCKET, RSIO, Wire, pages, write

import afflux
from afflux.core import engine, events
from afflux.core.limits import ROWS
from afflux.core.machine import Table
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.frames import FRAMES
from afflux.protocols.rsocket.states import CLIENT, REQUESTER, RESPONDER, SERVER

PAGES = pages()

SOURCE = FOLDER.parents[1] / "src" / "afflux"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_tool_writes(name: str) -> None:
    path = FOLDER / name
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    assert written == PAGES[name], f"docs/reference/{name} is out of date; run: python -m tools.reference"


def test_no_page_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def test_the_tool_writes_every_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.reference.pages", lambda: PAGES)
    write(tmp_path / "reference")
    assert {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "reference").iterdir()} == PAGES


def plain(page: str) -> str:
    """The page without the links of rule numbers."""
    return re.sub(r"\[([A-Z]{1,2}-\d+|\d(?:\.\d)?)\]\([^)]*\)", r"\1", page)


def test_the_page_of_rsocket_is_complete() -> None:
    page = PAGES["rsocket.md"]
    assert [frame.NAME for frame in FRAMES.values() if f"\n## {frame.NAME} (0x" not in page] == []
    assert [code.name for code in Code if f"| 0x{code:03X} | {code.name} | " not in page] == []
    assert [table.name for table in (CLIENT, SERVER, REQUESTER, RESPONDER) if table.markdown() not in plain(page)] == []


@pytest.mark.parametrize(
    "row",
    [
        "| 0x003 | REJECTED_SETUP | Stream 0: the server refuses this client. | `SetupRefused` | 70 |",
        "| 0x202 | REJECTED | A stream: refused before it was processed. | `Rejected` | 65 |",
        "| 0x301 to 0xFFFFFFFE |  | The application's own codes. | `ApplicationError` | 79 |",
    ],
)
def test_a_code_has_its_meaning_its_error_and_its_exit_code(row: str) -> None:
    assert row in PAGES["rsocket.md"]


@pytest.mark.parametrize("wire", [JMUX, LIMIT, REACTIVESOCKET, RSIO], ids=lambda wire: wire.package)
def test_the_page_of_another_wire_is_complete(wire: Wire) -> None:
    page = PAGES[f"{wire.title.lower() if wire in (LIMIT, RSIO) else wire.package}.md"]
    assert [frame.NAME for frame in wire.frames.values() if f"\n## {frame.NAME} (0x" not in page] == []
    assert [table.name for table, _ in wire.tables if table.markdown() not in plain(page)] == []
    states = import_module(f"afflux.protocols.{wire.package}.states")
    tables = {value.name for name, value in vars(states).items() if isinstance(value, Table) and name[0] != "_"}
    assert {table.name for table, _ in wire.tables} == tables


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("reactivesocket.md", "| 0x22 | REJECTED | "),
        ("jmux.md", "| `SessionRejected` | The server has processed nothing of the call"),
        ("limit-stream.md", "| 0x201 | APPLICATION_ERROR | "),
        ("reactive-streams-io.md", "| 12 | SPLIT_MESSAGES | "),
        ("reactive-streams-io.md", "| `element` | bytes: as many as elements have"),
    ],
)
def test_the_page_of_another_wire_has(name: str, row: str) -> None:
    assert row in PAGES[name]


def test_the_page_of_limits_is_complete() -> None:
    assert [name for name in ROWS if f"\n|`{name}`|" not in PAGES["limits.md"]] == []


def test_the_guide_to_limits_names_only_limits() -> None:
    guide = (FOLDER.parent / "how-to" / "limits.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", guide, re.MULTILINE)
    assert len(rows) > 15
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row) if name not in ROWS] == []


def test_every_public_name_has_its_contract() -> None:
    names = [name for name in afflux.__all__ if not name.startswith("_")]
    text = PAGES["api.md"] + PAGES["modules.md"]
    assert [name for name in names if not isinstance(getattr(afflux, name), ModuleType) and not has(text, name)] == []


def has(page: str, name: str, module: str = "afflux") -> bool:
    """Whether a page has the contract of a name, for the site and in plain Markdown."""
    full = f"{module}.{name}"
    return f'\n::: {full}\n-->\n### <a id="{full}"></a>{full}\n' in page


@pytest.mark.parametrize(
    ("page", "module"), [("engine.md", events), ("engine.md", engine), ("modules.md", afflux.sync)]
)
def test_every_name_of_a_module_has_its_contract(page: str, module: ModuleType) -> None:
    assert [name for name in module.__all__ if not has(PAGES[page], name, module.__name__)] == []


@pytest.mark.parametrize(
    "text",
    [
        "\nclass Pool(uri: str, *, most: int = 4, retry: Backoff | None = None, **options: Any)\n",
        "\n    handler: object = None,\n",
        "\n) -> Connecting\n```\n\nConnect to a server: ``async with afflux.connect(uri) as peer``",
        "\n- `ConnectFailed`: when entered: no server answered, or the TLS handshake failed.\n",
        "\n- `async push(metadata: bytes) -> None`: Send metadata about the connection.\n",
        "\n- `closed`: Whether the connection is over.\n",
        "\n- `uri`: The address that was connected to.\n",
        "\nThe peer refused the request before processing it: a retry is safe.\n",
    ],
)
def test_a_contract_can_be_read_without_the_site(text: str) -> None:
    assert text in PAGES["api.md"]


def test_a_value_has_its_definition_and_its_docstring() -> None:
    assert "\nCheck = Callable[[Authentication | None, Peer], Any]\n```\n\n``check(cred" in PAGES["modules.md"]


@pytest.mark.parametrize("name", ["api.md", "modules.md", "engine.md"])
def test_directives_are_in_comments(name: str) -> None:
    shown = re.sub(r"<!--.*?-->", "", PAGES[name], flags=re.DOTALL)
    assert ":::" not in shown
    assert shown.count("\n### <a id=") == PAGES[name].count("\n::: ") - shown.count("\n## afflux.")


@pytest.mark.parametrize("name", ["api.md", "modules.md", "engine.md"])
def test_what_changes_from_run_to_run_is_not_on_the_page(name: str) -> None:
    assert " at 0x" not in PAGES[name]


def test_no_module_is_described_twice() -> None:
    headings = re.findall(r"^## (.*)$", PAGES["modules.md"], re.MULTILINE)
    assert sorted(headings) == sorted(set(headings))


def made(lines: str) -> contracts.Any:
    """What the source ``lines`` define, as ``thing``."""
    import linecache

    linecache.cache["<made>"] = (len(lines), None, lines.splitlines(keepends=True), "<made>")
    space: dict[str, object] = {"__name__": "made"}
    exec(compile(lines, "<made>", "exec"), space)
    return space["thing"]


def test_a_signature_is_that_of_the_source() -> None:
    source = 'def thing(a: str = "x, y", /, *rest: dict[str, int], c=(1, 2)) -> None: "Do it: now."\n'
    assert contracts.contract("m.thing", made(source)) == (
        '### <a id="m.thing"></a>m.thing\n\n```py\n'
        "def thing(a: str = 'x, y', /, *rest: dict[str, int], c=(1, 2)) -> None\n```\n\nDo it: now.\n"
    )


def test_a_docstring_becomes_markdown() -> None:
    text = "Does :func:`it`. More.\n\nArgs:\n    a: one\n        and two.\n    b: three\nReturns:\n    Four.\n\nAfter."
    assert contracts.docstring(text) == (
        "Does `it`. More.\n\n**Args**\n\n- `a`: one\n  and two.\n- `b`: three\n\n**Returns**\n\n- Four.\n\nAfter.\n"
    )


def test_the_site_shows_the_directive() -> None:
    page = "A\n" + contracts.sided("::: a.b\n", "### a.b\n\ntext\n") + "B\n"
    assert contracts.site_page(page + page) == "A\n::: a.b\nB\n" * 2


def test_every_limit_is_enforced_somewhere(tmp_path: Path) -> None:
    assert unread_limits(SOURCE) == []
    (tmp_path / "module.py").write_text("def f(self, partial):\n    return self._limits.streams, partial.fragments\n")
    unread = unread_limits(tmp_path)
    assert "streams" not in unread
    assert "fragments" in unread


def unread_limits(source: Path) -> list[str]:
    """The limits that no line of ``source`` reads, in the order of their declaration."""
    read = set()
    texts = (path.read_text(encoding="utf-8") for path in source.rglob("*.py"))
    for text in texts:
        for node in ast.walk(ast.parse(text)) if "limits" in text.lower() else ():
            match node:
                case ast.Attribute(attr=name, value=owner) if name in ROWS and "limits" in _words(owner):
                    read.add(name)
                case ast.Call(args=[_, owner, ast.Constant(value=str(name)), *_]) if "limits" in _words(owner):
                    read.add(name)  # core.bucket.spend reads a limit by its name
    return [name for name in ROWS if name not in read]


def _words(node: ast.AST) -> str:
    return ast.unparse(node).lower()
