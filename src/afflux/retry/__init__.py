"""Decide when to try again: backoff between attempts, and how often an address may fail."""
