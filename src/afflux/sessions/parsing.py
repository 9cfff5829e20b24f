"""Parse the text of session types into a tree. Rule numbers are Limit-Stream's.

The grammar is that of docs/specs: names may contain keywords and digits (I-3). It accepts notes also before a closing
brace and at the end of the text. The parser needs ``lark`` (the extra ``sessions``); its stack is a list, so nested
input cannot exhaust the interpreter's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from afflux.core.errors import MissingExtra
from afflux.core.limits import REASONS, Limits
from afflux.core.texts import one_of
from afflux.sessions.errors import Problem, SessionSyntaxError
from afflux.sessions.types import (
    Annotation,
    Basic,
    Chain,
    Channel,
    Choose,
    Comment,
    Constant,
    Definition,
    End,
    Enum,
    Field,
    File,
    Name,
    Note,
    Offer,
    Place,
    Recv,
    Send,
    Step,
    Struct,
    Variant,
)

if TYPE_CHECKING:
    from lark import Lark, Token

__all__ = ["KEYWORDS", "parse", "too_long"]

Branching = TypeVar("Branching", Offer, Choose)

KEYWORDS: Final = frozenset(
    ("channel", "struct", "enum", "end", "recv", "send", "offer", "choose", "true", "false", *Basic),
)

GRAMMAR: Final = r"""
start: definition* notes
definition: notes (channel | struct | enum)
channel: CHANNEL NAME "=" chain
struct: STRUCT NAME "{" (field ",")* field? notes "}"
enum: ENUM NAME "{" (variant ",")* variant? notes "}"
field: notes NAME ":" type number
variant: notes NAME "(" type ")" number
number: ["=" UNSIGNED]

chain: step ("->" step)*
step: notes (end | recv | send | offer | choose)
end: END
recv: RECV type
send: SEND type
offer: OFFER branches
choose: CHOOSE branches
branches: ("|" branch)+
branch: chain | NAME -> reference

type: basic | constant | NAME -> reference
basic: T_BOOL | T_INT | T_UINT | T_FLOAT | T_DOUBLE | T_STRING
constant: STRING | FLOAT | SIGNED | UNSIGNED | TRUE | FALSE

notes: note*
note: DOC | COMMENT | "#" "[" NAME ["=" constant] "]" -> annotation

ARROW: "->"
CHANNEL: "channel"
STRUCT: "struct"
ENUM: "enum"
END: "end"
RECV: "recv"
SEND: "send"
OFFER: "offer"
CHOOSE: "choose"
TRUE: "true"
FALSE: "false"
T_BOOL: "bool"
T_INT: "int"
T_UINT: "uint"
T_FLOAT: "float"
T_DOUBLE: "double"
T_STRING: "string"
NAME: /[^\W\d]\w*/
FLOAT.1: /[+-][0-9]+\.[0-9]+/
SIGNED: /[+-](0x[0-9a-fA-F]+|0o[0-7]+|[0-9]+)/
UNSIGNED: /0x[0-9a-fA-F]+|0o[0-7]+|[0-9]+/
STRING: /"([^"\\]|\\["\\nrt])*"/
DOC: /\/\/\/[^\n]*/
COMMENT: /\/\/(?!\/)[^\n]*/
%ignore /[ \t\r\n]+/
"""

LEGACY: Final = GRAMMAR.replace("channel: CHANNEL NAME", "channel: (CHANNEL | SESSION) NAME") + 'SESSION: "session"\n'
"The grammar with the older keyword ``session`` for ``channel`` (I-5)."

_WORDS: Final = {
    "NAME": "a name",
    "STRING": "a constant",
    "FLOAT": "a constant",
    "SIGNED": "a constant",
    "UNSIGNED": "a number",
    "TRUE": "a constant",
    "FALSE": "a constant",
    "T_BOOL": "a type",
    "T_INT": "a type",
    "T_UINT": "a type",
    "T_FLOAT": "a type",
    "T_DOUBLE": "a type",
    "T_STRING": "a type",
    "DOC": "a comment",
    "COMMENT": "a comment",
    "HASH": "a comment",
    "ARROW": '"->"',
    "VBAR": '"|"',
    "EQUAL": '"="',
    "COMMA": '","',
    "COLON": '":"',
    "LBRACE": '"{"',
    "RBRACE": '"}"',
    "LPAR": '"("',
    "RPAR": '")"',
    "LSQB": '"["',
    "RSQB": '"]"',
    "$END": "the end of the text",
}
"Words for tokens in messages; the others are keywords."

_ESCAPES: Final = {"\\": "\\", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
SYNTAX: Final = "syntax"
"The rule of a text that does not parse."
_STEPS: Final = ("END", "RECV", "SEND", "OFFER", "CHOOSE")
_DIGITS: Final = 64
"Characters of the longest number; all that are in range are shorter."


def parse(text: str, *, name: str = "", limits: Limits | None = None, legacy_keywords: bool = False) -> File:
    """Parse the text of session types. The result is not checked: see ``check``.

    Args:
        name: the file's name, for messages.
        legacy_keywords: accept ``session`` instead of ``channel``, as in an older grammar (I-5).
        limits: ``session_type_bytes`` and ``session_type_depth`` bound the text.

    Raises:
        SessionSyntaxError: the text does not parse; with line, column, and a caret in the message.
        MissingExtra: lark is not installed.
    """
    limits = limits or Limits()
    try:
        if len(text.encode(errors="surrogatepass")) > limits.session_type_bytes:
            raise SessionSyntaxError((too_long(limits),), name=name)
        return _parsed(_parser(limits.session_type_depth, legacy_keywords), text)
    except _Refused as refused:
        raise SessionSyntaxError((refused.problem,), source=text, name=name) from None


def too_long(limits: Limits) -> Problem:
    """Return the problem of a text that exceeds ``session_type_bytes``."""
    return Problem(f"the text exceeds {limits.session_type_bytes:,} bytes", REASONS["session_type_bytes"])


@lru_cache(maxsize=4)
def _parser(depth: int, legacy: bool) -> Lark:
    """Return the parser that refuses branches nested deeper than ``depth``. Making one takes milliseconds."""
    try:
        from lark import Lark
    except ImportError:
        raise MissingExtra("the language of session types", "sessions") from None
    return Lark(LEGACY if legacy else GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(depth))


def _parsed(parser: Lark, text: str) -> File:
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    try:
        return cast("File", parser.parse(text))
    except UnexpectedToken as error:
        raise _unexpected(error.token, error.accepts, text) from None
    except UnexpectedCharacters as error:
        wrong = f"unexpected character {error.char!r}"
        if error.char == '"':
            wrong = "the string is not closed, or contains an unknown escape"
        raise _Refused(wrong, SYNTAX, Place(error.line, error.column)) from None


def _unexpected(token: Token, accepted: Iterable[str], text: str) -> _Refused:
    place = Place(token.line or 1, token.column or 1)
    if token.type == "$END":
        last = text.rstrip()
        place = Place(last.count("\n") + 1, len(last) - last.rfind("\n"))
    if token.type in _STEPS and "STRING" in accepted:
        return _Refused("a channel cannot be the type of a value", "R-39", place)
    words = sorted({_WORDS.get(name, f'"{name.lower()}"') for name in accepted})
    expected = one_of(words)
    seen = "the text ends here" if token.type == "$END" else f"unexpected {_quoted(token)}"
    return _Refused(f"{seen}, expected {expected}", SYNTAX, place)


def _quoted(token: str) -> str:
    return f'"{token if len(token) <= 40 else token[:40] + "…"}"'


class _Refused(Exception):
    """The text breaks a rule at a place."""

    def __init__(self, text: str, rule: str, place: Place | None = None) -> None:
        self.problem = Problem(text, rule, place)


def _place_of(token: Token) -> Place:
    return Place(token.line or 0, token.column or 0)


class _Builder:
    """Build the nodes while the parser runs: a method for each rule of the grammar, called with the rule's parts."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def start(self, parts: list[Any]) -> File:
        *definitions, notes = parts
        return File(tuple(definitions), notes)

    def definition(self, parts: list[Any]) -> Definition:
        notes, made = parts
        return replace(made, notes=notes) if notes else made  # type: ignore[no-any-return]  # one of the three

    def channel(self, parts: list[Any]) -> Channel:
        _, name, chain = parts
        return Channel(str(name), chain, place=_place_of(name))

    def struct(self, parts: list[Any]) -> Struct:
        _, name, *fields, notes = parts
        return Struct(str(name), tuple(fields), last_notes=notes, place=_place_of(name))

    def enum(self, parts: list[Any]) -> Enum:
        _, name, *variants, notes = parts
        return Enum(str(name), tuple(variants), last_notes=notes, place=_place_of(name))

    def field(self, parts: list[Any]) -> Field:
        notes, name, kind, number = parts
        return Field(str(name), kind, number, notes, place=_place_of(name))

    def variant(self, parts: list[Any]) -> Variant:
        notes, name, kind, number = parts
        return Variant(str(name), kind, number, notes, place=_place_of(name))

    def number(self, parts: list[Any]) -> int | None:
        return None if parts[0] is None else _integer(parts[0])

    def chain(self, parts: list[Any]) -> Chain:
        return Chain(tuple(parts))

    def step(self, parts: list[Any]) -> Step:
        notes, made = parts
        return replace(made, notes=notes) if notes else made  # type: ignore[no-any-return]  # one of the five

    def end(self, parts: list[Any]) -> End:
        return End(place=_place_of(parts[0]))

    def recv(self, parts: list[Any]) -> Recv:
        return Recv(parts[1], place=_place_of(parts[0]))

    def send(self, parts: list[Any]) -> Send:
        return Send(parts[1], place=_place_of(parts[0]))

    def offer(self, parts: list[Any]) -> Offer:
        return self._bounded(Offer(parts[1], place=_place_of(parts[0])))

    def choose(self, parts: list[Any]) -> Choose:
        return self._bounded(Choose(parts[1], place=_place_of(parts[0])))

    def _bounded(self, made: Branching) -> Branching:
        if made.depth > self._depth:
            text = f"offers and choices are nested more than {self._depth} deep"
            raise _Refused(text, REASONS["session_type_depth"], made.place)
        return made

    def branches(self, parts: list[Any]) -> tuple[Any, ...]:
        return tuple(parts)

    def branch(self, parts: list[Any]) -> Any:
        return parts[0]

    type = branch

    def reference(self, parts: list[Any]) -> Name:
        return Name(str(parts[0]), place=_place_of(parts[0]))

    def basic(self, parts: list[Any]) -> Basic:
        return Basic(parts[0])

    def constant(self, parts: list[Any]) -> Constant:
        token = parts[0]
        text = str(token)
        basic, value = _CONSTANTS[token.type](token)
        return Constant(basic, value, text, place=_place_of(token))

    def notes(self, parts: list[Any]) -> tuple[Note, ...]:
        return tuple(parts)

    def note(self, parts: list[Any]) -> Comment:
        text = str(parts[0])
        doc = text.startswith("///")
        return Comment(text[3 if doc else 2 :].rstrip(), doc)

    def annotation(self, parts: list[Any]) -> Annotation:
        return Annotation(str(parts[0]), parts[1])


def _integer(token: Token) -> int:
    """Convert a number, decimal, hexadecimal or octal (I-4)."""
    text = str(token)
    if len(text) > _DIGITS:
        raise _Refused("the number is out of range", "R-31", _place_of(token))
    sign = -1 if text[0] == "-" else 1
    digits = text.lstrip("+-")
    return sign * int(digits, {"0x": 16, "0o": 8}.get(digits[:2], 10))


def _unescaped(token: Token) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES[found[1]], str(token)[1:-1])


_CONSTANTS: Final[dict[str, Callable[[Any], tuple[Basic, bool | int | float | str]]]] = {
    "STRING": lambda token: (Basic.STRING, _unescaped(token)),
    "FLOAT": lambda token: (Basic.FLOAT, float(token)),
    "SIGNED": lambda token: (Basic.INT, _integer(token)),
    "UNSIGNED": lambda token: (Basic.UINT, _integer(token)),
    "TRUE": lambda token: (Basic.BOOL, True),
    "FALSE": lambda token: (Basic.BOOL, False),
}
"How each literal is read: its basic type and its value."
