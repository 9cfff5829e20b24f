"""The conformance pages are true: each rule that is kept leads to code of its wire and to a test that runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.conformance import FOLDER, ROOT, Place, in_code, in_tests, pages, write
from tools.specs import Rule, owner_of, protocols, rules, symbols

PAGES = pages()
RULES = {protocol: {rule.id: rule for rule in rules(protocol)} for protocol in protocols()}
CODE = {protocol: in_code(protocol) for protocol in RULES}
TESTS = {protocol: in_tests(protocol) for protocol in RULES}
COUNTS = {
    "jmux": (45, 17, 14),
    "limit-stream": (40, 16, 6),
    "reactive-streams-io": (46, 13, 6),
    "reactivesocket": (51, 16, 12),
    "rsocket": (69, 13, 11),
    "rsocket-draft": (46, 19, 6),
}
"The number of rules, decisions and points of interoperability of each wire."


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_tool_writes(name: str) -> None:
    path = FOLDER / name
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    assert written == PAGES[name], f"docs/conformance/{name} is out of date; run: python -m tools.conformance"


def test_no_page_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*PAGES, *(f"{name}.toml" for name in protocols())}


def test_the_tool_writes_every_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.conformance.pages", lambda: PAGES)
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
    assert [rule.id for rule in found if rule.level and not rule.source] == []


def uncited(protocol: str, places: dict[str, list[Place]], *, built: bool) -> list[Rule]:
    """The rules that are built, or not, and have no places."""
    return [rule for rule in RULES[protocol].values() if bool(rule.not_built) != built and not places.get(rule.id)]


@pytest.mark.parametrize("protocol", COUNTS)
def test_a_rule_that_is_kept_has_code_and_a_test(protocol: str) -> None:
    assert uncited(protocol, CODE[protocol], built=True) == [], "no code of this wire in src/afflux cites these"
    assert uncited(protocol, TESTS[protocol], built=True) == [], "no test of this wire cites these"


@pytest.mark.parametrize("protocol", COUNTS)
def test_a_rule_that_is_not_built_has_neither(protocol: str) -> None:
    missing = [rule for rule in RULES[protocol].values() if rule.not_built]
    assert uncited(protocol, CODE[protocol], built=False) == missing
    assert uncited(protocol, TESTS[protocol], built=False) == missing


@pytest.mark.parametrize("protocol", COUNTS)
def test_what_keeps_a_rule_is_code_of_its_wire(protocol: str) -> None:
    """A file of another wire is never credited, nor one that only shows or measures."""
    for places in CODE[protocol].values():
        for place in places:
            path = Path(place.path)
            shared = "protocols/family" in place.path and protocol in ("rsocket", "reactivesocket", "rsocket-draft")
            assert shared or owner_of(path) in (protocol, None) or f"protocols/{protocol}" in place.path, place
            assert not {"bench", "cli", "demo", "testing"} & {*path.parts}, place


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


MODULE = '''\
"""Of R-1 and R-2."""

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
    return "Jmux R-11, R-12"


# Rule numbers are Jmux's.
def late():
    return "R-13"
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project that the tool reads."""
    import tools.conformance as tool

    for folder in ("src", "tests"):
        (tmp_path / folder / "protocols" / "rsocket").mkdir(parents=True)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "SOURCE", tmp_path / "src")
    monkeypatch.setattr(tool, "TESTS", tmp_path / "tests")
    return tmp_path


def test_a_citation_belongs_to_the_symbol_around_it(project: Path) -> None:
    (project / "src" / "protocols" / "rsocket" / "module.py").write_text(MODULE)
    (project / "tests" / "protocols" / "rsocket" / "test_module.py").write_text(MODULE)
    assert {id: [place.symbol for place in places] for id, places in in_code("rsocket").items()} == {
        "R-1": [""],
        "R-2": ["TABLE"],  # the file's own mention adds nothing
        "R-3": ["TABLE"],
        "R-4": ["test_R_6_of_a_function"],
        "R-5": ["test_R_6_of_a_function"],
        "R-7": ["test_R_6_of_a_function"],
        "R-8": ["Holder"],
        "R-9": ["Holder"],
        "R-10": ["Holder.test_method"],
    }
    assert {id: [place.symbol for place in places] for id, places in in_code("jmux").items()} == {
        "R-11": ["helper"],
        "R-12": ["helper"],
        "R-13": ["late"],
    }
    place = Place("tests/protocols/rsocket/test_module.py", "test_R_6_of_a_function")
    method = Place("tests/protocols/rsocket/test_module.py", "Holder.test_method")
    assert in_tests("rsocket") == {
        "R-6": [place],
        "R-4": [place],
        "R-5": [place],
        "R-7": [place],
        "R-10": [method],
    }


@pytest.mark.parametrize("shows", ["bench/rsocket.py", "rsocket/dissector.py", "cli/rsocket.py"])
def test_what_shows_a_rule_does_not_keep_it(project: Path, shows: str) -> None:
    module = project / "src" / shows
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text("# R-5")
    assert in_code("rsocket") == {}


def test_what_the_family_shares_keeps_the_rules_of_each_member(project: Path) -> None:
    for wire, number in (("rsocket", "R-27"), ("reactivesocket", "R-39")):
        module = project / "src" / "protocols" / wire / "member.py"
        module.parent.mkdir(exist_ok=True)
        module.write_text(f'RULES = Rules(credit="{number}", demand="3.1")\n')
    family = project / "src" / "protocols" / "family" / "streams.py"
    family.parent.mkdir()
    family.write_text("def spend(member):\n    return member.rules.credit, rules.demand, member.credit\n\n\n# R-1\n")
    shared = Place("src/protocols/family/streams.py", "spend")
    assert in_code("rsocket")["R-27"] == in_code("reactivesocket")["R-39"] == [shared]
    assert in_code("rsocket")["R-1"] == [shared._replace(symbol="")]
    assert "R-1" not in in_code("reactivesocket")


def test_mentions_are_left_out(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tools.conformance as tool

    (project / "src" / "protocols" / "rsocket" / "module.py").write_text("A = 1  # R-5\nB = 1  # R-5\n")
    monkeypatch.setattr(tool, "mentions", lambda _: [("R-5", "A"), ("R-6", "B")])
    assert [place.symbol for place in in_code("rsocket")["R-5"]] == ["B"]


def test_the_root_is_the_project() -> None:
    assert (ROOT / "pyproject.toml").is_file()
