"""Model a producer's batch, from its first record to its acknowledgement. Pure: no lock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.client.producer.record_future import BatchOutcome, RecordFuture
from tidelog.errors import TidelogError
from tidelog.model import NO_TIMESTAMP, TopicPartition
from tidelog.records.decode import Record, decode_records
from tidelog.records.encode import BatchBuilder
from tidelog.records.header import HEADER_BYTES
from tidelog.records.ready_made import ReadyMadeBatch
from tidelog.records.varint import INT32_MAX


class ProducerIdentity(NamedTuple):
    """The producer id and epoch by which a broker recognises a repeated batch; (−1, −1) if not idempotent."""

    producer_id: int
    producer_epoch: int


ANONYMOUS = ProducerIdentity(-1, -1)


class RefusedRecord(NamedTuple):
    """A single record that the leader rejected: the error, and whether an earlier attempt may have stored it."""

    error: TidelogError
    may_be_stored: bool


class Batch:
    """Records of one partition that are sent, acknowledged and repeated together.

    builder           encodes the records; an encoded batch of `send_batch` takes its place
    outcome           the outcome that the futures read; shared with the other parts after a split
    first_index       index of the first record within the outcome
    refused           records that are no longer sent, by their index in the outcome; they settle with the batch
    deadline_ms       when the user gets an error at the latest
    retry_at_ms       the batch is not sent before
    sequence          sequence number of the first record; −1 until the batch is first sent under `identity`
    outcome_unknown   an attempt may have been appended without the client's knowledge
    expired           the records have failed at their deadline while the batch was in flight; the batch is still there
    failures          number of failed attempts that a broker may have received, rejected ones included
    sent_epoch        the leader epoch of the last attempt
    """

    __slots__ = (
        "attempts",
        "builder",
        "created_ms",
        "deadline_ms",
        "expired",
        "failures",
        "first_index",
        "identity",
        "last_error",
        "outcome",
        "outcome_unknown",
        "payload",
        "refused",
        "retry_at_ms",
        "sent_epoch",
        "sequence",
        "topic_partition",
    )

    def __init__(
        self,
        outcome: BatchOutcome,
        builder: BatchBuilder | ReadyMadeBatch,
        created_ms: int,
        deadline_ms: int,
        first_index: int = 0,
    ) -> None:
        self.outcome = outcome
        self.topic_partition: TopicPartition = outcome.topic_partition
        self.builder = builder
        self.payload = b""
        self.first_index = first_index
        self.refused: Mapping[int, RefusedRecord] = {}
        self.created_ms = created_ms
        self.deadline_ms = deadline_ms
        self.retry_at_ms = created_ms
        self.attempts = self.failures = 0
        self.identity: ProducerIdentity | None = None
        self.sequence = -1
        self.sent_epoch = -1
        self.outcome_unknown = self.expired = False
        self.last_error: TidelogError | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the batch before the producer compresses it; of an encoded batch the size as given."""
        return self.builder.size_bytes

    @property
    def last_index(self) -> int:
        """The index of the batch's last record within the outcome, counting refused records."""
        return self.first_index + self.builder.record_count + len(self.refused) - 1

    def last_record(self) -> RecordFuture:
        """Return the future of the last record; it is done when all are, because records settle in order."""
        return RecordFuture(self.outcome, self.last_index, self.created_ms)

    def halves(self) -> tuple[Batch, Batch]:
        """Return the records (two or more) as two batches of about half the bytes each.

        Both halves inherit the unknown outcome of an earlier attempt, which may have stored them.
        """
        kept = self._kept()
        records = decode_records(self.builder.build())
        half = BatchBuilder((self.size_bytes + HEADER_BYTES) // 2)
        full = (index for index, record in enumerate(records) if _append(half, record) is None)
        # If compression had made an encoded batch larger than its records, all records may fit into the first half.
        cut = max(1, next(full, len(records) // 2))
        before = {index: refused for index, refused in self.refused.items() if index < kept[cut]}
        after = {index: refused for index, refused in self.refused.items() if index > kept[cut]}
        return self._part(records[:cut], self.first_index, before), self._part(records[cut:], kept[cut], after)

    def can_drop(self, positions: Mapping[int, object]) -> bool:
        """Return whether `without` can remove the records at these positions, counted from 0 among the sent records.

        False for an encoded batch of `send_batch`, and for positions that the batch does not have.
        """
        count = self.builder.record_count
        return isinstance(self.builder, BatchBuilder) and all(0 <= each < count for each in positions)

    def without(self, errors: Mapping[int, TidelogError]) -> Batch:
        """Return a batch without the records at these positions, which fail with these errors when the batch settles.

        The new batch has no sequence number yet, and may have no records to send.
        """
        records, kept = decode_records(self.builder.build()), self._kept()
        refused = {kept[each]: RefusedRecord(error, self.outcome_unknown) for each, error in errors.items()}
        others = [record for position, record in enumerate(records) if position not in errors]
        return self._part(others, self.first_index, {**self.refused, **refused})

    def settle(
        self, base_offset: int, log_append_time_ms: int, error: TidelogError | None, *, may_be_stored: bool
    ) -> None:
        """Settle the refused records with their own errors, and all others with the outcome of the batch.

        Records settle in their order. Only the others have offsets, and these are consecutive from `base_offset` on
        (−1: not known). The caller runs the callbacks afterwards.
        """
        index = self.first_index
        for refused_index in sorted(self.refused):
            if index < refused_index:
                self.outcome.settle(
                    refused_index - 1, base_offset, log_append_time_ms, error, may_be_stored=may_be_stored
                )
                base_offset += refused_index - index if base_offset >= 0 else 0
            fault = self.refused[refused_index]
            self.outcome.settle(refused_index, -1, NO_TIMESTAMP, fault.error, may_be_stored=fault.may_be_stored)
            index = refused_index + 1
        if index <= self.last_index:
            self.outcome.settle(self.last_index, base_offset, log_append_time_ms, error, may_be_stored=may_be_stored)

    def _kept(self) -> Sequence[int]:
        """Return the index in the outcome of each record that is still sent."""
        every = range(self.first_index, self.last_index + 1)
        return [index for index in every if index not in self.refused] if self.refused else every

    def _part(self, records: Sequence[Record], first_index: int, refused: Mapping[int, RefusedRecord]) -> Batch:
        builder = BatchBuilder(INT32_MAX)
        for record in records:
            _append(builder, record)
        part = Batch(self.outcome, builder, self.created_ms, self.deadline_ms, first_index)
        part.refused = refused
        part.outcome_unknown, part.last_error = self.outcome_unknown, self.last_error
        return part


def _append(builder: BatchBuilder, record: Record) -> int | None:
    return builder.try_append(record.timestamp, record.key, record.value, record.headers)
