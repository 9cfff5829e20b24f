"""Select frames by a filter, such as ``type == REQUEST_N and n < 4``. See docs/filters.md.

``Filter.of`` reads the text (grammar.py, columns.py, patterns.py). The same filter is a predicate over frame records
(records.py) and over Arrow tables (arrow.py), and a Spark column (spark.py); ``pushed`` translates what Spark pushes
down to a data source. A missing value makes a comparison neither true nor false in all of them, as in SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from afflux.core.exports import exports_of

if TYPE_CHECKING:
    from afflux.filters.errors import FilterError
    from afflux.filters.filter import Filter
    from afflux.filters.pushing import pushed
    from afflux.filters.routes import Routes

__all__ = ["Filter", "FilterError", "Routes", "pushed"]

_MODULES = {
    "Filter": "afflux.filters.filter",
    "FilterError": "afflux.filters.errors",
    "Routes": "afflux.filters.routes",
    "pushed": "afflux.filters.pushing",
}
__getattr__, __dir__ = exports_of(__name__, _MODULES)
