"""Hostile peers: the cases of docs/hostile.md, each in the name of its test."""
