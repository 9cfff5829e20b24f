"""Drive the engines with asyncio. :mod:`afflux` has the public names."""
