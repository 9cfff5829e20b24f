"""Read streams as Spark tables, and write tables as streams, with ``format("afflux")``. Spark finds it without
registration (``pyspark_afflux``). ``receive`` stores written rows in a server.

``import afflux.spark`` needs neither pyspark nor pyarrow. ``options`` declares the options, ``offsets`` the content of
Spark's checkpoint, ``reading`` reads the cursor, and ``arrow`` makes batches. ``decoding`` chooses what decodes data
into columns: ``rows`` (with ``columns``, ``values`` and ``times``) or ``ipc``. ``source`` implements pyspark's
interfaces, and ``session`` finds Java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from afflux.core.exports import exports_of

if TYPE_CHECKING:
    from afflux.spark.queries import NotATable, TableError, TableLocked
    from afflux.spark.receiving import Receiver, receive

__all__ = ["NotATable", "Receiver", "TableError", "TableLocked", "receive"]

__getattr__, __dir__ = exports_of(
    __name__,
    {
        "Receiver": "afflux.spark.receiving",
        "NotATable": "afflux.spark.queries",
        "TableError": "afflux.spark.queries",
        "TableLocked": "afflux.spark.queries",
        "receive": "afflux.spark.receiving",
    },
)
