"""What the log knows of its producers, so that a repeated batch is recognised and a missing one is noticed.

The rules are those of Kafka since KIP-360: a producer that the log does not know may begin with any sequence, so that
UNKNOWN_PRODUCER_ID is never the answer. For the same reason a sequence before all that are remembered is not taken for
a repetition: it may be one that was passed over, and a client takes DUPLICATE_SEQUENCE_NUMBER for success.

Other than in Kafka a producer counts as idle by the time for which it has appended nothing, not by the timestamps of
its records: who sends the events of last month would be forgotten between a batch and its repetition.
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
    """One batch of a producer where it stands in the log. Sequences wrap from 2³¹−1 to 0."""

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
    """What is known of one producer id.

    epoch              of its last batch or of the last marker that ended a transaction of it
    batches            the last ones of that epoch, oldest first
    timestamp          ms, the largest of the last batch or marker
    coordinator_epoch  of the last marker, as a snapshot told it; −1: none
    transaction_start  first offset of the open transaction; −1: none
    idle_since_ms      when it was first seen to have appended nothing since the look before; None: it has
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "idle_since_ms", "timestamp", "transaction_start")

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
        self.idle_since_ms: int | None = None

    def begin_epoch(self, epoch: int) -> None:
        """Nothing of an earlier epoch can be repeated any more."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerState:
    """All producers of one log.

    told_from  a cut behind it can be told from here: further back are the batches that a snapshot stands for, and those
               of transactions, which leave no trace of what was before them. Raised by `update`
    """

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.told_from = 0

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch in the log that this one repeats."""
        producer = self.producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        for batch in reversed(producer.batches):
            if batch.last_sequence == header.last_sequence and batch.offset_delta == header.last_offset_delta:
                return batch
        return None

    def check(self, header: BatchHeader) -> None:
        """Whether a new batch from a producer may follow what is there.

        A: a producer that the log does not know, or has forgotten: any sequence.
        B: an older epoch than the last one → InvalidProducerEpochError.
        C: a new epoch, or one that nothing but a marker is known of: it must begin with sequence 0, else
           OutOfOrderSequenceError.
        D: the next sequence: fine.
        E: any other: batches are missing, or it is cut differently, or it was sent long ago → OutOfOrderSequenceError.
        """
        producer_id, sequence = header.producer_id, header.base_sequence
        producer = self.producers.get(producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpochError(
                f"producer {producer_id} has epoch {header.producer_epoch}, a newer one has {producer.epoch}"
            )
        if header.producer_epoch > producer.epoch or not producer.batches:
            if sequence:
                raise OutOfOrderSequenceError(
                    f"epoch {header.producer_epoch} of producer {producer_id} begins with sequence {sequence}, not 0"
                )
            return
        last = producer.batches[-1].last_sequence
        if sequence != (last + 1) % _SEQUENCES:
            raise OutOfOrderSequenceError(f"producer {producer_id} sends sequence {sequence} after {last}")

    def update(self, header: BatchHeader, base_offset: int | None = None) -> None:
        """Takes note of a batch in the log, whoever put it there; `base_offset` where it is not the header's."""
        if header.producer_id < 0:
            return
        if base_offset is None:
            base_offset = header.base_offset
        delta = header.last_offset_delta
        if header.is_control or header.is_transactional:
            self.told_from = base_offset + delta + 1
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = Producer(header.producer_epoch)
        else:
            producer.begin_epoch(header.producer_epoch)
        producer.timestamp = header.max_timestamp
        producer.idle_since_ms = None
        if header.is_control:
            producer.transaction_start = NONE
            return
        if header.is_transactional and producer.transaction_start == NONE:
            producer.transaction_start = base_offset
        producer.batches.append(BatchMetadata(header.last_sequence, base_offset + delta, delta, header.max_timestamp))

    def rewind_to(self, end_offset: int) -> bool:
        """The log ends at this offset now. False where only the batches before it tell what holds then.

        That is so for a producer all of whose batches that are remembered were cut. Of others fewer may be remembered
        than the log has, as after a snapshot.
        """
        if self.producers and end_offset < self.told_from:
            return False
        for producer in self.producers.values():
            batches = producer.batches
            if not batches or batches[-1].last_offset < end_offset:
                continue
            while batches and batches[-1].last_offset >= end_offset:
                batches.pop()
            if not batches:
                return False
            producer.timestamp = batches[-1].timestamp
        return True

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets the producers that were idle for `expiration_ms`, and says how many those were.

        To be called now and then, on a clock that does not go back: a producer is idle from the first call on that
        finds nothing new of it. One with an open transaction stays.
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
