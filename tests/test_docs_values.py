"""Numbers on the pages are those of the code: limits with their values, defaults, counts."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import afflux
import afflux.sync
from afflux.aio.flow import DEFAULT_CREDIT
from afflux.core.limits import ROWS, Limits

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if path.parent.name not in ("reference", "conformance")
}
LIMITS = Limits.server()
_LIMIT = re.compile(r"(quarter of )?`(\w+)`(?:[ \n]\((?=\d)([^)`]*)\)|, (\d[\w., ]*?) by default)")
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)(?: ([KMG])iB)?")


def numbers(text: str) -> list[float]:
    """The numbers in a text; KiB, MiB and GiB are counted in bytes."""
    return [
        float(number.replace(",", "")) * (1 << 10 * " KMG".index(unit or " ")) for number, unit in _NUMBER.findall(text)
    ]


def value(limit: str) -> float | tuple[float, ...]:
    """The default of a limit."""
    found: float | tuple[float, ...] = getattr(LIMITS, limit)
    return found


def test_limits_have_the_values_of_the_code() -> None:
    wrong, checked = [], 0
    for page, text in PAGES.items():
        for part, limit, in_brackets, after in _LIMIT.findall(text):
            shown = in_brackets or after
            if limit not in ROWS:
                continue
            checked += 1
            told = numbers(shown)
            known = value(limit)
            expected = list(known) if isinstance(known, tuple) else [known]
            if " and " in shown:
                told = [sum(told)]
            if part:
                expected = [each / 4 for each in expected]
            if told != expected:
                wrong.append(f"{page}: {limit} ({shown}), not {expected}")
    assert wrong == []
    assert checked >= 14


def test_numbers_are_read() -> None:
    assert numbers("4 MiB and 64 KiB by default") == [4 << 20, 64 << 10]
    assert numbers("4,256, then 1,000 per second") == [4256, 1000]
    assert numbers("0.25") == [0.25]


def test_what_an_honest_client_reaches_follows_from_the_limits() -> None:
    text = PAGES["how-to/limits.md"]
    burst, rate = LIMITS.glitch_bucket
    assert (
        f"with {100 * burst:,} requests refused by `pending_streams`, and then more than {100 * rate:,} per s" in text
    )
    frames = LIMITS.credit_frames(0, 1001) - LIMITS.credit_frames(0, 1000)
    assert f"more than {frames} credit frames per item" in text
    burst, rate = LIMITS.cancel_bucket
    assert f"on more than {rate:,} requests per second, for longer than {burst // rate} s" in text


def test_the_backoff_of_the_page_is_that_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\w.]+) \|", PAGES["how-to/reconnect.md"], re.MULTILINE))
    assert rows == {field.name: str(field.default) for field in fields(afflux.Backoff)}


def test_the_default_credit_of_the_page_is_that_of_the_code() -> None:
    assert f"The default is {DEFAULT_CREDIT}" in PAGES["credit.md"]
    for peer in (afflux.Peer, afflux.sync.Peer):
        for verb in ("stream", "channel", "subscribe"):
            assert inspect.signature(getattr(peer, verb)).parameters["credit"].default == DEFAULT_CREDIT


def test_readme_raises_a_limit_that_needs_it() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"payload_bytes=(\d+ << \d+)", readme)
    base, shift = map(int, shown.split(" << "))
    assert base << shift > LIMITS.payload_bytes
    with pytest.raises(ValueError, match="connection_bytes"):
        afflux.Limits.server(payload_bytes=base << shift)


def test_no_page_counts_the_examples() -> None:
    """A number of examples would be wrong after the next one."""
    root = DOCS.parent
    pages = [root / "README.md", *(root / "examples").glob("*.md"), *DOCS.rglob("*.md")]
    counted = re.compile(
        r"\b(?:\d+|ten|twelve|thirteen|fourteen) (?:short |small )?(?:examples|programs)\b", re.IGNORECASE
    )
    assert [path.name for path in pages if counted.search(path.read_text(encoding="utf-8"))] == []


def test_the_options_of_the_asgi_application_are_listed() -> None:
    (listed,) = re.findall(r"`afflux\.asgi\.app` accepts (.*?), like", PAGES["how-to/websocket-and-asgi.md"], re.DOTALL)
    own = ("handler", "path", "protocol")
    options = [name for name in inspect.signature(afflux.asgi.app).parameters if name not in own]
    assert re.findall(r"`(\w+)`", listed) == options


def test_names_exist() -> None:
    unknown = {
        f"{page}: {name}"
        for page, text in PAGES.items()
        if page not in _FIELDS
        for name in re.findall(r"`(afflux(?:\.\w+)+)", text)
        if not exists(name)
    }
    assert unknown == set()


_FIELDS = ("how-to/captures.md", "how-to/command-line.md", "how-to/observe.md")
"Pages that name other things as well: fields of Wireshark (afflux.rsocket.n), loggers, metrics, a reserved route."


def exists(name: str) -> bool:
    """Whether a dotted name leads to something."""
    found: object = afflux
    path = "afflux"
    for part in name.split(".")[1:]:
        path += f".{part}"
        if not hasattr(found, part) and find_spec(path) is None:
            return False
        found = getattr(found, part, None) or import_module(path)
    return True


def test_commands_have_the_options_of_the_pages() -> None:
    typer = pytest.importorskip("typer", reason="the commands need the extra cli")
    from afflux.cli.app import application

    options: dict[str, set[str]] = {}

    def walk(command: object, name: str) -> None:
        options[name] = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}  # type: ignore[attr-defined]
        for inner, below in getattr(command, "commands", {}).items():
            walk(below, f"{name} {inner}".strip())

    walk(typer.main.get_command(application()), "")
    wrong, checked = [], 0
    for page, text in PAGES.items():
        for span in re.findall(r"`afflux ([a-z][^`]*)`", text):
            words = span.split()
            command = max((name for name in options if name and span.startswith(name)), key=len, default=None)
            given = [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]
            checked += len(given)
            wrong += [f"{page}: afflux {span}: {each}" for each in given if each not in options.get(command or "", ())]
    assert wrong == []
    assert checked > 30
