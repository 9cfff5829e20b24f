"""The proof against other implementations: a short run of it, and its own parts."""
