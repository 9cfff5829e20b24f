"""Parse the text of a filter into a tree, and check its names and types. The parser needs ``lark``; its stack is a
list, so nested input cannot exhaust the interpreter's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from afflux.core.errors import MissingExtra
from afflux.core.texts import one_of
from afflux.filters import patterns
from afflux.filters.columns import columns, flags, words
from afflux.filters.errors import FilterError
from afflux.filters.nodes import And, Column, Compare, Has, IsNull, Match, Node, Not, Operator, Or, Type, Within, depth

if TYPE_CHECKING:
    from lark import Lark, Token

__all__ = ["LARGEST", "MOST_CHARACTERS", "MOST_DEPTH", "moment", "parse"]

MOST_CHARACTERS: Final = 10_000
"Characters of the longest filter."
MOST_DEPTH: Final = 100
"How deep ``not``, ``and`` and ``or`` may be nested."
LARGEST: Final = (1 << 63) - 1
"The largest number in a column of the table; larger ones are shown as this one."

GRAMMAR: Final = r"""
start: any
?any: all (OR all)* -> any_of
?all: one (AND one)* -> all_of
?one: NOT one -> negated
    | "(" any ")"
    | test
?test: NAME -> bare
    | NAME operator value -> compare
    | NAME (TILDE | UNLIKE) value -> match
    | NAME IN "(" value ("," value)* ")" -> within
    | NAME NOT IN "(" value ("," value)* ")" -> not_within
    | NAME IS NULL -> null
    | NAME IS NOT NULL -> not_null
    | NAME HAS value -> has
    | NAME HAS "(" value ("," value)* ")" -> has
operator: EQUAL | UNEQUAL | AT_MOST | AT_LEAST | LESS | MORE
value: STRING | NUMBER | NAME

OR.2: /or(?![\w.-])|\|\|/i
AND.2: /and(?![\w.-])|&&/i
NOT.2: /not(?![\w.-])|!(?![=~])/i
IN.2: /in(?![\w.-])/i
IS.2: /is(?![\w.-])/i
HAS.2: /has(?![\w.-])/i
NULL.2: /null(?![\w.-])/i
UNLIKE: "!~"
TILDE: "~"
EQUAL: /==?/
UNEQUAL: /!=|<>/
AT_MOST: "<="
AT_LEAST: ">="
LESS: "<"
MORE: ">"
STRING: /"[^"]*"|'[^']*'/
NUMBER: /-?(0x[0-9a-f]+|[0-9][0-9_]*)(?![\w.])/i
NAME: /[a-z_][\w-]*(\.[a-z_]\w*)*/i
%ignore /[ \t\r\n]+/
"""

_WORDS: Final = {
    "OR": '"or"', "AND": '"and"', "NOT": '"not"', "IN": '"in"', "IS": '"is"', "HAS": '"has"', "NULL": '"null"',
    "UNLIKE": "a comparison", "TILDE": "a comparison", "EQUAL": "a comparison", "UNEQUAL": "a comparison",
    "AT_MOST": "a comparison", "AT_LEAST": "a comparison", "LESS": "a comparison", "MORE": "a comparison",
    "STRING": "a text in quotes", "NUMBER": "a number", "NAME": "a name", "LPAR": '"("', "RPAR": '")"', "COMMA": '","',
    "$END": "the end",
}  # fmt: skip
"Words for tokens in messages."
_DIGITS: Final = 40
"Characters of the longest number; all that are in range are shorter."


def parse(text: str, *, table: bool = False) -> Node:
    """Parse a filter.

    Args:
        text: the filter.
        table: it is for the table of frames, which has more columns than a frame record.

    Raises:
        FilterError: the text is no filter.
        MissingExtra: lark is not installed.
    """
    parser = _parser()
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    if len(text) > MOST_CHARACTERS:
        raise FilterError(f"a filter has at most {MOST_CHARACTERS:,} characters", "")
    try:
        tree = parser.parse(text)
        return cast("Node", _Builder(text, table).build(tree))
    except UnexpectedToken as error:
        raise _unexpected(error.token, error.accepts, text) from None
    except UnexpectedCharacters as error:
        reason = f"unexpected character {error.char!a}"
        if error.char in "\"'":
            reason = "the text in quotes is not closed"
        elif error.char in "0123456789-":
            reason = "not a whole number: write 12, -1 or 0x0c"
        raise FilterError(reason, text, error.line, error.column) from None


@cache
def _parser() -> Lark:
    """Return the parser. Making it takes milliseconds."""
    try:
        from lark import Lark
    except ImportError:
        raise MissingExtra("a filter", "capture") from None
    return Lark(GRAMMAR, parser="lalr", lexer="basic", maybe_placeholders=False)


def _unexpected(token: Token, accepted: Iterable[str], text: str) -> FilterError:
    line, column = token.line or 1, token.column or 1
    if token.type == "$END":
        last = text.rstrip()
        line, column = last.count("\n") + 1, len(last) - last.rfind("\n")
    expected = sorted({_WORDS[name] for name in accepted})
    listed = one_of(expected)
    seen = "the filter ends here" if token.type == "$END" else f"unexpected {_quoted(token)}"
    return FilterError(f"{seen}, expected {listed}", text, line, column)


def _quoted(token: str) -> str:
    """Return a part of the text in quotes, short."""
    if token[:1] in "\"'" and len(token) > 1:
        token = token[1:-1]
    return f'"{token if len(token) <= 40 else token[:40] + "…"}"'


def moment(text: str) -> str:
    """Return a time as records show it, in UTC with microseconds; a time without a zone is in UTC.

    Raises:
        ValueError: the text is not a time.
    """
    return written(datetime.fromisoformat(text))


def written(time: datetime) -> str:
    """Return a time as records show it; one without a zone is in UTC."""
    try:
        utc = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError:
        raise ValueError("out of range") from None
    return f"{utc.year:04}-{utc:%m-%dT%H:%M:%S.%f}Z"


class _Builder:
    """Build the nodes: a method for each rule of the grammar, called with the rule's parts."""

    def __init__(self, text: str, table: bool) -> None:
        self._text = text
        self._columns = columns(table)

    def build(self, tree: Any) -> Any:
        """Return the node of a parse tree."""
        order, waiting = [], [tree]
        while waiting:
            order.append(waiting.pop())
            waiting += [child for child in order[-1].children if hasattr(child, "children")]
        made: dict[int, Any] = {}
        for one in reversed(order):
            parts = [made.get(id(child), child) for child in one.children]
            made[id(one)] = getattr(self, one.data)(parts)
        return made[id(tree)]

    def start(self, parts: list[Any]) -> Node:
        return cast("Node", parts[0])

    def any_of(self, parts: list[Any]) -> Node:
        return self._bounded(Or(tuple(parts[::2])), parts[1]) if len(parts) > 1 else parts[0]

    def all_of(self, parts: list[Any]) -> Node:
        return self._bounded(And(tuple(parts[::2])), parts[1]) if len(parts) > 1 else parts[0]

    def negated(self, parts: list[Any]) -> Node:
        return self._bounded(Not(parts[1]), parts[0])

    def operator(self, parts: list[Any]) -> Token:
        return cast("Token", parts[0])

    value = operator

    def bare(self, parts: list[Any]) -> Node:
        column = self._column(parts[0])
        if column.type is not Type.ERROR:
            raise self._wrong(f"{column.name} alone is no test: write {_usage(column)}", parts[0])
        return Not(IsNull(column))

    def compare(self, parts: list[Any]) -> Node:
        name, operator, given = parts
        column = self._column(name)
        if column.type not in (Type.NUMBER, Type.TEXT, Type.TIME):
            raise self._wrong(f"{column.name} is {column.type.value}: write {_usage(column)}", operator)
        equality = operator.type in ("EQUAL", "UNEQUAL")
        if column.type is Type.TEXT and not equality:
            raise self._wrong(f"{column.name} is text, which has no order: write {_usage(column)}", operator)
        value = self._value(column, given)
        found = Compare(column, "==" if equality else cast("Operator", str(operator)), value)
        return Not(found) if operator.type == "UNEQUAL" else found

    def match(self, parts: list[Any]) -> Node:
        name, operator, given = parts
        column = self._column(name)
        if column.type is not Type.TEXT:
            raise self._wrong(f"{column.name} is {column.type.value}: write {_usage(column)}", operator)
        if given.type != "STRING":
            raise self._wrong('expected a pattern in quotes, such as "prices.*"', given)
        pattern = str(given)[1:-1]
        try:
            patterns.check(pattern)
        except patterns.PatternError as error:
            raise self._wrong(f"in the pattern: {error}", given, 1 + error.at) from None
        found = Match(column, pattern)
        return Not(found) if operator.type == "UNLIKE" else found

    def within(self, parts: list[Any]) -> Node:
        name, operator, *given = parts
        column = self._column(name)
        if column.type not in (Type.NUMBER, Type.TEXT, Type.TIME):
            raise self._wrong(f"{column.name} is {column.type.value}: write {_usage(column)}", operator)
        return Within(column, tuple(self._value(column, one) for one in given))

    def not_within(self, parts: list[Any]) -> Node:
        return Not(self.within([parts[0], *parts[2:]]))

    def null(self, parts: list[Any]) -> Node:
        return IsNull(self._column(parts[0]))

    def not_null(self, parts: list[Any]) -> Node:
        return Not(IsNull(self._column(parts[0])))

    def has(self, parts: list[Any]) -> Node:
        name, operator, *given = parts
        column = self._column(name)
        if column.type is not Type.FLAGS:
            raise self._wrong(f"{column.name} is {column.type.value}: write {_usage(column)}", operator)
        nodes = tuple(Has(column, self._flag(one)) for one in given)
        return nodes[0] if len(nodes) == 1 else And(nodes)

    # -- names and values ---------------------------------------------------------------------------------------

    def _column(self, token: Token) -> Column:
        name = str(token)
        found = self._columns.get(name)
        if found is not None:
            return found
        if name in ("file", "packet"):
            raise self._wrong(f"{name} is a column of the table of frames; a frame record does not have it", token)
        short = {one.removeprefix("fields."): one for one in self._columns}
        known = [*self._columns, *short] if "." not in name else list(self._columns)
        close = get_close_matches(name.lower(), known, n=1)
        near = short.get(close[0], close[0]) if close else None
        hint = f'did you mean "{near}"?' if near else f"known: {', '.join(_main(self._columns))} and fields.NAME"
        raise self._wrong(f"unknown name {_quoted(name)}; {hint}", token)

    def _value(self, column: Column, token: Token) -> int | str:
        """Return the value to compare a column with."""
        if column.type is Type.NUMBER:
            if token.type != "NUMBER":
                raise self._wrong(f"{column.name} is a number, not {_quoted(token)}", token)
            return self._number(token)
        if column.type is Type.TIME:
            try:
                if token.type != "STRING":
                    raise ValueError
                return moment(str(token)[1:-1])
            except ValueError:
                hint = 'expected a time such as "2026-11-21T02:37:44Z", in quotes'
                raise self._wrong(f"{column.name} is a time; {hint}", token) from None
        if token.type == "NUMBER":
            raise self._wrong(f'{column.name} is text: write "{token}", in quotes', token)
        text = str(token)[1:-1] if token.type == "STRING" else self._word(column, token)
        if column.name == "dir" and text not in (">", "<"):
            raise self._wrong('dir is ">" for what the client sends, or "<" for what the server sends', token)
        return text

    def _number(self, token: Token) -> int:
        text = str(token).replace("_", "").lower()
        sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text)
        value = sign * int(digits, 16 if digits.startswith("0x") else 10) if len(text) <= _DIGITS else LARGEST + 1
        if not -LARGEST <= value <= LARGEST:
            raise self._wrong("the number has more than 63 bits", token)
        return value

    def _word(self, column: Column, token: Token) -> str:
        """Return a text without quotes: one of the words that the column knows."""
        known = words(column.name)
        if known is None:
            raise self._wrong(f'{column.name} is text: write "{token}", in quotes', token)
        if str(token) not in known:
            raise self._wrong(f"unknown {column.name} {_quoted(token)}; {_near(str(token), known)}", token)
        return str(token)

    def _flag(self, token: Token) -> str:
        letter = str(token)[1:-1] if token.type == "STRING" else str(token)
        if letter not in flags():
            raise self._wrong(f"unknown flag {_quoted(letter)}; known: {', '.join(sorted(flags()))}", token)
        return letter

    def _bounded(self, node: Node, token: Token) -> Node:
        if depth(node) > MOST_DEPTH:
            raise self._wrong(f"nested more than {MOST_DEPTH} deep", token)
        return node

    def _wrong(self, reason: str, token: Token, further: int = 0) -> FilterError:
        reason = "".join(char if char.isprintable() else " " for char in reason)
        return FilterError(reason, self._text, token.line or 1, (token.column or 1) + further)


def _main(known: Iterable[str]) -> Sequence[str]:
    return [name for name in known if "." not in name]


def _near(name: str, known: Iterable[str]) -> str:
    folded = {re.sub(r"[_-]", "", one).lower(): one for one in sorted(known)}
    close = get_close_matches(re.sub(r"[_-]", "", name).lower(), folded, n=1)
    return f"did you mean {folded[close[0]]}?" if close else f"known: {', '.join(sorted(known))}"


def _usage(column: Column) -> str:
    """Return a test that fits a column."""
    name = column.name
    return {
        Type.NUMBER: f"{name} == 4",
        Type.TEXT: f'{name} == "…", {name} ~ "…" or {name} in ("…", "…")',
        Type.TIME: f'{name} >= "2026-11-21T02:37:44Z"',
        Type.FLAGS: f"{name} has M",
        Type.LIST: f"{name} is null",
        Type.ERROR: "error, not error, or error.rule",
    }[column.type]
