"""Write a dissector for Wireshark in Lua, from the declarations of the frames. See docs/how-to/captures.md.

``script`` (generating.py) writes tables of the declared frames; runtime.lua has the code that reads them.
"""

from __future__ import annotations

from afflux.wireshark.generating import script

__all__ = ["script"]
