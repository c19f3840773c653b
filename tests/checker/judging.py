"""Run the checker on events that are in no file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.history.broker_events import Broker
from tidelog.history.events import Event
from tidelog.history.operations import Client
from verify.checker.checker import Checker
from verify.checker.invariant import Ending
from verify.checker.verdict import Verdict

_CLIENT: Final = Client("client")
_NOTHING: Final = Ending()


def verdict_on(
    entries: Iterable[Event], *invariants: str, ending: Ending = _NOTHING, client: Client = _CLIENT
) -> Verdict:
    """Return the verdict of these invariants on one client's events."""
    checker = Checker()
    source = checker.begin(client)
    for event in entries:
        checker.take(source, event)
    return checker.conclude(ending).only(invariants)


def verdict_on_all(entries: Iterable[tuple[str, Event]], *invariants: str, ending: Ending = _NOTHING) -> Verdict:
    """Return the verdict on events of several sources, each with its source's name; a broker's name is its id."""
    checker = Checker()
    entries = list(entries)
    names = dict.fromkeys(name for name, _ in entries)
    sources = {name: checker.begin(Broker(name) if name.isdecimal() else Client(name)) for name in names}
    for name, event in entries:
        checker.take(sources[name], event)
    return checker.conclude(ending).only(invariants)
