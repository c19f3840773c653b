"""aiokafka. Each call runs an event loop of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import aiokafka
from aiokafka.errors import KafkaError

from tests.clients.adapters.foreign_client import TIMEOUT_S, ReadRecord, Record, RefusedError


class AioKafka:
    """Implements `ForeignClient`."""

    name = "aiokafka"
    version = aiokafka.__version__
    is_idempotent = False

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        codec: str | None = None,
        acks: str | None = None,
        is_idempotent: bool | None = None,
    ) -> list[Record]:
        chosen: dict[str, object] = {}
        if codec is not None:
            chosen["compression_type"] = None if codec == "none" else codec
        if acks is not None:
            chosen["acks"] = acks if acks == "all" else int(acks)
        if is_idempotent is not None:
            chosen["enable_idempotence"] = is_idempotent
        return asyncio.run(self._produce(topic, records, chosen))

    async def _produce(self, topic: str, records: Iterable[Record], chosen: dict[str, object]) -> list[Record]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._servers, **chosen)
        await producer.start()
        acknowledged, refusals, pending = [], [], []
        try:
            source = iter(records)
            while (record := await asyncio.to_thread(next, source, None)) is not None:
                try:
                    sending = await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=0,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    pending.append((record, sending))
                except KafkaError as error:
                    refusals.append(error)
            for record, sending in pending:
                try:
                    await asyncio.wait_for(sending, TIMEOUT_S)
                    acknowledged.append(record)
                except KafkaError as error:
                    refusals.append(error)
        finally:
            await producer.stop()
        if refusals and not acknowledged:
            raise RefusedError(repr(refusals[0])) from refusals[0]
        return acknowledged

    def consume(
        self, topic: str, count: int, *, offset: int | None = None, timestamp_ms: int | None = None
    ) -> list[ReadRecord]:
        return asyncio.run(self._consume(topic, count, offset, timestamp_ms))

    async def _consume(self, topic: str, count: int, offset: int | None, timestamp_ms: int | None) -> list[ReadRecord]:
        tp = aiokafka.TopicPartition(topic, 0)
        found: list[ReadRecord] = []
        async with self._consumer() as consumer:
            consumer.assign([tp])
            if timestamp_ms is not None:
                consumer.seek(tp, (await consumer.offsets_for_times({tp: timestamp_ms}))[tp].offset)
            elif offset is not None:
                consumer.seek(tp, offset)
            else:
                await consumer.seek_to_beginning(tp)
            deadline = time.monotonic() + TIMEOUT_S
            while len(found) < count and time.monotonic() < deadline:
                batch = await consumer.getmany(tp, timeout_ms=1_000, max_records=count - len(found))
                found += [
                    ReadRecord(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
                    for each in batch.get(tp, ())
                ]
        return found

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        return asyncio.run(self._offset_for_time(aiokafka.TopicPartition(topic, 0), timestamp_ms))

    async def _offset_for_time(self, tp: aiokafka.TopicPartition, timestamp_ms: int) -> int | None:
        async with self._consumer() as consumer:
            found = (await consumer.offsets_for_times({tp: timestamp_ms}))[tp]
        return None if found is None else found.offset

    def offset_range(self, topic: str) -> tuple[int, int]:
        return asyncio.run(self._offset_range(aiokafka.TopicPartition(topic, 0)))

    async def _offset_range(self, tp: aiokafka.TopicPartition) -> tuple[int, int]:
        async with self._consumer() as consumer:
            return (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]

    def partitions(self, topic: str) -> list[int]:
        return asyncio.run(self._partitions(topic))

    async def _partitions(self, topic: str) -> list[int]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._servers)
        await producer.start()
        try:
            return sorted(await producer.partitions_for(topic))
        finally:
            await producer.stop()

    def topics(self) -> list[str]:
        return asyncio.run(self._topics())

    async def _topics(self) -> list[str]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self._servers)
        await consumer.start()
        try:
            return list(await consumer.topics())
        finally:
            await consumer.stop()

    def begin_transactions(self) -> None:
        try:
            asyncio.run(asyncio.wait_for(self._begin_transactions(), TIMEOUT_S))
        except KafkaError as error:
            raise RefusedError(repr(error)) from error

    async def _begin_transactions(self) -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._servers, transactional_id="payments")
        try:
            await producer.start()
        finally:
            await producer.stop()

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self._servers, group_id=None, enable_auto_commit=False)
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()
