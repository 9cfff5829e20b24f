"""Take the steps of one side of a session from texts: values as JSON, and ``choose N``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from afflux.sessions.machine import Kind

__all__ = ["Step", "step_of", "take"]

_CHOICE = re.compile(r"choose\s+(\d{1,2})")
_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Step:
    """A step that this side takes."""

    text: str
    branch: int | None
    "The branch to choose, from 1; None for a value."
    value: Any = None


def step_of(text: str) -> Step:
    """Return the step of a text.

    Raises:
        ValueError: the text is neither JSON nor a choice.
    """
    text = text.strip()
    if (choice := _CHOICE.fullmatch(text)) is not None:
        return Step(text, int(choice[1]))
    try:
        return Step(text, None, json.loads(text))
    except (ValueError, RecursionError):
        raise ValueError(f"{text[:_SHOWN]!r} is neither JSON nor a choice, such as: choose 2") from None


async def take(chan: Any, step: Step) -> tuple[Any, bool]:
    """Take a step at an endpoint that sends or chooses. A value where the type expects a choice chooses the first
    branch.

    Args:
        chan: the endpoint.
        step: the step.

    Returns:
        The next endpoint, and whether the step was used: a value that has chosen a branch is still to be sent.

    Raises:
        ValueError: the type expects a value, and the step is a choice.
        SessionTypeError: the value or the branch is not of the type.
    """
    if chan.kind is Kind.CHOOSE:
        return await chan.choose(step.branch or 1), step.branch is not None
    if step.branch is not None:
        raise ValueError(f"{step.text!r} is a choice, and the session type expects {chan.expected}")
    return await chan.send(step.value), True
