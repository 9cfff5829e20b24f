"""Every rule number in source, tests and documentation leads to a row of a specification page, of one wire."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tools.conformance import OWN_TESTS, in_code, in_tests, mentions
from tools.specs import (
    DOCS,
    ROOT,
    SHARED_PAGES,
    Citation,
    cases,
    cited_in,
    cited_in_names,
    known,
    linked,
    owner_of,
    protocols,
    rules,
    sections,
)

from afflux.core.limits import ROWS as LIMITS
from tests.hostile.catalogue import ROWS, TAGS

READ = sorted(
    path
    for folder in ("src", "tests", "docs", "examples", "interop")
    for kind in ("py", "md")
    for path in (ROOT / folder).rglob(f"*.{kind}")
    if path.name not in OWN_TESTS
)
PAGES = [*(f"specs/{protocol}.md" for protocol in protocols()), *SHARED_PAGES]
SECTION = re.compile(
    r'(?:\brule=|\bRow\((?:[^"()]|\([^()]*\))*|\binvalid\(.*, )"(?:RSocket )?(\d(?:\.\d)?(?:, \d\.\d)*)"'
)
"A section of a wire's page, as the rule of an error or of a row in a state table."


def cited(path: Path, root: Path = ROOT) -> Iterator[Citation]:
    owner = owner_of(path.relative_to(root))
    yield from cited_in(path.read_text(encoding="utf-8"), owner)
    if path.suffix == ".py" and path.is_relative_to(root / "tests"):
        yield from (citation for citation, _ in cited_in_names(path, owner))


def lost(paths: Iterable[Path], root: Path = ROOT) -> list[str]:
    """The citations that lead nowhere."""
    return [
        f"{path.relative_to(root)}:{citation.line} {citation.id} of {citation.protocol or 'no wire'}"
        for path in paths
        for citation in cited(path, root)
        if not known(citation)
    ]


@pytest.mark.parametrize("folder", ["src", "tests", "docs", "examples", "interop"])
def test_every_citation_leads_to_a_row(folder: str) -> None:
    found = lost(path for path in READ if path.is_relative_to(ROOT / folder))
    assert found == [], "docs/specs and docs/hostile.md lack these, or their wire is not named: see tools/specs.py"


def test_a_citation_that_is_made_up_is_found(tmp_path: Path) -> None:
    for name, text in (
        ("src/protocols/jmux/engine.py", "# R-1, R-999\n# RSocket R-47 and HS-98\n"),
        ("src/core/credit.py", "# R-1\n# RSocket R-1\n"),
        ("tests/jmux/test_engine.py", "def test_R_46_FC_02_what_is_read(): ...\n"),
        ("docs/credit.md", "Jmux R-46"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert lost(sorted(path for path in tmp_path.rglob("*.*") if path.is_file()), tmp_path) == [
        "docs/credit.md:1 R-46 of jmux",
        "src/core/credit.py:1 R-1 of no wire",
        "src/protocols/jmux/engine.py:1 R-999 of jmux",
        "src/protocols/jmux/engine.py:2 HS-98 of no wire",
        "tests/jmux/test_engine.py:1 R-46 of jmux",
    ]


def test_every_section_that_is_cited_exists() -> None:
    """Where neither path nor text names a wire, the code is RSocket's or shared with ReactiveSocket."""
    lost = [
        f"{path.relative_to(ROOT)}: section {section} of {owner}"
        for path in READ
        if path.suffix == ".py" and path.is_relative_to(ROOT / "src")
        for owner in [owner_of(path.relative_to(ROOT)) or "rsocket"]
        for found in SECTION.finditer(path.read_text(encoding="utf-8"))
        for section in found[1].split(", ")
        if section not in sections(owner)
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("text", "section"),
    [
        ('ConnectionClosed(text, rule="3.1")', "3.1"),
        ('Row(_S.OPEN, _I.SIGNAL, _A.SIGNAL, same, "3.2, 3.3"),', "3.2, 3.3"),
        ('Row(\n    (_S.OPEN, _S.DRAINING),\n    _I.SIGNAL,\n    "3.2",\n)', "3.2"),
        ('raise invalid("too long", "2.5")', "2.5"),
        ('LocalProtocolError(text, rule="RSocket 2.5")', "2.5"),
        ('rule="R-3"', None),
    ],
)
def test_how_a_section_is_read(text: str, section: str | None) -> None:
    found = SECTION.search(text)
    assert (found and found[1]) == section
    assert {"3.1", "2.5"} <= sections("rsocket")
    assert "9.9" not in sections("rsocket")


@pytest.mark.parametrize(
    ("text", "owner", "expected"),
    [
        ("R-1, R-999", "jmux", [("jmux", "R-1", True), ("jmux", "R-999", False)]),
        ("HS-01 and HS-99", None, [("", "HS-01", True), ("", "HS-99", False)]),
        ("HS-1", None, [("", "HS-1", False)]),
        ("XX-01, but not X-01 or XX-1", None, [("", "XX-01", False)]),
        ("R-1", None, [(None, "R-1", False)]),
        ("RSocket R-69, but R-70", "jmux", [("rsocket", "R-69", True), ("jmux", "R-70", False)]),
        ("ReactiveSocket R-1, D-16 and I-3", None, [("reactivesocket", id, True) for id in ("R-1", "D-16", "I-3")]),
        ("RSocket's R-1. R-2", "jmux", [("rsocket", "R-1", True), ("jmux", "R-2", True)]),
        ("Jmux R-44 to R-46", "rsocket", [("jmux", "R-44", True), ("jmux", "R-45", True), ("jmux", "R-46", False)]),
        ("R-1. Rule numbers are rsio's. R-46", "jmux", [("jmux", "R-1", True), ("reactive-streams-io", "R-46", True)]),
        ("FR-05 to FR-06", None, [("", "FR-05", True), ("", "FR-06", True)]),
        ("x-R-3 R-4x AR-6 CRC-32 such as R-9 and such as ``R-11``", "jmux", []),
        ("DR-1 C-8 C-10", None, [("", "DR-1", True), ("", "C-8", True), ("", "C-10", False)]),
    ],
)
def test_how_a_citation_is_read(text: str, owner: str | None, expected: list[tuple[str | None, str, bool]]) -> None:
    assert [(citation.protocol, citation.id, known(citation)) for citation in cited_in(text, owner)] == expected


def test_a_citation_has_its_line() -> None:
    assert [(citation.id, citation.line) for citation in cited_in("R-1\nRSocket\nR-2", "jmux")] == [
        ("R-1", 1),
        ("R-2", 2 + 1),
    ]


def test_names_of_tests_cite(tmp_path: Path) -> None:
    module = tmp_path / "test_module.py"
    module.write_text(
        "def test_R_1_and_HS_01(): ...\n\n# Rule numbers are Jmux's.\ndef test_R_2(): ...\n\ndef helper_R_3(): ...\n"
    )
    found = [(citation.protocol, citation.id, symbol.name) for citation, symbol in cited_in_names(module, "rsocket")]
    assert found == [
        ("rsocket", "R-1", "test_R_1_and_HS_01"),
        ("", "HS-01", "test_R_1_and_HS_01"),
        ("jmux", "R-2", "test_R_2"),
    ]


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("src/afflux/protocols/jmux/engine.py", "jmux"),
        ("src/afflux/protocols/rsio/engine.py", "reactive-streams-io"),
        ("tests/hostile/test_rsocket_flow.py", "rsocket"),
        ("tests/honest/habits_reactivesocket.py", "reactivesocket"),
        ("docs/specs/reactive-streams-io.md", "reactive-streams-io"),
        ("docs/reactive-streams.md", None),
        ("src/afflux/core/credit.py", None),
        ("tests/interop/test_jmux_rsocket.py", None),
    ],
)
def test_the_wire_that_a_path_names(path: str, owner: str | None) -> None:
    assert owner_of(Path(path)) == owner


@pytest.mark.parametrize("page", PAGES)
def test_rows_have_anchors_and_stand_once(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:<a id=\"([^\"]*)\"></a>)?([A-Z]{1,2}-\d+) \|", text, re.MULTILINE)
    assert [anchor for anchor, _ in rows] == [id.lower() for _, id in rows]
    assert len(set(rows)) == len(rows) > 0


def test_no_prefix_belongs_to_a_wire_and_to_a_shared_page() -> None:
    own = {rule.id.partition("-")[0] for protocol in protocols() for rule in rules(protocol)}
    assert own & {id.partition("-")[0] for id in cases()} == set()


def test_every_case_is_cited() -> None:
    """docs/hostile.md has the cases that code or tests cite, and no others."""
    used = {citation.id for path in READ if not path.is_relative_to(DOCS) for citation in cited(path)}
    assert sorted(set(cases()) - used - {f"DR-{number}" for number in range(1, 13)}) == []


def test_limits_that_bound_cases_exist() -> None:
    text = (DOCS / "hostile.md").read_text(encoding="utf-8")
    bounds = re.findall(r"^\| <a id=.* \| ([^|]*) \|$", text, re.MULTILINE)
    assert {name for bound in bounds for name in re.findall(r"`([a-z_]+)`", bound)} - LIMITS.keys() == set()


def test_cases_apply_to_the_wires_of_the_catalogue() -> None:
    text = (DOCS / "hostile.md").read_text(encoding="utf-8")
    wires = dict(re.findall(r"^\| <a id=[^>]*></a>([A-Z]{2}-\d+) \| ([^|]*) \|", text, re.MULTILINE))
    names = {
        "jmux": "Jmux",
        "limit": "Limit-Stream",
        "reactivesocket": "ReactiveSocket",
        "rsio": "reactive-streams-io",
        "rsocket-draft": "RSocket draft",
    }
    wrong = []
    for row in ROWS.values():
        shown = {name for name in names.values() if name in wires[row.name].split(", ") or wires[row.name] == "all"}
        if shown != {names[protocol] for protocol in TAGS if row.concerns(protocol)}:
            wrong.append(f"{row.name}: {wires[row.name]}, but {row.tags}")
    assert wrong == []


@pytest.mark.parametrize("protocol", protocols())
def test_rules_that_nothing_cites_have_a_reason(protocol: str) -> None:
    """The reasons are in docs/conformance/<wire>.toml. tests/test_conformance.py wants code and a test for others."""
    cited_rules = in_code(protocol).keys() | in_tests(protocol).keys()
    unused = {rule.id for rule in rules(protocol)} - cited_rules
    assert unused == {rule.id for rule in rules(protocol) if rule.not_built}


@pytest.mark.parametrize("protocol", protocols())
def test_what_is_left_out_of_a_page_names_rules(protocol: str) -> None:
    assert {id for id, _ in mentions(protocol)} <= {rule.id for rule in rules(protocol)}


def test_links_are_made_outside_of_code_and_links() -> None:
    text = "# R-1\n`R-1` [R-1](x) R-1, R-99 (FC-02)\n```\nR-1\n```\n|OPEN|R-2|\n|OPEN|3.1|"
    assert linked(text, "jmux") == (
        "# R-1\n`R-1` [R-1](x) [R-1](../specs/jmux.md#r-1), R-99 ([FC-02](../hostile.md#fc-02))\n```\nR-1\n```\n"
        "|OPEN|[R-2](../specs/jmux.md#r-2)|\n|OPEN|[3.1](../specs/jmux.md#3-states)|"
    )
