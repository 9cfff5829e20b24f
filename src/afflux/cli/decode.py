"""``afflux decode``: frames as JSON lines, from hexadecimal or from a dump. What a frame says is not known here."""
