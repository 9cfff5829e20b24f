"""One package a wire protocol: frames, codes, state tables and a sans-IO engine. No sockets, no clock."""
