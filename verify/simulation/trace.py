"""Record the events of a simulation as lines of text."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

from tidelog.history.events import Event
from verify.simulation.timeline import NS_PER_MS, Timeline


class Trace:
    """The trace of one simulation, and its timeline.

    digest     a checksum of the names and times of all events so far
    failures   the lines of the events named "failure"
    show       receives a line for each event
    """

    def __init__(self, show: Callable[[str], object] | None = None) -> None:
        self.timeline = Timeline()
        self.digest = 0
        self.failures: list[str] = []
        self._show = show

    def add(self, name: str, *about: Any) -> None:
        """Add an event with its details. The name counts for the digest, the details only for the line."""
        now_ns = self.timeline.now_ns
        self.digest = zlib.crc32(b"%d %s" % (now_ns, name.encode()), self.digest)
        if self._show is None and name != "failure":
            return
        line = f"{now_ns // NS_PER_MS / 1000:9.3f} {name:<14} {' '.join(map(str, about))}"
        if name == "failure":
            self.failures.append(line)
        if self._show is not None:
            self._show(line)

    def event(self, source: str, event: Event) -> None:
        """Add an event of the history of `source`, named by its class."""
        kind: Any = type(event)
        if self._show is None:
            self.add(kind.__name__)
        else:
            self.add(kind.__name__, source, *(getattr(event, name) for name in _fields(kind)))


@cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.name != "t")
