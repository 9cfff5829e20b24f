"""Tests of afflux.bench."""
