"""What a command that still runs has said last."""

from __future__ import annotations

import os
from typing import IO

#: In bytes; of a longer one the end is told.
_LONGEST = 500


def last_line(file: IO[bytes]) -> str:
    """The last one that says something, of what a command has written so far."""
    # The file's position is the command's, too: it is left alone.
    size = os.fstat(file.fileno()).st_size
    tail = os.pread(file.fileno(), _LONGEST, max(0, size - _LONGEST)).decode(errors="replace")
    lines = [line.strip() for line in tail.replace("\r", "\n").split("\n")]
    return next((line for line in reversed(lines) if line), "")
