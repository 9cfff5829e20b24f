"""The exports of packages that are imported on use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import afflux
import afflux.journal
import afflux.spark


@pytest.mark.parametrize("package", [afflux, afflux.journal, afflux.spark])
def test_a_package_has_all_its_exports_and_no_others(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined] # a module has it
    assert all(getattr(package, name) is not None for name in names)
    assert set(names) <= set(dir(package))
    with pytest.raises(AttributeError, match=r"has no attribute 'none'"):
        getattr(package, "none")  # noqa: B009 -- a type checker refuses the attribute


def test_a_spark_worker_imports_no_engine_and_no_asyncio() -> None:
    program = "import sys, afflux.spark, afflux.journal; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {"afflux.journal", "afflux.spark"} <= set(loaded)
    assert not {"asyncio", "afflux.protocols.rsocket.engine", "afflux.aio"} & set(loaded)
