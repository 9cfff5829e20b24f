"""Pipelines under faults: every row is counted. See ``python -m chaos --help`` and docs/chaos.md."""
