"""Writes a line of the terminal that changes."""

from __future__ import annotations

from typing import IO


class StatusLine:
    """A line of a terminal that is written again and again, at most `chars` characters long.

    shown   whether the stream is a terminal; other streams get nothing
    """

    def __init__(self, stream: IO[str], chars: int) -> None:
        self._stream = stream
        self._chars = chars
        self.shown = stream.isatty()

    def show(self, text: str) -> None:
        """Replace the line by `text`, cut to its length."""
        if self.shown:
            self._stream.write(f"\r{text[: self._chars]:<{self._chars}}")
            self._stream.flush()

    def clear(self) -> None:
        """Remove the line before other output."""
        if self.shown:
            self._stream.write(f"\r{'':{self._chars}}\r")
            self._stream.flush()
