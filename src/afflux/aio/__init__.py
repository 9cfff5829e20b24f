"""The asyncio driver: the engines over asyncio's transports. The public names are in :mod:`afflux`."""
