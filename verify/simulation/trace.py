"""What happened, one line for each event."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

from tidelog.history.events import Event
from verify.simulation.timeline import NS_PER_MS, Timeline


class Trace:
    """`digest` sums up when something happened and what, so far; `show` is given a line of each."""

    def __init__(self, show: Callable[[str], object] | None = None) -> None:
        self.timeline = Timeline()
        self.digest = 0
        self.failures: list[str] = []
        self._show = show

    def add(self, what: str, *about: Any) -> None:
        now_ns = self.timeline.now_ns
        self.digest = zlib.crc32(b"%d %s" % (now_ns, what.encode()), self.digest)
        if self._show is None and what != "failure":
            return
        line = f"{now_ns // NS_PER_MS / 1000:9.3f} {what:<14} {' '.join(map(str, about))}"
        if what == "failure":
            self.failures.append(line)
        if self._show is not None:
            self._show(line)

    def event(self, who: str, event: Event) -> None:
        """One line of a history."""
        kind: Any = type(event)
        if self._show is None:
            self.add(kind.__name__)
        else:
            self.add(kind.__name__, who, *(getattr(event, name) for name in _fields(kind)))


@cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.name != "t")
