"""The conformance pages are true: each rule that is kept leads to code and to a test, and nothing cites one that is
no rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.conformance import (
    FOLDER,
    ROOT,
    Place,
    Rule,
    cited_in,
    in_code,
    in_tests,
    pages,
    protocols,
    rules,
    symbols,
    write,
)

PAGES = pages()
RULES = {protocol: {rule.id: rule for rule in rules(protocol)} for protocol in protocols()}
CODE = {protocol: in_code(protocol) for protocol in RULES}
TESTS = {protocol: in_tests(protocol) for protocol in RULES}
EVERY = [(protocol, rule) for protocol, found in RULES.items() for rule in found.values()]
BUILT = [(protocol, rule) for protocol, rule in EVERY if not rule.not_built]
NOT_BUILT = [(protocol, rule) for protocol, rule in EVERY if rule.not_built]
COUNTS = {
    "jmux": (45, 17, 14),
    "reactive-streams-io": (46, 13, 6),
    "reactivesocket": (51, 16, 12),
    "rsocket": (69, 13, 11),
}
"How many rules, decisions and points of interoperability each specification has."


def ids(value: str | Rule) -> str:
    return value if isinstance(value, str) else value.id


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_tool_writes(name: str) -> None:
    path = FOLDER / name
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    assert written == PAGES[name], f"docs/conformance/{name} is out of date; run: python -m tools.conformance"


def test_no_page_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*PAGES, *(f"{name}.toml" for name in protocols())}


def test_the_tool_writes_every_page(tmp_path: Path) -> None:
    write(tmp_path / "conformance")
    assert {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "conformance").iterdir()} == PAGES


def test_every_protocol_has_its_rules() -> None:
    assert set(RULES) == set(COUNTS)


@pytest.mark.parametrize("protocol", COUNTS)
def test_every_rule_is_there_once(protocol: str) -> None:
    found = rules(protocol)
    assert [rule.id for rule in found] == [
        f"{kind}-{number + 1}" for kind, count in zip("RDI", COUNTS[protocol], strict=True) for number in range(count)
    ]
    levels = {rule.level for rule in found if rule.id.startswith("R-")}
    assert levels <= {"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY"}
    assert [rule.id for rule in found if not rule.text.endswith(".")] == []


@pytest.mark.parametrize(("protocol", "rule"), BUILT, ids=ids)
def test_a_rule_that_is_kept_has_code_and_a_test(protocol: str, rule: Rule) -> None:
    assert CODE[protocol].get(rule.id), f"no line of {protocol} in src/afflux cites {rule.id}: {rule.text}"
    assert TESTS[protocol].get(rule.id), f"no test of {protocol} cites {rule.id}: {rule.text}"


@pytest.mark.parametrize(("protocol", "rule"), NOT_BUILT, ids=ids)
def test_a_rule_that_is_not_built_has_neither(protocol: str, rule: Rule) -> None:
    cited = [*CODE[protocol].get(rule.id, ()), *TESTS[protocol].get(rule.id, ())]
    assert cited == [], f"{rule.id} is cited, so it is built: take away its not_built in docs/conformance"


@pytest.mark.parametrize("protocol", COUNTS)
def test_nothing_cites_what_is_no_rule(protocol: str) -> None:
    found = (CODE[protocol], TESTS[protocol])
    unknown = {id: places for cited in found for id, places in cited.items() if id not in RULES[protocol]}
    assert unknown == {}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_symbols_that_exist(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+\.py)(?:#([^)]*))?\)", PAGES[page])
    dead = []
    for target, name in links:
        path = (FOLDER / target).resolve()
        if not path.is_file() or (name and name not in {symbol.name for symbol in symbols(path)}):
            dead.append(f"{target}#{name}")
    assert links
    assert dead == []


def test_the_tests_on_the_page_are_tests_that_run() -> None:
    """A test counts when pytest would collect it: a function of that name in a module of that name."""
    for place in {place for found in TESTS.values() for places in found.values() for place in places}:
        assert Path(place.path).name.startswith("test_")
        assert place.symbol.rpartition(".")[2].startswith("test_")


def test_citations_are_whole_words() -> None:
    text = "R-1, (R-10) R-2. x-R-3 R-4x FR-05 AR-6\nD-7: R-20 to R-22, such as R-9 or ``R-11``\nI-8 and R-8"
    assert list(cited_in(text)) == [
        ("R-1", 1),
        ("R-10", 1),
        ("R-2", 1),
        ("D-7", 2),
        ("R-20", 2),
        ("R-21", 2),
        ("R-22", 2),
        ("R-11", 2),
        ("I-8", 3),
        ("R-8", 3),
    ]


MODULE = '''\
"""Of R-1."""

TABLE = 1  # R-2
"R-3"

# R-4
# and more
@decorated("R-5")
def test_R_6_of_a_function():
    """R-7."""


class Holder:
    "R-8"

    name = 1
    "R-9"

    def test_method(self):
        def inner():
            return "R-10"


def helper():
    return "R-11"
'''


def test_a_citation_belongs_to_the_symbol_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tools.conformance as tool

    for folder, other in (("src", "module.py"), ("tests", "test_module.py")):
        (tmp_path / folder / "protocols" / "jmux").mkdir(parents=True)
        (tmp_path / folder / other).write_text(MODULE)
        (tmp_path / folder / "protocols" / "jmux" / other).write_text("# R-99")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "SOURCE", tmp_path / "src")
    monkeypatch.setattr(tool, "TESTS", tmp_path / "tests")
    assert {id: [place.symbol for place in places] for id, places in tool.in_code("rsocket").items()} == {
        "R-1": [""],
        "R-2": ["TABLE"],
        "R-3": ["TABLE"],
        "R-4": ["test_R_6_of_a_function"],
        "R-5": ["test_R_6_of_a_function"],
        "R-7": ["test_R_6_of_a_function"],
        "R-8": ["Holder"],
        "R-9": ["Holder"],
        "R-10": ["Holder.test_method"],
        "R-11": ["helper"],
    }
    place = Place("tests/test_module.py", "test_R_6_of_a_function")
    method = Place("tests/test_module.py", "Holder.test_method")
    assert tool.in_tests("rsocket") == {
        "R-6": [place],
        "R-4": [place],
        "R-5": [place],
        "R-7": [place],
        "R-10": [method],
    }


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("protocols/jmux/engine.py", "jmux"),
        ("protocols/rsio/engine.py", "reactive-streams-io"),
        ("protocols/reactivesocket/test_frames.py", "reactivesocket"),
        ("aio/session.py", "jmux"),
        ("aio/flow.py", "rsocket"),
        ("core/credit.py", "rsocket"),
        ("protocols/test_shared.py", ""),
    ],
)
def test_every_number_is_of_one_protocol(
    path: str, owner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has rules of the same numbers: whose a citation is depends on where it stands."""
    import tools.conformance as tool

    module = tmp_path / "src" / path
    module.parent.mkdir(parents=True)
    module.write_text("# R-5")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "SOURCE", tmp_path / "src")
    assert [protocol for protocol in COUNTS if tool.in_code(protocol)] == [owner] * bool(owner)


def test_the_root_is_the_project() -> None:
    assert (ROOT / "pyproject.toml").is_file()
