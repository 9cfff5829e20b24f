"""Stand in for names that pyspark has since 4.2: without them, a batch has no limit of Spark's own."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows", "SupportsTriggerAvailableNow"]


class ReadLimit:
    """A limit of one batch."""


class ReadAllAvailable(ReadLimit):
    """No limit."""


@dataclass
class ReadMaxRows(ReadLimit):
    """The most rows of a batch."""

    max_rows: int


@dataclass
class ReadMaxBytes(ReadLimit):
    """The most bytes of a batch."""

    max_bytes: int


class SupportsTriggerAvailableNow:
    """Marks a reader that can ignore items written after its start."""
