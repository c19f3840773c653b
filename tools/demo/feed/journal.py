"""What the producer was promised, on disk: the file that `scripts/jobs/audit.py` joins with the topic.

One JSON line for each record, in the order of the acknowledgements; the format is described in the audit.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType

_BUFFER_BYTES = 1 << 18


def digest_of(value: bytes) -> str:
    """How journal and audit know a value again."""
    return hashlib.sha256(value).hexdigest()[:32]


class Journal:
    """Appends to a new file; one thread at a time."""

    def __init__(self, path: Path, topic: str) -> None:
        self.path = path
        self._prefix = f'{{"topic": "{topic}", "partition": '
        self._file = path.open("w", buffering=_BUFFER_BYTES, encoding="ascii")

    def acknowledged(self, partition: int, offset: int, digest: str) -> None:
        self._file.write(f'{self._prefix}{partition}, "offset": {offset}, "digest": "{digest}", "acked": true}}\n')

    def unacknowledged(self, partition: int, digest: str) -> None:
        """Sent and given up: it may stand in the topic or not."""
        self._file.write(f'{self._prefix}{partition}, "offset": -1, "digest": "{digest}", "acked": false}}\n')

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
