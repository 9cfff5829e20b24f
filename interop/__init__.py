"""Test afflux with other RSocket implementations, in both roles (``python -m interop``)."""
