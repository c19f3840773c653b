"""Implement the producer for asyncio programs; the synchronous producer uses it as its core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from tidelog import arguments
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.environment import ClientEnvironment
from tidelog.client.help import client_repr, shows_settings
from tidelog.client.metrics.client_metrics import ProducerMetrics
from tidelog.client.metrics.snapshot import Metrics, producer_metrics
from tidelog.client.producer.accumulator import TopicQueues
from tidelog.client.producer.record_future import RecordFuture, RecordRun
from tidelog.client.producer.sender import Sender
from tidelog.client.producer.serialization import Serializer
from tidelog.client.settings import BootstrapServers, ProducerOptions, ProducerSettings, make_settings
from tidelog.client.tasks.async_event import Flag
from tidelog.client.tasks.lifecycle import LoopBound
from tidelog.errors import BufferExhaustedError, ClosedError, TimeoutError
from tidelog.model import Buffer, RecordMetadata, TopicPartition
from tidelog.quantities import count_of, plural
from tidelog.records.encode import Headers, to_record_timestamp
from tidelog.records.ready_made import ReadyMadeBatch
from tidelog.timestamps import Timestamp

Sent = TypeVar("Sent", RecordFuture, RecordRun)

#: How long a `with` block that an interrupt (Ctrl-C) leaves goes on sending buffered records.
INTERRUPTED_CLOSE_S = 1.0


@shows_settings(ProducerSettings, ProducerOptions)
class Producer(LoopBound):
    """Send records to the leaders of their partitions; see `tidelog.Producer` for the settings.

    Example:

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            future = await producer.send("orders", b"9 books", key=b"customer 7")
            metadata = await future
            print(metadata.partition, metadata.offset)
    """

    def __init__(self, bootstrap_servers: BootstrapServers | None = None, **options: Unpack[ProducerOptions]) -> None:
        self._set_up(bootstrap_servers, options, ClientEnvironment())

    def _set_up(
        self, bootstrap_servers: BootstrapServers | None, options: Mapping[str, Any], environment: ClientEnvironment
    ) -> None:
        self.settings = make_settings(ProducerSettings, bootstrap_servers, options)
        self.clock = environment.clock
        self._rng = environment.rng
        self.client = ClusterClient(
            self.settings,
            clock=self.clock,
            opener=environment.opener,
            rng=environment.rng,
            allow_auto_create_topics=self.settings.allow_auto_create_topics,
        )
        self._serializer = Serializer.of(self.settings.key_serializer, self.settings.value_serializer)
        self.closed = False
        self._sender: Sender | None = None

    async def start(self) -> Self:
        """Start the background tasks, and return this producer.

        `async with` and every call except `flush` and `close` start the tasks too.
        """
        self._started()
        return self

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: Timestamp | None = None,
    ) -> RecordFuture:
        """Return a future once the record is buffered; raise the errors of `tidelog.Producer.send`.

        Awaiting the future returns the record's partition and offset.
        """
        sender = self._started()
        if type(topic) is not str:
            topic = arguments.topic("topic", topic)
        if partition is not None:
            partition = arguments.partition_number("partition", partition)
        if self._serializer is not None:
            key, value = self._serializer(topic, key, value)
        key = arguments.record_bytes("key", key)
        value = arguments.record_bytes("value", value)
        pairs = arguments.headers("headers", headers)
        stamp = self.clock.now_ms() if timestamp_ms is None else to_record_timestamp(timestamp_ms)
        accumulator, clock_ms = sender.accumulator, self.clock.monotonic_ms
        return await self._append(
            topic,
            partition,
            lambda queues: accumulator.append(queues, partition, stamp, key, value, pairs, clock_ms),
        )

    async def send_values(
        self,
        topic: str,
        values: Sequence[bytes],
        start: int = 0,
        *,
        partition: int | None = None,
        timestamp_ms: Timestamp | None = None,
    ) -> RecordRun:
        """Buffer records with `values[start:]`, as many as fit into one batch, and return their run.

        See `tidelog.Producer.send_values`.
        """
        accumulator, clock_ms = self._started().accumulator, self.clock.monotonic_ms
        topic, start = arguments.text("topic", topic), arguments.values_from("values", values, start)
        if partition is not None:
            partition = arguments.partition_number("partition", partition)
        stamp = self.clock.now_ms() if timestamp_ms is None else to_record_timestamp(timestamp_ms)
        return await self._append(
            topic,
            partition,
            lambda queues: accumulator.append_values(queues, partition, stamp, values, start, clock_ms),
        )

    async def send_batch(self, topic: str, batch: Buffer, *, partition: int) -> RecordFuture:
        """Buffer an encoded batch, and return one future for all its records.

        See `tidelog.Producer.send_batch`.
        """
        accumulator, clock_ms = self._started().accumulator, self.clock.monotonic_ms
        topic, partition = arguments.topic("topic", topic), arguments.partition_number("partition", partition)
        ready_made = ReadyMadeBatch(arguments.buffer("batch", batch))
        return await self._append(
            topic, partition, lambda queues: accumulator.append_batch(queues, partition, ready_made, clock_ms)
        )

    async def send_and_wait(self, topic: str, value: Any = None, **rest: Any) -> RecordMetadata:
        """Send a record, wait for its acknowledgement, and return its partition and offset, or raise its error.

        `rest` are the keyword arguments of `send`.
        """
        return await (await self.send(topic, value, **rest))

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until every record sent so far is acknowledged or has failed; TimeoutError after `timeout` seconds.

        None: no limit. The records are sent without waiting for `linger_ms`. The errors of records are not raised.
        """
        time_limit_s = arguments.timeout_s("timeout", timeout)
        self._enter_loop()
        self.client.background.raise_failure()
        await self._flush(time_limit_s)

    async def _flush(self, time_limit_s: float | None) -> None:
        if self._sender is None:
            return
        unsettled = self._sender.accumulator.begin_flush(self.clock.monotonic_ms())
        waiting = {asyncio.ensure_future(last.wait_done()) for last in unsettled}
        if not waiting:
            return
        try:
            _, open_ones = await asyncio.wait(waiting, timeout=time_limit_s)
        finally:
            for each in waiting:
                each.cancel()
        if open_ones:
            number = len(open_ones)
            what = f"{count_of(number, 'batch')} {plural(number, 'has', 'have')}"
            raise TimeoutError(f"flush: {what} no outcome after {time_limit_s:g} s")

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of the topic's partitions.

        Raises within `max_block_ms`: UnknownTopicOrPartitionError, NoBrokersError, TimeoutError.
        """
        self._started()
        deadline_ms = self.clock.monotonic_ms() + self.settings.max_block_ms
        return set((await self.client.topic(arguments.topic("topic", topic), deadline_ms)).partitions)

    def bootstrap_connected(self) -> bool:
        """Return whether a connection to any broker is open now; False for a producer that is closed."""
        if self.closed:
            return False
        self._enter_loop()
        return self.client.is_connected

    def metrics(self) -> Metrics:
        """Return a snapshot of this producer's metrics; see `tidelog.Producer.metrics`."""
        accumulator = None if self._sender is None else self._sender.accumulator
        return producer_metrics(
            self.client.metrics,
            ProducerMetrics() if accumulator is None else accumulator.metrics,
            self.clock.monotonic_ms(),
            buffered_bytes=0 if accumulator is None else accumulator.buffered_bytes,
            buffer_memory=self.settings.buffer_memory,
            waiting=0 if accumulator is None else accumulator.waiting_for_space,
        )

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Send the buffered records for up to `timeout` seconds, then fail the rest with ClosedError. Idempotent.

        None: until each record has an outcome, which takes at most `delivery_timeout_ms`.
        """
        time_limit_s = arguments.timeout_s("timeout", timeout)
        if self.closed:
            return
        self._enter_loop()
        self.closed = True
        try:
            await self._flush(time_limit_s)
        except TimeoutError:
            pass
        finally:
            try:
                if self._sender is not None:
                    await self._sender.stop(_closed_early())
            finally:
                await self.client.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hurried = kind is not None and not issubclass(kind, Exception)
        await self.close(INTERRUPTED_CLOSE_S if hurried else None)

    def __repr__(self) -> str:
        return client_repr(self, self.settings, closed=self.closed)

    # --- for the synchronous producer -------------------------------------------------------------

    @property
    def sender(self) -> Sender:
        """Return the sender, which must have been started."""
        assert self._sender is not None
        return self._sender

    async def queues_of(self, topic: str, partition: int | None, deadline_ms: int) -> TopicQueues:
        """Return the topic's queues once its metadata has arrived (and shows `partition`), and create them if need be.

        Raises UnknownTopicOrPartitionError, NoBrokersError, or TimeoutError at the deadline.
        """
        sender = self._started()
        await self.client.topic(arguments.topic("topic", topic), deadline_ms)
        if partition is not None:
            await self.client.partition(TopicPartition(topic, partition), deadline_ms)
        sender.add_topic(topic)
        return sender.accumulator.topics[topic]

    def _started(self) -> Sender:
        if self.closed:
            raise ClosedError("the producer is closed")
        self._enter_loop()
        self.client.background.raise_failure()
        if self._sender is None:
            self._sender = Sender(self.client, self.settings, asyncio.get_running_loop(), self._rng)
            self.client.add_closer(partial(self._sender.stop, _closed_early()))
            self._sender.start()
            self.client.start()
        return self._sender

    async def _append(self, topic: str, partition: int | None, append: Callable[[TopicQueues], Sent | None]) -> Sent:
        """Wait for the topic's queues and for free buffer memory, and return what `append` returns.

        Raises the errors of `queues_of`, BufferExhaustedError after `max_block_ms`, and ClosedError if the producer is
        closed meanwhile.
        """
        sender = self._started()
        deadline_ms = self.clock.monotonic_ms() + self.settings.max_block_ms
        queues = sender.accumulator.topics.get(topic)
        if (
            queues is None
            or topic not in self.client.view.topics  # the topic was forgotten, so its number of partitions is unknown
            or (partition is not None and not 0 <= partition < len(queues.partitions))
        ):
            queues = await self.queues_of(topic, partition, deadline_ms)
        while True:
            future = append(queues)
            if future is not None:
                return future
            await self._space(sender, deadline_ms)
            if self.closed:
                raise ClosedError("the producer is closed")

    async def _space(self, sender: Sender, deadline_ms: int) -> None:
        freed = Flag()
        wake = freed.set
        if not sender.accumulator.call_when_space(wake):
            return
        left_ms = deadline_ms - self.clock.monotonic_ms()
        try:
            if not await freed.wait(max(0, left_ms) / 1000):
                raise buffer_exhausted(self.settings)
        finally:
            sender.accumulator.stop_waiting_for_space(wake)


def _closed_early() -> ClosedError:
    return ClosedError("the producer was closed before the record was acknowledged")


def buffer_exhausted(settings: ProducerSettings) -> BufferExhaustedError:
    """Return the error of a `send` for which no buffer memory became free in time."""
    return BufferExhaustedError(
        f"buffer_memory ({settings.buffer_memory} bytes) stayed full for max_block_ms ({settings.max_block_ms} ms)"
    )
