"""The end of a log: it appends batches and begins new segments."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from storage.configs.log_config import LogConfig
from storage.log.batch_validation import ValidatedBatch
from storage.log.leader_epochs import LeaderEpochs
from storage.log.rolling import must_roll
from storage.producers.producer_snapshots import ProducerSnapshots
from storage.producers.producer_state import ProducerState
from storage.segments.log_segments import Segments
from storage.segments.offset_index import MAX_RELATIVE_OFFSET
from storage.segments.segment import BatchSpan
from tidelog.errors import InvalidRecordError
from tidelog.model import NO_TIMESTAMP
from tidelog.records import (
    BatchHeader,
    TimestampType,
    iter_headers,
    read_header,
    stamp_log_append_time,
    validate_batch,
)

#: Base offset, batch length, leader epoch: the header bytes that the leader assigns.
_ASSIGNED = Struct(">qii")


class AppendInfo(NamedTuple):
    """The offsets of appended records. A `duplicate` was not appended again and has the offsets of its first append.

    last_offset          base_offset − 1 if nothing was appended
    log_append_time_ms   the timestamp that the leader assigned; −1 with CreateTime and on followers
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int = NO_TIMESTAMP
    duplicate: bool = False


class LogAppender:
    """Appends to the active segment and keeps the epoch cache and the producers' state up to date.

    end_offset   the log end offset
    producers    the state of the log's producers up to the end offset
    """

    __slots__ = ("_active_since_ms", "_epochs", "_last_stamp", "_segments", "_snapshots", "end_offset", "producers")

    def __init__(
        self,
        segments: Segments,
        epochs: LeaderEpochs,
        snapshots: ProducerSnapshots,
        producers: ProducerState,
        last_batch: BatchHeader | None,
    ) -> None:
        self._segments = segments
        self._epochs = epochs
        self._snapshots = snapshots
        stamped = last_batch is not None and last_batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._last_stamp = last_batch.max_timestamp if last_batch is not None and stamped else NO_TIMESTAMP
        self.reset_end(producers)

    def reset_end(self, producers: ProducerState) -> None:
        """Adopt the end of the active segment as the log end, and `producers` as the state up to there.

        Called after the log was opened or truncated.
        """
        self.end_offset = self._segments.active.next_offset
        self.producers = producers
        #: The broker's clock at the first append to the active segment that passed a time; None before that.
        self._active_since_ms: int | None = None

    def take_state_of(self, other: LogAppender) -> None:
        """Take over the producers' state, and the last LogAppendTime, of a log with the same records."""
        self.producers = other.producers
        self._last_stamp = other._last_stamp

    def append_as_leader(
        self, validated: ValidatedBatch, leader_epoch: int, now_ms: int, config: LogConfig
    ) -> AppendInfo:
        """Append a validated batch, unless its producer has appended it before, and assign its offsets and epoch.

        A segment is rolled first if needed. Errors as in `Log.append_validated`.
        """
        header, batch = validated
        idempotent = header.producer_id >= 0
        log_append_time = config.log_append_time
        if idempotent:
            if (repeated := self.find_repeated(header, config)) is not None:
                return repeated
            self.producers.check(header)
        stamp = NO_TIMESTAMP
        if log_append_time:
            # Never below the last LogAppendTime, so that timestamps stay ordered if the clock is set back.
            stamp = max(now_ms, self._last_stamp)
            batch = bytearray(batch)
            stamp_log_append_time(batch, 0, stamp)
            header = read_header(batch)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        if leader_epoch != self._epochs.latest:
            self._epochs.assign(leader_epoch, base_offset)
        max_timestamp, size = header.max_timestamp, len(batch)
        since_ms = self._active_since_ms
        if since_ms is None:
            since_ms = self._active_since_ms = now_ms
        active = self._segments.active
        if must_roll(active, config, active.size, size, last_offset, max_timestamp, now_ms - since_ms):
            self.roll(base_offset, now_ms, config)
        head = _ASSIGNED.pack(base_offset, header.batch_length, leader_epoch)
        rest = memoryview(batch)[_ASSIGNED.size :]
        self._segments.active.append((head, rest), ((last_offset, max_timestamp, size),))
        self.end_offset = last_offset + 1
        if log_append_time:
            self._last_stamp = stamp
        if idempotent:
            self.producers.update(header, base_offset)
        return AppendInfo(base_offset, last_offset, stamp)

    def find_repeated(self, header: BatchHeader, config: LogConfig) -> AppendInfo | None:
        """Return the offsets at which the producer has appended the batch; None if its state does not remember that."""
        repeated = self.producers.find_duplicate(header)
        if repeated is None:
            return None
        stamp = repeated.timestamp if config.log_append_time else NO_TIMESTAMP
        return AppendInfo(repeated.base_offset, repeated.last_offset, stamp, True)

    def append_as_follower(
        self, view: memoryview, headers: Sequence[BatchHeader], now_ms: int | None, config: LogConfig
    ) -> AppendInfo:
        """Append the batches whose headers `validated_headers` returned for `view`; see `Log.append_as_follower`."""
        if self._active_since_ms is None:
            self._active_since_ms = now_ms
        base_offset = headers[0].base_offset if headers else self.end_offset
        start = end = taken = 0
        spans: list[BatchSpan] = []
        for index, header in enumerate(headers):
            span = BatchSpan(header.last_offset, header.max_timestamp, header.size_bytes)
            if self._is_full(span, end - start, now_ms, config):
                if spans:
                    self._append_from_leader(view[start:end], spans, headers[taken:index])
                    start, taken, spans = end, index, []
                # Relative offsets have 31 bits. Only after a larger gap, which compaction left, does a segment begin
                # past the log end.
                far = span.last_offset - self.end_offset > MAX_RELATIVE_OFFSET
                self.roll(header.base_offset if far else self.end_offset, now_ms, config)
            spans.append(span)
            end += span.size_bytes
        if spans:
            self._append_from_leader(view[start:end], spans, headers[taken:])
        return AppendInfo(base_offset, self.end_offset - 1)

    def validated_headers(self, view: memoryview, may_begin_within: bool) -> list[BatchHeader]:
        """Check the whole batches in `view` and return their headers; errors as `Log.append_as_follower`.

        `may_begin_within`: the first batch may begin before the log end if it ends after it.
        """
        expected = self.end_offset
        headers: list[BatchHeader] = []
        for position, header in iter_headers(view):
            validate_batch(view, position, header)
            begins_within = may_begin_within and not headers and expected < header.next_offset
            if header.base_offset < expected and not begins_within:
                raise InvalidRecordError(
                    f"a batch begins at offset {header.base_offset}; at least {expected} is expected"
                )
            expected = header.next_offset
            headers.append(header)
        return headers

    def _append_from_leader(self, view: memoryview, spans: list[BatchSpan], headers: Sequence[BatchHeader]) -> None:
        latest = self._epochs.latest
        for header in headers:
            if latest is None or header.partition_leader_epoch > latest:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
                latest = self._epochs.latest
        self._segments.active.append((view,), spans)
        self.end_offset = spans[-1].last_offset + 1
        for header in headers:
            self.producers.update(header)
            if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
                self._last_stamp = header.max_timestamp

    def raise_end(self, offset: int, config: LogConfig) -> None:
        """Begin a new segment at `offset`, past the log end, which becomes the log end."""
        self.roll(offset, None, config)
        self.end_offset = offset

    # --- rolling -------------------------------------------------------------------------------------

    def roll(self, base_offset: int, now_ms: int | None, config: LogConfig) -> None:
        """Write a snapshot of the producers' state at the log end, then begin a new segment at `base_offset`."""
        self._snapshots.write(self.end_offset, self.producers)
        self._segments.open_next(base_offset, config.index_interval_bytes)
        self._active_since_ms = now_ms

    def _is_full(self, span: BatchSpan, waiting_bytes: int, now_ms: int | None, config: LogConfig) -> bool:
        """Return whether the batch needs a new segment, once the active one holds the `waiting_bytes` before it."""
        active, since_ms = self._segments.active, self._active_since_ms
        waited_ms = 0 if now_ms is None or since_ms is None else now_ms - since_ms
        return must_roll(
            active,
            config,
            active.size + waiting_bytes,
            span.size_bytes,
            span.last_offset,
            span.max_timestamp,
            waited_ms,
        )
