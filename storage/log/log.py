"""One replica's log of one partition: an ordered list of segments. Batches are appended at the end and read anywhere.

One thread owns the log and makes all calls. Other threads may meanwhile use `flush`, `fail`, `segments`,
`segment_facts`, and `write` and `flush` of `leader_epochs`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from storage import partition_metadata
from storage.configs.log_config import LogConfig
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.files import Files
from storage.log import recovery, retention, timestamp_lookup
from storage.log.batch_validation import ValidatedBatch, validate_batch
from storage.log.leader_epochs import EpochStart, LeaderEpochs
from storage.log.log_appender import AppendInfo, LogAppender
from storage.log.log_reader import LogReader
from storage.log.recovery_point import RecoveryPoint, must_flush
from storage.producers.producer_state import ProducerState
from storage.segments import segment_swap
from storage.segments.log_segments import Segments
from storage.segments.segment import Segment
from storage.segments.timestamp_search import TimestampOffset
from storage.steps import Steps, run_steps, steps_until_change
from tidelog.errors import BrokerError, CorruptMessageError, OffsetOutOfRangeError, StorageError
from tidelog.model import Buffer, StoredBytes
from tidelog.records import read_header
from tidelog.records.header import check_crc

#: The offset that stands for the high watermark in `delete_records`.
HIGH_WATERMARK = -1


class LogOwner:
    """Is told what happens to a log. The methods of this class do nothing; the owner of a log overrides them.

    An owner is one object, because a function for each event would take 0.6 KB more for each log.
    """

    __slots__ = ()

    def truncation(self, offset: int) -> None:
        """Lower all checkpoints of the log, also on the disk, to this offset: a truncation removes all from there on.

        Records appended later at the same offsets are different and not flushed. Called before the truncation and
        after it. The second call is needed because the truncation removes more if the offset lies inside a batch, and
        because another thread may have written a checkpoint meanwhile.
        """

    def flush_failed(self) -> None:
        """Record that a flush has failed, with another error than OutOfDescriptorsError.

        Called on the thread of the flush before the error is raised.
        """

    def changed(self) -> None:
        """Note that the log may need a flush: after appends, new segments, truncations, new settings and failures.

        Called on any thread.
        """

    def loss(self) -> None:
        """Record that acknowledged records may be missing (`on_loss` of `recovery.Recovery`)."""

    def epoch_begun(self, epochs: LeaderEpochs) -> None:
        """Note that a leader epoch has begun, which is not written yet (`on_epoch_begun` of `LeaderEpochs`)."""


NO_OWNER = LogOwner()


class Log:
    """The batches of one replica, ordered by offset.

    log_start_offset  the first offset that may be read; at most log_end_offset. Deletion raises it. Only
                      `truncate_to` an offset below it, or `truncate_fully_and_start_at`, may lower it.
    topic_id          from `partition.metadata`; "" if that file is missing or damaged.
    config            the settings, which `configure` replaces
    recovered         the outcome of the recovery when the log was opened.
    truncation_count  differs after records were removed from the end. Offsets read before may name other records now.
                      Raised before the checkpoints of the log are lowered.
    """

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        files: Files,
        recovered: recovery.RecoveredLog,
        recovery_point: int,
        owner: LogOwner,
    ) -> None:
        self.directory = directory
        self.config = config
        self.recovered = recovered.outcome
        self.topic_id, self.topic_id_proven = partition_metadata.read(files, directory)
        self._files = files
        self._segments = Segments(directory, files, recovered.segments)
        self.leader_epochs = recovered.epochs
        self._reader = LogReader(self._segments, self.leader_epochs)
        self._snapshots = recovered.snapshots
        self._owner = owner
        self.log_start_offset = self._segments.base_offsets[0]
        producers = recovery.rebuild_producers(self._segments, self._snapshots)
        self._appender = LogAppender(
            self._segments, self.leader_epochs, self._snapshots, producers, recovered.last_batch
        )
        self._recovery_point = RecoveryPoint(min(recovery_point, self.log_end_offset))
        self._sweep_snapshots()
        self._failure: StorageError | None = None
        self._flush_lock = threading.Lock()
        self._abandoned = False
        self.truncation_count = 0
        #: Whether the directory's own name is flushed to its parent. Without it, nothing in the directory survives.
        self._own_name_flushed = False
        #: `_names` is odd while names in the directory change. `_flushed_names` is its value when the last directory
        #: fsync began that ran while no name changed.
        self._names = self._flushed_names = 0

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        files: Files,
        *,
        recovery_point: int,
        clean: bool,
        cleaned_to: int = 0,
        rewrite: bool = False,
        owner: LogOwner = NO_OWNER,
    ) -> Log:
        """Recover and open the log in a directory, or create both. StorageError.

        The log starts at its oldest segment. The caller passes a later start to `raise_log_start`.

        recovery_point   all records below it were flushed.
        clean            the previous process closed the log in order. Otherwise recovery checks all batches from the
                         recovery point on and truncates the log before damage (`storage.log.recovery`).
        cleaned_to       the cleaner has compacted the log up to this offset, whatever the topic's policy is now. Below
                         it offsets may be missing.
        rewrite          a flush failed in the previous process. Its data must be written again before a flush counts.
        owner            is told what happens to the log, from the recovery on.
        """
        files.make_directory(directory)
        with ExitStack() as unless_open:
            recovered = recovery.Recovery(
                directory=directory,
                files=files,
                recovery_point=recovery_point,
                clean=clean,
                compacted=cleaned_to > 0 or config.compact,
                cleaned_to=cleaned_to,
                rewrite=rewrite,
                index_interval_bytes=config.index_interval_bytes,
                on_loss=owner.loss,
                on_epoch_begun=owner.epoch_begun,
                opened=unless_open,
            ).run()
            log = cls(directory, config, files, recovered, recovery_point, owner)
            unless_open.pop_all()
        return log

    # --- facts ---------------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """Return the offset that the next appended record gets.

        Appends raise it, `truncate_to` lowers it, and `truncate_fully_and_start_at` sets it.
        """
        return self._appender.end_offset

    @property
    def size_bytes(self) -> int:
        """Return the size in bytes of the batches in all segments, also of those below the log start offset."""
        return self._segments.size_bytes

    @property
    def recovery_point(self) -> int:
        """Return the offset below which all records are flushed; recovery after a crash starts there.

        Never past the log end. Raised by `flush`, lowered by truncation.
        """
        return self._recovery_point.offset

    @property
    def segments(self) -> Sequence[Segment]:
        """Return the current segments, oldest first; the last one is active. Any thread may iterate over the result."""
        return self._segments.row

    @property
    def segment_facts(self) -> list[retention.SegmentFacts]:
        """Return the facts that retention needs about each segment, oldest first. Any thread may call this."""
        row, end = self._segments.row, self.log_end_offset
        ends = [*(segment.base_offset for segment in row[1:]), end]
        return [
            retention.SegmentFacts(end, segment.size, segment.largest.timestamp, segment.log.modified_ms)
            for segment, end in zip(row, ends, strict=True)
        ]

    @property
    def closed(self) -> bool:
        """Return whether the log has ended, by `close`, `abandon` or `retire`.

        The log's directory must not be changed any more.
        """
        return self._abandoned

    @property
    def last_offsets_of_producers(self) -> dict[int, int]:
        """Return the last offset of each producer's last batch, by producer id; only producers with known batches."""
        return {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in self._appender.producers.producers.items()
            if producer.batches
        }

    @property
    def segment_base_offsets(self) -> Sequence[int]:
        return self._segments.base_offsets

    @property
    def latest_epoch(self) -> int | None:
        """Return the leader epoch that began last; None if the log has seen no epoch."""
        return self.leader_epochs.latest

    @property
    def epochs(self) -> tuple[EpochStart, ...]:
        return self.leader_epochs.entries()

    @property
    def largest_timestamp(self) -> int:
        """Return the largest timestamp (ms) in all segments, also below the log start; −1 if no record has one."""
        return self._segments.largest_timestamp

    def end_offset_for_epoch(self, epoch: int) -> EpochStart | None:
        """Return (the greatest epoch ≤ `epoch` in this log, the offset after it); the latest epoch ends at the log end.

        If `epoch` precedes all known epochs: (`epoch`, the start of the first one). None for an epoch that is negative
        or above the latest one, and if the log knows no epoch.
        """
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int | None:
        """Return the last leader epoch that began at or before this offset; None if the log knows no such epoch.

        An offset at or past the log end therefore has the latest epoch.
        """
        return self.leader_epochs.span_of(offset)[0]

    def assign_topic_id(self, topic_id: str) -> None:
        """Set `topic_id` and write it to `partition.metadata`, without a flush. StorageError."""
        partition_metadata.write(self._files, self.directory, topic_id)
        self.topic_id, self.topic_id_proven = topic_id, True

    def configure(self, config: LogConfig) -> None:
        """Use these settings from now on."""
        self.config = config
        self._owner.changed()

    # --- appending -----------------------------------------------------------------------------------

    def assign_leader_epoch(self, epoch: int) -> None:
        """Begin the epoch at the log end, unless it is the latest epoch already.

        Called when this replica becomes leader.

        The epoch stays in memory until `leader_epochs.write`. StorageError if the log has failed.
        """
        self._raise_if_failed()
        self.leader_epochs.assign(epoch, self.log_end_offset)

    def append_as_leader(self, batch: Buffer, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Validate and append exactly one batch from a producer, and assign its offsets and leader epoch.

        A batch whose earlier append the log remembers is not appended again; the result then has its first offsets. The
        caller's buffer is not changed. Raises the errors of `storage.log.batch_validation`, which may take long, and
        those of `append_validated`.
        """
        try:
            validated = validate_batch(batch, self.config, now_ms)
        except BrokerError:
            if (repeated := self.find_repeated(batch)) is not None:
                return repeated
            raise
        return self.append_validated(validated, leader_epoch, now_ms)

    def append_validated(self, batch: ValidatedBatch, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Append a batch that has passed validation for this topic; otherwise as `append_as_leader`.

        OutOfOrderSequenceError, InvalidProducerEpochError, StorageError. If one is raised, the batch is not in the log.
        If written bytes could not be removed, all later calls raise StorageError.
        """
        self._raise_if_failed()
        try:
            return self._appender.append_as_leader(batch, leader_epoch, now_ms, self.config)
        except StorageError as error:
            self._fail_if_half_written(error)
            raise
        finally:
            self._owner.changed()

    def find_repeated(self, batch: Buffer) -> AppendInfo | None:
        """Return the offsets at which the producer has appended this batch before; None if the log remembers no append.

        Called for a batch that the topic's settings now forbid, because a refusal would wrongly report that its records
        were not appended. None also if the batch is damaged or if the buffer holds more than this batch.
        """
        try:
            header = read_header(batch)
            check_crc(batch, 0, header)
        except BrokerError:
            return None
        return self._appender.find_repeated(header, self.config) if header.size_bytes == len(batch) else None

    def append_as_follower(
        self, batches: Buffer, now_ms: int | None = None, *, leader_log_start: int = 0
    ) -> AppendInfo:
        """Append whole batches as the leader's log holds them, with their offsets, epochs and timestamps.

        Return the base offset of the first batch and the new log end − 1. Without a batch, both follow from the log
        end.

        The first batch begins at or after the log end offset, and each other one at or after the end of the batch
        before it. Offsets that compaction removed from the leader's log are therefore missing here too.

        A leader sends whole batches. The first batch may therefore begin before the log end, and end after it, if this
        log is empty or if the leader's log start is this log's end. The log is then emptied before the append, and its
        log start becomes its former end offset.

        `now_ms` is needed to roll a segment by age if its records have no timestamps. A partial batch at the end of
        the buffer, as a fetch may truncate it, is ignored.

        CorruptMessageError if a batch is damaged, InvalidRecordError if a batch begins too early; nothing is written
        then. After a StorageError a prefix of whole batches may have been appended.
        """
        self._raise_if_failed()
        view, end = memoryview(batches), self.log_end_offset
        headers = self._appender.validated_headers(
            view, may_begin_within=end in (leader_log_start, self.log_start_offset)
        )
        begins_within = bool(headers) and headers[0].base_offset < end
        if begins_within:
            self.truncate_fully_and_start_at(headers[0].base_offset)
        try:
            appended = self._appender.append_as_follower(view, headers, now_ms, self.config)
        except StorageError as error:
            self._fail_if_half_written(error)
            raise
        finally:
            self._owner.changed()
        if begins_within:
            self.raise_log_start(end)
        return appended

    def _fail_if_half_written(self, error: StorageError) -> None:
        """Fail the log if partly written bytes could not be removed, because the end of the file is then unknown."""
        if isinstance(error.__context__, StorageError):
            self._fail(error)

    def roll(self, now_ms: int) -> bool:
        """Seal the active segment, write a producer snapshot, and begin a new segment at the log end.

        Return False, and do nothing, if the active segment is empty.
        """
        self._raise_if_failed()
        if not self._segments.active.size:
            return False
        self._appender.roll(self.log_end_offset, now_ms, self.config)
        self._owner.changed()
        return True

    # --- reading -------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upper_bound: int | None = None, *, at_least_one: bool = True) -> Buffer:
        """Return whole batches, as they are in the file, from the one that holds `offset`; at most `max_bytes`.

        If compaction removed that batch, the result begins with the next one. The result ends at the end of a segment
        and before the first batch at or after `upper_bound` (None: the log end).

        With `at_least_one` the first batch is returned even if it alone is larger than `max_bytes`. Otherwise the
        result is empty then, and always if `offset` is at or after the bound. The CRC is not checked.

        OffsetOutOfRangeError below the log start and past the log end. CorruptMessageError if the first batch's offset
        or epoch contradicts the batches around it.
        """
        self._raise_if_failed()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset, self.log_end_offset)
        end_offset = self.log_end_offset if upper_bound is None else min(upper_bound, self.log_end_offset)
        if offset >= end_offset:
            return b""
        return self._reader.read(offset, max_bytes, end_offset, at_least_one)

    def slice(
        self, offset: int, max_bytes: int, upper_bound: int, on_failure: Callable[[StorageError], None]
    ) -> StoredBytes | None:
        """Return the first batches of `read` without reading their records; None if the caller must use `read` instead.

        `read` is to be used if it costs less, returns nothing, or raises an error. The slice has at most 256 batches,
        and must be used before the log is truncated, cleaned or closed. `on_failure` gets its storage errors.
        """
        self._raise_if_failed()
        end_offset = min(upper_bound, self.log_end_offset)
        if not self.log_start_offset <= offset < end_offset:
            return None
        return self._reader.slice(offset, max_bytes, end_offset, on_failure)

    def bytes_between(self, offset: int, end_offset: int) -> int | None:
        """Return the number of bytes from the start of the batch with `offset` to the start of that with `end_offset`.

        Both offsets are within the log; the log end has the position after the last batch. None if a segment ends
        between them, because a `read` ends there too. No batch is read except to find the two positions.
        """
        self._raise_if_failed()
        return self._reader.bytes_between(offset, end_offset)

    def locate(self, offset: int) -> tuple[Segment, int] | None:
        """Return (segment, position) of the first batch that ends at or after `offset`; None if there is none."""
        self._raise_if_failed()
        return self._segments.locate(offset)

    def offset_for_timestamp(self, timestamp: int, upper_bound: int) -> TimestampOffset | None:
        """Return the first record from the log start to `upper_bound` (exclusive) with a timestamp ≥ `timestamp` (ms).

        None if there is none. CorruptMessageError if a batch is damaged, UnreadableRecordsError if its producer wrote
        records that cannot be decoded, StorageError if the log has failed.
        """
        return run_steps(self.offset_for_timestamp_steps(timestamp, upper_bound))

    def offset_for_timestamp_steps(self, timestamp: int, upper_bound: int) -> Steps[TimestampOffset | None]:
        """Return the steps of `offset_for_timestamp` (`storage.steps`).

        The log may change between two steps. If it is truncated, or loses or replaces segments, the look-up starts
        again.
        """
        return self._look_up(partial(timestamp_lookup.offset_for_timestamp, self._segments, timestamp), upper_bound)

    def offset_of_max_timestamp(self, upper_bound: int) -> TimestampOffset | None:
        """Return the record with the largest timestamp from the log start to `upper_bound` (exclusive).

        The first of equals counts. None if no record there has a timestamp. Errors as in `offset_for_timestamp`.
        """
        return run_steps(self.offset_of_max_timestamp_steps(upper_bound))

    def offset_of_max_timestamp_steps(self, upper_bound: int) -> Steps[TimestampOffset | None]:
        """Return the steps of `offset_of_max_timestamp`. The log may change as in `offset_for_timestamp_steps`."""
        return self._look_up(partial(timestamp_lookup.offset_of_max_timestamp, self._segments), upper_bound)

    def _look_up(
        self, begin: Callable[[int, int], Steps[TimestampOffset | None]], upper_bound: int
    ) -> Steps[TimestampOffset | None]:
        """Return the answer of a look-up between the log start and the bound; `begin`(log start, bound) starts it.

        A: if segments were truncated, deleted or replaced between two steps, the look-up starts again, because it
           would read files that have changed or that exist no more.
        B: if the log start has passed the answer meanwhile, the look-up starts again too.
        C: records that are appended meanwhile do not count, because the bound is at most the log end at the start.
        """
        while True:
            self._raise_if_failed()
            steps = begin(self.log_start_offset, min(upper_bound, self.log_end_offset))  # C
            work = yield from steps_until_change(steps, self.version)  # A
            if work.finished and (work.result is None or work.result.offset >= self.log_start_offset):
                return self._confirmed(work.result)  # B

    def version(self) -> tuple[object, ...]:
        """Return a value that differs once segments are truncated, deleted or replaced, or once the log has failed."""
        return self.truncation_count, self._names, self._failure

    def _confirmed(self, found: TimestampOffset | None) -> TimestampOffset | None:
        """Return the answer of a look-up. CorruptMessageError if the epoch cache has another epoch for its offset.

        No CRC covers the epoch of a batch. An epoch that the cache does not know is accepted.
        """
        if found is not None and self.leader_epochs.span_of(found.offset)[0] not in (None, found.leader_epoch):
            raise CorruptMessageError(
                f"{self.directory.name}: the batch at offset {found.offset} has leader epoch {found.leader_epoch},"
                " which the leader-epoch checkpoint contradicts"
            )
        return found

    def segment_offsets(self, timestamp: int, max_num_offsets: int, now_ms: int) -> list[int]:
        """Return the base offsets from the newest segment last written by `timestamp` (ms) back to the oldest segment.

        ListOffsets version 0: descending, the first `max_num_offsets` of them, whatever the write times of the earlier
        segments are. The log end counts as a segment written at `now_ms`, and the log start replaces a lower base
        offset. `timestamp` −1 means all of these offsets, −2 the earliest alone.
        """
        self._raise_if_failed()
        entries = timestamp_lookup.segment_times(self._segments.row, self.log_start_offset, self.log_end_offset, now_ms)
        return timestamp_lookup.offsets_by_segment_time(entries, timestamp, max_num_offsets)

    def _out_of_range(self, offset: int, end_offset: int) -> OffsetOutOfRangeError:
        start_offset = self.log_start_offset
        return OffsetOutOfRangeError(
            f"offset {offset} is not in [{start_offset}, {end_offset}] of {self.directory.name}",
            first=start_offset,
            end=end_offset,
        )

    # --- shortening ----------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove the batch that holds `offset` and everything after it. Return False if the log ends at or before it.

        The log then ends at that batch's base offset. If `offset` or the end of the remaining batches is below the log
        start, the log is emptied and starts and ends at `offset`.

        An epoch that begins at the log end is removed in any case, because this replica may have led in it without
        appending. The leader that this replica follows now may not know the epoch.

        StorageError; if the removal of files or bytes had begun, the log has then failed. CorruptMessageError if a
        damaged batch hides the position; no records are removed then.
        """
        self._raise_if_failed()
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self._before_truncation(offset)
        with self._failing_permanently():
            self._truncate(offset)
        return True

    def _truncate(self, offset: int) -> None:
        self._segments.truncate_to(offset)
        if self._segments.active.next_offset < self.log_start_offset:
            # The removed batch held the log start too.
            self.truncate_fully_and_start_at(offset)
        else:
            self._after_truncation(self._producers_after_truncation())
            self._keep_producers(self._segments.base_offsets[0])

    def _producers_after_truncation(self) -> ProducerState:
        """Return the producers' state at the new log end, and remove the producer snapshots past it.

        The state is rebuilt from the log only if it cannot be rewound.
        """
        producers, end_offset = self._appender.producers, self._segments.active.next_offset
        if not producers.rewind_to(end_offset):
            return recovery.rebuild_producers(self._segments, self._snapshots)
        self._snapshots.remove_past(end_offset)
        return producers

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records, leader epochs and producers' states. The log then starts and ends at `offset`.

        `offset` may be anywhere. StorageError; if the removal of files had begun, the log has then failed.
        """
        self._raise_if_failed()
        self._before_truncation(offset)
        with self._failing_permanently():
            self._segments.reset(offset, self.config.index_interval_bytes)
            self.log_start_offset = offset
            self.leader_epochs.clear()
            self._snapshots.keep_only(())
            self._after_truncation(ProducerState())

    def lower_checkpoints_to_end(self) -> None:
        """Lower the recovery point and, through the owner, all checkpoints of the log to its end. StorageError.

        Called when records past the end are lost. Otherwise the checkpoints would cover the records appended next.
        """
        self._raise_if_failed()
        self._before_truncation(self.log_end_offset)

    def _before_truncation(self, offset: int) -> None:
        self.truncation_count += 1
        self._reader.forget()
        self._lower_recovery_point(offset)
        self._owner.truncation(offset)

    def _after_truncation(self, producers: ProducerState) -> None:
        self._appender.reset_end(producers)
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self._lower_recovery_point(self.log_end_offset)
        self._owner.truncation(self.log_end_offset)
        # The removed records must not reappear after a crash beside records that are appended now.
        self._flush_directory()

    def _lower_recovery_point(self, offset: int) -> None:
        self._recovery_point.lower(offset)
        self._owner.changed()

    # --- losing old segments -------------------------------------------------------------------------

    def raise_log_start(self, offset: int) -> bool:
        """Raise the log start, so that no record below `offset` is read. Return False if the log start is not lower.

        No segment is deleted. The new log start survives the process once the caller has written the directory's
        log-start checkpoint. OffsetOutOfRangeError past the log end.
        """
        if offset > self.log_end_offset:
            raise self._out_of_range(offset, self.log_end_offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        return True

    def delete_records(self, before_offset: int, high_watermark: int) -> int:
        """Raise the log start to `before_offset` on a user's request, unless it is higher. Return the log start.

        `HIGH_WATERMARK` (−1) stands for the high watermark. OffsetOutOfRangeError above that and below −1. No segment
        is deleted.
        """
        self._raise_if_failed()
        offset = high_watermark if before_offset == HIGH_WATERMARK else before_offset
        if not 0 <= offset <= high_watermark:
            raise self._out_of_range(offset, high_watermark)
        self.raise_log_start(offset)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> tuple[Segment, ...]:
        """Remove the oldest segments as the settings say (`storage.log.retention`), and return them, oldest first.

        The log then starts after them. The active segment may go too, after it is rolled. The files are renamed to
        `.deleted`. The caller calls `delete` of each returned segment after `file.delete.delay.ms`. The next open
        removes files that are left.
        """
        self._raise_if_failed()
        count = retention.count_deletable(
            self.segment_facts,
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if not count:
            return ()
        if count == len(self._segments):
            self.roll(now_ms)
        begin = self._segments.base_offsets[count]
        self._keep_producers(begin)
        self.raise_log_start(begin)
        self._reader.forget()
        with self._changing_names():
            retired = self._segments.retire_oldest(count)
        self._sweep_snapshots()
        return retired

    def replace_segments(self, cleaned: Segment, old: Sequence[Segment]) -> bool:
        """Replace segments with the cleaned segment that was made from them (`storage.segments.segment_swap`).

        `cleaned` has `.cleaned` names and the base offset of the first old segment; it is written and flushed. If some
        of `old` were truncated or deleted meanwhile, `cleaned` is deleted and False is returned. After True the caller
        deletes the old segments as after `delete_old_segments`. A StorageError during the renames fails the log.
        """
        self._raise_if_failed()
        if not self._segments.are_neighbours(old) or cleaned.base_offset != old[0].base_offset:
            cleaned.delete()
            return False
        cleaned.log.set_modified_ms(old[-1].log.modified_ms())
        self._reader.forget()
        with self._changing_names():
            segment_swap.swap(cleaned, old)
        self._segments.replace(old, cleaned)
        self._sweep_snapshots()
        return True

    def _keep_producers(self, begin: int) -> None:
        """Write a producer snapshot at the log end, unless a valid snapshot at or after `begin` exists.

        Called when no batch below `begin` will be left. A crash may have damaged the snapshots of rolls, and a
        truncation removes the snapshots past the new end.
        """
        producers = self._appender.producers
        if begin and producers.producers:
            latest = self._snapshots.latest(self.log_end_offset)
            if latest is None or latest[0] < begin:
                self._snapshots.write(self.log_end_offset, producers)

    def _sweep_snapshots(self) -> None:
        """Remove the producer snapshots that are not needed any more."""
        self._snapshots.keep_only({*self._segments.base_offsets, *self._snapshots.offsets()[-1:]})

    @contextmanager
    def _changing_names(self) -> Iterator[None]:
        self._names += 1
        with self._failing_permanently():
            yield
        self._names += 1

    @contextmanager
    def _failing_permanently(self) -> Iterator[None]:
        """Fail the log on a StorageError, because only recovery at the next open can finish the interrupted change."""
        try:
            yield
        except StorageError as error:
            self._fail(error)
            if isinstance(error, OutOfDescriptorsError):
                raise StorageError(f"{error}, while segments of {self.directory.name} were changing") from error
            raise

    # --- flushing ------------------------------------------------------------------------------------

    @property
    def must_flush(self) -> bool:
        """Return whether at least `flush.messages` records are unflushed; False once the log is closed."""
        unflushed = self.log_end_offset - self._recovery_point.offset
        return must_flush(unflushed, self.config.flush_messages) and not self._abandoned

    @property
    def has_unflushed_segments(self) -> bool:
        """Return whether a rolled segment is not flushed, or the log has failed, so that `flush` would raise."""
        return self._recovery_point.offset < self._segments.active.base_offset or self._failure is not None

    @property
    def names_flushed(self) -> bool:
        """Return whether segments that were deleted or replaced stay so if the power fails now.

        False from the change of their names until a flush of the directory that began after it.
        """
        return self._flushed_names == self._names

    def flush(self, *, rolled_only: bool = False) -> None:
        """Flush what is not flushed yet (with `rolled_only`: without the active segment) and raise the recovery point.

        Also flushes the directory, so that deleted files stay deleted. May run on any thread, beside all other calls,
        and takes as long as the disk does. Does nothing once the log is closed.

        After a StorageError the contents of the disk are unknown. The log then refuses all later reads, appends and
        flushes, because the kernel reports a write error once, and has nothing left to write at the next fsync. An
        OutOfDescriptorsError has no such effect, because no fsync has failed.
        """
        with self._flush_lock:
            self._raise_if_failed()
            if self.closed:
                return  # closed files must not be opened again
            try:
                self._recovery_point.advance(
                    lambda: self._segments.active.base_offset if rolled_only else self.log_end_offset,
                    self._flush_segments,
                )
                if not self.names_flushed:
                    self._flush_directory()
            except StorageError as error:
                if self._abandoned:
                    return  # the log was deleted or set aside meanwhile
                self._fail_flush(error)
                raise

    def _fail_flush(self, error: StorageError) -> None:
        """Refuse all later reads, appends and flushes and tell the owner, unless only a descriptor lacked."""
        if not isinstance(error, OutOfDescriptorsError):
            self._fail(error)
            self._owner.flush_failed()

    def _flush_segments(self, start: int, end: int) -> None:
        row = self._segments.row
        # Ends come from the base offsets: a segment may be rebuilding its own end offset now, after index damage.
        for segment, following in zip(row, [*(each.base_offset for each in row[1:]), end], strict=True):
            if following > start and segment.base_offset < end:
                segment.flush()
        self.leader_epochs.flush()
        self._flush_directory()
        if not self._own_name_flushed:
            self._files.fsync_directory(self.directory.parent)
            self._own_name_flushed = True

    def _flush_directory(self) -> None:
        names = self._names
        self._files.fsync_directory(self.directory)
        if names % 2 == 0:
            self._flushed_names = names

    def hold_flushes(self) -> None:
        """Let each later `flush` wait until `release_flushes`, so that the recovery point does not rise.

        Wait for the flush that runs now. Any thread may call this, and another one `release_flushes`.
        """
        self._flush_lock.acquire()

    def release_flushes(self) -> None:
        self._flush_lock.release()

    def forget_idle_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers that were idle for `expiration_ms`, and return how many.

        Called periodically, because idleness counts from the first call that finds no new batch
        (`ProducerState.expire`).
        """
        return self._appender.producers.expire(now_ms, expiration_ms)

    # --- moves to another log directory --------------------------------------------------------------

    def take_state_of(self, other: Log) -> None:
        """Take over the leader epochs and the producers' state of a log with the same records, which is not used again.

        Batches show neither an epoch without records nor a producer whose batches are deleted. The state is written to
        the files, without a flush. StorageError.
        """
        assert (self.log_start_offset, self.log_end_offset) == (other.log_start_offset, other.log_end_offset)
        self.leader_epochs.replace(other.epochs)
        producers = other._appender.producers
        if producers.producers:
            self._snapshots.write(self.log_end_offset, producers)
        self._appender.take_state_of(other._appender)

    def raise_end(self, offset: int) -> None:
        """Raise the log end to `offset` without a record, because compaction has removed all records up to there."""
        self._raise_if_failed()
        self._appender.raise_end(offset, self.config)
        self._owner.changed()

    def rename_to(self, directory: Path) -> None:
        """Rename the log's directory and use it under the new name. After a StorageError, nothing has changed."""
        self._files.rename(self.directory, directory)
        self.directory = directory
        self._own_name_flushed = False
        self._segments.continue_in(directory)
        self._snapshots.continue_in(directory)
        self.leader_epochs.continue_in(directory)

    # --- the end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush everything, write a producer snapshot and close the files, so that the next open needs no recovery.

        A failed log only closes its files. After a StorageError the files are still open.
        """
        if self._failure is None:
            self._segments.active.seal()
            self.flush()
            try:
                # The flush skips the index entry that `seal` has added if all batches were flushed before.
                self._segments.active.flush_indexes()
                self._flush_producers()
            except StorageError as error:
                self._fail_flush(error)
                raise
            self.leader_epochs.write()
        self.abandon()

    def _flush_producers(self) -> None:
        """Write or flush the snapshot at the log end, because no batch is read again after a clean shutdown.

        A log without batches, producers and earlier snapshots needs none.
        """
        producers, end_offset = self._appender.producers, self.log_end_offset
        if not (producers.producers or self.size_bytes or self._snapshots.offsets()):
            return
        if self._snapshots.offsets()[-1:] != (end_offset,):
            self._snapshots.write(end_offset, producers, fsync=bool(producers.producers))
        elif producers.producers:
            self._snapshots.flush(end_offset)  # a roll wrote this snapshot without a flush

    def abandon(self) -> None:
        """Close the files without a flush.

        Nothing is written afterwards, and a running flush that fails is no error.
        """
        self.retire()
        self._segments.close()

    def retire(self) -> None:
        """Let the log only be read from now on, because another log has its place and its files will be deleted.

        Nothing is written afterwards, and a running flush that fails is no error.
        """
        self._abandoned = True
        self.leader_epochs.close()

    def fail(self, error: StorageError) -> None:
        """Make every later read and write raise StorageError, because the disk has failed. Any thread may call this."""
        if self._failure is None:
            self._fail(error)

    def _fail(self, error: StorageError) -> None:
        self._failure = error
        self._owner.changed()

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise StorageError(f"{self.directory.name} is offline: {self._failure}")
