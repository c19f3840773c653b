"""The software of clients (KIP-511): check its name and version, and add up what connections of each have done.

Clients choose their names. Therefore the table is bounded, because each entry becomes series of the metrics.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Software that has totals of its own. The rest is counted as OTHER.
MAX_NAMED = 50
#: Names and versions are shortened to this many characters.
_MAX_CHARACTERS = 100

_PATTERN = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class Software(NamedTuple):
    """A name and a version as KIP-511 allows them. No client can state OTHER or UNKNOWN, which have no version."""

    name: str
    version: str


OTHER, UNKNOWN = Software("other", ""), Software("unknown", "")


def valid_software(name: str, version: str) -> Software | None:
    """Return the software, shortened if it is long, or None if KIP-511 forbids the name or the version."""
    if _PATTERN.fullmatch(name) is None or _PATTERN.fullmatch(version) is None:
        return None
    return Software(name[:_MAX_CHARACTERS], version[:_MAX_CHARACTERS])


class SoftwareTotals:
    """The number of open connections of one software, and what its connections have done since this entry was made."""

    __slots__ = ("connections", "received_bytes", "requests", "sent_bytes")

    def __init__(self) -> None:
        self.connections = 0
        self.requests = 0
        self.received_bytes = 0
        self.sent_bytes = 0

    def add(self, requests: int, received_bytes: int, sent_bytes: int) -> None:
        """Add what a connection has done since the previous call for this connection."""
        self.requests += requests
        self.received_bytes += received_bytes
        self.sent_bytes += sent_bytes


class SoftwareTable:
    """The totals by software, with at most MAX_NAMED entries besides OTHER and UNKNOWN."""

    def __init__(self) -> None:
        self._named: dict[Software, SoftwareTotals] = {}
        self._unknown = SoftwareTotals()
        self._other = SoftwareTotals()

    def of(self, software: Software) -> SoftwareTotals:
        """Return the totals to which a new connection of this software belongs until it ends.

        If the table is full, the software takes the entry without connections that has moved the fewest bytes, and that
        entry's totals go to OTHER. Without such an entry the software itself is counted as OTHER.
        """
        if software == UNKNOWN:
            return self._unknown
        found = self._named.get(software)
        if found is None:
            if len(self._named) >= MAX_NAMED and not self._drop_least():
                return self._other
            found = self._named[software] = SoftwareTotals()
        return found

    def _drop_least(self) -> bool:
        unused = [(name, totals) for name, totals in self._named.items() if not totals.connections]
        if not unused:
            return False
        name, totals = min(unused, key=lambda each: each[1].received_bytes + each[1].sent_bytes)
        self._other.add(totals.requests, totals.received_bytes, totals.sent_bytes)
        del self._named[name]
        return True

    def entries(self) -> dict[Software, SoftwareTotals]:
        """Return all totals, also OTHER and UNKNOWN."""
        return {**self._named, OTHER: self._other, UNKNOWN: self._unknown}
