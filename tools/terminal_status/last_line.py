"""Reads the last line that a running command has written."""

from __future__ import annotations

import os
from typing import IO

#: The bytes that are read. Of a longer line the end is returned.
_LONGEST = 500


def last_line(file: IO[bytes]) -> str:
    """Return the last line that is not empty in a command's output so far, stripped; "" if there is none.

    Of a line longer than 500 bytes only the end is returned. The file's position does not change.
    """
    # The command shares the file's position, which must not change.
    size = os.fstat(file.fileno()).st_size
    tail = os.pread(file.fileno(), _LONGEST, max(0, size - _LONGEST)).decode(errors="replace")
    lines = [line.strip() for line in tail.replace("\r", "\n").split("\n")]
    return next((line for line in reversed(lines) if line), "")
