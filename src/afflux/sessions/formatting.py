"""Write a tree of session types as text. Formatting is idempotent, and parsing the text returns an equal tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from afflux.sessions.types import (
    Annotation,
    Basic,
    Branch,
    Chain,
    Channel,
    Choose,
    Constant,
    Definition,
    End,
    Field,
    File,
    Name,
    Note,
    Offer,
    Send,
    Step,
    Struct,
    ValueType,
    Variant,
)

__all__ = ["format_chain", "format_constant", "format_file", "format_type"]

INDENT = "    "
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def format_file(file: File) -> str:
    """Return the text of a file, with four spaces of indentation and a blank line between definitions.

    Raises:
        ValueError: the language cannot express the tree: a branch other than the last one contains a choice.
    """
    parts = ["\n".join(_definition(each)) for each in file.definitions]
    if file.last_notes:
        parts.append("\n".join(_notes(file.last_notes)))
    return "".join(f"{part}\n" for part in ["\n\n".join(parts)] if part)


def format_chain(chain: Chain) -> str:
    """Return the text of a chain, on several lines."""
    return "\n".join(_chain(chain))


def format_type(kind: ValueType) -> str:
    """Return the text of the type of a value."""
    match kind:
        case Name(name):
            return name
        case Constant():
            return format_constant(kind)
    return kind.value


def format_constant(constant: Constant) -> str:
    """Return the literal: as it was written, or in decimal."""
    if constant.spelled is not None and constant.basic is not Basic.STRING:
        return constant.spelled
    value = constant.value
    match constant.basic:
        case Basic.STRING:
            return f'"{str(value).translate(_ESCAPES)}"'
        case Basic.BOOL:
            return "true" if value else "false"
        case Basic.INT:
            return f"{value:+d}"
        case Basic.FLOAT:
            text = f"{Decimal(repr(value)):+f}"
            return text if "." in text else f"{text}.0"
    return str(value)


def _definition(each: Definition) -> Iterator[str]:
    yield from _notes(each.notes)
    if isinstance(each, Channel):
        yield f"channel {each.name} ="
        yield from _indented(_chain(each.chain))
    elif isinstance(each, Struct):
        yield from _braces(f"struct {each.name}", (_member(part) for part in each.fields), each.last_notes)
    else:
        yield from _braces(f"enum {each.name}", (_member(part) for part in each.variants), each.last_notes)


def _braces(head: str, members: Iterable[Iterator[str]], last: tuple[Note, ...]) -> Iterator[str]:
    inside = [line for member in members for line in member] + list(_notes(last))
    if not inside:
        yield f"{head} {{}}"
        return
    yield f"{head} {{"
    yield from _indented(inside)
    yield "}"


def _member(part: Field | Variant) -> Iterator[str]:
    yield from _notes(part.notes)
    number = "" if part.number is None else f" = {part.number}"
    kind = format_type(part.type)
    yield (f"{part.name}: {kind}" if isinstance(part, Field) else f"{part.name}({kind})") + f"{number},"


def _notes(notes: Iterable[Note]) -> Iterator[str]:
    for note in notes:
        if isinstance(note, Annotation):
            value = "" if note.value is None else f" = {format_constant(note.value)}"
            yield f"#[{note.name}{value}]"
        else:
            yield f"{'///' if note.doc else '//'}{note.text}"


def _chain(chain: Chain) -> Iterator[str]:
    for number, step in enumerate(chain.steps, 1):
        yield from _notes(step.notes)
        *lines, last = _step(step)
        yield from lines
        yield f"{last} ->" if number < len(chain.steps) else last


def _step(step: Step) -> Iterator[str]:
    if isinstance(step, End):
        yield "end"
    elif isinstance(step, Offer | Choose):
        yield "offer" if isinstance(step, Offer) else "choose"
        for number, branch in enumerate(step.branches, 1):
            if number < len(step.branches) and _takes_bars(branch):
                raise ValueError("an offer or a choice in any branch but the last one must be a channel of its own")
            yield from _indented(_branch(branch))
    else:
        yield f"{'send' if isinstance(step, Send) else 'recv'} {format_type(step.type)}"


def _branch(branch: Branch) -> Iterator[str]:
    lines = iter([branch.name]) if isinstance(branch, Name) else _chain(branch)
    yield f"| {next(lines)}"
    for line in lines:
        yield f"  {line}"


def _takes_bars(branch: Branch) -> bool:
    """Whether the branch would take the bars that follow it: the innermost offer or choice does."""
    return isinstance(branch, Chain) and isinstance(branch.steps[-1], Offer | Choose)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (INDENT + line for line in lines)
