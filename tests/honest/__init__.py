"""Honest foreign habits: clients of other implementations, in raw bytes, against servers with default limits."""
