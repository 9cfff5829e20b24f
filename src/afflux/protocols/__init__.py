"""Implement the wire protocols, one package each: frames, codes, state tables and a sans-IO engine, without a clock."""
