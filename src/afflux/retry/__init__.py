"""Compute the backoff between attempts, and limit how often an address may fail."""
