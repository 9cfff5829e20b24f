"""Decide when to try again: backoff between attempts, and how often an address may fail."""

from __future__ import annotations

from afflux.retry.backoff import Backoff
from afflux.retry.failures import Failures
from afflux.retry.throttle import ResumeThrottle

__all__ = ["Backoff", "Failures", "ResumeThrottle"]
