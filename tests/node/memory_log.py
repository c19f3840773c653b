"""Logs in memory, for tests of the layers above storage."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from storage.configs.log_config import LogConfig
from storage.directory.directory_checkpoints import Committed
from storage.directory.leadership_checkpoint import Leadership
from storage.log.batch_validation import ValidatedBatch
from storage.log.log import HIGH_WATERMARK
from storage.log.log_appender import AppendInfo
from storage.log.retention import SegmentFacts
from storage.log.timestamp_lookup import SegmentTime, offsets_by_segment_time
from storage.segments.timestamp_search import RecordSearch, TimestampOffset
from storage.steps import Steps
from tidelog.errors import BrokerError, InvalidRecordError, OffsetOutOfRangeError, StorageError
from tidelog.model import Buffer, TopicPartition
from tidelog.records import Record, assign_offsets, decode_records, iter_headers, read_header


class MemoryLog:
    """The simple twin of `storage.log.log.Log`: a list of batches. `broken` makes every write fail."""

    def __init__(self, topic_id: str, config: LogConfig) -> None:
        self.topic_id = topic_id
        self.config = config
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.recovery_point = 0
        self.broken = False
        self.written_ms = 0
        self.truncation_count = 0
        self.on_truncation: Callable[[int], None] = lambda offset: None
        self._epochs: list[tuple[int, int]] = []

    def configure(self, config: LogConfig) -> None:
        self.config = config

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._epochs)

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1][0] if self._epochs else None

    @property
    def segment_facts(self) -> list[SegmentFacts]:
        """Return one segment, which is never rolled."""
        headers = [read_header(batch) for batch in self.batches]
        largest = max((header.max_timestamp for header in headers), default=-1)
        return [SegmentFacts(self.log_end_offset, sum(map(len, self.batches)), largest, lambda: 0)]

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_records(batch)]

    @property
    def values(self) -> list[bytes]:
        return [record.value or b"" for record in self.records]

    def assign_leader_epoch(self, epoch: int) -> None:
        if self.latest_epoch != epoch:
            self._epochs = [each for each in self._epochs if each[0] < epoch and each[1] < self.log_end_offset]
            self._epochs.append((epoch, self.log_end_offset))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        if not self._epochs or epoch > self._epochs[-1][0]:
            return None
        older = [known for known, _ in self._epochs if known <= epoch]
        later = [start for known, start in self._epochs if known > epoch]
        return (older[-1] if older else epoch), (later[0] if later else self.log_end_offset)

    def append_validated(self, batch: ValidatedBatch, leader_epoch: int, now_ms: int) -> AppendInfo:
        self._write_or_raise()
        data = batch.data
        if (repeated := self.find_repeated(data)) is not None:
            return repeated
        written = bytearray(data)
        base_offset = self.log_end_offset
        assign_offsets(written, 0, base_offset, leader_epoch)
        self._take(bytes(written))
        return AppendInfo(base_offset, self.log_end_offset - 1)

    def find_repeated(self, batch: Buffer) -> AppendInfo | None:
        try:
            header = read_header(batch)
        except BrokerError:
            return None
        if header.producer_id >= 0:
            for old in map(read_header, self.batches):
                if (old.producer_id, old.base_sequence) == (header.producer_id, header.base_sequence):
                    return AppendInfo(old.base_offset, old.last_offset, duplicate=True)
        return None

    def append_as_follower(self, batches: Buffer, *, leader_log_start: int = 0) -> None:
        self._write_or_raise()
        for position, header in iter_headers(batches):
            if header.base_offset != self.log_end_offset:
                raise InvalidRecordError(f"{header.base_offset} where {self.log_end_offset} is next")
            self.assign_leader_epoch(header.partition_leader_epoch)
            self._take(bytes(batches[position : position + header.size_bytes]))

    def read(self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True) -> bytes:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError
        taken = b""
        for batch in self.batches:
            header = read_header(batch)
            if header.last_offset < offset:
                continue
            if header.base_offset >= upper_bound:
                break
            if len(taken) + len(batch) > max_bytes and (taken or not at_least_one):
                break
            taken += batch
        return taken

    def slice(self, offset: int, max_bytes: int, upper_bound: int, on_failure: object) -> None:
        """Return None, because there is no file."""

    def bytes_between(self, offset: int, end_offset: int) -> int:
        headers = map(read_header, self.batches)
        return sum(each.size_bytes for each in headers if offset <= each.last_offset and each.base_offset < end_offset)

    def offset_for_timestamp_steps(self, timestamp: int, upper_bound: int) -> Steps[TimestampOffset | None]:
        found = yield from self._found_in_each(timestamp, upper_bound)
        return next(iter(found), None)

    def offset_of_max_timestamp_steps(self, upper_bound: int) -> Steps[TimestampOffset | None]:
        found = yield from self._found_in_each(None, upper_bound)
        return max(found, key=lambda each: each.timestamp, default=None)

    def segment_offsets(self, timestamp: int, max_num_offsets: int, now_ms: int) -> list[int]:
        """Return offsets as if the log had one segment, last written at `written_ms`."""
        entries: list[SegmentTime] = [(self.log_start_offset, lambda: self.written_ms)]
        if self.batches:
            entries.append((self.log_end_offset, lambda: now_ms))
        return offsets_by_segment_time(entries, timestamp, max_num_offsets)

    def epoch_at(self, offset: int) -> int | None:
        return max((epoch for epoch, start in self._epochs if start <= offset), default=None)

    def truncate_to(self, offset: int) -> None:
        self._write_or_raise()
        if offset < self.log_end_offset:
            self.truncation_count += 1
            self.batches = [batch for batch in self.batches if read_header(batch).last_offset < offset]
            self.log_end_offset = read_header(self.batches[-1]).next_offset if self.batches else self.log_start_offset
            self.on_truncation(self.log_end_offset)
        self._epochs = [each for each in self._epochs if each[1] < self.log_end_offset]
        self.recovery_point = min(self.recovery_point, self.log_end_offset)

    def lower_checkpoints_to_end(self) -> None:
        self._write_or_raise()
        self.truncation_count += 1
        self.on_truncation(self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.truncation_count += 1
        self.batches, self._epochs = [], []
        self.log_start_offset = self.log_end_offset = self.recovery_point = offset
        self.on_truncation(offset)

    def raise_log_start(self, offset: int) -> bool:
        if offset <= self.log_start_offset:
            return False
        self.trim(offset)
        return True

    def delete_records(self, before_offset: int, high_watermark: int) -> int:
        self._write_or_raise()
        offset = high_watermark if before_offset == HIGH_WATERMARK else before_offset
        if not 0 <= offset <= high_watermark:
            raise OffsetOutOfRangeError
        self.raise_log_start(offset)
        return self.log_start_offset

    def trim(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if read_header(batch).base_offset >= offset]
        self.log_start_offset = offset

    @property
    def must_flush(self) -> bool:
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def flush(self) -> None:
        self._write_or_raise()
        self.recovery_point = self.log_end_offset

    def after_power_cut(self) -> MemoryLog:
        """Return a copy with the flushed records only. A process that still holds this log does not touch the copy."""
        left = copy.copy(self)
        left.on_truncation = lambda offset: None
        left.batches, left._epochs = list(self.batches), list(self._epochs)
        left.truncate_to(self.recovery_point)
        return left

    def _found_in_each(self, timestamp: int | None, upper_bound: int) -> Steps[list[TimestampOffset]]:
        """Return the answer in each batch; if a time is searched, in the first one that has an answer."""
        answers = []
        for batch in tuple(self.batches):
            header = read_header(batch)
            found = yield from RecordSearch(timestamp, header.base_offset, upper_bound, header, batch).steps()
            if found is not None:
                answers.append(found)
                if timestamp is not None:
                    break
        return answers

    def _take(self, batch: bytes) -> None:
        self.batches.append(batch)
        self.log_end_offset = read_header(batch).next_offset

    def _write_or_raise(self) -> None:
        if self.broken:
            raise StorageError("no space left on device")


class MemoryLogs:
    """One log directory, which outlives the broker process that uses it."""

    def __init__(self) -> None:
        self.failure: StorageError | None = None
        self._logs: dict[TopicPartition, MemoryLog] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._leaderships: dict[TopicPartition, Leadership] = {}
        self.stray: list[MemoryLog] = []
        self.futures: tuple[()] = ()  # nothing moves, because there is one directory

    def logs(self) -> Mapping[TopicPartition, MemoryLog]:
        return self._logs

    def every_log(self) -> list[tuple[TopicPartition, MemoryLog]]:
        return list(self._logs.items())

    def log_sizes(self) -> Mapping[Path, Mapping[TopicPartition, int] | StorageError]:
        sizes = {tp: sum(map(len, log.batches)) for tp, log in self._logs.items()}
        return {Path("disk"): self.failure or sizes}

    @property
    def works(self) -> bool:
        return self.failure is None

    def report(self, tp: TopicPartition, error: StorageError) -> None:
        self.failure = self.failure or error

    def failed(self) -> list[tuple[Path, StorageError]]:
        return [(Path("disk"), self.failure)] if self.failure and self._logs else []

    def take_offline(self, path: Path, error: StorageError) -> list[TopicPartition]:
        gone, self._logs = list(self._logs), {}
        return gone

    def get_or_create(
        self, tp: TopicPartition, topic_id: str, config: LogConfig, *, in_sync: bool = False
    ) -> MemoryLog:
        if tp in self._logs and self._logs[tp].topic_id != topic_id:
            self.set_aside(tp)
        if tp not in self._logs:
            self._add(tp, MemoryLog(topic_id, config))
        return self._logs[tp]

    def _add(self, tp: TopicPartition, log: MemoryLog) -> None:
        log.on_truncation = partial(self._lower, tp)
        self._logs[tp] = log

    def _lower(self, tp: TopicPartition, offset: int) -> None:
        if tp in self._high_watermarks:
            self._high_watermarks[tp] = min(self._high_watermarks[tp], offset)

    def set_aside(self, tp: TopicPartition) -> None:
        self._high_watermarks.pop(tp, None)
        self.stray.append(self._logs.pop(tp))

    def delete(self, *tps: TopicPartition) -> None:
        for tp in tps:
            self._logs.pop(tp, None)

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        return dict(self._high_watermarks)

    def after_power_cut(self) -> MemoryLogs:
        left = MemoryLogs()
        for tp, log in self._logs.items():
            left._add(tp, log.after_power_cut())
        left._high_watermarks = dict(self._high_watermarks)
        return left

    def leaderships(self) -> Mapping[TopicPartition, Leadership]:
        return dict(self._leaderships)

    def checkpoint_leaderships(self, leaderships: Mapping[TopicPartition, Leadership]) -> None:
        self._leaderships = {tp: each for tp, each in leaderships.items() if tp in self._logs}

    def checkpoint_high_watermarks(self, committed: Mapping[TopicPartition, Committed]) -> None:
        """Write high watermarks. No check against truncations in between is needed, because there are no threads."""
        kept = {tp: noted for tp, noted in self._high_watermarks.items() if tp in self._logs}
        here = {tp: each.high_watermark for tp, each in committed.items() if self._logs.get(tp) is each.log}
        self._high_watermarks = kept | here
