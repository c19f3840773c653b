"""Implement the producer for programs without asyncio.

`send` runs in the caller's thread; everything else runs on one I/O thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from tidelog import arguments
from tidelog.aio.producer import INTERRUPTED_CLOSE_S, buffer_exhausted
from tidelog.aio.producer import Producer as AsyncProducer
from tidelog.client.blocking.io_thread import IoThread
from tidelog.client.environment import ClientEnvironment
from tidelog.client.help import client_repr, shows_settings
from tidelog.client.metrics.snapshot import Metrics
from tidelog.client.producer.accumulator import TopicQueues
from tidelog.client.producer.record_future import RecordFuture, RecordRun
from tidelog.client.settings import BootstrapServers, ProducerOptions, ProducerSettings
from tidelog.client.tasks.lifecycle import free_dropped
from tidelog.clock import bearable_s
from tidelog.errors import BufferExhaustedError, ClosedError
from tidelog.model import Buffer
from tidelog.records.encode import Headers, to_record_timestamp
from tidelog.records.ready_made import ReadyMadeBatch
from tidelog.timestamps import Timestamp

Sent = TypeVar("Sent", RecordFuture, RecordRun)


@shows_settings(ProducerSettings, ProducerOptions)
class Producer:
    """Send records to the leaders of their partitions. Threads may share a producer; a forked process needs its own.

    bootstrap_servers     "host:port,host:port" or a list; by default $TIDELOG_BOOTSTRAP_SERVERS, else the cluster of
                          this user's last `tidelog up`
    acks                  "all" (default), 1 or 0
    enable_idempotence    default with acks="all": the leader stores a repeated batch once and keeps the order of each
                          partition
    batch_size            maximum bytes of a partition's batch before compression (256 KiB); a larger record has a batch
                          of its own. Batches are smaller if the topic rejects that size. The first batches of records
                          without a key are smaller too, so that a few hundred records reach several partitions
    linger_ms             how long a batch waits for more records (0: only while an earlier batch is in flight)
    compression_type      "gzip", "snappy", "lz4", "zstd" or None (default): the codec of each batch
    buffer_memory         maximum bytes that wait for an acknowledgement (64 MiB); `send` blocks while they are used up
    max_block_ms          how long `send` may block while it waits for buffer memory or metadata
    max_request_size      maximum bytes of a single record before compression, and of a batch of `send_batch` (1 MiB)
    delivery_timeout_ms   maximum time from `send` to the outcome, retries included (2 min); records that join a batch
                          share the batch's deadline
    retries               how often a batch is sent again that a broker may have received (default: until the deadline)
    allow_auto_create_topics
                          whether brokers may create a topic that does not exist when a record is sent to it (False);
                          they do so if their setting `auto_create_topics_enable` is on, as for `tidelog up`
    key_serializer, value_serializer
                          functions of one value that return bytes (None: keys and values are bytes), for example
                          `lambda value: json.dumps(value).encode()`. They get neither None, which stays a record
                          without key or a tombstone, nor the values of `send_values` and `send_batch`
    request_timeout_ms, retry_backoff_ms, retry_backoff_max_ms, metadata_max_age_ms, bootstrap_timeout_ms, client_id,
    partitioner

    Example:

        with Producer(bootstrap_servers="localhost:9092") as producer:
            future = producer.send("orders", b"9 books", key=b"customer 7")
            metadata = future.get(timeout=10)
            print(metadata.partition, metadata.offset)
    """

    def __init__(self, bootstrap_servers: BootstrapServers | None = None, **options: Unpack[ProducerOptions]) -> None:
        self._set_up(bootstrap_servers, options, ClientEnvironment())

    def _set_up(
        self, bootstrap_servers: BootstrapServers | None, options: Mapping[str, Any], environment: ClientEnvironment
    ) -> None:
        self._core = environment.create(AsyncProducer, bootstrap_servers, **options)
        self._serializer = self._core._serializer
        self._now_ms = self._core.clock.now_ms
        self._monotonic_ms = self._core.clock.monotonic_ms
        self._closed = False
        self._core._leave_to_owner()
        self._io = IoThread("tidelog-producer", on_fork=self._forked)
        try:
            self._io.run(self._core.start())
        except BaseException:
            self._io.stop()
            raise
        self._client = self._core.client
        self._background = self._client.background
        self._accumulator = self._core.sender.accumulator
        self._topics = self._accumulator.topics
        self._append = self._accumulator.append

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: Timestamp | None = None,
    ) -> RecordFuture:
        """Buffer one record and return its future; `.get()` waits for the acknowledgement.

        `value` and `key` are bytes or None, or what the serializers take. By default `timestamp_ms` is the current
        time. `headers` are (name, bytes or None) pairs, or a dict.

        Raises at once: TypeError and ValueError, which name the argument and its value; MessageTooLargeError;
        InvalidTopicError; SerializationError if a serializer fails. Raises within `max_block_ms`: BufferExhaustedError,
        UnknownTopicOrPartitionError, NoBrokersError, TimeoutError. Raises InternalError after a background task of the
        producer failed.

        Later errors are raised by the future. A record that the topic's settings exclude (InvalidTimestampError,
        InvalidRecordError) fails alone, and the other records of its batch are stored. Records of a deleted topic fail
        with UnknownTopicOrPartitionError as soon as the deletion is certain, after about 3 s.
        """
        if self._closed:
            raise self._io.closed_error()
        if self._background.has_failed:
            self._background.raise_failure()
        if self._serializer is not None:
            key, value = self._serializer(topic, key, value)
        # Only values of unusual types are checked, because this code runs for each record.
        if key is not None and type(key) is not bytes:
            key = arguments.record_bytes("key", key)
        if partition is not None and type(partition) is not int:
            partition = arguments.partition_number("partition", partition)
        if headers is None:
            headers = ()
        elif type(headers) is not list:  # a list's pairs are checked where they are encoded, within this call
            headers = arguments.headers("headers", headers)
        stamp = self._now_ms() if timestamp_ms is None else to_record_timestamp(timestamp_ms)
        try:
            queues = self._topics.get(topic)
        except TypeError:
            queues = None  # the topic is not hashable, and `_wait_for_queues` raises the error that says so
        if (
            queues is None
            or topic not in self._client.view.topics  # the topic was forgotten, so its number of partitions is unknown
            or (partition is not None and not 0 <= partition < len(queues.partitions))
        ):
            queues, deadline_ms = self._wait_for_queues(topic, partition)
        else:
            deadline_ms = None
        future = self._append(queues, partition, stamp, key, value, headers, self._monotonic_ms)
        if future is not None:
            return future
        fields = (stamp, key, value, headers)
        return self._append_later(lambda: self._append(queues, partition, *fields, self._monotonic_ms), deadline_ms)

    def send_values(
        self,
        topic: str,
        values: Sequence[bytes],
        start: int = 0,
        *,
        partition: int | None = None,
        timestamp_ms: Timestamp | None = None,
    ) -> RecordRun:
        """Buffer a record without key for each of `values[start:]`, up to a full batch, and return their run.

        The values are bytes or None, and `value_serializer` does not apply.
        Like `socket.send`, one call may accept fewer than all values, but accepts at least one. The caller sends the
        rest with another call from `start + run.record_count` on. The records share one partition and one timestamp,
        by default the current time. For many short records this call takes less than half the time of `send`.
        Raises the errors of `send`, for `values[start]`.
        """
        self._raise_if_unusable()
        start = arguments.values_from("values", values, start)
        if partition is not None:
            partition = arguments.partition_number("partition", partition)
        stamp = self._now_ms() if timestamp_ms is None else to_record_timestamp(timestamp_ms)
        queues, deadline_ms = self._queues(arguments.text("topic", topic), partition)
        append = partial(self._accumulator.append_values, queues, partition, stamp, values, start, self._monotonic_ms)
        return append() or self._append_later(append, deadline_ms)

    def send_batch(self, topic: str, batch: Buffer, *, partition: int) -> RecordFuture:
        """Buffer one encoded batch, and return one future for all its records.

        The future returns the offset of the last record; it fails if any record fails.

        `batch` is one RecordBatch of format v2 (`tidelog.records.encode_batch` makes one, `Consumer.poll_batches`
        returns them). The batch is copied when it is sent, and must not change before. The producer fields, the
        offsets and the leader epoch are replaced; the records and their compression stay the same. The batch keeps its
        place in the order of the sent records. If the topic rejects a batch of that size, the batch is split.

        Raises at once the errors of `send`, and: CorruptMessageError, InvalidRecordError (the batch has no records,
        gaps between its offsets, LogAppendTime timestamps, or is transactional), MessageTooLargeError (larger than
        `max_request_size`).
        """
        self._raise_if_unusable()
        topic, partition = arguments.topic("topic", topic), arguments.partition_number("partition", partition)
        ready_made = ReadyMadeBatch(arguments.buffer("batch", batch))
        queues, deadline_ms = self._queues(topic, partition)
        append = partial(self._accumulator.append_batch, queues, partition, ready_made, self._monotonic_ms)
        return append() or self._append_later(append, deadline_ms)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record sent so far is acknowledged or has failed; TimeoutError after `timeout` seconds.

        None: no limit. The records are sent without waiting for `linger_ms`. The errors of records are not raised. A
        closed producer has nothing to flush.
        """
        time_limit_s = arguments.timeout_s("timeout", timeout)
        if self._closed:
            return
        self._io.run(self._core.flush(time_limit_s), time_limit_s)

    def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of the topic's partitions.

        Raises within `max_block_ms`: UnknownTopicOrPartitionError, NoBrokersError, TimeoutError.
        """
        return self._io.run(self._core.partitions_for(topic), self._core.settings.max_block_ms / 1000)

    def bootstrap_connected(self) -> bool:
        """Return whether a connection to any broker is open now; False for a producer that is closed."""

        async def call() -> bool:
            return self._core.bootstrap_connected()

        return not self._closed and self._io.run(call())

    def metrics(self) -> Metrics:
        """Return a snapshot of this producer's metrics, under Kafka's names: `metrics()["producer-metrics"][name]`.

        Any thread may call this method at any time, also after `close`. Totals, averages and maxima count from the
        start of the producer. A value that is not known yet is NaN. `print` shows each metric on a line.

        record-send-total           records of all attempts to send a batch, repetitions included
        record-retry-total          records that were put back after an attempt, to be sent again
        record-error-total          records whose future has an error
        byte-total                  bytes of the batches of all attempts, compressed
        batch-size-avg, -max        bytes of one batch, compressed
        batch-split-total           batches that were split, because a broker refused their size
        compression-rate-avg        size of a batch divided by its size without compression
        record-queue-time-avg, -max time from the first record of a batch to the batch's first attempt (ms)
        buffer-total-bytes, buffer-available-bytes      `buffer_memory`, and how much of it is free
        waiting-threads             calls that wait for buffer memory
        connection-count, connection-creation-total     open connections, and all that were opened
        request-total, response-total       requests sent, and requests answered; with acks=0 there are no answers
        requests-in-flight          requests that have neither an answer nor an error yet
        request-latency-avg, -max   time from a request to its answer (ms)
        throttle-time-max           longest time for which a broker has throttled this client (ms, KIP-219)
        metadata-age                time since the last answer with metadata (s)
        """
        return self._core.metrics()

    def close(self, timeout: float | None = None) -> None:
        """Send the buffered records for up to `timeout` seconds, then fail the rest with ClosedError. Idempotent.

        None: until each record has an outcome, which takes at most `delivery_timeout_ms`. A callback of a record must
        not call this method (RuntimeError).
        """
        time_limit_s = arguments.timeout_s("timeout", timeout)
        if self._closed:
            return
        if self._io.is_current:
            raise RuntimeError("a callback cannot close its own producer, because close() waits for the callback")
        self._closed = True
        try:
            self._io.run(self._core.close(time_limit_s), time_limit_s)
        finally:
            # An interrupted `close` of the core fails the remaining records on its thread, so the thread ends first.
            try:
                self._io.stop()
            finally:
                self._accumulator.fail_all(ClosedError("the producer was closed before the record was acknowledged"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hurried = kind is not None and not issubclass(kind, Exception)
        self.close(INTERRUPTED_CLOSE_S if hurried else None)

    def __repr__(self) -> str:
        return client_repr(self, self._core.settings, closed=self._closed)

    def __del__(self) -> None:
        io: IoThread | None = getattr(self, "_io", None)
        if io is not None and not io.stopped:
            free_dropped(self, partial(io.abandon, self._core.client.shut_down))

    def _forked(self) -> None:
        self._closed = True  # the child process has no I/O thread that could send the buffered records

    def _raise_if_unusable(self) -> None:
        """Raise ClosedError, or the failure of a background task; `send` has these lines inlined for speed."""
        if self._closed:
            raise self._io.closed_error()
        self._background.raise_failure()

    def _queues(self, topic: str, partition: int | None) -> tuple[TopicQueues, int | None]:
        """Return the topic's queues, and the deadline (ms) of a call that had to wait for them, else None.

        `send` has these lines inlined for speed.
        """
        queues = self._topics.get(topic)
        if (
            queues is None
            or topic not in self._client.view.topics
            or (partition is not None and not 0 <= partition < len(queues.partitions))
        ):
            return self._wait_for_queues(topic, partition)
        return queues, None

    def _wait_for_queues(self, topic: str, partition: int | None) -> tuple[TopicQueues, int]:
        """Return the topic's queues once its metadata has arrived, and the deadline (ms) of the call that waited."""
        arguments.topic("topic", topic)
        if partition is not None:
            arguments.partition_number("partition", partition)
        max_block_ms = self._core.settings.max_block_ms
        deadline_ms = self._monotonic_ms() + max_block_ms
        known = self._topics.get(topic)
        if self._io.is_current and known and (partition is None or 0 <= partition < len(known.partitions)):
            return known, deadline_ms  # a callback cannot wait for metadata, so it uses the last known queues
        return self._io.run(self._core.queues_of(topic, partition, deadline_ms), max_block_ms / 1000), deadline_ms

    def _append_later(self, append: Callable[[], Sent | None], deadline_ms: int | None) -> Sent:
        """Wait for free buffer memory, and return what `append` returns then.

        Raises BufferExhaustedError at the deadline (None: `max_block_ms` from now), at once in a callback; ClosedError
        if the producer is closed meanwhile.
        """
        if self._io.is_current:
            raise BufferExhaustedError(
                "buffer_memory is full, and a callback cannot wait, because no batch completes while a callback runs"
            )
        if deadline_ms is None:
            deadline_ms = self._monotonic_ms() + self._core.settings.max_block_ms
        while True:
            freed = threading.Event()
            wake = freed.set
            if self._accumulator.call_when_space(wake):
                left_ms = deadline_ms - self._monotonic_ms()
                try:
                    if not freed.wait(bearable_s(left_ms / 1000)):
                        raise buffer_exhausted(self._core.settings)
                finally:
                    self._accumulator.stop_waiting_for_space(wake)
            if self._closed:
                raise self._io.closed_error()
            future = append()
            if future is not None:
                return future
