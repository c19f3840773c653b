"""One replica's log of one partition: an ordered row of segments, written at the end and read anywhere.

All calls but `flush` and `leader_epochs.write` belong to the log's owner; these two may run on any thread beside them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from storage import partition_metadata
from storage.configs.log_config import LogConfig
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.files import Files
from storage.log import recovery, retention, timestamp_lookup
from storage.log.batch_validation import ValidatedBatch, validate_batch
from storage.log.leader_epochs import EpochStart
from storage.log.log_appender import AppendInfo, LogAppender
from storage.log.log_reader import LogReader
from storage.log.recovery_point import RecoveryPoint, must_flush
from storage.producers.producer_snapshots import ProducerSnapshots
from storage.producers.producer_state import ProducerState
from storage.segments import segment_swap
from storage.segments.log_segments import Segments
from storage.segments.segment import Segment
from storage.segments.timestamp_search import Searcher, TimestampOffset, run_whole
from tidelog.errors import BrokerError, CorruptMessageError, OffsetOutOfRangeError, StorageError
from tidelog.model import Buffer
from tidelog.records import read_header
from tidelog.records.header import check_crc

#: What `delete_records` takes for the high watermark.
HIGH_WATERMARK = -1


class Log:
    """Batches by offset.

    log_start_offset  first offset that may be read, at most log_end_offset. Raised by trimming, never lowered.
    topic_id          from `partition.metadata`; "" where that is missing or damaged.
    config            may be replaced at any time.
    cuts              how often something was cut off its end: what was seen of it before may be another thing now.
                      Raised before what was noted of the log is lowered
    """

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        files: Files,
        recovered: recovery.RecoveredLog,
        recovery_point: int,
        on_cut: Callable[[int], None] | None,
        on_sync_failed: Callable[[], None] | None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.recovered = recovered
        self.topic_id, self.topic_id_proven = partition_metadata.read(files, directory)
        self._files = files
        self._segments = Segments(directory, files, recovered.segments)
        self.leader_epochs = recovered.epochs
        self._reader = LogReader(self._segments, self.leader_epochs)
        self._snapshots = ProducerSnapshots(directory, files)
        self._on_cut = on_cut
        self._on_sync_failed = on_sync_failed
        self.log_start_offset = self._segments.base_offsets[0]
        producers = recovery.rebuild_producers(self._segments, self._snapshots)
        self._appender = LogAppender(
            self._segments, self.leader_epochs, self._snapshots, producers, recovered.last_batch
        )
        self._recovery_point = RecoveryPoint(min(recovery_point, self.log_end_offset))
        self._sweep_snapshots()
        self._failure: StorageError | None = None
        self._one_sync_at_a_time = threading.Lock()
        self._abandoned = False
        self.truncation_count = 0
        #: The name of the directory is on the disk, without which nothing in it is.
        self._named = False
        #: Odd while names in the directory change, and as of its last sync that began when they did not.
        self._names = self._synced_names = 0

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
        on_cut: Callable[[int], None] | None = None,
        on_sync_failed: Callable[[], None] | None = None,
        on_loss: Callable[[], None] = lambda: None,
    ) -> Log:
        """Opens or creates the log in a directory; it starts where its oldest segment does (`raise_log_start`).

        `clean`: the last process closed it in order.

        Otherwise all from the recovery point on is checked and what is damaged is cut off (`storage.log.recovery`).
        `cleaned_to`: up to there a cleaner has been, whatever the topic's policy is by now, so offsets may be missing.
        `on_cut` is called with the offset from which on a truncation takes everything: before the cut, and after it,
        since it took more where the offset lay inside a batch, and another thread may have noted meanwhile what held
        before. What was noted of the log beyond, on the disk too, must be lowered when it returns: what is appended
        over the cut is another thing, and not synced.
        `on_sync_failed` is called on the thread of the sync, before anybody hears of it. `rewrite`: one had failed in
        the process before, so that no sync counts of what is not written again. `on_loss` as in `recovery.Recovery`.
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
                on_loss=on_loss,
                opened=unless_open,
            ).run()
            log = cls(directory, config, files, recovered, recovery_point, on_cut, on_sync_failed)
            unless_open.pop_all()
        return log

    # --- facts ---------------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record. Raised by appends, lowered by truncation."""
        return self._appender.end_offset

    @property
    def size_bytes(self) -> int:
        """Of all `.log` files."""
        return self._segments.size_bytes

    @property
    def recovery_point(self) -> int:
        """All below it is synced, a crash is recovered from here; never past the log end.

        Raised by `flush`, lowered by truncation.
        """
        return self._recovery_point.offset

    @property
    def segments(self) -> Sequence[Segment]:
        """Oldest first, the last is active; as they stand now, so another thread may go through them too."""
        return self._segments.row

    @property
    def segment_facts(self) -> list[retention.SegmentFacts]:
        """What retention goes by, as the segments stand now: another thread may ask too."""
        row, end = self._segments.row, self.log_end_offset
        ends = [*(segment.base_offset for segment in row[1:]), end]
        return [
            retention.SegmentFacts(end, segment.size, segment.largest.timestamp, segment.log.modified_ms)
            for segment, end in zip(row, ends, strict=True)
        ]

    @property
    def closed(self) -> bool:
        """Its files were given back: nothing may be changed in its directory any more."""
        return self._abandoned

    @property
    def last_offsets_of_producers(self) -> dict[int, int]:
        """By producer id, of those that the log remembers: the offset with which each one's last batch ends."""
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
        """The leader epoch that began last; None in a log that has seen none."""
        return self.leader_epochs.latest

    @property
    def epochs(self) -> tuple[EpochStart, ...]:
        return self.leader_epochs.entries()

    @property
    def largest_timestamp(self) -> int:
        """Ms; −1 where no record has one."""
        return self._segments.largest_timestamp

    def end_offset_for_epoch(self, epoch: int) -> EpochStart | None:
        """(the greatest epoch ≤ `epoch` in this log, the offset at which it ends); None where the log cannot say."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch in which the record of this offset was appended; None where the log cannot say."""
        return self.leader_epochs.span_of(offset)[0]

    def assign_topic_id(self, topic_id: str) -> None:
        """Writes `partition.metadata`, which says which topic of this name the log belongs to."""
        partition_metadata.write(self._files, self.directory, topic_id)
        self.topic_id, self.topic_id_proven = topic_id, True

    # --- appending -----------------------------------------------------------------------------------

    def assign_leader_epoch(self, epoch: int) -> None:
        """At becoming leader: the epoch begins at the log end."""
        self._raise_if_failed()
        self.leader_epochs.assign(epoch, self.log_end_offset)

    def append_as_leader(self, batch: Buffer, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Appends exactly one batch from a producer and gives it its offsets; the caller's buffer is not changed.

        Errors are those of `storage.log.batch_validation`, which may take long, and of `append_validated`.
        """
        try:
            validated = validate_batch(batch, self.config, now_ms)
        except BrokerError:
            if (repeated := self.find_repeated(batch)) is not None:
                return repeated
            raise
        return self.append_validated(validated, leader_epoch, now_ms)

    def append_validated(self, batch: ValidatedBatch, leader_epoch: int, now_ms: int) -> AppendInfo:
        """As `append_as_leader`, with a batch that was found to be one for this topic.

        Nothing is written on an error: OutOfOrderSequenceError, InvalidProducerEpochError, StorageError.
        """
        self._raise_if_failed()
        try:
            return self._appender.append_as_leader(batch, leader_epoch, now_ms, self.config)
        except StorageError as error:
            self._fail_if_half_written(error)
            raise

    def find_repeated(self, batch: Buffer) -> AppendInfo | None:
        """Where a batch stands already that cannot be admitted as the topic's settings are by now.

        Its producer did not hear of that: to be refused would be an answer to what was done. None where it is damaged,
        or where more is sent with it.
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
        """Appends whole batches as the leader's log holds them.

        The first begins at or after the log end offset and each other after the end of the one before it: offsets that
        compaction took from the leader's log are missing here too. Where this log is empty, or the leader's begins at
        the end of this one, the first batch may begin before it, since whole batches are sent: this log is then
        dropped for it, and begins where it ended. `now_ms` serves to roll a segment of records without timestamps by
        age. A partial batch at the end, as a fetch may cut it, is left out.

        CorruptMessageError for a batch that is damaged, InvalidRecordError for offsets that go back; nothing is written
        then. After a StorageError a prefix of whole batches may have been appended.
        """
        self._raise_if_failed()
        view, end = memoryview(batches), self.log_end_offset
        headers = self._appender.validated(view, may_begin_within=end in (leader_log_start, self.log_start_offset))
        begins_within = bool(headers) and headers[0].base_offset < end
        if begins_within:
            self.truncate_fully_and_start_at(headers[0].base_offset)
        try:
            appended = self._appender.append_as_follower(view, headers, now_ms, self.config)
        except StorageError as error:
            self._fail_if_half_written(error)
            raise
        if begins_within:
            self.raise_log_start(end)
        return appended

    def _fail_if_half_written(self, error: StorageError) -> None:
        """Where taking back what was half written failed too, nobody knows what is at the end of the file."""
        if isinstance(error.__context__, StorageError):
            self._failure = error

    def roll(self, now_ms: int) -> bool:
        """Seals all that there is: a new segment begins at the log end. False where the active one is empty."""
        self._raise_if_failed()
        if not self._segments.active.size:
            return False
        self._appender.roll(self.log_end_offset, now_ms, self.config)
        return True

    # --- reading -------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upper_bound: int | None = None, *, at_least_one: bool = True) -> Buffer:
        """Whole batches from the one that holds `offset`, as they are in the file, at most `max_bytes`.

        Ends at the end of a segment and before the batch that begins at or after `upper_bound` (the log end where it is
        None). `at_least_one`: the first batch is returned even if it alone is larger. Empty where nothing may be read
        yet. OffsetOutOfRangeError below the log start and past the log end.
        """
        self._raise_if_failed()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset, self.log_end_offset)
        end_offset = self.log_end_offset if upper_bound is None else min(upper_bound, self.log_end_offset)
        if offset >= end_offset:
            return b""
        return self._reader.read(offset, max_bytes, end_offset, at_least_one)

    def bytes_between(self, offset: int, end_offset: int) -> int | None:
        """Of the batches from the one that holds `offset` to before that which holds `end_offset`; reads none of them.

        Both are within the log. None where a segment ends between them, with which a `read` ends, too.
        """
        self._raise_if_failed()
        return self._reader.bytes_between(offset, end_offset)

    def offset_for_timestamp(
        self, timestamp: int, upper_bound: int, search: Searcher = run_whole
    ) -> TimestampOffset | None:
        """The earliest record at or after `timestamp` (ms) below `upper_bound` (exclusive); exact.

        `search` is asked for what stands inside batches; its errors end the look-up. CorruptMessageError where a batch
        is damaged, UnreadableRecordsError where it was written so.
        """
        self._raise_if_failed()
        return self._confirmed(
            timestamp_lookup.offset_for_timestamp(self._segments, timestamp, self.log_start_offset, upper_bound, search)
        )

    def offset_of_max_timestamp(self, upper_bound: int, search: Searcher = run_whole) -> TimestampOffset | None:
        """The record with the largest timestamp below `upper_bound` (exclusive), the earliest of equals.

        `search` and errors as in `offset_for_timestamp`.
        """
        self._raise_if_failed()
        return self._confirmed(
            timestamp_lookup.offset_of_max_timestamp(self._segments, self.log_start_offset, upper_bound, search)
        )

    def _confirmed(self, found: TimestampOffset | None) -> TimestampOffset | None:
        """No CRC covers the epoch of a batch."""
        if found is not None and self.leader_epochs.span_of(found.offset)[0] not in (None, found.leader_epoch):
            raise CorruptMessageError(f"{self.directory.name}: offset {found.offset} is not of its batch's epoch")
        return found

    def segment_offsets(self, timestamp: int, max_num_offsets: int, now_ms: int) -> list[int]:
        """ListOffsets version 0: where segments begin that were last written at or before `timestamp` (ms), or earlier.

        Descending, at most `max_num_offsets`, up to the log end; −1 asks for the latest, −2 for the earliest one.
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
        """Removes all from `offset` on, and with it the whole batch that holds it. False where the log ends before it.

        Below the log start nothing can remain: the log then starts and ends at `offset`. An epoch that began at the
        log's end goes in any case: whoever led it and appended nothing may have to follow one that knows nothing of it.
        """
        self._raise_if_failed()
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self._announce_cut(offset)
        with self._failing_for_good():
            self._cut(offset)
        return True

    def _cut(self, offset: int) -> None:
        self._segments.truncate_to(offset)
        if self._segments.active.next_offset < self.log_start_offset:
            # The batch that went held the log start too.
            self.truncate_fully_and_start_at(offset)
        else:
            self._settle_after_cut(self._producers_after_cut())
            self._keep_producers(self._segments.base_offsets[0])

    def _producers_after_cut(self) -> ProducerState:
        """Read from the log only where they must be: many batches may lie behind its last snapshot."""
        producers, end_offset = self._appender.producers, self._segments.active.next_offset
        if not producers.rewind_to(end_offset):
            return recovery.rebuild_producers(self._segments, self._snapshots)
        self._snapshots.remove_past(end_offset)
        return producers

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes everything; the log starts and ends at `offset`."""
        self._raise_if_failed()
        self._announce_cut(offset)
        with self._failing_for_good():
            self._segments.begin_anew(offset, self.config.index_interval_bytes)
            self.log_start_offset = offset
            self.leader_epochs.clear()
            self._snapshots.keep_only(())
            self._settle_after_cut(ProducerState())

    def give_up_beyond_end(self) -> None:
        """What is noted of it beyond its end is lost: it must not hold of what is appended there now. StorageError."""
        self._raise_if_failed()
        self._announce_cut(self.log_end_offset)

    def _announce_cut(self, offset: int) -> None:
        self.truncation_count += 1
        self._reader.forget()
        self._recovery_point.lower(offset)
        if self._on_cut is not None:
            self._on_cut(offset)

    def _settle_after_cut(self, producers: ProducerState) -> None:
        self._appender.restart(producers)
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self._recovery_point.lower(self.log_end_offset)
        if self._on_cut is not None:
            self._on_cut(self.log_end_offset)
        # What was cut must not come back, after a crash, beside what is appended now.
        self._sync_names()

    # --- losing old segments -------------------------------------------------------------------------

    def raise_log_start(self, offset: int) -> bool:
        """Makes all below `offset` unreadable; False where it was already. OffsetOutOfRangeError past the log end.

        It outlasts the process once the directory's checkpoint of log starts is written.
        """
        if offset > self.log_end_offset:
            raise self._out_of_range(offset, self.log_end_offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        return True

    def delete_records(self, before_offset: int, high_watermark: int) -> int:
        """Makes all below the offset unreadable, for a user; the log start offset then.

        `HIGH_WATERMARK` (−1) stands for the high watermark. OffsetOutOfRangeError above that and below −1.
        """
        self._raise_if_failed()
        offset = high_watermark if before_offset == HIGH_WATERMARK else before_offset
        if not 0 <= offset <= high_watermark:
            raise self._out_of_range(offset, high_watermark)
        self.raise_log_start(offset)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> tuple[Segment, ...]:
        """Takes the oldest segments out of the log as its settings say (`storage.log.retention`); it begins after them.

        The active one too may go, once it is rolled. Their files are marked as deleted; the caller calls `delete` of
        each when `file.delete.delay.ms` have passed. What is not called before the process ends goes at the next open.
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
        self._sweep_snapshots_if_possible()
        return retired

    def replace_segments(self, cleaned: Segment, old: Sequence[Segment]) -> bool:
        """Puts a cleaned segment in the place of those that it was made from (`storage.segments.segment_swap`).

        `cleaned` has `.cleaned` names, begins where the first of them does, and is written and synced. False where
        `old` do not stand in the log any more as they did, since some were cut or deleted meanwhile: `cleaned` is then
        deleted. The caller deletes the old ones as after `delete_old_segments`.
        """
        self._raise_if_failed()
        if not self._segments.stand_together(old) or cleaned.base_offset != old[0].base_offset:
            cleaned.delete()
            return False
        cleaned.log.set_modified_ms(old[-1].log.modified_ms())
        self._reader.forget()
        with self._changing_names():
            segment_swap.swap(cleaned, old)
        self._segments.replace(old, cleaned)
        self._sweep_snapshots_if_possible()
        return True

    def _keep_producers(self, begin: int) -> None:
        """Write a producer snapshot before batches below `begin` are deleted, unless a later snapshot is left.

        A crash may have damaged the snapshots of rolls, and a truncation removes the snapshots past its cut.
        """
        producers = self._appender.producers
        if begin and producers.producers:
            latest = self._snapshots.latest(self.log_end_offset)
            if latest is None or latest[0] < begin:
                self._snapshots.write(self.log_end_offset, producers)

    def _sweep_snapshots_if_possible(self) -> None:
        """With the next one otherwise: who changed the log must hear what went from it."""
        with suppress(OutOfDescriptorsError):
            self._sweep_snapshots()

    def _sweep_snapshots(self) -> None:
        self._snapshots.keep_only({*self._segments.base_offsets, *self._snapshots.offsets()[-1:]})

    @contextmanager
    def _changing_names(self) -> Iterator[None]:
        self._names += 1
        with self._failing_for_good():
            yield
        self._names += 1

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        """What a StorageError interrupts here is finished when the log is opened again, and only then."""
        try:
            yield
        except StorageError as error:
            self._failure = error
            if isinstance(error, OutOfDescriptorsError):
                raise StorageError(f"{error}, in the middle of a change") from error
            raise

    # --- durability ----------------------------------------------------------------------------------

    @property
    def must_flush(self) -> bool:
        """`flush.messages` asks for a flush now."""
        unflushed = self.log_end_offset - self._recovery_point.offset
        return must_flush(unflushed, self.config.flush_messages) and not self._abandoned

    @property
    def has_unsynced_segments(self) -> bool:
        """A segment was rolled and is not synced; or the log has failed, as `flush` would say."""
        return self._recovery_point.offset < self._segments.active.base_offset or self._failure is not None

    @property
    def names_synced(self) -> bool:
        """Segments that went from the log, or were replaced, do not come back if the power fails now."""
        return self._synced_names == self._names

    def flush(self, *, rolled_only: bool = False) -> None:
        """Syncs what is not synced yet (with `rolled_only` not the active segment) and raises the recovery point.

        What has gone from the directory before is gone for good then.
        Takes as long as the disk does; on any thread, beside everything else. After a failed sync nobody knows what is
        on the disk, so the log refuses further appends; but after an OutOfDescriptorsError, when none was tried. It
        refuses syncs, too, of those who waited for that one: the kernel tells of an error once and has nothing to
        write when it is asked again.
        """
        with self._one_sync_at_a_time:
            self._raise_if_failed()
            if self.closed:
                return  # files that were given back are not to be opened again
            try:
                self._recovery_point.advance(
                    lambda: self._segments.active.base_offset if rolled_only else self.log_end_offset, self._sync
                )
                if not self.names_synced:
                    self._sync_names()
            except StorageError as error:
                if self._abandoned:
                    return  # deleted or set aside meanwhile: nothing is left to keep
                self._fail_sync(error)
                raise

    def _fail_sync(self, error: StorageError) -> None:
        """Refuse all later appends and syncs, and have the next process know of it; unless no sync was attempted."""
        if not isinstance(error, OutOfDescriptorsError):
            self._failure = error
            if self._on_sync_failed is not None:
                self._on_sync_failed()

    def _sync(self, start: int, end: int) -> None:
        row = self._segments.row
        # Where a segment ends its row tells: it may be counting its batches anew just now, for a damaged index.
        for segment, following in zip(row, [*(each.base_offset for each in row[1:]), end], strict=True):
            if following > start and segment.base_offset < end:
                segment.sync()
        self.leader_epochs.sync()
        self._sync_names()
        if not self._named:
            self._files.sync_directory(self.directory.parent)
            self._named = True

    def _sync_names(self) -> None:
        names = self._names
        self._files.sync_directory(self.directory)
        if names % 2 == 0:
            self._synced_names = names

    def forget_idle_producers(self, now_ms: int, expiration_ms: int) -> int:
        """To be called every `producer.id.expiration.check.interval.ms`; see `ProducerState.expire`."""
        return self._appender.producers.expire(now_ms, expiration_ms)

    def close(self) -> None:
        """Leaves everything synced and complete, so that the next open needs no recovery."""
        if self._failure is None:
            self._segments.active.seal()
            self.flush()
            try:
                # The flush skips the index entry that `seal` has added if all batches were synced before.
                self._segments.active.sync_indexes()
                self._sync_producers()
            except StorageError as error:
                self._fail_sync(error)
                raise
            self.leader_epochs.write()
        self.abandon()

    def _sync_producers(self) -> None:
        """Write or sync the snapshot at the log end, because no batch is read again after a clean shutdown."""
        producers, end_offset = self._appender.producers, self.log_end_offset
        if self._snapshots.offsets()[-1:] != [end_offset]:
            self._snapshots.write(end_offset, producers, sync=bool(producers.producers))
        elif producers.producers:
            self._snapshots.sync(end_offset)  # a roll has written it, and does not sync

    def abandon(self) -> None:
        """Gives the files back as they are."""
        self._abandoned = True
        self.leader_epochs.close()
        self._segments.close()

    def fail(self, error: StorageError) -> None:
        """The disk below has failed: every later read and write raises StorageError. May be called on any thread."""
        if self._failure is None:
            self._failure = error

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise StorageError(f"{self.directory.name} is offline: {self._failure}")
