"""Writes what was acknowledged to the producer, in the file that `scripts/jobs/audit.py` joins with the topic.

The file has one JSON line for each record, in the order of the acknowledgements. The audit describes the format.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType

_BUFFER_BYTES = 1 << 18


def digest_of(value: bytes) -> str:
    """Return the digest by which journal and audit recognise a value: 32 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(value).hexdigest()[:32]


class Journal:
    """Writes the journal of one topic into a new file, from one thread at a time. `close` writes the buffered lines."""

    def __init__(self, path: Path, topic: str) -> None:
        self.path = path
        self._prefix = f'{{"topic": "{topic}", "partition": '
        self._file = path.open("w", buffering=_BUFFER_BYTES, encoding="ascii")

    def acknowledged(self, partition: int, offset: int, digest: str) -> None:
        self._file.write(f'{self._prefix}{partition}, "offset": {offset}, "digest": "{digest}", "acked": true}}\n')

    def unacknowledged(self, partition: int, digest: str) -> None:
        """Write a line for a record that was sent and failed; the topic may contain the record or not."""
        self._file.write(f'{self._prefix}{partition}, "offset": -1, "digest": "{digest}", "acked": false}}\n')

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
