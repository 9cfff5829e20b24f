"""Rebuild a source and its reader in a worker, or explain why that worker cannot.

Spark sends both to its executors. Where afflux is missing, unpickling its class would end in a bare
ModuleNotFoundError, so :func:`rebuild` travels as code instead of as a name, and imports nothing of afflux first.
"""

from __future__ import annotations

from typing import Any

__all__ = ["rebuild"]


def rebuild(kind: str, state: bytes) -> Any:
    """Return the object of class ``kind`` in ``afflux.spark.format``; ``state`` is its pickled arguments.

    Raises:
        ModuleNotFoundError: this worker's Python lacks afflux or a package that it needs.
    """
    import pickle
    import sys

    try:
        import numpy  # noqa: F401 -- only to report that it is missing
        import pyarrow  # noqa: F401

        from afflux.spark import format as formats
    except ModuleNotFoundError as error:
        import platform

        raise ModuleNotFoundError(
            f'{error}: format("afflux") also runs in the workers. Install it in the Python of every executor '
            f'(pip install "afflux[spark]"; here {platform.node()} runs {sys.executable}), point PYSPARK_PYTHON to a '
            "Python that has it, or ship an environment with spark.archives",
            name=error.name,
        ) from None
    return getattr(formats, kind)(*pickle.loads(state))
