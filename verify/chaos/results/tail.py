"""Histories read while they are written: what the run knows of its clients and brokers, a moment after they do.

Most of what is written is what readers were shown and what brokers did with each batch. Nothing of that is wanted here,
so that following a run costs little beside the run.
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

#: So that one that writes fast does not keep us from the others.
_MOST_BYTES: Final = 8 << 20
#: Of brokers, of each batch or request.
_OFTEN: Final = tuple(b'{"e":"%s",' % name for name in (b"append", b"hw", b"ack", b"processed"))
_PRODUCE: Final = b'{"e":"ok","f":"produce",'
_OK: Final = b'{"e":"ok","f":'

#: What is told of a line: (kind, name, event); kind is "client" or "broker".
Told: TypeAlias = tuple[str, str, Event]


@dataclass(slots=True)
class _File:
    path: Path
    kind: str = ""
    name: str = ""
    position: int = 0
    rest: bytes = b""


class HistoryTail:
    """All histories of a run's directory, each from where it was last read. Use it from one thread at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / DIRECTORY
        self._files: dict[str, _File] = {}

    def read(self) -> Iterator[Told]:
        """Of each whole line since the last call, without what brokers write of each batch and each request, and
        without what clients were answered to anything but a produce.

        A line that is none is passed over: the checker reads the files whole when all is over, and names it.
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
