"""Reactive Streams: the 43 rules, and what goes beyond them."""
