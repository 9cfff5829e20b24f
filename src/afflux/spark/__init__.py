"""Streams as Spark tables: ``format("afflux")``, found by Spark without registration (``pyspark_afflux``).

Nothing is imported here: ``import afflux.spark`` needs neither pyspark nor pyarrow. What a source may be told is in
``options``, what Spark writes into its checkpoint in ``offsets``, the cursor's side in ``reading``, the making of
columns in ``arrow`` and ``jsonrows``; only ``source`` knows pyspark's interfaces, only ``session`` knows Java.
"""

from __future__ import annotations

__all__: list[str] = []
