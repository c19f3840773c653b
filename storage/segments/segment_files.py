"""The files of one segment on the disk: they get their names, change them, and go, together.

<base offset>.log         the batches
<base offset>.index       positions by offset
<base offset>.timeindex   offsets by timestamp
<base offset>.txnindex    aborted transactions, where Kafka wrote the segment
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    stray_name,
)
from storage.files import File, Files

_COPIED_BYTES = 1 << 20


class SegmentFiles:
    """Names of files that others open and close.

    suffix   what follows the names: "" in a log, else see `storage.segments.segment_swap`
    """

    def __init__(self, directory: Path, base_offset: int, files: Files, suffix: str = "") -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.files = files
        self.suffix = suffix

    def open(self, kind: str) -> File:
        """`kind` is a suffix of `storage.file_names`; the file is made where it is missing."""
        return self.files.open(self._path(kind))

    def rename(self, suffix: str) -> None:
        """The files get another suffix, the `.log` last: where it is, its indexes are too."""
        self._rename(suffix, (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX))

    def retire(self) -> None:
        """Takes the segment out of its log, the `.log` first; `delete` removes the files."""
        self._rename(DELETED_SUFFIX, (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX))

    def _rename(self, suffix: str, kinds: Sequence[str]) -> None:
        for kind in kinds:
            old = self._path(kind)
            # Only the batches cannot be done without.
            if kind == LOG_SUFFIX or self.files.exists(old):
                self.files.rename(old, self._path(kind, suffix))
        self.suffix = suffix

    def delete(self) -> None:
        """What a crash leaves behind is a segment whose indexes are built again; what nobody builds goes last."""
        self._remove(TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX)

    def set_aside(self) -> str:
        """Takes the segment out of its log for good, and keeps its batches, under the name that is returned."""
        stray = self._stray_path(self.base_offset)
        self.files.rename(self._path(LOG_SUFFIX), stray)
        self._remove(TIME_INDEX_SUFFIX, INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        return stray.name

    def set_tail_aside(self, log: File, position: int, end: int, offset: int) -> None:
        """Copies what stands from `position` to `end`, which was the log from `offset` on.

        The copy is synced, as what it was copied from may have been.
        """
        copy = self.files.open(self._stray_path(offset))
        try:
            for at in range(position, end, _COPIED_BYTES):
                copy.write(at - position, [log.read(at, min(_COPIED_BYTES, end - at))])
            copy.sync()
        finally:
            copy.close()
        self.files.sync_directory(self.directory)

    def remove_transactions(self) -> None:
        """Removes the `.txnindex`: it was that of another segment of this name."""
        self._remove(TRANSACTION_INDEX_SUFFIX)

    def _remove(self, *kinds: str) -> None:
        for kind in kinds:
            self.files.remove(self._path(kind))

    def _path(self, kind: str, suffix: str | None = None) -> Path:
        return self.directory / (file_name(self.base_offset, kind) + (self.suffix if suffix is None else suffix))

    def _stray_path(self, offset: int) -> Path:
        return self.directory / stray_name(offset, self.files.names(self.directory))
