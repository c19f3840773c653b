"""What the checker says of events that stand in no file."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.checker.checker import Checker
from tidelog.checker.events import Event
from tidelog.checker.invariant import Ending
from tidelog.checker.operations import Client
from tidelog.checker.verdict import Verdict


def verdict_on(told: Iterable[Event], *invariants: str) -> Verdict:
    """Of one client's events, by these invariants alone."""
    checker = Checker()
    client = checker.begin(Client("client"))
    for event in told:
        checker.take(client, event)
    return checker.conclude(Ending()).only(invariants)
