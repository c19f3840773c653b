"""The state of a log's producers, by which repeated batches are recognised and missing ones are noticed.

The rules are Kafka's since KIP-360. A producer that the log does not know may begin with any sequence, so
UNKNOWN_PRODUCER_ID is never returned. For the same reason a sequence before all remembered ones is not taken for a
repetition: the batch may never have been appended, and clients treat DUPLICATE_SEQUENCE_NUMBER as success.

One rule differs from Kafka: a producer is idle by the time since its last append, not by the timestamps of its records.
Otherwise the log would forget a producer that sends last month's events between a batch and its repetition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from tidelog.model import NO_TIMESTAMP
from tidelog.records import BatchHeader

BATCHES_KEPT = 5

NONE = -1
_SEQUENCES = 2**31


class BatchMetadata(NamedTuple):
    """The position of one of a producer's batches in the log. Sequences wrap from 2³¹−1 to 0."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % _SEQUENCES


class Producer:
    """The state of one producer id.

    epoch              of its last batch, or of the last marker that ended one of its transactions
    batches            its last batches of that epoch, oldest first
    timestamp          ms, the largest of the last batch or marker
    coordinator_epoch  of the last marker, as read from a snapshot; −1: none
    transaction_start  first offset of the open transaction; −1: none
    marker             (offset, timestamp) of the last marker in the log; (−1, −1): none, or the state comes from a
                       snapshot, whose last batch has the producer's timestamp
    idle_since_ms      when `expire` first found no new batch of it; None if it has appended since the last call
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "idle_since_ms", "marker", "timestamp", "transaction_start")

    def __init__(
        self,
        epoch: int,
        batches: Iterable[BatchMetadata] = (),
        timestamp: int = NO_TIMESTAMP,
        coordinator_epoch: int = NONE,
        transaction_start: int = NONE,
    ) -> None:
        self.epoch = epoch
        self.batches: deque[BatchMetadata] = deque(batches, maxlen=BATCHES_KEPT)
        self.timestamp = timestamp
        self.coordinator_epoch = coordinator_epoch
        self.transaction_start = transaction_start
        self.marker = (-1, NO_TIMESTAMP)
        self.idle_since_ms: int | None = None

    def begin_epoch(self, epoch: int) -> None:
        """Adopt the epoch. Batches of an earlier epoch are forgotten, because none of them can be repeated any more."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerState:
    """The states of all producers of one log.

    rewind_limit  the lowest log end to which `rewind_to` can go back. A snapshot, a control batch or a transactional
                  batch leaves no trace of the state before it. Raised by `update`, and set after a snapshot is read
    """

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.rewind_limit = 0

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the remembered batch of the same producer epoch and sequences; None if there is none."""
        producer = self.producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        for batch in reversed(producer.batches):
            if batch.last_sequence == header.last_sequence and batch.offset_delta == header.last_offset_delta:
                return batch
        return None

    def check(self, header: BatchHeader) -> None:
        """Raise an error if a new batch from a producer may not follow its last one.

        A: the producer is unknown or forgotten: any sequence is accepted.
        B: the epoch is older than the last one: InvalidProducerEpochError.
        C: the epoch is new, or only a marker is known of it: the sequence must be 0, else OutOfOrderSequenceError.
        D: the sequence is the next one: accepted.
        E: any other sequence: batches are missing, split differently or repeated late: OutOfOrderSequenceError.
        """
        producer_id, sequence = header.producer_id, header.base_sequence
        producer = self.producers.get(producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpochError(
                f"producer {producer_id}: epoch {header.producer_epoch} is older than epoch {producer.epoch}"
            )
        if header.producer_epoch > producer.epoch or not producer.batches:
            if sequence:
                raise OutOfOrderSequenceError(
                    f"producer {producer_id}: epoch {header.producer_epoch} begins with sequence {sequence}, not 0"
                )
            return
        last = producer.batches[-1].last_sequence
        if sequence != (last + 1) % _SEQUENCES:
            raise OutOfOrderSequenceError(f"producer {producer_id}: sequence {sequence} does not follow {last}")

    def update(self, header: BatchHeader, base_offset: int | None = None) -> None:
        """Record a batch that is in the log. `base_offset` is given if the header's is not the assigned one."""
        if header.producer_id < 0:
            return
        if base_offset is None:
            base_offset = header.base_offset
        delta = header.last_offset_delta
        if header.is_control or header.is_transactional:
            self.rewind_limit = base_offset + delta + 1
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = Producer(header.producer_epoch)
        else:
            producer.begin_epoch(header.producer_epoch)
        producer.timestamp = header.max_timestamp
        producer.idle_since_ms = None
        if header.is_control:
            producer.marker = (base_offset + delta, header.max_timestamp)
            producer.transaction_start = NONE
            return
        if header.is_transactional and producer.transaction_start == NONE:
            producer.transaction_start = base_offset
        producer.batches.append(BatchMetadata(header.last_sequence, base_offset + delta, delta, header.max_timestamp))

    def rewind_to(self, end_offset: int) -> bool:
        """Undo all batches at or after the new log end. Return False if the state must be rebuilt from the log instead.

        A rebuild is needed below `rewind_limit`, and if all remembered batches of a producer were truncated. After a
        rewind, fewer batches of a producer may be remembered than the log holds, as after a snapshot.
        """
        if self.producers and end_offset < self.rewind_limit:
            return False
        for producer in self.producers.values():
            batches = producer.batches
            if not batches or batches[-1].last_offset < end_offset:
                continue
            while batches and batches[-1].last_offset >= end_offset:
                batches.pop()
            if not batches:
                return False
            marker_offset, marker_timestamp = producer.marker
            is_marker_last = marker_offset > batches[-1].last_offset
            producer.timestamp = marker_timestamp if is_marker_last else batches[-1].timestamp
        return True

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers that were idle for `expiration_ms`; return how many.

        Called periodically, with a clock that does not go back. A producer is idle from the first call that finds no
        new batch of it. A producer with an open transaction stays.
        """
        expired = []
        for producer_id, producer in self.producers.items():
            if producer.idle_since_ms is None:
                producer.idle_since_ms = now_ms
            elif now_ms - producer.idle_since_ms >= expiration_ms and producer.transaction_start == NONE:
                expired.append(producer_id)
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)
