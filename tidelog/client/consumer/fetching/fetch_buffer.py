"""Buffer the records of one partition that were fetched ahead of the reader. This module does no I/O.

A buffer begins at one position. When the position moves, another buffer replaces it.

position        the next offset that the reader gets
fetch_offset    the next offset to request from the leader; ≥ position, and equal when the buffer is empty
…_epoch         the leader epoch of the record before that offset; −1 if it is not known
unreadable      the error of the next batch, which cannot be decoded; None: the batch can be decoded, or was not tried.
                No more records come from `take_records` and `take_decoded`, but `take_batches` passes over the batch.
                In an empty buffer: the error of a reader that has refused the record at the position
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

from tidelog.display.short_repr import fields_repr
from tidelog.errors import BrokerError, CorruptMessageError, InternalError, MessageTooLargeError, TidelogError
from tidelog.model import TopicPartition
from tidelog.records.aborted import AbortedTransaction, without_aborted
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES
from tidelog.records.decode import decode_columns
from tidelog.records.encode import Header
from tidelog.records.header import LENGTH_OVERHEAD, BatchHeader, iter_headers, read_header, validate_batch
from tidelog.records.message_set import has_messages, to_record_batches

T = TypeVar("T")

#: Maximum number of fetch answers held for one partition: one that is read, and one that waits.
MAX_CHUNKS = 2
#: The position of a batch's length, or a message's size.
_LENGTH_AT = 8


class ConsumerRecord(NamedTuple):
    """One record of a partition.

    leader_epoch     of the record's batch
    timestamp        in ms; −1: none
    timestamp_type   0: the producer's (CreateTime), 1: the broker's (LogAppendTime)
    key, value       bytes or None; with a deserializer what it returned, but a null stays None
    """

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[Header, ...]

    def __repr__(self) -> str:
        return fields_repr(self, self._fields)


class EpochRead(NamedTuple):
    """The first offset that was fetched with a leader epoch."""

    epoch: int
    first_offset: int


class FetchedBatches(NamedTuple):
    """Whole batches as in the log; the first may begin before `fetch_offset`. The next read starts at `next_offset`.

    high_watermark, log_start_offset   of the partition, as the fetch answer had them
    leader_epoch                       of the last batch; −1: not known

    Example:

        consumer.assign([TopicPartition("orders", 0)])
        for partition, batches in consumer.poll_batches(timeout_ms=10_000).items():
            print(partition, batches.fetch_offset, batches.next_offset, len(batches.records))
    """

    records: memoryview
    fetch_offset: int
    next_offset: int
    high_watermark: int
    log_start_offset: int
    leader_epoch: int = -1

    def __repr__(self) -> str:
        return fields_repr(self, self._fields)


_record_of: Callable[[tuple[object, ...]], ConsumerRecord] = partial(tuple.__new__, ConsumerRecord)


class FetchBuffer:
    """The fetched data of one partition from `offset` on; the record before it has leader epoch `epoch`.

    epochs_read   the leader epochs of records before `offset` that were read without a gap, for a buffer that replaces
                  another one after an earlier offset
    """

    __slots__ = (
        "_ahead",
        "_ahead_count",
        "_chunks",
        "_cursor",
        "_decoded",
        "_epochs_read",
        "_max_decompressed_bytes",
        "fetch_epoch",
        "fetch_offset",
        "position",
        "position_epoch",
        "topic_partition",
        "unreadable",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        offset: int,
        epoch: int = -1,
        max_decompressed_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
        epochs_read: Iterable[EpochRead] = (),
    ) -> None:
        self.topic_partition = topic_partition
        self.position = self.fetch_offset = offset
        self.position_epoch = self.fetch_epoch = epoch
        self.unreadable: TidelogError | None = None
        self._max_decompressed_bytes = max_decompressed_batch_bytes
        self._chunks: deque[FetchedBatches] = deque()
        self._cursor = 0
        self._decoded: list[ConsumerRecord] = []  # in reverse, so that taking the next ones moves no others
        #: The decoded records after those, as one list in reverse for each batch; none if `_decoded` is empty.
        self._ahead: deque[list[ConsumerRecord]] = deque()
        self._ahead_count = 0
        #: The epochs of all data up to fetch_offset that was fetched without a gap; the last one is fetch_epoch.
        self._epochs_read = list(epochs_read)

    def rewound(self, offset: int) -> FetchBuffer:
        """Return an empty buffer that begins at `offset`, at or before `fetch_offset`; records are fetched again."""
        epochs = self._epochs_before(offset)
        return self._replacement(offset, epochs[-1].epoch if epochs else -1, epochs)

    def emptied(self) -> FetchBuffer:
        """Return an empty buffer that begins at the position, so that the data fetched ahead is fetched again."""
        return self._replacement(self.position, self.position_epoch, self._epochs_before(self.position))

    def _replacement(self, offset: int, epoch: int, epochs: list[EpochRead]) -> FetchBuffer:
        return FetchBuffer(self.topic_partition, offset, epoch, self._max_decompressed_bytes, epochs)

    def _epochs_before(self, offset: int) -> list[EpochRead]:
        return [each for each in self._epochs_read if each.first_offset < offset]

    @property
    def has_space(self) -> bool:
        """Return whether one more fetch answer may be put here: fewer than two wait, and no batch is unreadable."""
        return self.unreadable is None and len(self._chunks) < MAX_CHUNKS

    @property
    def has_data(self) -> bool:
        """Return whether fetched data waits for the reader."""
        return bool(self._decoded) or bool(self._chunks)

    @property
    def held_bytes(self) -> int:
        """The size of the fetch answers that the reader has not finished, compressed as received."""
        return sum(len(chunk.records) for chunk in self._chunks) if self._chunks else 0

    @property
    def has_lost_batches(self) -> bool:
        """Return whether records were put back after their batches had left, so that `take_batches` cannot serve."""
        return bool(self._decoded) and (not self._chunks or self._chunks[0].fetch_offset > self.position)

    @property
    def is_refused(self) -> bool:
        """Return whether the reader has refused the record at the position, so that the buffer accepts no data."""
        return self.unreadable is not None and not self.has_data

    def refuse(self, error: TidelogError) -> None:
        """Store the reader's error for the record at the position; this empty buffer then accepts no data."""
        self.unreadable = error

    @property
    def epoch_read_from(self) -> int | None:
        """The first offset that was fetched with `fetch_epoch`; None if no record was fetched with that epoch.

        A position that was looked up, committed or given may come with the epoch of the leader at that time, and the
        record before it need not be of that epoch.
        """
        return self._epochs_read[-1].first_offset if self._epochs_read else None

    def put(
        self,
        records: memoryview,
        *,
        high_watermark: int,
        log_start_offset: int,
        check_crcs: bool,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> bool:
        """Store an answer to the fetch at `fetch_offset`, and move `fetch_offset` past it; return whether it has data.

        Records of the `aborted` transactions, and an incomplete last batch, are left out. Messages of formats 0 and 1
        are converted to batches. CorruptMessageError (a wrong CRC, or no whole batch at that offset) and the other
        errors of `to_record_batches` leave the buffer unchanged.
        """
        received = records
        if has_messages(records):
            records = self._converted(records)
        next_offset, epoch = self.fetch_offset, self.fetch_epoch
        epochs = self._epochs_read[-1:]
        end = 0
        for at, header in iter_headers(records):
            end = at + header.size_bytes
            if check_crcs:
                validate_batch(records, at, header)
            if header.next_offset > next_offset:
                first_offset = max(header.base_offset, next_offset)
                next_offset, epoch = header.next_offset, header.partition_leader_epoch
                if not epochs or epochs[-1].epoch != epoch:
                    epochs.append(EpochRead(epoch, first_offset))
        if next_offset == self.fetch_offset:
            if received:
                incomplete = _incomplete_text(received)
                offset = self.fetch_offset
                raise CorruptMessageError(f"{self.topic_partition}: no whole batch at offset {offset}{incomplete}")
            return False
        whole = records[:end]
        bounds = (self.fetch_offset, next_offset, high_watermark, log_start_offset)
        self._chunks.append(FetchedBatches(without_aborted(whole, aborted) if aborted else whole, *bounds, epoch))
        self.fetch_offset, self.fetch_epoch = next_offset, epoch
        self._epochs_read[-1:] = epochs
        return True

    def _converted(self, records: memoryview) -> memoryview:
        """Return the records with batches in place of messages; the errors of `to_record_batches` name the offset."""
        try:
            return memoryview(to_record_batches(records, self._max_decompressed_bytes))
        except BrokerError as error:
            hint = " (max_decompressed_batch_bytes)" if isinstance(error, MessageTooLargeError) else ""
            raise type(error)(f"messages of an old format from offset {self.fetch_offset} on: {error}{hint}") from error

    def take_batches(self) -> FetchedBatches | None:
        """Return the oldest answer without the records that `take_records` took, and move the position past the answer.

        None if there is no answer. An unreadable batch is passed over, and `unreadable` is cleared.
        """
        if not self._chunks:
            return None
        chunk = self._chunks.popleft()
        cursor, self._cursor = self._cursor, 0
        if self._decoded:
            cursor = self._back_to_partly_read(chunk)
            self._discard_decoded()
        self.unreadable = None
        start, self.position, self.position_epoch = self.position, chunk.next_offset, chunk.leader_epoch
        return chunk._replace(records=chunk.records[cursor:], fetch_offset=start)

    def take_decoded(self, decode: Callable[[FetchedBatches], T]) -> T | None:
        """Decode the oldest answer without the records that were taken, and move the position past the answer.

        Returns the result of `decode`, or None if there is no answer. If a batch cannot be decoded, the result ends
        before that batch, or is None if that batch is the first one. The batch stays in the buffer, and `unreadable`
        has the error.
        """
        if not self._chunks or self.unreadable is not None:
            return None
        chunk = self._chunks[0]
        if self._decoded:
            self._cursor = self._back_to_partly_read(chunk)
            self._discard_decoded()
        left = chunk._replace(records=chunk.records[self._cursor :], fetch_offset=self.position)
        try:
            found = decode(left)
        except Exception as error:
            readable = self._until_unreadable(left, error)
            found = decode(readable)
            self._cursor += len(readable.records)
            self.position, self.position_epoch = readable.next_offset, readable.leader_epoch
            return found if readable.records else None
        self.take_batches()
        return found

    def take_records(self, limit: int) -> list[ConsumerRecord]:
        """Return up to `limit` records in offset order, and move the position past the last.

        A batch that cannot be decoded ends the result. That batch stays in the buffer, and `unreadable` has the error.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < limit and (self._decoded or self._decode_next()):
            free = limit - len(taken)
            taken += self._decoded[: -free - 1 : -1]
            del self._decoded[-free:]
            if not self._decoded and self._ahead:
                self._decoded = self._ahead.popleft()
                self._ahead_count -= len(self._decoded)
            if taken:
                self.position, self.position_epoch = taken[-1].offset + 1, taken[-1].leader_epoch
        if not self._decoded:
            self._drop_read_chunks()
            if not self._chunks:
                # Control records and compacted offsets after the last record count as read.
                self.position, self.position_epoch = self.fetch_offset, self.fetch_epoch
        return taken

    def decode_ahead(self, limit: int) -> int:
        """Decode batches until at least `limit` records wait for `take_records`, and return how many wait.

        The position stays before them. Answers that are decoded no longer take space. A batch that cannot be decoded
        ends the decoding, and `unreadable` has the error.
        """
        before, first = (self.position, self.position_epoch), self._decoded
        while len(first) + self._ahead_count < limit:
            self._decoded = []
            if not self._decode_next():
                break
            if not first:
                first = self._decoded
            elif self._decoded:
                self._ahead.append(self._decoded)
                self._ahead_count += len(self._decoded)
        self._decoded = first
        self._drop_read_chunks()
        if self._decoded:
            self.position, self.position_epoch = before
        return len(self._decoded) + self._ahead_count

    def _discard_decoded(self) -> None:
        self._decoded = []
        self._ahead.clear()
        self._ahead_count = 0

    def take_back(self, records: list[ConsumerRecord]) -> None:
        """Put back the last records that `take_records` returned, because the user did not receive them.

        The position moves back to the first of them; there must be at least one.
        """
        self._decoded += reversed(records)
        self.position = records[0].offset
        before = self._epochs_before(self.position)
        self.position_epoch = before[-1].epoch if before else -1

    def _decode_next(self) -> bool:
        """Decode one more batch when all decoded records are taken; return True, even if it has none for the reader.

        False: no batch is left, or the next one cannot be decoded; in that case `unreadable` is set.
        """
        self._drop_read_chunks()
        if not self._chunks or self.unreadable is not None:
            return False
        records = self._chunks[0].records
        header = read_header(records, self._cursor)
        at, behind = self._cursor, self._cursor + header.size_bytes
        if header.is_control:
            self._cursor = behind
            return True
        try:
            columns = decode_columns(records, at, limit=self._max_decompressed_bytes, checks_crc=False)
        except Exception as error:
            self._set_unreadable(header, error)
            return False
        self._cursor = behind
        topic, number = self.topic_partition
        rows = zip(
            repeat(topic), repeat(number), repeat(header.partition_leader_epoch), columns.offsets, columns.timestamps,
            repeat(int(header.timestamp_type)), columns.keys, columns.values, columns.headers,
        )  # fmt: skip
        decoded = list(map(_record_of, rows))
        if decoded and decoded[0].offset < self.position:
            decoded = [record for record in decoded if record.offset >= self.position]
        decoded.reverse()
        self._decoded = decoded
        return True

    def _until_unreadable(self, chunk: FetchedBatches, error: Exception) -> FetchedBatches:
        """Return the answer up to its first batch that cannot be decoded, and set `unreadable`.

        `error` is the error of the whole answer. If each batch alone can be decoded, it counts for the first batch.
        """
        first, end, next_offset, epoch = read_header(chunk.records), 0, chunk.fetch_offset, self.position_epoch
        for at, header in iter_headers(chunk.records):
            try:
                decode_columns(chunk.records, at, limit=self._max_decompressed_bytes, checks_crc=False)
            except Exception as own_error:
                first, error = header, own_error
                break
            end = at + header.size_bytes
            next_offset, epoch = header.next_offset, header.partition_leader_epoch
        else:
            end, next_offset, epoch = 0, chunk.fetch_offset, self.position_epoch
        self._set_unreadable(first, error)
        return chunk._replace(records=chunk.records[:end], next_offset=next_offset, leader_epoch=epoch)

    def _set_unreadable(self, header: BatchHeader, error: Exception) -> None:
        kind: type[TidelogError] = type(error) if isinstance(error, BrokerError) else InternalError
        span = f"offsets {header.base_offset} to {header.last_offset}"
        hint = " (max_decompressed_batch_bytes)" if isinstance(error, MessageTooLargeError) else ""
        self.unreadable = kind(f"{self.topic_partition}: the batch of {span} cannot be read: {error}{hint}")
        self.unreadable.__cause__ = error

    def _drop_read_chunks(self) -> None:
        while self._chunks and self._cursor >= len(self._chunks[0].records):
            read = self._chunks.popleft()
            self.position, self.position_epoch = read.next_offset, read.leader_epoch
            self._cursor = 0

    def _back_to_partly_read(self, chunk: FetchedBatches) -> int:
        for at, header in iter_headers(chunk.records):
            if header.next_offset > self.position:
                return at
        return len(chunk.records)


def _incomplete_text(received: memoryview) -> str:
    """Return how much of its first batch an answer lacks, as a part of an error; "" if the batch is whole."""
    if len(received) < LENGTH_OVERHEAD:
        return f": {len(received)} bytes are no header"
    size = LENGTH_OVERHEAD + int.from_bytes(received[_LENGTH_AT:LENGTH_OVERHEAD], "big", signed=True)
    return f": {len(received)} of its {size} bytes (max_partition_fetch_bytes)" if size > len(received) else ""
