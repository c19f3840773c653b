"""Cleans one log by the rules of `storage.compaction.cleaning_rules` (Kafka: LogCleaner).

The work has three steps, so that the log's owner never waits for it:
1. `plan_cleaning`, on the thread of the log's owner, looks at facts and reads at most the first header of a segment.
2. `Cleaning.write_next`, on any thread, reads sealed segments, which do not change, through files of its own. It writes
   one new segment beside those that it will replace.
3. `Cleaning.install`, on the owner's thread again, renames files. If the segments that were read are no longer in the
   log, because they were truncated or deleted meanwhile, the round ends early. Segments that it has installed stay.
Steps 2 and 3 alternate from the oldest segment on. There is therefore at most one new segment at a time, and a
tombstone gets its delete horizon only after the records that it deletes are gone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from storage.compaction.cleaning_rules import (
    SealedSegment,
    Stretch,
    Survival,
    cleanable,
    first_dirty_offset,
    grouped,
    is_due,
    replaces,
)
from storage.compaction.offset_map import OffsetMap
from storage.configs.log_config import LogConfig
from storage.file_names import CLEANED_SUFFIX, LOG_SUFFIX, file_name
from storage.files import Files
from storage.log.leader_epochs import EpochStart, epoch_span
from storage.log.log import Log
from storage.segments.scan import scan_checked
from storage.segments.segment import BatchSpan, Segment
from storage.segments.segment_files import SegmentFiles
from tidelog.errors import (
    CleaningAbortedError,
    CorruptMessageError,
    MessageTooLargeError,
    StorageError,
    UncleanableLogError,
    UnsupportedCompressionTypeError,
)
from tidelog.model import Buffer
from tidelog.records import BatchHeader, outline_batch, read_header

_LOG = logging.getLogger(__name__)

#: The default of `log.cleaner.dedupe.buffer.size`: the memory limit of the key map.
MAP_BYTES = 128 << 20

_WRITTEN_AT_ONCE = 1 << 20
_MAX_SEGMENT_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """One round for one log.

    truncation_count   of the log when the plan was made
    stretch            the facts of the segments to clean
    sources            these segments
    last_of_producers  the last offset of each producer's last batch
    epochs             the log's leader epochs, in ascending order
    now_ms             when the plan was made
    """

    log: Log
    truncation_count: int
    config: LogConfig
    stretch: Stretch
    sources: tuple[Segment, ...]
    last_of_producers: Mapping[int, int]
    epochs: tuple[EpochStart, ...]
    now_ms: int

    @property
    def dirty_ratio(self) -> float:
        """Return the dirty ratio; the log with the largest one is cleaned first."""
        return self.stretch.dirty_ratio


def plan_cleaning(log: Log, recorded_offset: int, now_ms: int, upper_bound: int) -> CleaningPlan | None:
    """Return the next round of a log; None if no round is due or the topic is not compacted.

    `recorded_offset` is the `end_offset` of the last round, 0 before the first one. Records at or above `upper_bound`
    (the high watermark or the last stable offset) are neither removed nor a reason to remove others.
    At most the first header of each dirty segment is read. CorruptMessageError if it is damaged, and StorageError.
    """
    config, segments = log.config, log.segments
    if not config.compact:
        return None
    sealed = [_facts(segment, following) for segment, following in pairwise(segments)]
    dirty_from = first_dirty_offset(recorded_offset, log.log_start_offset, log.log_end_offset)
    stretch = cleanable(sealed, dirty_from, upper_bound, config, now_ms)
    if not is_due(stretch, config, now_ms):
        return None
    sources = tuple(segments[: len(stretch.segments)])
    return CleaningPlan(
        log, log.truncation_count, config, stretch, sources, log.last_offsets_of_producers, log.epochs, now_ms
    )


def _facts(segment: Segment, following: Segment) -> SealedSegment:
    return SealedSegment(
        segment.base_offset,
        following.base_offset,
        segment.size,
        segment.offset_index.size_bytes,
        segment.time_index.size_bytes,
        segment.largest.timestamp,
        lambda: segment.first_timestamp,
        lambda: segment.log.modified_ms(),
    )


class Replacement(NamedTuple):
    """A new segment, written and flushed under `.cleaned` names, and the neighbouring segments that it replaces."""

    cleaned: Segment
    old: tuple[Segment, ...]


class Cleaning:
    """One round of cleaning.

    end_offset       the offset up to which the log is clean once `write_next` has returned None and all new segments
                     are installed
    bytes_read       so far; the dirty part is read twice
    bytes_written, records_read, records_kept   so far, of the segments that were rewritten
    keyless_records  found in the dirty part, outside of transactions; a compacted log cannot keep them
    """

    def __init__(
        self,
        plan: CleaningPlan,
        files: Files,
        *,
        map_bytes: int = MAP_BYTES,
        pace: Callable[[int], object] = lambda moved_bytes: None,
    ) -> None:
        """`pace` is called with the size in bytes of each batch that was read.

        `pace` may sleep, or raise to end the round.

        `map_bytes` is the memory limit of the key map. Keys that do not fit are left for the next round.
        """
        self.plan = plan
        self.bytes_read = self.bytes_written = self.records_read = self.records_kept = self.keyless_records = 0
        self._files = files
        self._pace = pace
        self._last_offsets = OffsetMap(plan.stretch.first_dirty_offset, map_bytes)
        self._unread = plan.sources
        self._position = 0
        self._pieces = self._work()

    @property
    def end_offset(self) -> int:
        return self._last_offsets.end_offset

    # --- on the owner's thread -----------------------------------------------------------------------

    @property
    def overtaken(self) -> bool:
        """Return whether the log was closed or lost a segment that the round has still to read.

        The caller then ignores errors of the round.
        """
        standing = {id(segment) for segment in self.plan.log.segments[:-1]}
        return self.plan.log.closed or any(id(segment) not in standing for segment in self._unread)

    def install(self, piece: Replacement) -> tuple[Segment, ...]:
        """Put the new segment into the log. Return the old ones, which the caller deletes after file.delete.delay.ms.

        StorageError if the log has failed. CleaningAbortedError if it was closed, or lost some of the old segments. The
        round is then over and its new segment is removed; for a closed log, the next open removes it. The same applies
        after any truncation, because the truncated records may have been the reason to remove others.
        """
        log = self.plan.log
        if log.closed:
            piece.cleaned.close()
        elif log.truncation_count != self.plan.truncation_count:
            piece.cleaned.delete()
        elif log.replace_segments(piece.cleaned, piece.old):
            return piece.old
        raise CleaningAbortedError(f"{log.directory.name} was closed or lost segments while it was being compacted")

    # --- on any thread, one at a time ----------------------------------------------------------------

    def write_next(self) -> Replacement | None:
        """Write, flush and return the next new segment; None if the round is complete.

        The caller installs each new segment before the next call. The first call also reads the keys of the dirty part.
        After an error the round is over: its unfinished segment is removed, and later calls return None.

        UncleanableLogError if a batch is damaged or a segment would become too large. StorageError if the disk fails,
        or if a file is gone because the log is `overtaken`. CleaningAbortedError if the log is closed when a new
        segment begins. Any error that `pace` raises.
        """
        try:
            return next(self._pieces, None)
        except (CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError) as error:
            raise UncleanableLogError(f"{self.plan.log.directory}: byte {self._position}: {error}") from error

    def _work(self) -> Iterator[Replacement]:
        plan = self.plan
        for segment in plan.stretch.dirty:
            if not self._add_keys(segment):
                break
        survival = Survival(
            self._last_offsets,
            plan.now_ms,
            plan.config.delete_retention_ms,
            plan.last_of_producers,
            frozenset(start for _, start in plan.epochs),
        )
        reached = [segment for segment in plan.stretch.segments if segment.base_offset < self.end_offset]
        for group in grouped(reached, plan.config):
            cleaned = self._write(group, survival)
            old, self._unread = self._unread[: len(group)], self._unread[len(group) :]
            if cleaned is not None:
                yield Replacement(cleaned, old)
        if self.keyless_records:
            _LOG.warning("%s: removed %d records without a key", plan.log.directory, self.keyless_records)

    def _add_keys(self, segment: SealedSegment) -> bool:
        """Add the keys of a dirty segment to the map. Return False at the first batch whose keys do not fit."""
        last_offsets = self._last_offsets
        for header, batch in self._batches(segment):
            if header.next_offset <= last_offsets.start_offset:
                continue
            if replaces(header):
                outline = outline_batch(batch, header)
                if not last_offsets.add(outline):
                    return False
                self.keyless_records += outline.keys.count(None)
            else:
                last_offsets.extend(header.next_offset)
        last_offsets.extend(segment.end_offset)
        return True

    def _write(self, group: Sequence[SealedSegment], survival: Survival) -> Segment | None:
        """Return the new segment of a group; None if the group is a single segment in which no batch changes."""
        draft = _Draft(self.plan, group[0].base_offset, self._files)
        last = group[-1]
        changed = len(group) > 1
        try:
            for segment in group:
                for header, batch in self._batches(segment):
                    ends = segment is last and self._position + header.size_bytes == last.size_bytes
                    rewritten = survival.rewrite(batch, header, ends_segment=ends)
                    self.records_read += header.record_count
                    if rewritten is not batch:
                        changed = True
                        if not rewritten:
                            continue
                        header = read_header(rewritten)
                    draft.add(rewritten, header)
                    self.records_kept += header.record_count
                    self.bytes_written += header.size_bytes
            if changed:
                return draft.finish()
        except BaseException:
            draft.discard()
            raise
        draft.discard()
        return None

    def _batches(self, segment: SealedSegment) -> Iterator[tuple[BatchHeader, Buffer]]:
        # Without `create`, because the segment may have been deleted meanwhile and must not be created empty.
        path = self.plan.log.directory / file_name(segment.base_offset, LOG_SUFFIX)
        file = self._files.open(path, create=False)
        try:
            # The order is checked too: no CRC covers offsets, and a wrong offset would make a record seem replaced.
            batches = scan_checked(file, 0, segment.size_bytes, segment.base_offset, limit=segment.end_offset)
            for self._position, header, batch in batches:
                self._check_epoch(header)
                yield header, batch
                self.bytes_read += header.size_bytes
                self._pace(header.size_bytes)
        finally:
            file.close()

    def _check_epoch(self, header: BatchHeader) -> None:
        """Raise CorruptMessageError if the epoch cache has another epoch for the batch.

        No CRC covers the epoch. Neighbouring batches do not show a wrong epoch at either end of a segment. Readers get
        no such batch, so the round ends as with any damaged batch, and the segments stay as they are.
        """
        epoch, (known, _) = header.partition_leader_epoch, epoch_span(self.plan.epochs, header.base_offset)
        if epoch >= 0 and known not in (None, epoch):
            raise CorruptMessageError(
                f"the batch at offset {header.base_offset} has leader epoch {epoch}, and the leader-epoch checkpoint"
                f" has {known} there"
            )


class _Draft:
    """A new segment while it is written, under `.cleaned` names."""

    def __init__(self, plan: CleaningPlan, base_offset: int, files: Files) -> None:
        self._log = plan.log
        self._files = SegmentFiles(plan.log.directory, base_offset, files, CLEANED_SUFFIX)
        if plan.log.closed:
            raise CleaningAbortedError(f"{plan.log.directory.name} was closed while it was being compacted")
        self._remove()  # files of an earlier round that could not remove them
        try:
            self._segment = Segment(
                plan.log.directory, base_offset, files, plan.config.index_interval_bytes, CLEANED_SUFFIX
            )
        except BaseException:
            self._remove()
            raise
        self._parts: list[Buffer] = []
        self._spans: list[BatchSpan] = []
        self._waiting = 0

    def add(self, batch: Buffer, header: BatchHeader) -> None:
        self._parts.append(batch)
        self._spans.append(BatchSpan(header.last_offset, header.max_timestamp, header.size_bytes))
        self._waiting += header.size_bytes
        if self._waiting >= _WRITTEN_AT_ONCE:
            self._write()

    def finish(self) -> Segment:
        """Write the rest, seal and flush the segment, and return it."""
        if self._waiting:
            self._write()
        self._segment.seal()
        self._segment.flush()
        return self._segment

    def discard(self) -> None:
        self._segment.close()
        self._remove()

    def _remove(self) -> None:
        # A later log of the same name may use the directory of a closed log, and have a round of its own.
        if self._log.closed:
            return
        with contextlib.suppress(StorageError):
            self._files.delete()

    def _write(self) -> None:
        if self._segment.size + self._waiting > _MAX_SEGMENT_BYTES:
            raise UncleanableLogError(
                f"{self._segment.log.path}: with delete horizons the segment would exceed its maximum size"
            )
        # Joined, because one write takes at most 1,024 parts.
        self._segment.append((b"".join(self._parts),), self._spans)
        self._parts.clear()
        self._spans.clear()
        self._waiting = 0
