"""Store sessions on disk, so that they continue after a restart of their process."""

from __future__ import annotations

from afflux.resume.errors import StoreDamaged, StoreError, StoreLocked, StoreNoSpace

__all__ = ["StoreDamaged", "StoreError", "StoreLocked", "StoreNoSpace"]
