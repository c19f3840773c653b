"""The producer for ordinary programs: `send` runs in the caller's thread, everything else on one I/O thread."""

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
from tidelog.client.lifecycle import free_dropped
from tidelog.client.producer.accumulator import TopicQueues
from tidelog.client.producer.record_future import RecordFuture, RecordRun
from tidelog.client.settings import BootstrapServers, ProducerOptions, ProducerSettings
from tidelog.clock import bearable_s
from tidelog.errors import BufferExhaustedError, ClosedError
from tidelog.model import Buffer
from tidelog.records.encode import Headers, to_record_timestamp
from tidelog.records.ready_made import ReadyMadeBatch
from tidelog.timestamps import Timestamp

Sent = TypeVar("Sent", RecordFuture, RecordRun)


@shows_settings(ProducerSettings, ProducerOptions)
class Producer:
    """Sends records to the leaders of their partitions. Threads may share it; a forked process needs its own.

    bootstrap_servers     "host:port,host:port" or a list; by default $TIDELOG_BOOTSTRAP_SERVERS, else the cluster of
                          this user's last `tidelog up`
    acks                  "all" (default), 1 or 0
    enable_idempotence    default with acks="all": a repeated batch is stored once, order is kept per partition
    batch_size            bytes of one batch of one partition, before compression (256 KiB); fewer where
                          the topic refuses so many, and in the first batches of records without a key, so that a few
                          hundred of them reach several partitions
    linger_ms             how long a batch waits for more records (0: only while an earlier one is in flight)
    compression_type      "gzip", "snappy", "lz4", "zstd" or None (default): how each batch is compressed
    buffer_memory         bytes that wait for an acknowledgement (64 MiB); beyond, `send` blocks
    max_block_ms          how long `send` may block, for room or for metadata
    max_request_size      the largest single record, in bytes before compression (1 MiB), and the largest batch of
                          `send_batch`
    delivery_timeout_ms   from `send` to the outcome, retries included (2 min); what joins a batch shares its time
    retries               how often a batch is repeated that a broker may have seen (by default as its time allows)
    request_timeout_ms, retry_backoff_ms, retry_backoff_max_ms, metadata_max_age_ms, bootstrap_timeout_ms, client_id,
    partitioner
    """

    def __init__(self, bootstrap_servers: BootstrapServers | None = None, **options: Unpack[ProducerOptions]) -> None:
        self._set_up(bootstrap_servers, options, ClientEnvironment())

    def _set_up(
        self, bootstrap_servers: BootstrapServers | None, options: Mapping[str, Any], environment: ClientEnvironment
    ) -> None:
        self._core = environment.create(AsyncProducer, bootstrap_servers, **options)
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
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: Timestamp | None = None,
    ) -> RecordFuture:
        """Buffer one record and return its future; `.get()` waits for the acknowledgement.

        `timestamp_ms` is by default now; `headers` are (name, bytes or None) pairs, or a dict.

        Raises at once: TypeError and ValueError, which name the argument and its value, MessageTooLargeError,
        InvalidTopicError; after up to `max_block_ms`: BufferExhaustedError, UnknownTopicOrPartitionError,
        NoBrokersError, TimeoutError; after a defect in the background, InternalError. What happens later is the
        future's: a record that its topic excludes (InvalidTimestampError, InvalidRecordError) fails alone, and the
        others of its batch are stored. Records of a topic that is deleted fail with UnknownTopicOrPartitionError as
        soon as that is certain, after about 3 s.
        """
        if self._closed:
            raise self._io.closed_error()
        if self._background.has_failed:
            self._background.raise_failure()
        # Only values of unusual types are checked, because this code runs for each record.
        if key is not None and type(key) is not bytes:
            key = arguments.record_bytes("key", key)
        if partition is not None and type(partition) is not int:
            partition = arguments.partition_number("partition", partition)
        if headers is None:
            headers = ()
        elif type(headers) is not list:  # a list's pairs are checked where they are encoded, in this very call
            headers = arguments.headers("headers", headers)
        stamp = self._now_ms() if timestamp_ms is None else to_record_timestamp(timestamp_ms)
        try:
            queues = self._topics.get(topic)
        except TypeError:
            queues = None  # the topic is not hashable, and `_wait_for_queues` raises the error that says so
        if (
            queues is None
            or topic not in self._client.view.topics  # forgotten: how many partitions it has now is not known
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
        """Buffer a record without key for each of `values[start:]`, as many as one batch takes, and return them.

        Like `socket.send`, one call may take fewer than all, but at least one: send the rest by another call, from
        `start + run.record_count` on. The records share one partition and one timestamp, by default now. Many short
        records take less than half the time that `send` needs for them. Errors as of `send`, about `values[start]`.
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
        """Buffer a whole batch that is ready-made, and return one future for all its records.

        The future has the place of the last record; it fails if any record fails.

        `batch` is one RecordBatch of format 2 (`tidelog.records.encode_batch` makes one, `Consumer.poll_batches` gives
        them). It is copied when it is sent, and must not change before. Who produced it, its offsets and its leader
        epoch are written anew; its records and their compression stay as they are. Records that are sent before and
        after it stay before and after it; a topic that refuses so many bytes at once gets them in parts.

        Raises at once, besides what `send` raises: CorruptMessageError, InvalidRecordError (no records, gaps between
        their offsets, the broker's timestamps, a transaction's), MessageTooLargeError (above `max_request_size`).
        """
        self._raise_if_unusable()
        topic, partition = arguments.topic("topic", topic), arguments.partition_number("partition", partition)
        ready_made = ReadyMadeBatch(arguments.buffer("batch", batch))
        queues, deadline_ms = self._queues(topic, partition)
        append = partial(self._accumulator.append_batch, queues, partition, ready_made, self._monotonic_ms)
        return append() or self._append_later(append, deadline_ms)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything sent so far has an outcome (of either kind); TimeoutError after `timeout` seconds."""
        patience_s = arguments.timeout_s("timeout", timeout)
        if self._closed:
            return
        self._io.run(self._core.flush(patience_s), patience_s)

    def partitions_for(self, topic: str) -> set[int]:
        """The topic's partitions. UnknownTopicOrPartitionError, NoBrokersError, TimeoutError after `max_block_ms`."""
        return self._io.run(self._core.partitions_for(topic), self._core.settings.max_block_ms / 1000)

    def close(self, timeout: float | None = None) -> None:
        """Send what is buffered for up to `timeout` seconds, then fail the rest with ClosedError. Idempotent."""
        patience_s = arguments.timeout_s("timeout", timeout)
        if self._closed:
            return
        if self._io.is_current:
            raise RuntimeError("a producer cannot be closed by its own callback, which it would wait for")
        self._closed = True
        try:
            self._io.run(self._core.close(patience_s), patience_s)
        finally:
            # An interrupted `close` of the core fails what is left on its own thread, so that comes first.
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
        self._closed = True  # nobody here would send what is buffered

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
            return known, deadline_ms  # a callback cannot wait, and goes by what was known last
        return self._io.run(self._core.queues_of(topic, partition, deadline_ms), max_block_ms / 1000), deadline_ms

    def _append_later(self, append: Callable[[], Sent | None], deadline_ms: int | None) -> Sent:
        """What it returns once there is room."""
        if self._io.is_current:
            raise BufferExhaustedError("buffer_memory is full, and a callback, which keeps it so, cannot wait for room")
        if deadline_ms is None:
            deadline_ms = self._monotonic_ms() + self._core.settings.max_block_ms
        while True:
            freed = threading.Event()
            wake = freed.set
            if self._accumulator.when_space(wake):
                left_ms = deadline_ms - self._monotonic_ms()
                try:
                    if not freed.wait(bearable_s(left_ms / 1000)):
                        raise buffer_exhausted(self._core.settings)
                finally:
                    self._accumulator.no_space(wake)
            if self._closed:
                raise self._io.closed_error()
            future = append()
            if future is not None:
                return future
