"""Shares the current input between the worker and the process that watches it, even after the worker was killed."""

from __future__ import annotations

import mmap
from pathlib import Path
from struct import Struct
from typing import Final

from tools.fuzz.corpus import MOST_BYTES

#: The number of inputs begun, and the length of the last one, whose bytes follow.
_HEAD: Final = Struct("<QI")


class CurrentInput:
    """A file that both processes map into memory; the first of them creates it.

    begun   how many inputs were begun at the construction, and by this object since
    cases   how many inputs were begun, by the file
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_HEAD.size + MOST_BYTES))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.begun = self.cases

    def begin(self, data: bytes) -> None:
        """Store the input that is tried now, of at most MOST_BYTES, and count it.

        Its bytes are written before the number, so that a higher number proves their presence.
        """
        self._memory[_HEAD.size : _HEAD.size + len(data)] = data
        self.begun += 1
        # `pack_into` would first clear the bytes, which the other process may read at that moment.
        self._memory[: _HEAD.size] = _HEAD.pack(self.begun, len(data))

    @property
    def cases(self) -> int:
        cases: int = _HEAD.unpack_from(self._memory)[0]
        return cases

    @property
    def data(self) -> bytes:
        """Return the bytes of the input that was begun last; b"" before the first."""
        length = _HEAD.unpack_from(self._memory)[1]
        return self._memory[_HEAD.size : _HEAD.size + length]
