"""Records that a test lets a foreign client send at a steady pace, until the test has seen enough."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from tests.clients.adapters.foreign_client import Record
from tests.processes.harness.waiting import wait_for

_MOST = 20_000
_PACE_S = 0.002


class RecordStream:
    """Yields the records that `numbered` returns for 0, 1, 2 … to one producer.

    sent   the number of records that the producer has taken
    """

    def __init__(self, numbered: Callable[[int], Record]) -> None:
        self.sent = 0
        self._numbered = numbered
        self._ended = threading.Event()

    def __iter__(self) -> Iterator[Record]:
        while not self._ended.wait(_PACE_S) and self.sent < _MOST:
            self.sent += 1
            yield self._numbered(self.sent - 1)

    def wait_for(self, more: int) -> None:
        """Wait until the producer has taken so many more records."""
        wanted = self.sent + more
        wait_for(f"{more} more records to be sent", lambda: self.sent >= wanted, 60)

    def end(self) -> None:
        self._ended.set()
