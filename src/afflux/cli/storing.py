"""Declare the options of the commands that store streams in journals, and parse their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from afflux.cli.exits import usage
from afflux.cli.inputs import above_0, new_directory, size

if TYPE_CHECKING:
    from afflux.core.limits import Limits

__all__ = ["JOURNAL", "JournalBytes", "Keep", "storage_of"]

JOURNAL: Final = typer.Option(
    "--journal",
    metavar="DIR|nats://HOST/STREAM",
    help="Store streams in DIR, or in JetStream streams, and serve them by cursor.",
)
JournalBytes = Annotated[
    str | None,
    typer.Option(
        "--journal-bytes", metavar="SIZE", help="The most bytes of each journal, such as 50GB; then its stream waits."
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="TIME|SIZE",
        help="Trim journals: keep items for a time (24h), and at most a size (50GB). May be given once for each.",
    ),
]

_LEAST_JOURNAL: Final = 0x10_0000
"The least --journal-bytes: 1 MiB."


def storage_of(
    journal: str | None, journal_bytes: str | None, keep: Sequence[str], limits: Limits
) -> dict[str, Any] | None:
    """Build the other arguments of Journalled; None without a journal."""
    if journal is None:
        return None
    if not journal.startswith("nats://"):
        if "://" in journal:
            usage(f"--journal {journal}: a journal is a directory, or nats://HOST/STREAM")
        new_directory(journal, "--journal")
    else:
        _check_stream(journal)
    if journal_bytes is None and limits.journal_bytes < _LEAST_JOURNAL:
        usage(f"--limit journal_bytes={limits.journal_bytes} is too small: write at least {_LEAST_JOURNAL}")
    from afflux.journal import Retention

    times = [text for text in keep if re.fullmatch(r"[\d.]+(us|ms|s|m|h|d)", text)]
    sizes = [text for text in keep if text not in times]
    if bare := next((text for text in sizes if text.isdigit()), None):
        usage(f"--keep {bare} has no unit: write a time such as {bare}h, or a size such as {bare}GB")
    if len(times) > 1 or len(sizes) > 1:
        usage(f"--keep {' and '.join(times if len(times) > 1 else sizes)}: give one time and one size at most")
    most = None if journal_bytes is None else size(journal_bytes, "--journal-bytes")
    if most is not None and most < _LEAST_JOURNAL:
        usage(f"--journal-bytes {journal_bytes} is too small: write at least {_LEAST_JOURNAL}")
    wrong = next((text for text in sizes if not re.match(r"\d+[KMGTB]", text)), None)
    if wrong is not None:
        usage(f"invalid --keep {wrong!r}: write a time such as 24h, or a size such as 50GB")
    seconds, kept = above_0(times[0], "--keep") if times else None, size(sizes[0], "--keep") if sizes else None
    try:
        retention = Retention(seconds=seconds, size=kept) if keep else None
    except ValueError as error:
        usage(f"--keep: {error}")
    if kept is not None and most is not None and kept > most:
        usage(f"--keep {sizes[0]} contradicts --journal-bytes {journal_bytes}, which is less")
    if kept is not None and most is None:
        most = max(limits.journal_bytes, kept * 9 // 8)  # room to append before it is trimmed
    return {
        "directory": journal,
        "limits": limits if most is None else limits.replace(journal_bytes=most),
        "keep": retention,
    }


def _check_stream(journal: str) -> None:
    """Exit with a usage error for a wrong address of a stream."""
    from afflux.core.errors import AddressError
    from afflux.journal.address import StreamAddress

    try:
        StreamAddress.parse(journal)
    except AddressError as error:
        usage(f"--journal: {error.message}")
