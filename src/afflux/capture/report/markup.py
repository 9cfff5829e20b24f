"""Build HTML in which every value is escaped unless it is markup of this package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from afflux.capture.report.words import clean

__all__ = ["NUMBER", "Markup", "fill", "join", "script_json", "table"]

NUMBER: Final = "num"
"The class of a column whose cells are aligned to the right."


class Markup(str):
    """HTML that is not escaped again."""

    __slots__ = ()


def markup(value: Any) -> Markup:
    """Return a value as HTML: a text is escaped, markup is not."""
    return value if isinstance(value, Markup) else Markup(escape(clean(value)))


def fill(template: str, **values: Any) -> Markup:
    """Return the template with its ``{names}`` replaced by values, escaped."""
    return Markup(template.format_map({name: markup(value) for name, value in values.items()}))


def join(parts: Iterable[Any], between: str = "") -> Markup:
    """Return the parts one after the other, escaped."""
    return Markup(between.join(markup(part) for part in parts))


def table(caption: str, columns: Sequence[str | tuple[str, str]], rows: Iterable[Sequence[Any]]) -> Markup:
    """Return a table. A column is its heading, or its heading and a class; the first cell of a row is its header."""
    named = [(column, "") if isinstance(column, str) else column for column in columns]
    heads = join(fill('<th scope="col" class="{kind}">{name}</th>', kind=kind, name=name) for name, kind in named)
    return fill(
        '<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table><caption>{caption}</caption>'
        "<thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody></table></div>\n",
        caption=caption,
        heads=heads,
        body=join(_row(row, [kind for _, kind in named]) for row in rows),
    )


def _row(cells: Sequence[Any], kinds: Sequence[str]) -> Markup:
    tags = ['th scope="row"', *["td"] * (len(cells) - 1)]
    made = (
        fill(f'<{tag} class="{{kind}}">{{cell}}</{tag[:2]}>', kind=kind, cell="–" if cell is None else cell)
        for tag, kind, cell in zip(tags, kinds, cells, strict=True)
    )
    return fill("<tr>{cells}</tr>\n", cells=join(made))


def script_json(value: Any) -> Markup:
    """Return JSON that cannot end a ``<script>`` element, nor begin a comment in one."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)
