"""Open a log: find its segments and its end, and repair the effects of a crash.

The steps run in this order; each one relies on the steps before it:
1. Finish or undo swaps of cleaned segments. Remove leftovers: unfinished files, files renamed to `.deleted`, and
   indexes without a log file.
2. Trust the segments below the recovery point (all segments after a clean shutdown), because they were flushed.
   Compare their indexes with the log where a look-up relies on them, and rebuild those that are wrong.
3. Check the CRC of every batch from the recovery point on. Truncate the log before the first bad batch, remove later
   segments, and rebuild the indexes from the batches. A crash cannot explain the loss of flushed data. If flushed data
   must go because something before it is damaged or missing, it is set aside (`.stray`) and never removed. If a flush
   had failed, write the remaining data once more: the kernel may count dropped pages as written, and a later fsync
   would then confirm data that never reached the disk.
4. Remove epochs that begin past the end from the epoch cache, and add the epochs of the checked batches. If the batches
   still contradict the cache, rebuild it from them.
5. Remove producer snapshots past the end. Fsync the directory, so that files stay removed that this process removed,
   or that an earlier process removed before it was killed.
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
#: Suffixes of files that are useless without their `.log` file.
_BESIDE_LOG = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


@dataclass(slots=True)
class RecoveryOutcome:
    """The outcome of recovery. `cut_bytes` and `removed_segments` say how much the crash cost.

    checked_bytes      bytes whose CRCs were checked
    cut_bytes          bytes that are no longer part of the log, those of removed segments included
    removed_segments   segments that were removed or set aside because the log does not continue with them
    set_aside          names of files that hold flushed data and that this recovery removed from the log
    """

    checked_bytes: int = 0
    cut_bytes: int = 0
    removed_segments: int = 0
    set_aside: tuple[str, ...] = ()


@dataclass(slots=True)
class RecoveredLog:
    """The parts of the opened log. A log keeps the parts, and of this object only the outcome.

    last_batch         the last batch whose header was read; None if none was
    seen_epochs        (leader epoch, base offset) of each checked batch whose epoch is above those before it
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    snapshots: ProducerSnapshots
    outcome: RecoveryOutcome = field(default_factory=RecoveryOutcome)
    last_batch: BatchHeader | None = None
    seen_epochs: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The inputs of recovery for the log in one directory.

    recovery_point   all records below it were flushed
    clean            the previous process closed the log in order
    compacted        offsets may be missing between two segments, below the recovery point and below `cleaned_to`.
                     Elsewhere a gap means that a file is missing or that its end never reached the disk, because our
                     cleaner writes each segment up to the base offset of the next one
    cleaned_to       the offset up to which the cleaner has compacted the log
    rewrite          a flush failed in the previous process. Data past the recovery point may exist in the page cache
                     only, and the kernel may count it as written. The same holds for producer snapshots and the
                     leader-epoch file. All of them are written again
    on_loss          is called before any part of a batch is removed or set aside, because acknowledged records may then
                     be missing; not for a file that is not part of the log
    on_epoch_begun   see `LeaderEpochs`
    opened           closes the opened segments when it is closed
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
    on_epoch_begun: Callable[[LeaderEpochs], object]
    opened: ExitStack

    def run(self) -> RecoveredLog:
        """Repair the directory and return the log, checked and ready for appends. StorageError.

        Without segments the log is empty and starts at offset 0.
        """
        directory, files = self.directory, self.files
        found = files.names(directory)
        names = _remove_leftovers(directory, files, segment_swap.recover(directory, files, found))
        epochs = LeaderEpochs.load(directory, files, self.on_epoch_begun)
        log = RecoveredLog(
            [],
            epochs or LeaderEpochs(directory, files, [], self.on_epoch_begun),
            ProducerSnapshots(directory, files, names),
        )
        known = log.epochs.entries()
        names += self._open_segments(log, offsets_named(names, LOG_SUFFIX))
        if not log.segments:
            log.segments.append(self._segment(0))
        begin = log.segments[0].base_offset
        if known and known[0].start_offset < begin:
            _LOG.error(
                "%s: the log started at offset %d and now starts at offset %d: segment files are missing",
                directory,
                known[0].start_offset,
                begin,
            )
        if found:  # a new log has no epochs, so that their file is not written
            _repair_epochs(log, known=epochs is not None, flushed_to=self.recovery_point)
        for segment in log.segments[:-1]:
            segment.seal()
            segment.close()
        log.snapshots.remove_past(log.segments[-1].next_offset)
        if self.rewrite and found:
            log.snapshots.rewrite()
            log.epochs.rewrite()
        left = files.names(directory)
        if not set(found).issubset(left) or (found and not self.clean):
            # A second crash must not bring removed files back beside records that are appended now, or into a log that
            # is closed in order. The previous process may also have removed files without an fsync of the directory.
            files.fsync_directory(directory)
        log.outcome.set_aside = tuple(name for name in left if name.endswith(STRAY_SUFFIX) and name not in names)
        self._log_outcome(log)
        return log

    def _log_outcome(self, log: RecoveredLog) -> None:
        """Log what recovery removed and set aside, if anything."""
        end_offset = log.segments[-1].next_offset
        if log.outcome.cut_bytes or log.outcome.removed_segments:
            _LOG.warning(
                "%s: recovered to offset %d; cut %d bytes, removed %d segments",
                self.directory,
                end_offset,
                log.outcome.cut_bytes,
                log.outcome.removed_segments,
            )
        if log.outcome.set_aside:
            _LOG.error(
                "%s: flushed files are damaged or missing. The log now ends at offset %d. The records after it are "
                "kept in %s. Brokers ignore these files; `tidelog dump` shows them. If the partition has another "
                "replica, replication restores the records. Otherwise stop the broker before it appends anything, put "
                "the missing segment back, remove the suffix from these names (docs/FORMAT.md, Files set aside), and "
                "start the broker again",
                self.directory,
                end_offset,
                ", ".join(log.outcome.set_aside),
            )

    def _open_segments(self, log: RecoveredLog, bases: Sequence[int]) -> list[str]:
        """Open segments into `log` until one does not continue it; remove or set aside that segment and all later ones.

        A truncated segment stays in the log, and all later ones are removed or set aside. Return the names of foreign
        files that were set aside.
        """
        set_aside = []
        for slot, base_offset in enumerate(bases):
            segment, later = self._segment(base_offset), bases[slot + 1 :]
            if self._is_foreign(segment, log.segments, later):
                _LOG.warning("%s is not part of the log, which is complete without it: set aside", segment.log.path)
                if segment.size:
                    set_aside.append(segment.set_aside())
                else:
                    segment.delete()
                continue
            if log.segments and not self._continues(log.segments[-1], base_offset):
                end_offset = log.segments[-1].next_offset
                _LOG.warning(
                    "%s: a segment ends at offset %d, the next begins at %d: removed or set aside from there on",
                    self.directory,
                    end_offset,
                    base_offset,
                )
                self._remove(log, bases[slot:])
                break
            sound = self._open(log, segment, later)
            log.segments.append(segment)
            if not sound:
                self._remove(log, later)
                break
        return set_aside

    def _segment(self, base_offset: int) -> Segment:
        segment = Segment(self.directory, base_offset, self.files, self.index_interval_bytes)
        self.opened.callback(segment.close)
        return segment

    @property
    def _flushed_to(self) -> int:
        """Return the offset below which a crash cannot explain a loss."""
        return INT64_MAX if self.clean else self.recovery_point

    def _is_foreign(self, segment: Segment, before: Sequence[Segment], later: Sequence[int]) -> bool:
        """Return whether the file was not written by this log, so that ending the log there would lose good segments.

        A foreign segment lies inside the segment before it, another segment continues from the end of that one, and
        the foreign segment has no batch that ends there. An empty first segment is foreign too. The rule applies below
        the recovery point only, also after a clean shutdown. Past it, a power failure may have restored truncated data
        or emptied one of our own files.
        """
        if not before:
            return bool(later) and later[0] <= self.recovery_point and not segment.size and not self.compacted
        end_offset = before[-1].next_offset
        if not segment.base_offset < end_offset <= self.recovery_point:
            return False
        if not any(_follows(base, end_offset, holes=self.compacted) for base in later):
            return False
        return all(header.next_offset != end_offset for _, header in scan_valid(segment.log, 0, segment.size))

    def _continues(self, before: Segment, base_offset: int) -> bool:
        """Return whether a segment may begin here. A gap is allowed only if everything before it was flushed."""
        on_disk = self.clean or base_offset <= max(self.recovery_point, self.cleaned_to)
        far = base_offset - before.base_offset > MAX_RELATIVE_OFFSET  # a gap within one segment cannot be this large
        return _follows(base_offset, before.next_offset, holes=self.compacted and (on_disk or far))

    def _open(self, log: RecoveredLog, segment: Segment, later: Sequence[int]) -> bool:
        """Load or check one segment, as step 2 or 3 says. Return False if it had to be truncated.

        `later` are the base offsets after it.
        """
        size = segment.size
        if self.clean or (later and later[0] <= self.recovery_point):
            try:
                last_batch = segment.load()
                if later and not any(_follows(base, segment.next_offset, holes=self.compacted) for base in later):
                    raise CorruptMessageError(
                        f"{segment.log.path}: ends at offset {segment.next_offset}, but the next segment begins at"
                        f" {later[0]}"
                    )
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
            flushed_to=self._flushed_to,
        ):
            log.last_batch = header
            if not log.seen_epochs or log.seen_epochs[-1][0] < header.partition_leader_epoch:
                log.seen_epochs.append((header.partition_leader_epoch, header.base_offset))
        if self.rewrite:
            segment.rewrite(position)
        log.outcome.checked_bytes += size - position
        log.outcome.cut_bytes += size - segment.size
        return segment.size == size

    def _remove(self, log: RecoveredLog, bases: Sequence[int]) -> None:
        """Remove these segments, or set them aside if they were flushed; call `on_loss` before a segment with batches.

        The last one goes first, so that a crash meanwhile leaves a prefix of them.
        """
        for base_offset in reversed(bases):
            segment = Segment(self.directory, base_offset, self.files, self.index_interval_bytes)
            if segment.size:
                self.on_loss()
            log.outcome.cut_bytes += segment.size
            log.outcome.removed_segments += 1
            if base_offset < self._flushed_to and segment.size:
                segment.set_aside()
            else:
                segment.delete()


def _follows(base_offset: int, end_offset: int, *, holes: bool) -> bool:
    return base_offset >= end_offset if holes else base_offset == end_offset


def rebuild_producers(segments: Sequence[Segment], snapshots: ProducerSnapshots) -> ProducerState:
    """Return the producers' state at the log end, from the newest valid snapshot and the batches after it.

    Without a snapshot, the headers of all batches are read. Snapshots past the log end, and damaged ones, are removed.
    The state's `rewind_limit` is the snapshot's offset, else the base offset of the first segment.
    """
    end_offset = segments[-1].next_offset
    snapshot = snapshots.latest(end_offset)
    offset, state = snapshot if snapshot is not None else (segments[0].base_offset, ProducerState())
    state.rewind_limit = offset
    for header in _headers_from(segments, offset):
        state.update(header)
    return state


def _headers_from(segments: Sequence[Segment], offset: int) -> Iterator[BatchHeader]:
    """Yield the headers of all batches that end at or after `offset`.

    Log an error and end at the first unreadable one.
    """
    try:
        for segment in segments:
            found = segment.find(offset) if segment.next_offset > offset else None
            if found is not None:
                for _, header in scan_headers(segment.log, found[0], segment.size):
                    yield header
    except CorruptMessageError as error:
        # The damage lies below the recovery point. A reader of these offsets gets an error; the log stays in use.
        _LOG.error("%s", error)


def _repair_epochs(log: RecoveredLog, *, known: bool, flushed_to: int) -> None:
    """Make the epoch cache agree with the log, and write its file.

    `known`: the cache was read, so it has all epochs below `flushed_to`.
    """
    for epoch, offset in log.seen_epochs:
        latest = log.epochs.latest
        if latest is None or (epoch > latest and not (known and offset < flushed_to)):
            log.epochs.assign(epoch, offset)
    log.epochs.truncate_from_end(log.segments[-1].next_offset)
    if not (known and _confirm_epochs(log)):
        headers = _headers_from(log.segments, log.segments[0].base_offset)
        starts = ((header.partition_leader_epoch, header.base_offset) for header in headers)
        log.epochs.rebuild(starts, max_epoch=log.epochs.latest if known else None)
    log.epochs.truncate_from_start(log.segments[0].base_offset)
    log.epochs.write()


def _confirm_epochs(log: RecoveredLog) -> bool:
    """Return whether the first and last batch of each epoch have that epoch, and no batch precedes the first epoch.

    True also if a batch cannot be read. Epochs never decrease from batch to batch, so the batches between the two
    belong to the epoch as well. A crash may restore batches that were deleted from the start of the log, and the cache
    then lacks their epochs. If the first batch has the cache's first epoch, the start offset of that epoch is lowered
    again.
    """
    entries = log.epochs.entries()
    first, end_offset = log.segments[0].base_offset, log.segments[-1].next_offset
    ends = [*(entry.start_offset for entry in entries[1:]), end_offset]
    try:
        for entry, end in zip(entries, ends, strict=False):
            for offset in (entry.start_offset, end - 1):
                header = _header_at(log.segments, offset)
                if header is None or header.last_offset >= end:
                    continue  # compaction removed all batches of this epoch
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
        return True  # unreadable batches cannot correct the cache


def _header_at(segments: Sequence[Segment], offset: int) -> BatchHeader | None:
    """Return the header of the first batch that ends at or after the offset; None if there is none."""
    slot = max(bisect_right(segments, offset, key=attrgetter("base_offset")) - 1, 0)
    for segment in segments[slot:]:
        found = segment.find(offset)
        if found is not None:
            return found[1]
    return None


def _remove_leftovers(directory: Path, files: Files, names: Sequence[str]) -> list[str]:
    """Remove leftovers of crashes among the files with these names; return the other names."""
    logs = {name for name in names if name.endswith(LOG_SUFFIX)}
    left = []
    for name in names:
        orphan = name.endswith(_BESIDE_LOG) and name.rpartition(".")[0] + LOG_SUFFIX not in logs
        if (orphan or name.endswith(_LEFTOVERS)) and not files.is_directory(directory / name):
            files.remove(directory / name)
        else:
            left.append(name)
    return left
