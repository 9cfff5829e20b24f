"""Implement the RSocket family: one engine, composed of parts, for RSocket, ReactiveSocket and their relatives.

A member of the family is a ``Member`` (member.py): its layout, tables, frames, codes, rule numbers and quirks. The
parts that every member has: the handshake, liveness, the streams, the scheduler with the outbound queue, reassembly.
Resumption, leases and extensions are a part or None.
"""
