"""What the process that tries inputs leaves where another can read it, also after it was killed."""

from __future__ import annotations

import mmap
from pathlib import Path
from struct import Struct
from typing import Final

from tools.fuzz.corpus import MOST_BYTES

#: How many inputs were begun, and the length of the last of them, whose bytes follow.
_HEAD: Final = Struct("<QI")


class Slate:
    """A file in the memory of both. `begun`: how many inputs this side has begun."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_HEAD.size + MOST_BYTES))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.begun = self.cases

    def begin(self, data: bytes) -> None:
        """An input is tried now. Its bytes first: a number that has risen says that they are there."""
        self._memory[_HEAD.size : _HEAD.size + len(data)] = data
        self.begun += 1
        # Not `pack_into`, which clears what a reader may look at just then.
        self._memory[: _HEAD.size] = _HEAD.pack(self.begun, len(data))

    @property
    def cases(self) -> int:
        cases: int = _HEAD.unpack_from(self._memory)[0]
        return cases

    @property
    def data(self) -> bytes:
        """The last input."""
        length = _HEAD.unpack_from(self._memory)[1]
        return self._memory[_HEAD.size : _HEAD.size + length]
