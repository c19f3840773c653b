"""`leader-epoch-checkpoint`: the offset at which each leader epoch of the log begins (KIP-101, KIP-320)."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from storage.checkpoints import read_lines, whole_number, write_lines
from storage.files import Files
from tidelog.errors import StorageError
from tidelog.records.varint import INT32_MAX, INT64_MAX

FILE_NAME = "leader-epoch-checkpoint"


class EpochStart(NamedTuple):
    """A leader epoch and the first offset that was, or would have been, appended in it.

    The results of `end_offset_for` have the epoch's end in `start_offset`.
    """

    epoch: int
    start_offset: int


def epoch_span(entries: Sequence[EpochStart], offset: int) -> tuple[int | None, int | None]:
    """Return (the epoch of the offset, the offset at which the next epoch begins), as `LeaderEpochs.span_of` does.

    `entries` are those of a log, in ascending order.
    """
    slot = bisect_right(entries, offset, key=attrgetter("start_offset"))
    following = entries[slot].start_offset if slot < len(entries) else None
    return (entries[slot - 1].epoch if slot else None), following


class LeaderEpochs:
    """The leader epochs of a log with their start offsets; both strictly increase from entry to entry.

    A new epoch stays in memory until the next `write`. Otherwise a thousand partitions that change their leaders at
    once would block the loop for a thousand files. All other changes are written at once. Only `flush` flushes the
    file, before the recovery point moves past the start of an epoch. Epochs above the recovery point are restored from
    the batches.

    `on_epoch_begun` is called with this object when `assign` has begun an epoch, which is not written yet. Any thread
    may call `write` and `flush`. After `close` nothing is written.
    """

    def __init__(
        self,
        directory: Path,
        files: Files,
        entries: list[EpochStart],
        on_epoch_begun: Callable[[LeaderEpochs], object] = lambda epochs: None,
    ) -> None:
        self._directory = directory
        self._files = files
        self._entries = entries
        self._unflushed = False
        self._on_epoch_begun = on_epoch_begun
        self._unwritten = False
        self._closed = False
        self._writing = threading.Lock()

    @classmethod
    def load(
        cls, directory: Path, files: Files, on_epoch_begun: Callable[[LeaderEpochs], object] = lambda epochs: None
    ) -> LeaderEpochs | None:
        """Return the epochs of the file; None if the file is missing or damaged, or if its entries do not increase.

        Recovery then reads the epochs from the batches.
        """
        lines = read_lines(files, directory / FILE_NAME)
        if lines is None:
            return None
        try:
            entries = [EpochStart(whole_number(e, INT32_MAX), whole_number(start, INT64_MAX)) for e, start in lines]
        except ValueError:
            return None
        for before, after in pairwise(entries):
            if before.epoch >= after.epoch or before.start_offset >= after.start_offset:
                return None
        return cls(directory, files, entries, on_epoch_begun)

    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Begin an epoch at the offset, in memory only, and call `on_epoch_begun`.

        Return False, and change nothing, if `epoch` is negative, or is the latest one and began at or before the
        offset.

        Entries that contradict the new one (a start at or after it, a later epoch) are removed. An epoch without
        records therefore leaves no trace.
        """
        if epoch < 0 or (
            self._entries and self._entries[-1].epoch == epoch and self._entries[-1].start_offset <= start_offset
        ):
            return False
        kept = [e for e in self._entries if e.epoch < epoch and e.start_offset < start_offset]
        self._set_entries([*kept, EpochStart(epoch, start_offset)])
        self._on_epoch_begun(self)
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart | None:
        """Return (the greatest epoch ≤ `epoch`, the offset at which the next epoch begins).

        The latest epoch ends at the log end. If `epoch` precedes all known epochs, the answer is (`epoch`, the first
        start offset), because this log holds no record of it. None for an epoch that is negative or above the latest
        one, and if no epoch is known.
        """
        if not self._entries or epoch < 0 or epoch > self._entries[-1].epoch:
            return None
        slot = bisect_right(self._entries, epoch, key=attrgetter("epoch"))
        if slot == len(self._entries):
            return EpochStart(self._entries[-1].epoch, log_end_offset)
        following = self._entries[slot].start_offset
        return EpochStart(self._entries[slot - 1].epoch if slot else epoch, following)

    def span_of(self, offset: int) -> tuple[int | None, int | None]:
        """Return (the epoch of the offset, the offset at which the next epoch begins).

        The epoch is None before the first entry. The offset is None in the latest epoch.
        """
        return epoch_span(self._entries, offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after the new log end, and write the file if any was removed."""
        kept = [e for e in self._entries if e.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._store(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that ended at or before the new log start; write the file if an entry changes.

        The epoch that contains the log start now begins there.
        """
        slot = bisect_right(self._entries, start_offset, key=attrgetter("start_offset"))
        if slot and self._entries[slot - 1].start_offset < start_offset:
            first = EpochStart(self._entries[slot - 1].epoch, start_offset)
            self._store([first, *self._entries[slot:]])
        elif slot > 1:
            self._store(self._entries[slot - 1 :])

    def extend_first(self, epoch: int, start_offset: int) -> None:
        """Lower the start offset of the first epoch and write the file, if `epoch` is the first one."""
        if self._entries and self._entries[0].epoch == epoch and self._entries[0].start_offset > start_offset:
            self._store([EpochStart(epoch, start_offset), *self._entries[1:]])

    def rebuild(self, starts: Iterable[tuple[int, int]], max_epoch: int | None = None) -> None:
        """Replace all entries by those that follow from the batches' (epoch, base offset) in log order; write the file.

        No CRC covers the epoch of a batch. An epoch above that of the next batch is therefore ignored, and the last one
        is ignored if it is above `max_epoch`.
        """
        entries: list[EpochStart] = []
        raised: EpochStart | None = None
        for epoch, base_offset in starts:
            start_offset = base_offset
            if raised is not None:
                if epoch >= raised.epoch:
                    entries.append(raised)
                else:
                    start_offset = raised.start_offset
            above = epoch >= 0 and (not entries or epoch > entries[-1].epoch)
            raised = EpochStart(epoch, start_offset) if above else None
        if raised is not None and (max_epoch is None or raised.epoch <= max_epoch):
            entries.append(raised)
        self._store(entries)

    def clear(self) -> None:
        self._store([])

    def replace(self, entries: Iterable[EpochStart]) -> None:
        """Replace all entries by those of another log with the same records, and write the file. StorageError."""
        self._store(list(entries))

    def continue_in(self, directory: Path) -> None:
        """Use the file in this directory from now on, because the directory of the log gets this name."""
        with self._writing:
            self._directory = directory

    def write(self) -> None:
        """Write the entries to the file, without a flush, if they have changed since the last write. StorageError."""
        with self._writing:
            if self._unwritten and not self._closed:
                self._unwritten = False  # set first, because an epoch that begins meanwhile needs another write
                try:
                    lines = (f"{epoch} {start}" for epoch, start in self._entries)
                    write_lines(self._files, self._directory / FILE_NAME, lines, fsync=False)
                except StorageError:
                    self._unwritten = True
                    raise

    def rewrite(self) -> None:
        """Write the same entries again, because a flush writes nothing that an earlier, failed flush dropped.

        StorageError.
        """
        self._store(self._entries)

    def flush(self) -> None:
        """Write the entries and flush the file, if they have changed since the last flush. StorageError."""
        if self._unflushed:
            self._unflushed = False
            try:
                self.write()
                self._files.open(self._directory / FILE_NAME).fsync()
            except StorageError:
                self._unflushed = True
                raise

    def close(self) -> None:
        """Write nothing from now on, because the directory may belong to another log."""
        with self._writing:
            self._closed = True

    def _store(self, entries: list[EpochStart]) -> None:
        self._set_entries(entries)
        self.write()

    def _set_entries(self, entries: list[EpochStart]) -> None:
        self._entries = entries
        self._unwritten = self._unflushed = True
