"""A terminal's line that tells how things are."""

from __future__ import annotations

from typing import IO


class StatusLine:
    """Is written over and over. `shown`: whether there is a terminal; nothing is written where there is none."""

    def __init__(self, stream: IO[str], chars: int) -> None:
        self._stream = stream
        self._chars = chars
        self.shown = stream.isatty()

    def tell(self, text: str) -> None:
        """This, as far as there is room, instead of what stands there."""
        if self.shown:
            self._stream.write(f"\r{text[: self._chars]:<{self._chars}}")
            self._stream.flush()

    def clear(self) -> None:
        """Before something else is said."""
        if self.shown:
            self._stream.write(f"\r{'':{self._chars}}\r")
            self._stream.flush()
