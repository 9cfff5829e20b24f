"""Import the exports of a package on their first use, because most programs need few of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["exports_of"]


def exports_of(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its name.
        modules: the module of each export; the package itself for an export that is a module of it.
    """
    content = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        found = import_module(f"{package}.{name}") if module == package else getattr(import_module(module), name)
        content[name] = found
        return found

    def names() -> list[str]:
        return sorted({*content, *content["__all__"]})

    return find, names
