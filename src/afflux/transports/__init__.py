"""Carry bytes between processes. The protocols are in :mod:`afflux.protocols`."""
