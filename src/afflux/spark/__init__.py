"""Read streams as Spark tables: ``format("afflux")``, found by Spark without registration (``pyspark_afflux``).

``import afflux.spark`` needs neither pyspark nor pyarrow. ``options`` declares the options, ``offsets`` the content of
Spark's checkpoint, ``reading`` reads the cursor, ``arrow`` and ``jsonrows`` make columns, ``source`` implements
pyspark's interfaces, and ``session`` finds Java.
"""

from __future__ import annotations

__all__: list[str] = []
