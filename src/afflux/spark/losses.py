"""Report missing items, as ``failOnDataLoss`` says."""

from __future__ import annotations

import logging

from afflux.core.errors import Error
from afflux.spark.options import Options

__all__ = ["ACCEPTED", "DataLost", "lose"]

ACCEPTED = "data loss accepted: "
"How the warning about skipped items begins."

_log = logging.getLogger("afflux.spark")


class DataLost(Error):
    """Items of the requested range are missing; ``rule`` is failOnDataLoss."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} (failOnDataLoss=false continues without them)", rule="failOnDataLoss")


def lose(options: Options, what: str) -> None:
    """Report data loss: raise DataLost, or log a warning if ``failOnDataLoss`` is false."""
    if options.fail_on_data_loss:
        raise DataLost(what)
    _log.warning("%s%s", ACCEPTED, what)
