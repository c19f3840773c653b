"""`leader-epoch-checkpoint`: at which offset each leader epoch of the log begins (KIP-101, KIP-320)."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
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
    """The first offset that was, or would have been, appended in the epoch."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """Epochs with their start offsets; both strictly increase from entry to entry.

    An epoch that begins waits for the next `write`: a thousand partitions that change their leaders at once would
    otherwise keep the loop waiting for a thousand files. Everything else is written at once. Nothing is synced but by
    `sync`, which runs before the recovery point moves past an epoch: what is lost above it is in the batches.

    `on_begun` is told of each that waits. `write` and `sync` may run on any thread; after `close` nothing is written.
    """

    def __init__(self, directory: Path, files: Files, entries: list[EpochStart]) -> None:
        self._path = directory / FILE_NAME
        self._files = files
        self._entries = entries
        self._unsynced = False
        self.on_begun: Callable[[LeaderEpochs], object] = lambda epochs: None
        self._unwritten = False
        self._closed = False
        self._writing = threading.Lock()

    @classmethod
    def load(cls, directory: Path, files: Files) -> LeaderEpochs | None:
        """None where the file is missing or does not hold increasing entries: then the batches must tell."""
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
        return cls(directory, files, entries)

    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Begins an epoch; does nothing for one that has begun already.

        Entries that the new one contradicts (a later or equal start, a later epoch) are removed: an epoch in which
        nothing was appended leaves no trace.
        """
        if epoch < 0 or (
            self._entries and self._entries[-1].epoch == epoch and self._entries[-1].start_offset <= start_offset
        ):
            return False
        kept = [e for e in self._entries if e.epoch < epoch and e.start_offset < start_offset]
        self._take([*kept, EpochStart(epoch, start_offset)])
        self.on_begun(self)
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart | None:
        """(the greatest epoch ≤ `epoch`, where that epoch ends); None where the log cannot say.

        An epoch that is still open ends at the log end. For an epoch below all that are known the answer is
        (`epoch`, start of the first one): nothing of it is in this log.
        """
        if not self._entries or epoch < 0 or epoch > self._entries[-1].epoch:
            return None
        slot = bisect_right(self._entries, epoch, key=attrgetter("epoch"))
        if slot == len(self._entries):
            return EpochStart(self._entries[-1].epoch, log_end_offset)
        following = self._entries[slot].start_offset
        return EpochStart(self._entries[slot - 1].epoch if slot else epoch, following)

    def span_of(self, offset: int) -> tuple[int | None, int | None]:
        """(the epoch in which the offset was appended, where the next one begins); None for what is not known."""
        slot = bisect_right(self._entries, offset, key=attrgetter("start_offset"))
        following = self._entries[slot].start_offset if slot < len(self._entries) else None
        return (self._entries[slot - 1].epoch if slot else None), following

    def truncate_from_end(self, end_offset: int) -> None:
        """Forgets the epochs that begin at or after the new end."""
        kept = [e for e in self._entries if e.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._store(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forgets the epochs that ended before the new start; the one it lies in begins there now."""
        slot = bisect_right(self._entries, start_offset, key=attrgetter("start_offset"))
        if slot and self._entries[slot - 1].start_offset < start_offset:
            first = EpochStart(self._entries[slot - 1].epoch, start_offset)
            self._store([first, *self._entries[slot:]])
        elif slot > 1:
            self._store(self._entries[slot - 1 :])

    def extend_first(self, epoch: int, start_offset: int) -> None:
        """Where `epoch` is the first one known, it began there already."""
        if self._entries and self._entries[0].epoch == epoch and self._entries[0].start_offset > start_offset:
            self._store([EpochStart(epoch, start_offset), *self._entries[1:]])

    def rebuild(self, starts: Iterable[tuple[int, int]], borne_out: int | None = None) -> None:
        """Begins anew from the (epoch, base offset) of batches in their order.

        No CRC covers the epoch of a batch, so one that is above that of the next batch counts for nothing. Nor does the
        last one above `borne_out`, where that is given.
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
        if raised is not None and (borne_out is None or raised.epoch <= borne_out):
            entries.append(raised)
        self._store(entries)

    def clear(self) -> None:
        self._store([])

    def write(self) -> None:
        """Has the file say what is known, for whoever reads it after this process. StorageError."""
        with self._writing:
            if self._unwritten and not self._closed:
                self._unwritten = False  # first: what begins meanwhile is written next time
                try:
                    write_lines(self._files, self._path, self._entries, sync=False)
                except StorageError:
                    self._unwritten = True
                    raise

    def rewrite(self) -> None:
        """Write the same entries again, because a sync writes nothing that an earlier, failed sync dropped.

        StorageError.
        """
        self._store(self._entries)

    def sync(self) -> None:
        """Durably. StorageError."""
        if self._unsynced:
            self._unsynced = False
            try:
                self.write()
                self._files.open(self._path).sync()
            except StorageError:
                self._unsynced = True
                raise

    def close(self) -> None:
        """The directory may belong to another log from now on."""
        with self._writing:
            self._closed = True

    def _store(self, entries: list[EpochStart]) -> None:
        self._take(entries)
        self.write()

    def _take(self, entries: list[EpochStart]) -> None:
        self._entries = entries
        self._unwritten = self._unsynced = True
