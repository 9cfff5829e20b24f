"""Tests of afflux.spark: its parts, then Spark itself against a server process."""
