"""Sessions on disk: what lets a process die and its sessions go on. Nothing clever: see store.py and record.py."""

from __future__ import annotations

from afflux.resume.errors import StoreDamaged, StoreError, StoreLocked, StoreNoSpace

__all__ = ["StoreDamaged", "StoreError", "StoreLocked", "StoreNoSpace"]
