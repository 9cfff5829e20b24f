"""Read streams as Spark tables: ``format("afflux")``, found by Spark without registration (``pyspark_afflux``).

``import afflux.spark`` needs neither pyspark nor pyarrow. ``options`` declares the options, ``offsets`` the content of
Spark's checkpoint, ``reading`` reads the cursor, and ``arrow`` makes batches. ``decoding`` chooses what decodes data
into columns: ``rows`` (with ``columns``, ``values`` and ``times``) or ``ipc``. ``source`` implements pyspark's
interfaces, and ``session`` finds Java.
"""

from __future__ import annotations

__all__: list[str] = []
