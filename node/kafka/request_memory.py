"""The memory that requests and responses of all connections of a listener take together, and who may read meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Reader(Protocol):
    """A connection, as far as its memory is concerned."""

    def memory_freed(self) -> None:
        """Ask again whether this connection may read."""
        ...


class RequestMemory:
    """Counts the bytes in flight, and pauses reading when there are too many.

    From half of the maximum on, no connection begins to read a further request; requests of which a part has arrived
    are read on. Beyond the maximum, one connection at a time may read the rest of its request. If no connection could,
    parts of requests would fill the memory for ever.

    held_bytes   requests that wait or hold back their connection, parts of requests, and responses that wait for an
                 earlier response or for a peer that does not read
    soon         calls a function in a later iteration of the event loop
    """

    def __init__(self, max_bytes: int, soon: Callable[[Callable[[], None]], object]) -> None:
        self.held_bytes = 0
        self._max_bytes = max_bytes
        self._soon = soon
        self._waiting: dict[Reader, None] = {}
        self._turn: Reader | None = None
        self._is_waking = False

    @property
    def is_scarce(self) -> bool:
        """Return whether connections have to wait before they read a further request."""
        return self.held_bytes * 2 >= self._max_bytes

    @property
    def waiting(self) -> int:
        """Return the number of connections that want to read and may not."""
        return len(self._waiting)

    def request_read(self, reader: Reader, is_in_frame: bool) -> bool:
        """Return whether this connection may read now. Beyond the maximum, it takes the turn to read if that is free.

        If the connection may not read, it is noted, and its `memory_freed` is called when it may ask again.

        is_in_frame   whether a part of a request has arrived
        """
        is_over = self.held_bytes >= self._max_bytes
        if not (is_over and is_in_frame):
            self.release(reader)
        has_turn = not is_over or self._turn in (None, reader)
        if self.is_scarce and not (is_in_frame and has_turn):
            self._waiting[reader] = None
            return False
        if is_over:
            self._turn = reader
        self._waiting.pop(reader, None)
        return True

    def add(self, size_bytes: int) -> None:
        """Count more bytes, or fewer if the number is negative. Readers that wait ask again when memory suffices."""
        was_scarce = self.is_scarce
        self.held_bytes += size_bytes
        if was_scarce and not self.is_scarce:
            self._wake()

    def forget(self, reader: Reader) -> None:
        """Drop a connection that is closed. Its bytes are counted off separately."""
        self._waiting.pop(reader, None)
        self.release(reader)

    def release(self, reader: Reader) -> None:
        """Let another connection read beyond the maximum, if this one was allowed to and does not want to any more."""
        if self._turn is reader:
            self._turn = None
            self._wake()

    def _wake(self) -> None:
        if self._waiting and not self._is_waking:
            self._is_waking = True
            self._soon(self._ask_again)

    def _ask_again(self) -> None:
        self._is_waking = False
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            reader.memory_freed()
