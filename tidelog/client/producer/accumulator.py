"""Hold the records that wait to be sent, and decide which batch may be sent next. No I/O; the time is passed in.

    append (any thread)      add a record to its partition's open batch
    append_values            add as many records without key as fit into one batch
    append_batch             add an encoded batch after the open batch
    waiting_queues (loop)    partitions with nothing in flight; `ready_at_ms` says when their first batch may be sent
    take                     remove that batch for sending; it gets a sequence number that it keeps
    succeed | fail | retry   apply the outcome of the batch
    expire_in_flight         fail the records of a batch in flight whose deadline has passed
    split                    replace the batch by two halves, which the broker may accept
    drop_refused             remove the single records that the broker rejected

Each partition has at most one batch in flight, and a batch that must be repeated stays first, so that the order of
records is kept. A sequence number that the broker may have used for one batch is never given to other records. In that
case the partition waits for a new producer id, and the other partitions go on with their ids.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from tidelog.client.metadata import no_such_partition
from tidelog.client.metrics.client_metrics import ProducerMetrics
from tidelog.client.producer.producer_batch import ANONYMOUS, Batch, ProducerIdentity
from tidelog.client.producer.record_future import BatchFuture, BatchOutcome, RecordFuture, RecordRun
from tidelog.client.settings import ProducerSettings
from tidelog.errors import MessageTooLargeError, TidelogError, TimeoutError
from tidelog.model import NO_TIMESTAMP, TopicPartition
from tidelog.records.encode import BatchBuilder, Header, single_record_bytes
from tidelog.records.ready_made import ReadyMadeBatch

_SEQUENCES = 1 << 31
#: Described at `TopicQueues.sticky_batch_bytes`.
_FIRST_STICKY_BYTES = 512
_STICKY_SHARE = 8


class PartitionQueue:
    """The batches of one partition, oldest first.

    open            the batch that still takes records, always the newest; None: there is none
    in_flight       True while the first batch is sent and not yet answered
    identity        the producer id and epoch for new sequence numbers; None requests new ones
    refused         the producer id and epoch that must not be used for this partition again
    next_sequence   the sequence number of the next batch under `identity`
    """

    __slots__ = ("batches", "identity", "in_flight", "next_sequence", "open", "refused", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.batches: deque[Batch] = deque()
        self.open: Batch | None = None
        self.in_flight = False
        self.identity: ProducerIdentity | None = None
        self.refused: ProducerIdentity | None = None
        self.next_sequence = 0


class TopicQueues:
    """A topic's queues. Records without key go to the `sticky` partition until its batch is closed.

    known          a queue for each partition that the topic ever had; a recreated topic may have fewer `partitions`
    available      the numbers of the partitions that have a leader
    sticky_bytes   the sum of the size limits of all batches that records without key have begun while several
                   partitions had a leader
    """

    __slots__ = ("available", "known", "partitions", "sticky", "sticky_bytes")

    def __init__(self) -> None:
        self.known: list[PartitionQueue] = []
        self.partitions: list[PartitionQueue] = []
        self.available: Sequence[int] = ()
        self.sticky = 0
        self.sticky_bytes = 0

    def queue(self, partition: int) -> PartitionQueue:
        """Return the queue of a partition. Raise UnknownTopicOrPartitionError if the topic does not have it.

        The number may be negative, because a partitioner of the user may return any number.
        """
        try:
            if partition >= 0:
                return self.partitions[partition]
        except IndexError:
            pass
        tp = TopicPartition(self.known[0].topic_partition.topic, partition)
        raise no_such_partition(tp, len(self.partitions))

    def next_sticky(self) -> int:
        """Move `sticky` to the next higher partition with a leader, else to the lowest, and return its number.

        If no partition has a leader, all of them count.
        """
        choice = self.available or range(len(self.partitions))
        self.sticky = next((each for each in choice if each > self.sticky), choice[0])
        return self.sticky

    def sticky_batch_bytes(self, batch_size: int) -> int:
        """Return the size limit of the next batch that keyless records begin, at most `batch_size`.

        The limit is 512 bytes at first, and later an eighth of `sticky_bytes`, to which this call adds it. So a few
        hundred short records already reach several partitions. Batches have their full size once `sticky_bytes` is
        eight times `batch_size`. Kafka's partitioner fills a whole batch from the beginning (KIP-480), so that the
        first records of a producer share one partition. With fewer than two partitions to choose from, the limit is
        `batch_size`, and `sticky_bytes` stays.
        """
        if len(self.available or self.partitions) < 2:
            return batch_size  # there is no other partition to which the next batch could go
        limit = min(batch_size, max(_FIRST_STICKY_BYTES, self.sticky_bytes // _STICKY_SHARE))
        self.sticky_bytes += limit
        return limit


class Accumulator:
    """The queues of all partitions, protected by one lock that is held for microseconds only.

    metrics   the counters of the records, which change only on the event loop, or under the lock

    `wake` starts the sender's next turn. The appending thread calls `wake` for a new batch, at most once after each
    `arm`; `begin_flush` and `call_when_space` call `wake` too.

    `first_sequence` returns the sequence number with which a producer id starts in a partition. The log accepts any
    first sequence number of a new producer id. If ZooKeeper was restored from an earlier state, an id is given out
    twice. With a fixed start the second producer's batches would then pass for repetitions of the first one's.
    """

    def __init__(
        self, settings: ProducerSettings, wake: Callable[[], object], first_sequence: Callable[[], int]
    ) -> None:
        self.topics: dict[str, TopicQueues] = {}
        self.buffered_bytes = 0
        self.metrics = ProducerMetrics()
        self._lock = threading.RLock()
        self._settle_lock = threading.Lock()
        self._settings = settings
        self._batch_size = min(settings.batch_size, settings.max_request_size)
        self._limit = settings.buffer_memory
        self._partitioner = settings.partitioner
        self._wake = wake
        self._first_sequence = first_sequence
        self._armed = False
        self._active: dict[PartitionQueue, None] = {}
        self._flush_before_ms = -1
        self._waiting_for_space: list[Callable[[], object]] = []
        self._closed: TidelogError | None = None

    # --- called by the user's thread --------------------------------------------------------------

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        clock_ms: Callable[[], int],
    ) -> RecordFuture | None:
        """Add the record to its partition's open batch or a new one, and return its future; None if the buffer is full.

        With `partition` None the partitioner chooses by the key, and a record without key goes to the sticky partition.
        Raises MessageTooLargeError and UnknownTopicOrPartitionError; after `fail_all` the error passed to it.
        """
        if self.buffered_bytes >= self._limit:
            return None
        # Not `with`, because it costs twice as much in current CPython, and this code runs for each record.
        try:
            self._lock.acquire()
            queues = topic.partitions
            if partition is None and key is not None:
                partition = self._partitioner(key, len(queues))
            if partition is None:
                queue = queues[topic.sticky]
                if queue.open is None:
                    queue = queues[topic.next_sticky()]
            else:
                queue = topic.queue(partition)
            batch = queue.open
            if batch is not None:
                builder = batch.builder
                before_bytes = builder.size_bytes
                # An open batch has a real builder.
                index = builder.try_append(timestamp_ms, key, value, headers)  # type: ignore[union-attr]
                if index is not None:
                    self.buffered_bytes += builder.size_bytes - before_bytes
                    return RecordFuture(batch.outcome, index, timestamp_ms)
                queue.open = None
                if partition is None:
                    queue = queues[topic.next_sticky()]
                    if queue.open is not None:
                        queue.open = None
            limit = topic.sticky_batch_bytes(self._batch_size) if partition is None else self._batch_size
            return self._begin(queue, timestamp_ms, key, value, headers, clock_ms(), limit)
        finally:
            # A KeyboardInterrupt may come before the lock is held, or after. A lock held for ever would hang `close`.
            try:  # noqa: SIM105  # `suppress` would cost each record more than the lock
                self._lock.release()
            except RuntimeError:
                pass

    def append_values(
        self,
        topic: TopicQueues,
        partition: int | None,
        timestamp_ms: int,
        values: Sequence[bytes],
        start: int,
        clock_ms: Callable[[], int],
    ) -> RecordRun | None:
        """Append records with the values `values[start:]`, as many as one batch takes. Return the handle of their run.

        At least one record is appended, or None is returned because the buffer is full. Raises the errors of `append`,
        but only for the first value: a later value that is rejected ends the run before it.
        """
        with self._lock:
            first = self.append(topic, partition, timestamp_ms, None, values[start], (), clock_ms)
            if first is None:
                return None
            batch = topic.queue(topic.sticky if partition is None else partition).open
            assert batch is not None and isinstance(batch.builder, BatchBuilder)
            builder = batch.builder
            index, before_bytes = builder.record_count - 1, builder.size_bytes
            try:
                for value in islice(values, start + 1, None):
                    if type(value) is not bytes or builder.try_append(timestamp_ms, None, value) is None:
                        break
            finally:  # also after a KeyboardInterrupt
                self.buffered_bytes += builder.size_bytes - before_bytes
            return RecordRun(batch.outcome, index, builder.record_count - index)

    def append_batch(
        self, topic: TopicQueues, partition: int, ready_made: ReadyMadeBatch, clock_ms: Callable[[], int]
    ) -> RecordFuture | None:
        """Add an encoded batch, and return one future for all its records; None if the buffer is full.

        Raises the errors of `append`; MessageTooLargeError if the batch is larger than `max_request_size`.
        """
        if ready_made.size_bytes > self._settings.max_request_size:
            raise MessageTooLargeError(
                f"a batch of {ready_made.size_bytes} bytes: max_request_size is {self._settings.max_request_size}"
            )
        if self.buffered_bytes >= self._limit:
            return None
        with self._lock:
            queue = topic.queue(partition)
            queue.open = None
            batch = self._join(queue, ready_made, clock_ms(), open_for_more=False)
            return BatchFuture(batch.outcome, batch.last_index, ready_made.max_timestamp)

    def call_when_space(self, callback: Callable[[], object]) -> bool:
        """Call `callback` once when bytes have been freed, and return True; meanwhile no batch waits for linger_ms.

        If there is space already, return False without a call.
        """
        with self._lock:
            if self.buffered_bytes < self._limit:
                return False
            first = not self._waiting_for_space
            self._waiting_for_space.append(callback)
        if first:
            self._wake()  # batches that wait for linger_ms are sent now
        return True

    @property
    def waiting_for_space(self) -> int:
        """The number of callers that wait for free buffer memory."""
        return len(self._waiting_for_space)

    def stop_waiting_for_space(self, callback: Callable[[], object]) -> None:
        """Remove a callback of `call_when_space`, because its caller has stopped waiting."""
        with self._lock:
            self._waiting_for_space = [each for each in self._waiting_for_space if each is not callback]

    def begin_flush(self, now_ms: int) -> list[RecordFuture]:
        """Return the future of the last record of each unfinished batch; these batches no longer wait for linger_ms.

        The sender is woken.
        """
        with self._lock:
            self._flush_before_ms = now_ms
            unsettled = [batch.last_record() for queue in self._active for batch in queue.batches]
        self._wake()
        return unsettled

    # --- called by the sender (event loop) --------------------------------------------------------

    def arm(self) -> None:
        """Let the next append that begins a batch call `wake`, once."""
        with self._lock:
            self._armed = True

    def add_partitions(self, topic: str, count: int, available: Sequence[int]) -> TopicQueues:
        """Set the topic's number of partitions (it may grow or shrink), and return the topic's queues.

        available   the numbers of the partitions that have a leader

        A `count` of 0 keeps the number.
        """
        with self._lock:
            queues = self.topics.get(topic)
            if queues is None:
                queues = self.topics[topic] = TopicQueues()
            for number in range(len(queues.known), count):
                queues.known.append(PartitionQueue(TopicPartition(topic, number)))
            if len(queues.partitions) != count > 0:
                queues.partitions = queues.known[:count]
                queues.sticky = min(queues.sticky, count - 1)
            queues.available = available
            return queues

    def waiting_queues(self) -> list[PartitionQueue]:
        """Return the partitions that have a batch and nothing in flight."""
        with self._lock:
            return [queue for queue in self._active if not queue.in_flight]

    def ready_at_ms(self, queue: PartitionQueue) -> int:
        """Return when the first batch may be sent (ms, monotonic clock); a time in the past means now."""
        batch = queue.batches[0]
        hurried = self._waiting_for_space or batch.created_ms <= self._flush_before_ms
        if batch.attempts or batch is not queue.open or hurried:
            return batch.retry_at_ms
        return batch.created_ms + self._settings.linger_ms

    def take(self, queue: PartitionQueue, identity: ProducerIdentity, leader_epoch: int) -> Batch:
        """Close and encode the first batch, mark it as in flight, and return it.

        Sequence numbers are assigned by the first call, and by the first after a change of the producer id. An
        exception of the encoding is raised, and in that case no sequence number is assigned.
        """
        batch = self._close_first(queue)
        if queue.identity is None:
            queue.identity, queue.next_sequence = identity, self._first_sequence()
        if batch.identity is not queue.identity:
            self._build(batch, queue, queue.identity)
        queue.in_flight = True
        batch.sent_epoch = leader_epoch
        batch.attempts += 1
        self.metrics.on_sent(batch.builder.record_count, len(batch.payload), batch.size_bytes)
        return batch

    def succeed(
        self, queue: PartitionQueue, base_offset: int = -1, log_append_time_ms: int = NO_TIMESTAMP
    ) -> BatchOutcome:
        """Settle the batch in flight as stored from `base_offset` on (−1: not known), and remove it.

        The caller must call `run_callbacks` on the returned outcome.
        """
        return self._leave(queue, None, base_offset, log_append_time_ms)

    def fail(self, queue: PartitionQueue, error: TidelogError) -> None:
        """Fail the records of the first batch, which need not be in flight, remove the batch, and run the callbacks.

        If an attempt may have been appended, the partition needs a new producer id.
        """
        self._return_sequences(queue, self._close_first(queue))
        self._leave(queue, error).run_callbacks()

    def fail_waiting(self, queue: PartitionQueue, error: TidelogError) -> None:
        """Fail and remove all batches of a partition that has nothing in flight, and run the callbacks."""
        while queue.batches:
            self.fail(queue, error)

    def split(self, queue: PartitionQueue) -> None:
        """Replace the batch in flight, which is too large for the broker, by two halves; they stay first."""
        batch = queue.batches[0]
        halves = batch.halves()
        self._return_sequences(queue, batch)
        with self._lock:
            queue.batches.popleft()
            queue.batches.extendleft(reversed(halves))
            self.buffered_bytes += sum(half.size_bytes for half in halves) - batch.size_bytes
        queue.in_flight = False
        self.metrics.splits += 1
        self.metrics.records_retried += batch.builder.record_count

    def drop_refused(self, queue: PartitionQueue, errors: Mapping[int, TidelogError]) -> None:
        """Remove the records at these positions from the batch in flight, because the broker rejected them.

        The other records stay first, to be sent again. If no other record is left, the batch is done.
        """
        batch = queue.batches[0]
        rest = batch.without(errors)
        self._return_sequences(queue, batch)
        with self._lock:
            queue.batches[0] = rest
            self.buffered_bytes += rest.size_bytes - batch.size_bytes
        queue.in_flight = False
        self.metrics.records_retried += rest.builder.record_count
        if not rest.builder.record_count:
            self._leave(queue, None).run_callbacks()

    def retry(self, queue: PartitionQueue, error: TidelogError, at_ms: int, *, outcome_unknown: bool) -> None:
        """Leave the batch that was in flight at the head of the queue, unchanged, to be sent again at `at_ms`.

        outcome_unknown   the attempt may have been appended
        """
        batch = queue.batches[0]
        batch.last_error = error
        batch.outcome_unknown |= outcome_unknown
        batch.retry_at_ms = at_ms
        queue.in_flight = False
        self.metrics.records_retried += batch.builder.record_count

    def discard_producer_id(self, queue: PartitionQueue) -> None:
        """Let this partition's next batch request another producer id. No attempt may be without an outcome."""
        queue.refused, queue.identity = queue.identity, None

    def expire_in_flight(self, queue: PartitionQueue, batch: Batch, now_ms: int) -> int | None:
        """Fail the records of `batch`, which is past its deadline, and the later batches that are past theirs.

        The batch stays first until its answer arrives, so that no later batch can overtake it. Returns the deadline of
        the batch behind it, so that the caller calls again then; None if there is none. If the batch is no longer in
        flight, nothing is done, and None is returned.
        """
        if not queue.in_flight or queue.batches[0] is not batch:
            return None
        if not batch.expired:
            batch.expired = True
            batch.settle(-1, NO_TIMESTAMP, _expired(batch, now_ms), may_be_stored=True)
            self._count_failed(batch, all_failed=True)
            batch.outcome.run_callbacks()
        while len(queue.batches) > 1:
            behind = queue.batches[1]
            if behind.deadline_ms > now_ms:
                return behind.deadline_ms
            self._close(queue, behind)
            self._leave(queue, _expired(behind, now_ms), place=1).run_callbacks()
        return None

    def expire(self, now_ms: int) -> list[PartitionQueue]:
        """Fail the overdue batches at the head of each queue that has nothing in flight.

        Return the queues with nothing in flight that still have batches.
        """
        waiting = self.waiting_queues()
        for queue in waiting:
            while queue.batches and queue.batches[0].deadline_ms <= now_ms:
                self.fail(queue, _expired(queue.batches[0], now_ms))
        return [queue for queue in waiting if queue.batches]

    def next_deadline_ms(self) -> int | None:
        """Return when the next `expire` is useful: the earliest deadline of a waiting first batch; None: none waits."""
        deadlines = [queue.batches[0].deadline_ms for queue in self.waiting_queues() if queue.batches]
        return min(deadlines, default=None)

    def fail_all(self, error: TidelogError) -> None:
        """Fail all unfinished records with `error`, run their callbacks here, and let later appends raise `error`.

        Any thread may call this method, and several at the same time.
        """
        with self._lock:
            self._closed = error
            queues = list(self._active)
        for queue in queues:
            while (outcome := self._fail_first(queue, error)) is not None:
                outcome.run_callbacks()

    # --- helpers ----------------------------------------------------------------------------------

    def _begin(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        now_ms: int,
        limit: int,
    ) -> RecordFuture:
        builder = BatchBuilder(limit)
        index = builder.try_append(timestamp_ms, key, value, headers)
        if index is None:
            needed = single_record_bytes(key, value, headers)
            if needed > self._settings.max_request_size:
                raise MessageTooLargeError(
                    f"a record of {needed} bytes for {queue.topic_partition}: max_request_size is "
                    f"{self._settings.max_request_size} (and the topic's max.message.bytes must allow it too)"
                )
            # The estimate does not include the timestamp, which may need a few more bytes.
            builder = BatchBuilder(needed + 16)
            index = builder.try_append(timestamp_ms, key, value, headers)
            assert index is not None
        batch = self._join(queue, builder, now_ms, open_for_more=True)
        return RecordFuture(batch.outcome, index, timestamp_ms)

    def _join(
        self, queue: PartitionQueue, builder: BatchBuilder | ReadyMadeBatch, now_ms: int, *, open_for_more: bool
    ) -> Batch:
        """Add a new batch after all others of the partition."""
        if self._closed is not None:
            raise self._closed
        outcome = BatchOutcome(queue.topic_partition, self._settle_lock)
        batch = Batch(outcome, builder, now_ms, now_ms + self._settings.delivery_timeout_ms)
        size_bytes = batch.size_bytes
        # A KeyboardInterrupt may come within any call, and the state must stay consistent. So plain assignments come
        # first, the batch is added by one call, and `_armed` is only cleared after `wake` was called.
        self._active[queue] = None
        self.buffered_bytes += size_bytes
        if open_for_more:
            queue.open = batch
        queue.batches.append(batch)
        if self._armed and (not queue.in_flight or self._settings.linger_ms):
            self._wake()
            self._armed = False
        return batch

    def _fail_first(self, queue: PartitionQueue, error: TidelogError) -> BatchOutcome | None:
        with self._lock:
            if not queue.batches:
                return None
            self._close_first(queue).outcome_unknown |= queue.in_flight
            return self._leave(queue, error)

    def _close_first(self, queue: PartitionQueue) -> Batch:
        """Return the first batch, after closing it for further records."""
        batch = queue.batches[0]
        self._close(queue, batch)
        return batch

    def _close(self, queue: PartitionQueue, batch: Batch) -> None:
        with self._lock:
            if batch is queue.open:
                queue.open = None

    def _build(self, batch: Batch, queue: PartitionQueue, identity: ProducerIdentity) -> None:
        sequence = -1 if identity == ANONYMOUS else queue.next_sequence
        batch.payload = batch.builder.build(
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            codec=self._settings.codec,
        )
        batch.identity, batch.sequence = identity, sequence
        if identity != ANONYMOUS:
            queue.next_sequence = (sequence + batch.builder.record_count) % _SEQUENCES

    def _return_sequences(self, queue: PartitionQueue, batch: Batch) -> None:
        """Free the sequence numbers of a batch that was rejected or failed.

        If an attempt may have been appended, discard the producer id instead.
        """
        if batch.identity is not None and batch.identity is queue.identity and queue.identity != ANONYMOUS:
            if batch.outcome_unknown:
                self.discard_producer_id(queue)
            else:
                queue.next_sequence = batch.sequence  # the broker has certainly not used these numbers

    def _count_failed(self, batch: Batch, *, all_failed: bool) -> None:
        failed = len(batch.refused) + (batch.builder.record_count if all_failed else 0)
        with self._lock:  # `fail_all` may run on several threads
            self.metrics.records_failed += failed

    def _leave(
        self,
        queue: PartitionQueue,
        error: TidelogError | None,
        base_offset: int = -1,
        log_append_time_ms: int = NO_TIMESTAMP,
        place: int = 0,
    ) -> BatchOutcome:
        # The batch is settled before it is removed, so that a flush on another thread sees either it or its outcome.
        batch = queue.batches[place]
        if not batch.expired:
            may_be_stored = error is not None and batch.outcome_unknown
            batch.settle(base_offset, log_append_time_ms, error, may_be_stored=may_be_stored)
            self._count_failed(batch, all_failed=error is not None)
        with self._lock:
            del queue.batches[place]
            queue.in_flight &= place > 0
            if not queue.batches:
                self._active.pop(queue, None)
            self.buffered_bytes -= batch.size_bytes
            waiting, self._waiting_for_space = self._waiting_for_space, []
        for callback in waiting:
            callback()
        return batch.outcome


def _expired(batch: Batch, now_ms: int) -> TimeoutError:
    waited_ms = now_ms - batch.created_ms
    last = f"; last: {batch.last_error}" if batch.last_error else ""
    error = TimeoutError(f"{batch.topic_partition}: not acknowledged within {waited_ms} ms (delivery_timeout_ms){last}")
    error.__cause__ = batch.last_error
    return error
