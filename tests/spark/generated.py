"""Generated JSON for a schema of all types, with values that fit, nearly fit and do not fit; and a comparison."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa

LEAVES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL(6,2)": pa.decimal128(6, 2),
    "DECIMAL(38,18)": pa.decimal128(38, 18),
    "DECIMAL(9,0)": pa.decimal128(9, 0),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}


def split(text: str) -> list[str]:
    return text.split("|")


INTEGERS = split(
    "0|1|-1|127|-128|-129|256|32767|32768|-32769|2147483647|2147483648|16777217|9223372036854775807|"
    "9223372036854775808|-9223372036854775809|123456789012345678901234567890|-0|999999999|1000000000|"
    "99999999999999999999|9007199254740993"
)
SECONDS = split("0|-1|1356998400|9223372036854|-9223372036854")
NUMBERS = split(
    "0.5|1.0|-1.5|1.25|1.255|-1.245|9999.99|9999.994|9999.995|1e2|1E-3|1e39|-1e39|1e400|-1e400|1e-400|1e-50|"
    "0.1|3.4028235e38|3.4028236e38|1.00000017881393432617187499|1.000000178813934326171875|"
    "1.0000001788139343261718751|0.30000000000000004|2.2250738585072014e-308|4.9e-324|123456789.123456789|"
    "0.005|0.0049|1e10|99999999999999999999.999999999999999999|5e-19|99999999999999999999.9999999999999999995|"
    "NaN|Infinity|-Infinity"
)
WORDS = split(
    "| |x|NaN|Infinity|-Infinity|+INF|-INF|INF|nan|1|1.5|1,234.5|+1| 1|1e2|true|null|1_0|.5|5.|.|-|0x10|é|日本|"
    '😀|quo"te|back\\slash|tab\t\x1f'
)
BASE64 = split("|aGVsbG8=|aGVs bG8=|aGVs\nbG8=|aG==|aH==|aGVsbG8=aGVs|+/8=| aGVs |    ")
"Only what can be decoded: see test_parity.DIFFERENCES."
DATES = split(
    "2013-01-01|2013-1-1|2013-01|2013|2012-02-29|2013-02-29|2013-13-01|2013-00-10|2013-01-32| 2013-01-01 |"
    "2013-01-01T|2013-01-01Tx|2013-01-01 05:15:00|2013-01-01x|+2013-01-01|-0044-03-15|0000-01-01|0001-01-01|"
    "9999-12-31|10000-01-01|99-01-01|2013/01/01|01.02.2013|20130101|15706|2013-001-01|2013-01-01GMT|"
    "5881580-07-11|5881580-07-12|123|-5|1582-10-10|2013-01-|294247-01-10"
)
TIMES = split(
    "2013-01-01T05:15:00|2013-01-01 05:15:00|2013-01-01T05:15:00Z|2013-01-01T05:15:00.123Z|"
    "2013-07-01T05:15:00|2013-01-01T05:15:00.123456|2013-01-01T05:15:00.123456789Z|2013-01-01T05:15:00+01:00|"
    "2013-01-01T05:15:00-0500|2013-01-01T05:15:00 Europe/Paris|2013-01-01T05:15:00UTC+1|"
    "2013-01-01T05:15:00PST|2013-01-01T05:15:00EST|2013-03-10T02:30:00|2013-11-03T01:30:00|"
    "2050-07-01T12:00:00|1850-01-01T00:00:00|0001-01-01T00:00:00|9999-12-31T23:59:59.999999|2013-01-01T05:15|"
    "2013-01-01T05|2013-01-01T5:6:7|2013-01-01T24:00:00|2013-01-01T05:15Z|2013-01-01T05:15:60|"
    "2013-01-01T05:15:00.|2013-01-01t05:15:00|2013-01-01T05:15:00z|2013-01-01T05:15:00+18:00|"
    "2013-01-01T05:15:00+19:00|2013-01-01T05:15:00+1:30|2013-01-01T05:15:00 Foo/Bar|"
    "2013-01-01T05:15:00GMT+01:00|2500-07-01T00:00:00|120000-07-01T00:00:00|2013-01-01  05:15:00|2013-01-01TZ"
)


def texts(wanted: pa.DataType) -> list[str]:
    """Text that nearly fits a type."""
    if pa.types.is_date(wanted) or pa.types.is_timestamp(wanted):
        return DATES + TIMES
    return BASE64 if wanted == pa.binary() else WORDS


def quoted(random: Random, text: str) -> str:
    """A JSON string, some of whose characters are escaped."""
    body = json.dumps(text, ensure_ascii=random.random() < 0.5)
    if text and random.random() < 0.1:
        body = '"' + "".join(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else char for char in text) + '"'
    return body


def space(random: Random) -> str:
    return random.choice(("", "", "", "", " ", "\n", "\t \r\n"))


def value(random: Random, wanted: pa.DataType) -> str:
    """A JSON value: one that fits with a probability of about 3/4."""
    kind = random.random()
    if kind < 0.06:
        return stray(random, wanted)
    if kind < 0.08:
        return "null"
    if kind < 0.1:
        return random.choice(("[]", "{}", "true", '{"f0" : 1}', "[[1]]", "1.5", "[null, {}]"))
    if pa.types.is_list(wanted):
        return f"[{_many(random, lambda: value(random, wanted.value_type))}]"
    if pa.types.is_map(wanted):
        keys = random.sample(["a", "b", "é", "", "a b", "key"], random.randrange(4))
        pairs = [f"{quoted(random, key)}:{space(random)}{value(random, wanted.item_type)}" for key in keys]
        return "{" + ",".join(pairs) + "}"
    if pa.types.is_struct(wanted):
        return an_object(random, wanted, 0.7)
    return leaf(random, wanted)


def stray(random: Random, wanted: pa.DataType) -> str:
    """A value of any type, without those for which DIFFERENCES in test_parity.py has an entry."""
    if wanted in (pa.binary(), pa.string(), pa.timestamp("us", "UTC")):
        return random.choice(SECONDS)
    return leaf(random, random.choice(list(LEAVES.values())))


def _many(random: Random, one: Any) -> str:
    return ",".join(space(random) + one() + space(random) for _ in range(random.randrange(4)))


def leaf(random: Random, wanted: pa.DataType) -> str:
    if wanted == pa.bool_():
        return random.choice(("true", "false"))
    if pa.types.is_integer(wanted):
        some = str(random.randrange(-(1 << wanted.bit_width - 1), 1 << wanted.bit_width - 1))
        return some if random.random() < 0.5 else random.choice(INTEGERS)
    if pa.types.is_floating(wanted) or pa.types.is_decimal(wanted):
        if random.random() < 0.3:
            return f"{random.uniform(-9999, 9999):.{random.randrange(1, 12)}f}"
        if random.random() < 0.2:
            return quoted(random, random.choice(WORDS))
        return random.choice(NUMBERS + INTEGERS)
    if pa.types.is_timestamp(wanted) and random.random() < 0.1:
        return random.choice(SECONDS)
    if pa.types.is_date(wanted) or pa.types.is_timestamp(wanted):
        return quoted(random, random.choice(texts(wanted)))
    return quoted(random, random.choice(texts(wanted)))


def an_object(random: Random, fields: Any, share: float) -> str:
    """An object with a share of the fields, in any order, with repetitions and fields that the schema lacks."""
    pairs = [(field.name, field.type) for field in fields if random.random() < share]
    random.shuffle(pairs)
    twice = [(name, wanted) for name, wanted in pairs if wanted in (pa.bool_(), pa.int32(), pa.int64(), pa.float64())]
    if twice and random.random() < 0.3:
        pairs.append(random.choice(twice))
    if random.random() < 0.3:
        pairs.insert(random.randrange(len(pairs) + 1), ("other", random.choice(list(LEAVES.values()))))
    each = [f"{quoted(random, name)}{space(random)}:{space(random)}{value(random, wanted)}" for name, wanted in pairs]
    return "{" + space(random) + ",".join(each) + space(random) + "}"


def nested(random: Random, depth: int) -> pa.DataType:
    """A type of at most that depth."""
    kind = random.randrange(4) if depth else 3
    if kind == 0:
        return pa.list_(pa.field("element", nested(random, depth - 1)))
    if kind == 1:
        return pa.map_(pa.string(), nested(random, depth - 1))
    if kind == 2:
        return pa.struct([(f"f{place}", nested(random, depth - 1)) for place in range(random.randrange(1, 4))])
    return random.choice(list(LEAVES.values()))


def schema(random: Random, nestings: int) -> pa.Schema:
    """All leaves, arrays and maps of all, and random types of up to three levels."""
    fields = [(f"leaf{place}", wanted) for place, wanted in enumerate(LEAVES.values())]
    fields += [(f"list{place}", pa.list_(pa.field("element", wanted))) for place, wanted in enumerate(LEAVES.values())]
    fields += [(f"map{place}", pa.map_(pa.string(), wanted)) for place, wanted in enumerate(LEAVES.values())]
    fields += [(f"deep{place}", nested(random, 3)) for place in range(nestings)]
    return pa.schema([*fields, ("_corrupt_record", pa.string())])


def sql(wanted: pa.DataType) -> str:
    """The type in Spark's syntax."""
    if pa.types.is_list(wanted):
        return f"ARRAY<{sql(wanted.value_type)}>"
    if pa.types.is_map(wanted):
        return f"MAP<{sql(wanted.key_type)},{sql(wanted.item_type)}>"
    if pa.types.is_struct(wanted):
        return f"STRUCT<{','.join(f'{field.name}:{sql(field.type)}' for field in wanted)}>"
    return next(name for name, each in LEAVES.items() if each == wanted)


def ddl(columns: pa.Schema) -> str:
    return ", ".join(f"{field.name} {sql(field.type)}" for field in columns)


def plain(array: pa.Array) -> list[Any]:
    """The values, with dates and timestamps as numbers, because Python lacks years that Spark has."""
    return [_comparable(each) for each in array.cast(_numbers(array.type)).to_pylist()]


def _numbers(wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_list(wanted):
        return pa.list_(pa.field("element", _numbers(wanted.value_type)))
    if pa.types.is_map(wanted):
        return pa.map_(pa.string(), _numbers(wanted.item_type))
    if pa.types.is_struct(wanted):
        return pa.struct([(field.name, _numbers(field.type)) for field in wanted])
    if pa.types.is_timestamp(wanted):
        return pa.int64()
    return pa.int32() if pa.types.is_date(wanted) else wanted


def _comparable(each: Any) -> Any:
    if isinstance(each, list):
        return [_comparable(one) for one in each]
    if isinstance(each, tuple):
        return tuple(_comparable(one) for one in each)
    if isinstance(each, dict):
        return {name: _comparable(one) for name, one in each.items()}
    return "NaN" if isinstance(each, float) and each != each else each
