"""The files of one segment on the disk, which are created, renamed and removed together.

<base offset>.log         the batches
<base offset>.index       positions by offset
<base offset>.timeindex   offsets by timestamp
<base offset>.txnindex    aborted transactions, if Kafka wrote the segment
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
    """The names of a segment's files. `Segment` opens and closes them.

    suffix   the second suffix of the names: "" in a log, for others see `storage.segments.segment_swap`
    """

    def __init__(self, directory: Path, base_offset: int, files: Files, suffix: str = "") -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.files = files
        self.suffix = suffix

    def open(self, kind: str) -> File:
        """Return the file of this kind, a suffix of `storage.file_names`; its first use creates it if it is missing."""
        return self.files.open(self._path(kind))

    def rename(self, suffix: str) -> None:
        """Give the `.log` and its indexes another second suffix; the `.txnindex` keeps its name.

        The `.log` goes last, so that its indexes are always beside it.
        """
        self._rename(suffix, (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX))

    def retire(self) -> None:
        """Remove the segment from its log by renaming its files to `.deleted`, the `.log` first.

        A later `delete` removes the files.
        """
        self._rename(DELETED_SUFFIX, (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX))

    def _rename(self, suffix: str, kinds: Sequence[str]) -> None:
        for kind in kinds:
            old = self._path(kind)
            # Only the `.log` is required.
            if kind == LOG_SUFFIX or self.files.exists(old):
                self.files.rename(old, self._path(kind, suffix))
        self.suffix = suffix

    def delete(self) -> None:
        """Remove the files; no error if some do not exist.

        The indexes go before the `.log`, because a crash may leave a `.log` without them: they can be rebuilt. The
        `.txnindex` goes last, because it cannot be rebuilt.
        """
        self._remove(TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX)

    def set_aside(self) -> str:
        """Rename the `.log` to a free `.stray` name, remove the other files of the segment, and return that name.

        The batches are kept, but are no longer part of the log.
        """
        stray = self._stray_path(self.base_offset)
        self.files.rename(self._path(LOG_SUFFIX), stray)
        self._remove(TIME_INDEX_SUFFIX, INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        return stray.name

    def set_tail_aside(self, log: File, position: int, end: int, offset: int) -> None:
        """Copy bytes `position` to `end` of `log` to a new `.stray` file, named by `offset`, and flush the copy.

        The copy is flushed because the original bytes may have been.
        """
        copy = self.files.open(self._stray_path(offset))
        try:
            for at in range(position, end, _COPIED_BYTES):
                copy.write(at - position, [log.read(at, min(_COPIED_BYTES, end - at))])
            copy.fsync()
        finally:
            copy.close()
        self.files.fsync_directory(self.directory)

    def remove_transactions(self) -> None:
        """Remove the `.txnindex`, which belonged to another segment of this name."""
        self._remove(TRANSACTION_INDEX_SUFFIX)

    def _remove(self, *kinds: str) -> None:
        for kind in kinds:
            self.files.remove(self._path(kind))

    def _path(self, kind: str, suffix: str | None = None) -> Path:
        return self.directory / (file_name(self.base_offset, kind) + (self.suffix if suffix is None else suffix))

    def _stray_path(self, offset: int) -> Path:
        return self.directory / stray_name(offset, self.files.names(self.directory))
