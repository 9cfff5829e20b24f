"""Implement the RSocket family: one engine, composed of parts, for RSocket, ReactiveSocket and their relatives.

A member of the family is a ``Member`` (member.py): its layout, tables, frames, codes, rule numbers and quirks. Every
member has the same parts: handshake, liveness, streams, scheduler and outbound queue, reassembly. Resumption, leases
and extensions are optional parts: each is an object or None.
"""
