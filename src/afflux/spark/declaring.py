"""Declare and parse the options of ``format("afflux")``, for reading (options.py) and writing (sinkoptions.py).

A declaration is a field of a dataclass: it defines the spelling, the default, the check and the line of the reference
table in docs/spark.md. An unknown option is refused with the nearest name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from difflib import get_close_matches
from typing import Any

from afflux.core.errors import Invalid
from afflux.transports.address import parse

__all__ = [
    "OptionError",
    "boolean",
    "camel",
    "of_user",
    "one_of",
    "option",
    "parse_address",
    "parse_any_text",
    "parse_listen",
    "parse_remote",
    "parse_route",
    "parse_text",
    "parsed_values",
    "reference",
    "spellings",
    "unknown_option",
    "values_of",
    "whole_number",
]

_MAX_DIGITS = 19
_ROUTE_BYTES = 255
"The most bytes of a route, whose length is a byte in a request."
_SQL_READS = "in SQL, write OPTIONS and no columns: with columns, Spark passes no options"


class OptionError(Invalid, ValueError):
    """An option of the source is unknown, missing or has an invalid value."""


def option(parse: Callable[[str, str], Any], about: str, default: Any = MISSING, *, spelled: str | None = None) -> Any:
    """Declare an option as a field of a dataclass.

    Args:
        parse: returns the value of the option's name and text, or raises OptionError.
        about: the line of the reference table.
        default: the value without the option; without one, the option is required.
        spelled: the name as users write it, if it is not the field's name in camelCase.
    """
    metadata = {"parse": parse, "about": about, "spelled": spelled}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def parse_address(name: str, value: str) -> str:
    """Return an RSocket address that other processes can reach. Raises AddressError or OptionError."""
    parse(value).check_port()
    return parse_listen(name, value)


def parse_listen(name: str, value: str) -> str:
    """Return an RSocket address that others can reach, where a server may choose the port. Raises AddressError or
    OptionError."""
    if (address := parse(value, serving=True)).protocol != "rsocket" or address.transport == "mem":
        raise OptionError(f"option {name} must be an RSocket address that other processes can reach, not {value!r}")
    return value


def parse_remote(name: str, value: str) -> str:
    """Return an address of any protocol that other processes can reach. Raises AddressError or OptionError."""
    if parse(value).transport == "mem":
        raise OptionError(f"option {name} must be an RSocket address that other processes can reach, not {value!r}")
    return value


def parse_text(name: str, value: str) -> str:
    """Return a text that is not empty. Raises OptionError."""
    if not value.strip():
        raise OptionError(f"option {name} is empty")
    return value


def parse_any_text(name: str, value: str) -> str:
    """Return the text."""
    return value


def parse_route(name: str, value: str) -> str:
    """Return a route that fits in a request. Raises OptionError."""
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > _ROUTE_BYTES:
        raise OptionError(
            f"option {name} has {size:,} bytes of UTF-8; a route has at most {_ROUTE_BYTES} (RSocket R-56)"
        )
    return value


def boolean(name: str, value: str) -> bool:
    """Return a truth value. Raises OptionError."""
    if value.lower() not in ("true", "false"):
        raise OptionError(f"option {name} must be true or false, not {value!r}")
    return value.lower() == "true"


def whole_number(least: int, most: int) -> Callable[[str, str], int]:
    """Return a parser of whole numbers in this range. It raises OptionError."""

    def parse(name: str, value: str) -> int:
        digits = value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS
        if not digits or not least <= int(value) <= most:
            raise OptionError(f"option {name} must be a whole number from {least} to {most}, not {value!r}")
        return int(value)

    return parse


def one_of(*words: str) -> Callable[[str, str], str]:
    """Return a parser of these words, in any case. It raises OptionError."""

    def parse(name: str, value: str) -> str:
        if value.lower() not in words:
            raise OptionError(f"option {name} must be {', '.join(words[:-1])} or {words[-1]}, not {value!r}")
        return value.lower()

    return parse


def values_of(options: type[Any], given: Mapping[str, str], in_sql: str = _SQL_READS) -> dict[str, Any]:
    """Return the parsed values of the fields of ``options`` that are given. Raises as :meth:`Options.parse`.

    Args:
        options: the declarations.
        given: the options.
        in_sql: what the error says if there are none at all, as in SQL.
    """
    values = parsed_values(options, given)
    if "uri" not in values and values.get("streams"):
        values["uri"] = ""
    if "uri" not in values:
        hint = "" if of_user(given) else f"; {in_sql}"
        raise OptionError(f'option uri is missing: the server\'s address, such as "tcp://127.0.0.1:7000"{hint}')
    return values


def parsed_values(options: type[Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the parsed values of the fields of ``options`` that are given.

    Raises:
        OptionError: an option is unknown or has an invalid value.
    """
    known = {_spelling(each).lower(): each for each in fields(options)}
    values: dict[str, Any] = {}
    for name, text in of_user(given).items():
        declared = known.get(name.lower())
        if declared is None:
            raise OptionError(unknown_option(name, spellings(options)))
        values[declared.name] = declared.metadata["parse"](_spelling(declared), text)
    return values


def spellings(options: type[Any]) -> dict[str, str]:
    """Return the names of options as users write them, by the names in lower case."""
    return {_spelling(each).lower(): _spelling(each) for each in fields(options)}


def reference(options: type[Any]) -> str:
    """Return a table of options in docs/spark.md, as Markdown."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for each in fields(options):
        default = "" if each.default in (MISSING, None, "", ()) else f"`{_shown(each.default)}`"
        lines.append(f"| `{_spelling(each)}` | {default} | {each.metadata['about']} |")
    return "\n".join(lines)


def of_user(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options without those of Spark's catalog: it passes the properties of a table that was created in SQL,
    its owner and provider for example, and the user's options once more with a prefix."""
    if given.keys() == {"owner"}:  # all that it passes for a table without OPTIONS
        return {}
    if not any(name.lower() == "provider" for name in given):
        return given
    prefix = "option."
    return {name[len(prefix) :]: text for name, text in given.items() if name.lower().startswith(prefix)}


def _spelling(declared: Field[Any]) -> str:
    """Return the option's name as users write it, in camelCase as Kafka's options."""
    if declared.metadata["spelled"]:
        return str(declared.metadata["spelled"])
    return camel(declared.name)


def camel(name: str) -> str:
    """Return the name of an option as users write it."""
    first, *rest = name.split("_")
    return "".join([first, *(word.capitalize() for word in rest)])


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def unknown_option(name: str, known: dict[str, str]) -> str:
    """Return the text of the error for an unknown option, with the nearest of the ``known`` names."""
    if name.lower() == "path":
        return 'load() does not accept a path: pass the address as .option("uri", …)'
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {known[near[0]]}?" if near else f"known: {', '.join(sorted(known.values()))}"
    return f"unknown option {name}; {hint}"
