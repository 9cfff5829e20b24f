"""The asyncio driver against itself and against strange peers, over real sockets and in memory."""
