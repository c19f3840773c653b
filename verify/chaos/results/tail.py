"""Read histories while clients and brokers write them.

Most lines are about records that readers received and batches that brokers handled. The tail skips these lines, so that
following a run costs little.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from tidelog.history.events import Event
from tidelog.history.history_files import DIRECTORY, SUFFIX
from tidelog.history.json_lines import of_fields

#: The most bytes read from one file at once, so that a fast writer does not delay the other files.
_MOST_BYTES: Final = 8 << 20
#: The prefixes of broker events that occur for each batch or request.
_OFTEN: Final = tuple(b'{"e":"%s",' % name for name in (b"append", b"hw", b"ack", b"processed"))
_PRODUCE: Final = b'{"e":"ok","f":"produce",'
_OK: Final = b'{"e":"ok","f":'

#: One event of a history: (kind, name, event). The kind is "client" or "broker".
TailedEvent: TypeAlias = tuple[str, str, Event]


@dataclass(slots=True)
class _File:
    path: Path
    kind: str = ""
    name: str = ""
    position: int = 0
    rest: bytes = b""


class HistoryTail:
    """All histories of a run's directory, each read from its last position. Only one thread at a time may use it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / DIRECTORY
        self._files: dict[str, _File] = {}

    def read(self) -> Iterator[TailedEvent]:
        """Yield the events of each complete line since the last call, at most 8 MiB per history. Header lines are not
        yielded.

        Broker events of single batches or requests (append, hw, ack, processed) and successful client results other
        than those of produce requests are skipped. An invalid line is skipped as well, because the checker reads the
        complete files at the end and reports it.
        """
        for path in sorted(self._directory.glob(f"*{SUFFIX}")):
            file = self._files.setdefault(path.stem, _File(path))
            for line in _whole_lines(file):
                if line.startswith(_OFTEN) or (line.startswith(_OK) and not line.startswith(_PRODUCE)):
                    continue
                try:
                    fields = json.loads(line)
                    if "history" in fields:
                        file.kind, file.name = fields["kind"], fields["name"]
                        continue
                    yield file.kind, file.name, of_fields(fields)
                except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                    continue


def _whole_lines(file: _File) -> list[bytes]:
    try:
        with file.path.open("rb") as source:
            source.seek(file.position)
            data = source.read(_MOST_BYTES)
    except OSError:
        return []
    file.position += len(data)
    *lines, file.rest = (file.rest + data).split(b"\n")
    return lines
