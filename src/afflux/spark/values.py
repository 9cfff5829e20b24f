"""Fit one decoded value to the type of a column, by the rules of Spark's ``from_json``.

1. A value that does not fit is a :class:`Misfit`. It nulls the nearest field of an object that contains it, so that
   one bad element nulls its whole array or map, but not the fields beside it.
2. A null fits every type. Fields without a column are ignored; of fields with the same name the last one that fits
   counts.
3. Results are what Arrow accepts for the type: days for dates, microseconds for timestamps.

This is the slow way, about 5 microseconds for a row of five fields: columns.py converts rows without misfits.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from afflux.core.errors import Invalid
from afflux.spark.times import MAX_SECONDS, Zone, date_of, local_timestamp_of, timestamp_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Fit", "Fits", "Misfit", "Number", "base64_of", "check_type", "decimal_of", "is_record", "single_of"]

Fit = Callable[[Any], Any]
"Returns the value as Arrow accepts it, or raises Misfit."

INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
"The bits of Spark's integer types, by Arrow's name."
_SPECIAL = {b"variant", b"geometry", b"geography"}
"Metadata of a field by which Spark marks a struct that is another type. A comment of a field is metadata, too."
_DECIMAL = re.compile(r"[+-]?(?=\d|\.\d)\d*(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
_MOST_SCALE = 646_456_993
"Digits after the point from which Java's BigInteger has no power of ten to round with."
_EXPONENT_DIGITS = 1_000
"Characters of an exponent, most of them leading zeros."
_INT32 = 1 << 31
_EXACT = Context(prec=80)
_BASE64 = re.compile(
    r"(?:[\x00- ]*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==))*[\x00- ]*",
)
_QUAD = re.compile(r"[A-Za-z0-9+/=]{4}")
_WORDS = {
    "NaN": float("nan"),
    **dict.fromkeys(("+INF", "+Infinity", "Infinity"), float("inf")),
    **dict.fromkeys(("-INF", "-Infinity"), float("-inf")),
}
"Text that a FLOAT or DOUBLE accepts."
_ESCAPES = {code: f"\\u{code:04X}" for code in range(0x20)} | str.maketrans(
    {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
)
"What Jackson escapes in text."
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIDPOINT, _BELOW_SINGLE = 1 << 28, (1 << 29) - 1


class Misfit(ValueError):
    """A value does not fit the type of its column."""


class Number(str):
    """The text of a JSON number that is not an integer."""

    __slots__ = ()


class Fits:
    """Fits rows to a schema, and remembers the first misfit of a row.

    Args:
        schema: the columns.
        zone: the zone of timestamps without one.

    An object is a dict, or a tuple of pairs, which may repeat a name. Arrays are lists.
    """

    def __init__(self, schema: pa.Schema, zone: Zone) -> None:
        self._zone = zone
        self.why: str | None = None
        "The first misfit since this was last set to None."
        self._row = self._fields(schema)

    def row(self, value: Any) -> dict[str, Any]:
        """Return the fields of an object that fit.

        Raises:
            Misfit: the value is not an object.
        """
        fitted: dict[str, Any] = self._row(value)
        return fitted

    def of(self, wanted: pa.DataType) -> Fit:
        """Return the function that fits a value, which is not None, to an Arrow type."""
        import pyarrow.types as t

        name = str(wanted)
        if name in INTEGERS:
            return _integer(INTEGERS[name])
        if t.is_decimal(wanted):
            return lambda value: decimal_of(value, wanted.precision, wanted.scale)
        if t.is_timestamp(wanted):
            return self._timestamp if wanted.tz else _local_timestamp
        if t.is_list(wanted):
            return _array(self.of(wanted.value_type))
        if t.is_struct(wanted):
            return self._fields(wanted)
        if t.is_map(wanted):
            return _map(self.of(wanted.key_type), self.of(wanted.item_type))
        return _LEAVES[name]

    def _fields(self, wanted: Any) -> Fit:
        fits = {field.name: self.of(field.type) for field in wanted}

        def fit(value: Any) -> dict[str, Any]:
            row: dict[str, Any] = {}
            for name, own in _pairs(value):
                accept = fits.get(name)
                if accept is None:
                    continue
                if own is None:
                    row[name] = None
                    continue
                try:
                    row[name] = accept(own)
                except Misfit as misfit:
                    self.why = self.why or f"field {name}: {misfit}"
            return row

        return fit

    def _timestamp(self, value: Any) -> int:
        if isinstance(value, str) and not isinstance(value, Number):
            found = timestamp_of(value, self._zone)
        elif type(value) is int and abs(value) <= MAX_SECONDS:
            found = value * 1_000_000
        elif isinstance(value, datetime):
            if value.tzinfo is None:
                found = timestamp_of(value.isoformat(), self._zone)
            else:
                since = value - _EPOCH
                found = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        else:
            found = None
        return int(_found(found, value, "a TIMESTAMP"))


def check_type(name: str, wanted: pa.DataType, *, text_keys: bool) -> None:
    """Check that values of a type can be decoded; ``text_keys`` permits maps only with STRING keys.

    Raises:
        Invalid: they cannot; the text suggests another type.
    """
    import pyarrow.types as t

    if t.is_list(wanted):
        return check_type(name, wanted.value_type, text_keys=text_keys)
    if t.is_map(wanted):
        if text_keys and not t.is_string(wanted.key_type):
            raise Invalid(f"column {name}: keys of a JSON object are text, so its MAP needs STRING keys", rule="schema")
        check_type(name, wanted.key_type, text_keys=text_keys)
        return check_type(name, wanted.item_type, text_keys=text_keys)
    if is_record(wanted):
        for field in wanted:
            check_type(f"{name}.{field.name}", field.type, text_keys=text_keys)
        return None
    if not (t.is_timestamp(wanted) or t.is_decimal(wanted) or str(wanted) in {*_LEAVES, *INTEGERS}):
        raise Invalid(f"column {name}: {wanted} is unsupported; read a STRING, and convert it in Spark", rule="schema")
    return None


def is_record(wanted: pa.DataType) -> bool:
    """Whether a type is a STRUCT of columns. VARIANT, GEOMETRY and GEOGRAPHY are structs in Arrow, too."""
    import pyarrow.types as t

    return t.is_struct(wanted) and not any(_SPECIAL & (field.metadata or {}).keys() for field in wanted)


def _pairs(value: Any) -> Any:
    if type(value) is tuple:
        return value
    if type(value) is dict:
        return value.items()
    raise _misfit(value, "an object")


def _misfit(value: Any, wanted: str) -> Misfit:
    shown = value if isinstance(value, Number) else repr(value)
    return Misfit(f"{shown[:40]}{'...' if len(shown) > 40 else ''} is not {wanted}")


def _found(found: Any, value: Any, wanted: str) -> Any:
    if found is None:
        raise _misfit(value, wanted)
    return found


def _array(fit: Fit) -> Fit:
    def fits(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _misfit(value, "an ARRAY")
        return [None if each is None else fit(each) for each in value]

    return fits


def _map(key: Fit, item: Fit) -> Fit:
    def fits(value: Any) -> list[tuple[Any, Any]]:
        return list({key(name): None if own is None else item(own) for name, own in _pairs(value)}.items())

    return fits


def _integer(bits: int) -> Fit:
    limit = 1 << bits - 1

    def fits(value: Any) -> int:
        if type(value) is not int or not -limit <= value < limit:
            raise _misfit(value, {8: "a TINYINT", 16: "a SMALLINT", 32: "an INT", 64: "a BIGINT"}[bits])
        return value

    return fits


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _misfit(value, "a BOOLEAN")
    return value


def _double(value: Any) -> float:
    kind = type(value)
    if kind is float:
        return float(value)
    if kind is Number:
        return float(value)
    if kind is int:
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if kind is str and value in _WORDS:
        return _WORDS[value]
    raise _misfit(value, "a number")


def _single(value: Any) -> float:
    return single_of(_double(value), value)


def single_of(double: float, exact: Any) -> float:
    """Return the nearest float of 32 bits; ``exact`` is the number as it was sent, for a double between two floats."""
    single = ctypes.c_float(double).value
    bits: int = struct.unpack("<q", struct.pack("<d", double))[0]
    if bits & _BELOW_SINGLE != _MIDPOINT or not isinstance(exact, (int, Number)):
        return single
    rest = Fraction(exact) - Fraction(double)
    if not rest:
        return single
    nudged: float = struct.unpack("<d", struct.pack("<q", bits + (1 if (rest > 0) == (double > 0) else -1)))[0]
    return ctypes.c_float(nudged).value


def decimal_of(value: Any, precision: int, scale: int) -> Decimal:
    """Return a number, or its text with commas as separators, rounded half up to the scale.

    Raises:
        Misfit: it is not a number, or has more digits than the precision.
    """
    kind = type(value)
    try:
        if kind is str:
            text = value.replace(",", "")
            number = Decimal(text) if _is_decimal(text) else None
        elif kind in (int, Decimal):
            number = Decimal(value)
        elif kind is Number:
            number = Decimal(value) if _is_decimal(value) else None
        else:
            number = Decimal(repr(value)) if kind is float else None
        if number is not None and number.is_finite() and (not number or number.adjusted() < precision):
            if number.adjusted() < -scale - 1:
                number = Decimal(0)
            number = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
            if number.adjusted() < precision - scale:
                return number
    except InvalidOperation:
        pass
    raise _misfit(value, f"a DECIMAL({precision},{scale})")


def _is_decimal(text: str) -> bool:
    """Return whether Java's BigDecimal accepts a text: its digits are those of any script in the first 65,536 code
    points, its exponent has 32 bits, and it can be rounded."""
    matched = _DECIMAL.fullmatch(text)
    if matched is None:
        return False
    if not text.isascii() and max(text) > "\uffff":
        return False
    fraction, exponent = matched.groups()
    if exponent is None:
        return True
    if len(exponent) > _EXPONENT_DIGITS:
        return False
    value = int(exponent)
    zero = not any(char.isdigit() and int(char) for char in re.split("[eE]", text)[0])
    most = _INT32 if zero else _MOST_SCALE  # a zero needs no rounding
    return -_INT32 <= value < _INT32 and -_INT32 <= len(fraction or "") - value < most


def _binary(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    return bytes(_found(base64_of(value) if type(value) is str else None, value, "BINARY (base64)"))


def base64_of(text: str) -> bytes | None:
    """Return the bytes of base64 with padding, whose groups of four may have spaces between them; None if malformed."""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
        # a2b_base64 accepts padding after a group of four that is complete
        return None if text.endswith("=") and len(text.rstrip("=")) % 4 == 0 else data
    except ValueError:
        if _BASE64.fullmatch(text) is None:
            return None
        return b"".join(map(base64.b64decode, _QUAD.findall(text)))


def _date(value: Any) -> int:
    if isinstance(value, date):
        return value.toordinal() - _EPOCH_DAY
    return int(_found(date_of(value) if type(value) is str else None, value, "a DATE"))


def _local_timestamp(value: Any) -> int:
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.isoformat()
    return int(_found(local_timestamp_of(value) if type(value) is str else None, value, "a TIMESTAMP_NTZ"))


def _text(value: Any) -> str:
    """Return text, and anything else as JSON without spaces; numbers are as they were sent."""
    if type(value) is str:
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    return _json(value).encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return f'"{value.translate(_ESCAPES)}"'
    if kind is tuple or kind is dict:
        return "{" + ",".join(f"{_json(str(name))}:{_json(own)}" for name, own in _pairs(value)) + "}"
    if kind is list:
        return "[" + ",".join(map(_json, value)) + "]"
    if kind is bool or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if kind is int or kind is Number:
        return str(value)
    if kind is float:
        return repr(value) if abs(value) < float("inf") else _NOT_FINITE[repr(value)]
    raise _misfit(value, "a STRING")


_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
"The text of Jackson's generator for numbers that JSON does not have."

_LEAVES: dict[str, Fit] = {
    "bool": _boolean,
    "float": _single,
    "double": _double,
    "string": _text,
    "binary": _binary,
    "date32[day]": _date,
}
"Arrow's names of types that need no parameters."
