"""kafka-python, which is pure Python with a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing

import kafka
from kafka.errors import KafkaError

from tests.clients.adapters.foreign_client import TIMEOUT_S, ReadRecord, Record, RefusedError


class KafkaPython:
    """Implements `ForeignClient`."""

    name = "kafka-python"
    version = kafka.__version__
    is_idempotent = True

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers.split(",")

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
        if is_idempotent is not None or acks in ("0", "1"):
            chosen["enable_idempotence"] = bool(is_idempotent)
        acknowledged, refusals = [], []
        with closing(kafka.KafkaProducer(bootstrap_servers=self._servers, **chosen)) as producer:
            pending = [
                (
                    each,
                    producer.send(
                        topic,
                        each.value,
                        each.key,
                        list(each.headers),
                        partition=0,
                        timestamp_ms=each.timestamp_ms,
                    ),
                )
                for each in records
            ]
            producer.flush(TIMEOUT_S)
            for record, future in pending:
                try:
                    future.get(TIMEOUT_S)
                    acknowledged.append(record)
                except KafkaError as error:
                    refusals.append(error)
        if refusals and not acknowledged:
            raise RefusedError(repr(refusals[0])) from refusals[0]
        return acknowledged

    def consume(
        self, topic: str, count: int, *, offset: int | None = None, timestamp_ms: int | None = None
    ) -> list[ReadRecord]:
        tp = kafka.TopicPartition(topic, 0)
        found: list[ReadRecord] = []
        with closing(self._consumer()) as consumer:
            consumer.assign([tp])
            if timestamp_ms is not None:
                consumer.seek(tp, consumer.offsets_for_times({tp: timestamp_ms})[tp].offset)
            elif offset is not None:
                consumer.seek(tp, offset)
            else:
                consumer.seek_to_beginning(tp)
            deadline = time.monotonic() + TIMEOUT_S
            while len(found) < count and time.monotonic() < deadline:
                for each in consumer.poll(1_000, max_records=count - len(found)).get(tp, ()):
                    headers = tuple((name, value) for name, value in each.headers)
                    found.append(ReadRecord(each.offset, each.timestamp, each.key, each.value, headers))
        return found

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        tp = kafka.TopicPartition(topic, 0)
        with closing(self._consumer()) as consumer:
            found = consumer.offsets_for_times({tp: timestamp_ms})[tp]
        return None if found is None else found.offset

    def offset_range(self, topic: str) -> tuple[int, int]:
        tp = kafka.TopicPartition(topic, 0)
        with closing(self._consumer()) as consumer:
            return consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]

    def partitions(self, topic: str) -> list[int]:
        with closing(self._consumer()) as consumer:
            return sorted(consumer.partitions_for_topic(topic) or ())

    def topics(self) -> list[str]:
        with closing(self._consumer()) as consumer:
            return list(consumer.topics())

    def begin_transactions(self) -> None:
        try:
            with closing(
                kafka.KafkaProducer(bootstrap_servers=self._servers, transactional_id="payments", max_block_ms=10_000)
            ) as producer:
                producer.init_transactions()
        except KafkaError as error:
            raise RefusedError(repr(error)) from error

    def _consumer(self) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(bootstrap_servers=self._servers, group_id=None, enable_auto_commit=False)
