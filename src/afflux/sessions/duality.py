"""Compute duals: the peer's view of a session type. The types of values stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from afflux.sessions.types import Chain, Channel, Choose, End, File, Offer, Recv, Send, Step

__all__ = ["dual"]

Dual = TypeVar("Dual", File, Channel, Chain)


def dual(of: Dual) -> Dual:
    """Return the dual: what is received is sent, what is offered is chosen. dual(dual(T)) is T (Limit-Stream R-40).

    The channels of a file keep their names, so a branch that names a channel continues with the dual of that channel.
    """
    if isinstance(of, File):
        changed = (
            replace(each, chain=dual(each.chain)) if isinstance(each, Channel) else each for each in of.definitions
        )
        return replace(of, definitions=tuple(changed))
    if isinstance(of, Channel):
        return replace(of, chain=dual(of.chain))
    return Chain(tuple(_step(step) for step in of.steps))


def _step(step: Step) -> Step:
    match step:
        case Recv(kind, notes):
            return Send(kind, notes, place=step.place)
        case Send(kind, notes):
            return Recv(kind, notes, place=step.place)
        case End():
            return step
    other = Choose if isinstance(step, Offer) else Offer
    branches = tuple(dual(branch) if isinstance(branch, Chain) else branch for branch in step.branches)
    return other(branches, step.notes, place=step.place)
