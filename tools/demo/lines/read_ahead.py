"""Holds lines that were read and not yet sent, in a bounded store between a reading thread and the producer.

The store makes the kill meaningful for short inputs. While it is full, more input follows, and lines may be sent at
full speed. Once the input has ended, its content is all that is left to send around the kill.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from tools.demo.lines.line_splitter import Line

MAX_LINES = 20_000
MAX_BYTES = 8 << 20


class ReadAhead:
    """A store that fills itself from `lines` on a thread of its own, up to `max_lines` or `max_bytes`.

    `len` is the number of lines in the store.
    """

    def __init__(self, lines: Iterator[Line], *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> None:
        self._lines = lines
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._held: deque[Line] = deque()
        self._held_bytes = 0
        self._changed = threading.Condition()
        self._ended = False
        self._closed = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._fill, name="read-ahead", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def full(self) -> bool:
        """Return whether the store has reached a limit, so that the reader waits.

        Any amount of input may then follow.
        """
        return len(self._held) >= self._max_lines or self._held_bytes >= self._max_bytes

    @property
    def ended(self) -> bool:
        """Return whether no more line will be added: the input has ended or failed, or the store was closed."""
        return self._ended

    def take(self, count: int) -> list[Line]:
        """Remove and return up to `count` lines, the oldest first, without waiting.

        Raises the error with which `lines` has failed, once all earlier lines are taken.
        """
        with self._changed:
            if not self._held and self._error is not None:
                raise self._error
            taken = [self._held.popleft() for _ in range(min(count, len(self._held)))]
            self._held_bytes -= sum(len(line.value) for line in taken)
            self._changed.notify_all()
        return taken

    def wait_filled(self, timeout_s: float) -> bool:
        """Wait until the store is full or the input has ended, at most `timeout_s`; return whether that was so."""
        with self._changed:
            return self._changed.wait_for(lambda: self.full or self._ended, timeout_s)

    def stamps_ms(self) -> list[int | None]:
        """Return the times (ms) of the lines in the store, in order; None for a line without a time."""
        with self._changed:
            return [line.stamp_ms for line in self._held]

    def close(self) -> None:
        """Add no more lines; the call does not wait. A thread that waits inside its input ends with the process."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fill(self) -> None:
        try:
            for line in self._lines:
                with self._changed:
                    self._changed.wait_for(lambda: not self.full or self._closed)
                    if self._closed:
                        break
                    self._held.append(line)
                    self._held_bytes += len(line.value)
                    if self.full:
                        self._changed.notify_all()
        except Exception as error:
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()
