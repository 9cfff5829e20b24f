"""Count the rows of a table: each row once, none lost, and the order kept in each stream."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

__all__ = ["Ledger", "count_read", "count_written"]


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a table has of the rows 0 to ``rows`` - 1."""

    rows: int
    lost: int
    doubled: int
    disordered: int
    "Files in which rows are not in the order of the stream."

    @property
    def exact(self) -> bool:
        """Whether each row is there once, in order."""
        return not (self.lost or self.doubled or self.disordered)


def count_read(table: Path, rows: int) -> Ledger:
    """Count a Parquet table of Spark: the files that ``_spark_metadata`` lists, as readers of Spark do."""
    return _count((_numbers(path) for path in _listed(table)), rows)


def count_written(directory: Path, rows: int) -> Ledger:
    """Count the visible batches of ``afflux serve --sink``."""
    files = sorted(directory.glob("query=*/batch=*/*.parquet"))
    return _count((_numbers(path) for path in files), rows)


def _count(files: Iterable[list[int]], rows: int) -> Ledger:
    seen: Counter[int] = Counter()
    disordered = 0
    for numbers in files:
        seen.update(numbers)
        disordered += numbers != sorted(numbers)
    lost = sum(1 for number in range(rows) if number not in seen)
    return Ledger(sum(seen.values()), lost, sum(count - 1 for count in seen.values()), disordered)


def _numbers(path: Path) -> list[int]:
    data = pq.read_table(path, columns=["data"], partitioning=None).column("data").to_pylist()
    return [int(value.rstrip(b".")) for value in data]


def _listed(table: Path) -> Iterator[Path]:
    """Read the log of the file sink; a compacted batch contains those before it."""
    logs = {
        int(found[1]): path
        for path in (table / "_spark_metadata").iterdir()
        if (found := re.fullmatch(r"(\d+)(\.compact)?", path.name))
    }
    compacted = max((number for number, path in logs.items() if path.suffix), default=-1)
    for number in sorted(number for number in logs if number >= compacted):
        for line in logs[number].read_text().splitlines()[1:]:
            entry = json.loads(line)
            if entry.get("action", "add") == "add":
                yield Path(unquote(urlsplit(entry["path"]).path))
