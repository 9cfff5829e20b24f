"""Arrow arrays that are made from buffers: the same as pyarrow makes of the values, without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afflux.capture.arrays import column, numbers, taken, texts
from tests.capture.tabling import SETUP, asks, item
from tests.capture.writing import Talk, pcap

WORDS = ["one", None, "", "zwölf", "…"]
DECODING = """
import sys
from afflux.capture.output import write_tables
print(write_tables(sys.argv[1:2], sys.argv[2])["frames"], "pandas" in sys.modules)
"""


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (WORDS, pa.string()),
        (["all", "present"], pa.string()),
        ([True, None, False] * 7, pa.bool_()),
        ([1, None, -(1 << 63), (1 << 63) - 1], pa.int64()),
        ([1_700_000_000_000_000, None], pa.timestamp("us", tz="UTC")),
    ],
)
def test_a_column_is_what_pyarrow_makes_of_the_values(values: list[Any], kind: Any) -> None:
    for some in (values, values[:1], values[1:], []):
        made = column(some, kind)
        made.validate(full=True)
        assert made.equals(pa.array(some, kind)) and made.null_count == some.count(None)


def test_numbers_are_null_where_they_are_not_present() -> None:
    values = np.arange(20) - 3
    assert numbers(values[::2], values[::2] >= 0).to_pylist() == [None, None, *range(1, 17, 2)]
    assert numbers(values / 2, None, pa.float64()).to_pylist() == (values / 2).tolist()


def test_elements_are_taken_by_number() -> None:
    made = taken(texts(WORDS), np.array([4, -1, 1, 0, 4], np.int32))
    assert made.to_pylist() == ["…", None, None, "one", "…"]


@pytest.mark.parametrize("rest", [b"", bytes(10)], ids=["whole", "cut off, so that it has a violation"])
def test_captures_become_tables_without_pandas(tmp_path: Path, rest: bytes) -> None:
    file = tmp_path / "one.pcap"
    file.write_bytes(pcap(Talk().whole(SETUP + asks(1), item(1))) + rest)
    command = [sys.executable, "-c", DECODING, str(file), str(tmp_path / "tables")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "3 False\n"
