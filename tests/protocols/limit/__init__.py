"""Limit-Stream: frames, numbers, tables, conversations."""
