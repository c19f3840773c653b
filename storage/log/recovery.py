"""Opening a log: which segments it has, where it ends, and what a crash did to it.

In this order, each step relying on those before:
1. Swaps of cleaned segments are finished or undone. Leftovers go: drafts, files marked as deleted, indexes without a
   log.
2. Segments below the recovery point (all, after a clean shutdown) are believed: they were synced. Their indexes are
   compared with the log where a look-up will need them to be right, and written anew if they are not.
3. From the recovery point on nothing is believed: every batch is checked with its CRC. The log is cut before the first
   bad one, later segments are removed, and the indexes are written anew as the batches pass. What had been synced and
   is cut off all the same, because something before it is damaged or gone, no crash explains: it is set aside
   (`.stray`), never removed. Where a sync had failed, what is left is written once more: the kernel may count as
   written what it gave up, and a later sync would confirm what never reached the disk.
4. The epoch cache loses what begins past the end and gains the epochs of the batches that were checked; where the
   batches still contradict it, it is read from them.
5. Snapshots of the producers past the end go. What went, here or in a process that was killed before it could sync the
   directory, is gone for good now.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from storage.configs.parsers import INT64_MAX
from storage.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    STRAY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offsets_named,
)
from storage.files import Files
from storage.log.leader_epochs import LeaderEpochs
from storage.producers.producer_snapshots import ProducerSnapshots
from storage.producers.producer_state import ProducerState
from storage.segments import segment_swap
from storage.segments.offset_index import MAX_RELATIVE_OFFSET
from storage.segments.scan import scan_headers, scan_valid
from storage.segments.segment import Segment
from tidelog.errors import CorruptMessageError
from tidelog.records import BatchHeader

_LOG = logging.getLogger(__name__)
_LEFTOVERS = (".tmp", DELETED_SUFFIX)
#: Files that are worth nothing without their `.log`.
_BESIDE_LOG = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


@dataclass(slots=True)
class RecoveredLog:
    """What was found. `cut_bytes` and `removed_segments` tell what the crash cost; 0 where it cost nothing.

    set_aside   names of files with what was once synced and is in the log no more
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    last_batch: BatchHeader | None = None
    checked_bytes: int = 0
    cut_bytes: int = 0
    removed_segments: int = 0
    set_aside: list[str] = field(default_factory=list)
    seen_epochs: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What there is to go by, when the log in a directory is opened.

    recovery_point        all below it was synced
    clean                 the last process closed the log in order
    compacted             a segment may end before the next one begins, below the recovery point and below the offset
                          that the log is `cleaned_to`. Elsewhere a hole means that a file is missing, or that its end
                          never reached the disk: what a cleaner of ours has written ends where the next one begins
    rewrite               what is read beyond the recovery point may be in the page cache alone, and counted as written
                          there; so may producer snapshots and the leader-epoch file. All of them are written again
    on_loss               is called before any batch, or part of one, is taken away: the log may lack then what was
                          acknowledged
    opened                closes the segments, where it is closed itself
    """

    directory: Path
    files: Files
    recovery_point: int
    clean: bool
    compacted: bool
    cleaned_to: int
    rewrite: bool
    index_interval_bytes: int
    on_loss: Callable[[], None]
    opened: ExitStack

    def run(self) -> RecoveredLog:
        """The log, sound and ready for appends; an empty one where there is none. StorageError."""
        directory, files = self.directory, self.files
        found = files.names(directory)
        segment_swap.settle(directory, files)
        _remove_leftovers(directory, files)
        epochs = LeaderEpochs.load(directory, files)
        log = RecoveredLog([], epochs or LeaderEpochs(directory, files, []))
        known = log.epochs.entries()
        names = files.names(directory)
        names += self._open_segments(log, offsets_named(names, LOG_SUFFIX))
        if not log.segments:
            log.segments.append(self._segment(0))
        begin = log.segments[0].base_offset
        if known and known[0].start_offset < begin:
            _LOG.error(
                "%s began at %d and begins at %d now: segments are gone", directory, known[0].start_offset, begin
            )
        _settle_epochs(log, known=epochs is not None, synced_to=self.recovery_point)
        for segment in log.segments[:-1]:
            segment.seal()
            segment.close()
        snapshots = ProducerSnapshots(directory, files)
        snapshots.remove_past(log.segments[-1].next_offset)
        if self.rewrite:
            snapshots.rewrite()
            log.epochs.rewrite()
        left = files.names(directory)
        if not set(found).issubset(left) or (found and not self.clean):
            # What went must not come back, after one more crash, beside what is appended now or in a log closed in
            # order; nor what a process took away that was killed before it could sync that.
            files.sync_directory(directory)
        log.set_aside = [name for name in left if name.endswith(STRAY_SUFFIX) and name not in names]
        self._tell(log)
        return log

    def _tell(self, log: RecoveredLog) -> None:
        """What it came to, where that is anything."""
        end_offset = log.segments[-1].next_offset
        if log.cut_bytes or log.removed_segments:
            _LOG.warning(
                "%s: recovered to offset %d; cut %d bytes, removed %d segments",
                self.directory,
                end_offset,
                log.cut_bytes,
                log.removed_segments,
            )
        if log.set_aside:
            _LOG.error(
                "%s: files that had been synced are damaged or gone. The log ends at offset %d; what came after it is "
                "kept as %s, which no broker reads and `tidelog dump` shows. A replica of the partition brings these "
                "records back. Where there is none: end the broker before anything is appended, put the missing "
                "segment in its place, take the suffix off these names (docs/FORMAT.md, Files set aside), and start "
                "it again",
                self.directory,
                end_offset,
                ", ".join(log.set_aside),
            )

    def _open_segments(self, log: RecoveredLog, bases: Sequence[int]) -> list[str]:
        """Into the log, until it does not go on. The names of files that are no part of it, and taken out."""
        taken_out = []
        for slot, base_offset in enumerate(bases):
            segment, later = self._segment(base_offset), bases[slot + 1 :]
            if self._is_foreign(segment, log.segments, later):
                _LOG.warning("%s is no part of the log, which goes on without it: taken out", segment.log.path)
                if segment.size:
                    taken_out.append(segment.set_aside())
                else:
                    segment.delete()
                continue
            if log.segments and not self._goes_on(log.segments[-1], base_offset):
                end_offset = log.segments[-1].next_offset
                _LOG.warning("%s: offsets jump from %d to %d", self.directory, end_offset, base_offset)
                self._remove(log, bases[slot:])
                break
            sound = self._open(log, segment, later)
            log.segments.append(segment)
            if not sound:
                self._remove(log, later)
                break
        return taken_out

    def _segment(self, base_offset: int) -> Segment:
        segment = Segment(self.directory, base_offset, self.files, self.index_interval_bytes)
        self.opened.callback(segment.close)
        return segment

    @property
    def _synced_to(self) -> int:
        """What lies below no crash explains the loss of."""
        return INT64_MAX if self.clean else self.recovery_point

    def _is_foreign(self, segment: Segment, before: Sequence[Segment], later: Sequence[int]) -> bool:
        """Whether somebody else put the file there: to end the log at it would cost all that follows.

        It lies within the segment before it, from whose end another goes on, and leads to no such end itself; or it is
        empty and the first. Below the recovery point only, after a clean shutdown too: beyond it a power failure may
        have brought back what was cut, or emptied a file of ours.
        """
        if not before:
            return bool(later) and later[0] <= self.recovery_point and not segment.size and not self.compacted
        end_offset = before[-1].next_offset
        if not segment.base_offset < end_offset <= self.recovery_point:
            return False
        if not any(_follows(base, end_offset, holes=self.compacted) for base in later):
            return False
        return all(header.next_offset != end_offset for _, header in scan_valid(segment.log, 0, segment.size))

    def _goes_on(self, before: Segment, base_offset: int) -> bool:
        """Whether a segment may begin here: behind a hole only where all before it was synced."""
        on_disk = self.clean or base_offset <= max(self.recovery_point, self.cleaned_to)
        far = base_offset - before.base_offset > MAX_RELATIVE_OFFSET  # which a hole within a segment cannot be
        return _follows(base_offset, before.next_offset, holes=self.compacted and (on_disk or far))

    def _open(self, log: RecoveredLog, segment: Segment, later: Sequence[int]) -> bool:
        """False where something had to be cut off. `later`: where the segments after it begin."""
        size = segment.size
        if self.clean or (later and later[0] <= self.recovery_point):
            try:
                last_batch = segment.load()
                if later and not any(_follows(base, segment.next_offset, holes=self.compacted) for base in later):
                    raise CorruptMessageError(f"{segment.log.path}: ends at {segment.next_offset}, not at {later[0]}")
                log.last_batch = last_batch or log.last_batch
                return True
            except CorruptMessageError as error:
                _LOG.warning("%s", error)
                position, offset = 0, segment.base_offset
        else:
            position, offset = segment.recovery_start(self.recovery_point)
        for header in segment.recover(
            position,
            offset,
            on_loss=self.on_loss,
            limit=later[0] if later else None,
            holes=self.compacted,
            synced_to=self._synced_to,
        ):
            log.last_batch = header
            if not log.seen_epochs or log.seen_epochs[-1][0] < header.partition_leader_epoch:
                log.seen_epochs.append((header.partition_leader_epoch, header.base_offset))
        if self.rewrite:
            segment.rewrite(position)
        log.checked_bytes += size - position
        log.cut_bytes += size - segment.size
        return segment.size == size

    def _remove(self, log: RecoveredLog, bases: Sequence[int]) -> None:
        """From the last on, so that a crash meanwhile leaves the same log with less behind its end."""
        for base_offset in reversed(bases):
            segment = Segment(self.directory, base_offset, self.files, self.index_interval_bytes)
            if segment.size:
                self.on_loss()
            log.cut_bytes += segment.size
            log.removed_segments += 1
            if base_offset < self._synced_to and segment.size:
                segment.set_aside()
            else:
                segment.delete()


def _follows(base_offset: int, end_offset: int, *, holes: bool) -> bool:
    return base_offset >= end_offset if holes else base_offset == end_offset


def rebuild_producers(segments: Sequence[Segment], snapshots: ProducerSnapshots) -> ProducerState:
    """The newest sound snapshot and the batches after it."""
    end_offset = segments[-1].next_offset
    snapshot = snapshots.latest(end_offset)
    offset, state = snapshot if snapshot is not None else (segments[0].base_offset, ProducerState())
    state.told_from = offset
    for header in _headers_from(segments, offset):
        state.update(header)
    return state


def _headers_from(segments: Sequence[Segment], offset: int) -> Iterator[BatchHeader]:
    """The headers of all batches that end at or after `offset`, as far as the log can be read."""
    try:
        for segment in segments:
            found = segment.find(offset) if segment.next_offset > offset else None
            if found is not None:
                for _, header in scan_headers(segment.log, found[0], segment.size):
                    yield header
    except CorruptMessageError as error:
        # Below the recovery point: who reads there is told so; the log as a whole goes on.
        _LOG.error("%s", error)


def _settle_epochs(log: RecoveredLog, *, known: bool, synced_to: int) -> None:
    """`known`: the cache was read, so it has every epoch that begins below `synced_to`."""
    for epoch, offset in log.seen_epochs:
        latest = log.epochs.latest
        if latest is None or (epoch > latest and not (known and offset < synced_to)):
            log.epochs.assign(epoch, offset)
    log.epochs.truncate_from_end(log.segments[-1].next_offset)
    if not (known and _confirm_epochs(log)):
        headers = _headers_from(log.segments, log.segments[0].base_offset)
        starts = ((header.partition_leader_epoch, header.base_offset) for header in headers)
        log.epochs.rebuild(starts, borne_out=log.epochs.latest if known else None)
    log.epochs.truncate_from_start(log.segments[0].base_offset)
    log.epochs.write()


def _confirm_epochs(log: RecoveredLog) -> bool:
    """Whether the batches at both ends of each epoch are of that epoch, and nothing comes before the first.

    Epochs never fall from batch to batch, so the batches between are of it too. A log that was trimmed, but for whom
    the crash brought trimmed batches of older epochs back, knows too few; where they are of its first epoch, that one
    begins earlier again.
    """
    entries = log.epochs.entries()
    first, end_offset = log.segments[0].base_offset, log.segments[-1].next_offset
    ends = [*(entry.start_offset for entry in entries[1:]), end_offset]
    try:
        for entry, end in zip(entries, ends, strict=False):
            for offset in (entry.start_offset, end - 1):
                header = _header_at(log.segments, offset)
                if header is None or header.last_offset >= end:
                    continue  # compaction left none of this epoch
                begins_inside = header.base_offset < entry.start_offset and entry is not entries[0]
                if begins_inside or header.partition_leader_epoch != entry.epoch:
                    return False
        earliest = _header_at(log.segments, first)
        if earliest is None or earliest.partition_leader_epoch < 0:
            return True
        log.epochs.extend_first(earliest.partition_leader_epoch, earliest.base_offset)
        return bool(entries) and log.epochs.entries()[0].start_offset <= earliest.base_offset
    except CorruptMessageError as error:
        _LOG.error("%s", error)
        return True  # the batches tell no more than the cache


def _header_at(segments: Sequence[Segment], offset: int) -> BatchHeader | None:
    """Of the first batch that ends at or after the offset."""
    slot = max(bisect_right(segments, offset, key=attrgetter("base_offset")) - 1, 0)
    for segment in segments[slot:]:
        found = segment.find(offset)
        if found is not None:
            return found[1]
    return None


def _remove_leftovers(directory: Path, files: Files) -> None:
    names = files.names(directory)
    logs = {name for name in names if name.endswith(LOG_SUFFIX)}
    for name in names:
        orphan = name.endswith(_BESIDE_LOG) and name.rpartition(".")[0] + LOG_SUFFIX not in logs
        if (orphan or name.endswith(_LEFTOVERS)) and not files.is_directory(directory / name):
            files.remove(directory / name)
