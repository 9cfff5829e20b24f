"""Select frame records for ``--where`` (afflux.filters), with the routes of their streams if the filter needs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import typer

from afflux.cli.exits import USAGE
from afflux.cli.telling import tell
from afflux.core.dissect import PayloadForm, payload_text
from afflux.filters import Filter, FilterError, Routes

__all__ = ["Selection", "filter_of"]


def filter_of(text: str, *, option: str = "--where", table: bool = False) -> Filter:
    """Parse the filter of an option. Exits with a usage error that shows the place if it is none.

    Args:
        text: the filter.
        option: the option's name.
        table: see ``Filter.of``.
    """
    try:
        return Filter.of(text, table=table)
    except FilterError as error:
        tell(f"afflux: {option}:{error.message}")
        raise typer.Exit(USAGE) from None


class Selection:
    """The frames that a filter selects.

    Args:
        where: the filter; None selects all frames.
        payload: how metadata and data are shown.
    """

    def __init__(self, where: str | None, payload: PayloadForm) -> None:
        self._filter = None if where is None else filter_of(where)
        self._payload: PayloadForm = payload
        self._routes = Routes() if self._filter is not None and "route" in self._filter.columns else None
        self.form: PayloadForm = payload if self._routes is None or payload == "hex" else "bytes"
        "How the records that are selected from have metadata and data: a route needs them."

    def of(self, records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the selected records, with metadata and data as they are to be shown."""
        if self._filter is None:
            yield from records
            return
        selects, routes = self._filter.predicate(), self._routes
        for record in records:
            if routes is None:
                if selects(record):
                    yield record
            elif selects(record | {"route": routes.route(record)}):
                yield self._shown(record)

    def _shown(self, record: dict[str, Any]) -> dict[str, Any]:
        if self.form == self._payload:
            return record
        for name in ("metadata", "data"):
            octets = record.pop(name)
            if self._payload != "none":
                record[name] = None if octets is None else payload_text(octets, self._payload)
        return record
