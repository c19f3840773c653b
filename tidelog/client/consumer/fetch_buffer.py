"""Hold one assigned partition: its reader's position, and the data that was fetched ahead. This module does no I/O.

position       the next offset that the reader gets; None until the start is looked up
fetch_offset   the next offset to request from the leader; ≥ position, and equal when the buffer is empty
…_epoch        the leader epoch of the record before that offset; −1 if it is not known
ahead_since_ms since when a leader of fetch_epoch or later is looked for, because the known one has an earlier epoch
checked_epoch  the epoch of the leader whose log is known to contain the record before fetch_offset
topic_id       id of the topic to which the position belongs; empty until the leader is known
paused         the reader wants no records for now; fetched data is kept while there is space
withheld       the group is about to revoke the partition, so its records are held back
awaits_commit  the group's committed offset must be looked up before anything else
work           the task that fetches or looks up for this generation; the partition is busy until the task is done
standing_error the error that keeps records from the reader, until data arrives or the position moves
is_unreadable  the next batch cannot be decoded, so that reading goes on only after the position was moved
retry_at_ms    when to ask `retry_leader` again after `attempts` failures in a row; another leader is asked at once
is_alone       requests name no other partition, because a request for several partitions failed as a whole
generation     counts position changes; an answer to a request of an earlier generation is ignored
moves          counts position changes except those back to a divergence of logs; records that were read before such a
               change say nothing about the position after it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.client.consumer.standing_error import StandingError
from tidelog.errors import BrokerError, CorruptMessageError, InternalError, MessageTooLargeError, TidelogError
from tidelog.model import TopicPartition
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES
from tidelog.records.decode import decode_columns
from tidelog.records.encode import Header
from tidelog.records.header import iter_headers, read_header, validate_batch

if TYPE_CHECKING:
    import asyncio

    from tidelog.client.metadata import Leader

#: Maximum number of fetch answers held for one partition: one that is read, and one that waits.
MAX_CHUNKS = 2


class ConsumerRecord(NamedTuple):
    """One record; `timestamp` in ms, `timestamp_type` 0 for the producer's (CreateTime) and 1 for the broker's."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class EpochRead(NamedTuple):
    """The first offset that was fetched with a leader epoch."""

    epoch: int
    first_offset: int


class FetchedBatches(NamedTuple):
    """Whole batches as in the log; the first may begin before `fetch_offset`. The next read starts at `next_offset`.

    `leader_epoch` is that of the last batch.
    """

    records: memoryview
    fetch_offset: int
    next_offset: int
    high_watermark: int
    log_start_offset: int
    leader_epoch: int = -1


_record_of: Callable[[tuple[object, ...]], ConsumerRecord] = partial(tuple.__new__, ConsumerRecord)


class PartitionBuffer:
    """The state and the fetched data of one assigned partition; the module's docstring describes the fields."""

    __slots__ = (
        "_chunks",
        "_cursor",
        "_decoded",
        "_epochs_read",
        "_max_decompressed_bytes",
        "ahead_since_ms",
        "attempts",
        "attempts_elsewhere",
        "awaits_commit",
        "checked_epoch",
        "fetch_epoch",
        "fetch_offset",
        "generation",
        "high_watermark",
        "is_alone",
        "is_unreadable",
        "log_start_offset",
        "moves",
        "paused",
        "position",
        "position_epoch",
        "reset_to",
        "retry_at_ms",
        "retry_leader",
        "standing_error",
        "topic_id",
        "topic_partition",
        "withheld",
        "work",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        reset_to: int | None,
        max_decompressed_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
        *,
        awaits_commit: bool = False,
    ) -> None:
        self.topic_partition = topic_partition
        self._max_decompressed_bytes = max_decompressed_batch_bytes
        self.position: int | None = None
        self.fetch_offset = self.fetch_epoch = self.position_epoch = self.checked_epoch = -1
        self.ahead_since_ms: int | None = None
        self.topic_id = ""
        self.reset_to = reset_to
        self.generation = self.moves = 0
        self.work: asyncio.Task[Any] | None = None
        self.paused = self.withheld = False
        self.awaits_commit = awaits_commit
        self.standing_error = StandingError()
        self.is_unreadable = self.is_alone = False
        self.attempts = 0
        #: How many of the last attempts were answered by a leader of another topic with the same name.
        self.attempts_elsewhere = 0
        self.retry_at_ms = 0
        self.retry_leader: Leader | None = None
        self.high_watermark = -1
        self.log_start_offset = -1
        self._chunks: deque[FetchedBatches] = deque()
        self._cursor = 0
        self._decoded: deque[ConsumerRecord] = deque()
        #: The epochs of all data up to fetch_offset since the last move; the last one is fetch_epoch.
        self._epochs_read: list[EpochRead] = []

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Read from `offset` next; the record before it has this leader epoch, and the topic may be a recreated one."""
        self.set_position(offset, epoch)
        self.topic_id = ""

    def set_position(self, offset: int, epoch: int) -> None:
        """Read from `offset` next; the record before it has this leader epoch."""
        self.moves += 1
        self._fetch_from(offset, epoch)
        self._epochs_read = []

    def rewind(self, offset: int) -> None:
        """Read from `offset` again. Records before it may still be in the log, and in the iteration's remainder."""
        self._forget_epochs_from(offset)
        self._fetch_from(offset, self._epochs_read[-1].epoch if self._epochs_read else -1)

    def reset(self, to: int) -> None:
        """Read next from the result of a look-up for timestamp `to` (ms, −1 latest, −2 earliest)."""
        self.moves += 1
        self._jump()
        self.position, self.reset_to, self.topic_id = None, to, ""
        self._epochs_read = []

    def is_of_topic(self, topic_id: str) -> bool:
        """Return whether the position belongs to this topic; the first id that is reported is taken over."""
        self.topic_id = self.topic_id or topic_id
        return self.topic_id == topic_id

    def _jump(self) -> None:
        self.generation += 1
        self.work = None  # the answer in flight is of an earlier generation, and is ignored
        self.awaits_commit = self.is_unreadable = self.is_alone = False
        self.standing_error.clear()
        self.ahead_since_ms = None
        self.attempts = self.attempts_elsewhere = self.retry_at_ms = self._cursor = 0
        self._chunks.clear()
        self._decoded.clear()

    def _fetch_from(self, offset: int, epoch: int) -> None:
        self._jump()
        self.position = self.fetch_offset = offset
        self.position_epoch = self.fetch_epoch = epoch

    def _forget_epochs_from(self, offset: int) -> None:
        self._epochs_read = [each for each in self._epochs_read if each.first_offset < offset]

    @property
    def wants_data(self) -> bool:
        """Whether a fetch of this partition is useful now: the buffer has space and the reader reads."""
        return (
            self.position is not None and not self.paused and not self.is_unreadable and len(self._chunks) < MAX_CHUNKS
        )

    @property
    def is_busy(self) -> bool:
        """Return whether a task fetches this partition, or looks up its position."""
        return self.work is not None and not self.work.done()

    def back_off(self, leader: Leader | None, until_ms: int) -> None:
        """Count one more failure, and do not ask this leader again before `until_ms`."""
        self.attempts += 1
        self.retry_at_ms, self.retry_leader = until_ms, leader

    def must_wait(self, leader: Leader | None, now_ms: int) -> bool:
        """Return whether it is too early to ask this leader again."""
        return self.retry_at_ms > now_ms and leader == self.retry_leader

    @property
    def is_shown(self) -> bool:
        """Whether the reader may get records of this partition."""
        return not self.paused and not self.withheld

    @property
    def has_data(self) -> bool:
        """Whether fetched data waits for the reader."""
        return bool(self._decoded) or bool(self._chunks)

    @property
    def held_bytes(self) -> int:
        """The size of the data that was fetched ahead, compressed as received."""
        return sum(len(chunk.records) for chunk in self._chunks)

    def drop(self) -> None:
        """Discard the data that was fetched ahead, so that it is fetched again."""
        if self.position is not None:
            self._fetch_from(self.position, self.position_epoch)
            self._forget_epochs_from(self.position)

    def is_unchecked_in(self, leader_epoch: int) -> bool:
        """Return whether this epoch's leader may lack records that were read, and must be asked first (KIP-320)."""
        return self.fetch_epoch >= 0 and self.checked_epoch != leader_epoch

    @property
    def epoch_read_from(self) -> int | None:
        """The first offset that was fetched with `fetch_epoch`; None if no record was fetched with that epoch.

        A position that was looked up, committed or given may come with the epoch of the leader at that time, and the
        record before it need not be of that epoch.
        """
        return self._epochs_read[-1].first_offset if self._epochs_read else None

    def put(self, records: memoryview, *, high_watermark: int, log_start_offset: int, check_crcs: bool) -> bool:
        """Store an answer to the fetch at `fetch_offset`; return whether it has data.

        CorruptMessageError leaves the buffer unchanged.
        """
        next_offset, epoch = self.fetch_offset, self.fetch_epoch
        epochs = self._epochs_read[-1:]
        for at, header in iter_headers(records):
            if check_crcs:
                validate_batch(records, at, header)
            if header.next_offset > next_offset:
                first_offset = max(header.base_offset, next_offset)
                next_offset, epoch = header.next_offset, header.partition_leader_epoch
                if not epochs or epochs[-1].epoch != epoch:
                    epochs.append(EpochRead(epoch, first_offset))
        self.high_watermark, self.log_start_offset = high_watermark, log_start_offset
        if next_offset == self.fetch_offset:
            if len(records):
                raise CorruptMessageError(f"{self.topic_partition}: no whole batch at offset {self.fetch_offset}")
            return False
        bounds = (self.fetch_offset, next_offset, high_watermark, log_start_offset)
        self._chunks.append(FetchedBatches(records, *bounds, epoch))
        self.fetch_offset, self.fetch_epoch = next_offset, epoch
        self._epochs_read[-1:] = epochs
        return True

    def take_batches(self) -> FetchedBatches | None:
        """Return the oldest answer (without the records that `take_records` took), and move the position past it."""
        if self.position is None or not self.has_data:
            return None
        if not self._chunks or self._chunks[0].fetch_offset > self.position:
            self.drop()  # the reader has given back records, but their batches are no longer in the buffer
            return None
        chunk = self._chunks.popleft()
        cursor, self._cursor = self._cursor, 0
        if self._decoded:
            cursor = self._back_to_partly_read(chunk)
            self._decoded.clear()
        if self.is_unreadable:
            self.is_unreadable = False
            self.standing_error.clear()
        start, self.position, self.position_epoch = self.position, chunk.next_offset, chunk.leader_epoch
        return chunk._replace(records=chunk.records[cursor:], fetch_offset=start)

    def take_records(self, limit: int) -> list[ConsumerRecord]:
        """Return up to `limit` records in offset order, and move the position past the last.

        A batch that cannot be decoded ends the result. It stays in the buffer, and `standing_error` has the error.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < limit and (self._decoded or self._decode_next()):
            free = limit - len(taken)
            if free >= len(self._decoded):
                taken.extend(self._decoded)
                self._decoded.clear()
            else:
                taken.extend(self._decoded.popleft() for _ in range(free))
            if taken:
                self.position, self.position_epoch = taken[-1].offset + 1, taken[-1].leader_epoch
        if not self._decoded:
            self._drop_read_chunks()
            if not self._chunks and self.position is not None:
                # Control records and compacted offsets after the last record count as read.
                self.position, self.position_epoch = self.fetch_offset, self.fetch_epoch
        return taken

    def take_back(self, records: list[ConsumerRecord]) -> None:
        """Put back the last records that `take_records` returned, because the user did not receive them."""
        self._decoded.extendleft(reversed(records))
        self.position = records[0].offset
        before = [each.epoch for each in self._epochs_read if each.first_offset < self.position]
        self.position_epoch = before[-1] if before else -1

    def _decode_next(self) -> bool:
        """Decode one more batch and return True, even if it has no records for the reader; False: no batch is left."""
        self._drop_read_chunks()
        if not self._chunks or self.is_unreadable:
            return False
        records = self._chunks[0].records
        header = read_header(records, self._cursor)
        at, behind = self._cursor, self._cursor + header.size_bytes
        if header.is_control:
            self._cursor = behind
            return True
        try:
            columns = decode_columns(records, at, limit=self._max_decompressed_bytes)
        except Exception as error:
            kind: type[TidelogError] = type(error) if isinstance(error, BrokerError) else InternalError
            span = f"offsets {header.base_offset} to {header.last_offset}"
            hint = " (max_decompressed_batch_bytes)" if isinstance(error, MessageTooLargeError) else ""
            refusal = kind(f"{self.topic_partition}: the batch of {span} cannot be read: {error}{hint}")
            refusal.__cause__ = error
            self.standing_error.set(refusal)
            self.is_unreadable = True
            return False
        self._cursor = behind
        topic, number = self.topic_partition
        rows = zip(
            repeat(topic), repeat(number), repeat(header.partition_leader_epoch), columns.offsets, columns.timestamps,
            repeat(int(header.timestamp_type)), columns.keys, columns.values, columns.headers,
        )  # fmt: skip
        decoded = list(map(_record_of, rows))
        assert self.position is not None
        if decoded and decoded[0].offset < self.position:
            decoded = [record for record in decoded if record.offset >= self.position]
        self._decoded.extend(decoded)
        return True

    def _drop_read_chunks(self) -> None:
        while self._chunks and self._cursor >= len(self._chunks[0].records):
            read = self._chunks.popleft()
            self.position, self.position_epoch = read.next_offset, read.leader_epoch
            self._cursor = 0

    def _back_to_partly_read(self, chunk: FetchedBatches) -> int:
        assert self.position is not None
        for at, header in iter_headers(chunk.records):
            if header.next_offset > self.position:
                return at
        return len(chunk.records)
