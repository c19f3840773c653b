"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from tests.clients.adapters.foreign_client import TIMEOUT_S, Headers, ReadRecord, Record, RefusedError


class ConfluentKafka:
    """Implements `ForeignClient`."""

    name = "confluent-kafka"
    version = ck.version()[0] if isinstance(ck.version(), tuple) else ck.version()
    is_idempotent = False

    def __init__(self, bootstrap_servers: str) -> None:
        self._common = {"bootstrap.servers": bootstrap_servers}

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        codec: str | None = None,
        acks: str | None = None,
        is_idempotent: bool | None = None,
    ) -> list[Record]:
        chosen = {"compression.type": codec, "acks": acks, "enable.idempotence": is_idempotent}
        producer = ck.Producer({**self._common, **{name: each for name, each in chosen.items() if each is not None}})
        outcomes: dict[int, ck.KafkaError | None] = {}
        sent: list[Record] = []
        for number, record in enumerate(records):
            sent.append(record)
            stamped = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition=0,
                    headers=list(record.headers),
                    on_delivery=lambda error, _, number=number: outcomes.__setitem__(number, error),
                    **stamped,
                )
            except ck.KafkaException as error:
                outcomes[number] = error.args[0]
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0, "records without an outcome"
        acknowledged = [record for number, record in enumerate(sent) if outcomes[number] is None]
        if sent and not acknowledged:
            raise RefusedError(str(outcomes[0]))
        return acknowledged

    def consume(
        self, topic: str, count: int, *, offset: int | None = None, timestamp_ms: int | None = None
    ) -> list[ReadRecord]:
        start = ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING if offset is None else offset)
        found: list[ReadRecord] = []
        with closing(self._consumer()) as consumer:
            if timestamp_ms is not None:
                (start,) = consumer.offsets_for_times([ck.TopicPartition(topic, 0, timestamp_ms)], timeout=TIMEOUT_S)
            consumer.assign([start])
            deadline = time.monotonic() + TIMEOUT_S
            while len(found) < count and time.monotonic() < deadline:
                found += map(_read, consumer.consume(count - len(found), timeout=1))
        return found

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        with closing(self._consumer()) as consumer:
            (found,) = consumer.offsets_for_times([ck.TopicPartition(topic, 0, timestamp_ms)], timeout=TIMEOUT_S)
        assert found.error is None, found.error
        return found.offset if found.offset >= 0 else None

    def offset_range(self, topic: str) -> tuple[int, int]:
        with closing(self._consumer()) as consumer:
            return consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=TIMEOUT_S)

    def partitions(self, topic: str) -> list[int]:
        return sorted(AdminClient(self._common).list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)

    def topics(self) -> list[str]:
        return list(AdminClient(self._common).list_topics(timeout=TIMEOUT_S).topics)

    def begin_transactions(self) -> None:
        producer = ck.Producer({**self._common, "transactional.id": "payments"})
        try:
            producer.init_transactions(10)
        except ck.KafkaException as error:
            raise RefusedError(str(error)) from error

    def _consumer(self) -> ck.Consumer:
        return ck.Consumer({**self._common, "group.id": "none", "enable.auto.commit": False})


def _read(message: Any) -> ReadRecord:
    if message.error():
        raise RefusedError(str(message.error()))
    headers: Headers = tuple(message.headers() or ())
    return ReadRecord(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)
