"""Tests of afflux.capture."""
