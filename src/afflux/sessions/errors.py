"""Define the errors of session types: of their text, of a program's steps, and of the peer's steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from afflux.core.errors import Error, LocalProtocolError, RemoteProtocolError
from afflux.sessions.types import Place

__all__ = ["Problem", "SessionSyntaxError", "SessionTypeError", "SessionViolation", "caret", "unknown_channel"]

WIDTH = 100
"Characters of a line of source that a message shows."


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that a session type breaks, and where."""

    text: str
    rule: str
    "The rule of Limit-Stream, or the reason word of a limit."
    place: Place | None = None

    def __str__(self) -> str:
        where = "" if self.place is None else f"{self.place}: "
        return f"{where}{self.text} ({self.rule})"


class SessionSyntaxError(Error, ValueError):
    """The text of session types does not parse, or breaks rules; the message shows each place with a caret.

    Attributes:
        problems: what is wrong, in the order of the text; at least one.
        line, column: the first place, from 1; 0 if there is none.
    """

    may_have_been_processed = False

    def __init__(self, problems: tuple[Problem, ...], *, source: str = "", name: str = "") -> None:
        shown = "\n".join(_shown(problem, source, name) for problem in problems)
        super().__init__(shown, rule=problems[0].rule)
        self.problems = problems
        place = problems[0].place
        self.line, self.column = (0, 0) if place is None else (place.line, place.column)


def _shown(problem: Problem, source: str, name: str) -> str:
    where = f"{name}:" if name else ""
    if problem.place is None:
        return f"{where} {problem}".lstrip()
    under = caret(source, problem.place)
    return f"{where}{problem}" + (f"\n{under}" if under else "")


def caret(source: str, place: Place) -> str:
    """Return the line of a place, cut if it is long, and a caret under the place. Empty without a source."""
    if not source:
        return ""
    lines = source.split("\n", place.line)
    line = "".join(char if char.isprintable() else " " for char in lines[place.line - 1])
    at = min(place.column - 1, len(line))
    first = max(0, at - WIDTH // 2)
    return f"  {line[first : first + WIDTH].rstrip()}\n  {' ' * (at - first)}^"


def unknown_channel(name: object, known: Iterable[str]) -> str:
    """Return the text of the error for the name of an unknown channel, with the nearest name and all known ones."""
    names = list(known)
    near = get_close_matches(str(name), names, n=1)
    meant = f"; did you mean {near[0]}? There" if near else ": there"
    return f"unknown channel {name!r}{meant} are {', '.join(names) or 'none'}"


class SessionTypeError(LocalProtocolError):
    """A step of this program does not follow the session type; nothing was sent.

    Attributes:
        state: the number of the machine's state.
        expected: the steps that the type permits there, as text.
        seen: the step that was attempted, as text.
    """

    def __init__(self, state: int, expected: str, seen: str, *, rule: str = "SI-25", **more: Any) -> None:
        super().__init__(f"the session type expects {expected} (state {state}), not {seen}", rule=rule, **more)
        self.state, self.expected, self.seen = state, expected, seen


class SessionViolation(RemoteProtocolError):
    """A step of the peer does not follow the session type; the session is over.

    Attributes:
        state: the number of the machine's state.
        expected: the steps that the type permits there, as text.
        seen: the step that the peer took, as text.
    """

    def __init__(self, state: int, expected: str, seen: str, *, rule: str = "SI-25", **more: Any) -> None:
        text = f"the peer broke the session type: expected {expected} (state {state}), received {seen}"
        super().__init__(text, rule=rule, **more)
        self.state, self.expected, self.seen = state, expected, seen
