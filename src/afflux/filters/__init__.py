"""Select frames by a filter, such as ``type == REQUEST_N and n < 4``. See docs/reference/filters.md.

``Filter.of`` reads the text (grammar.py, columns.py, patterns.py). The same filter is a predicate over frame records
(records.py) and over Arrow tables (arrow.py), and a Spark column (spark.py); ``pushed`` translates what Spark pushes
down to a data source. A missing value makes a comparison neither true nor false in all of them, as in SQL.
"""

from __future__ import annotations

from afflux.filters.errors import FilterError
from afflux.filters.filter import Filter
from afflux.filters.pushing import pushed
from afflux.filters.routes import Routes

__all__ = ["Filter", "FilterError", "Routes", "pushed"]
