"""Records that an unmodified client (librdkafka) writes to a real Kafka, so that its logs have every feature.

Broker 1 is the preferred leader of every topic but `followed`. A restart of it moves the leaders twice, which creates
epochs.

codecs        all five codecs, headers, nulls, times that go up and down; several segments
followed      as a follower writes it
idempotent    three producers with ids and sequences
transactions  committed, aborted, and one that is still open at the end
compacted     cleaned: gaps between offsets, tombstones, batches with a delete horizon
trimmed       old segments deleted by size, and the log start raised into the middle of a segment
stamped       LogAppendTime, compressed and not
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.processes.harness.waiting import wait_for
from tests.storage.kafka_written.archive import Written

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000
KEYS = 12

_SMALL = {
    "segment.bytes": "6000",
    "index.interval.bytes": "300",
    "segment.index.bytes": "2048",
    "retention.ms": "-1",  # the records say that they are from 2023
}
TOPICS: Mapping[str, Mapping[str, str]] = {
    "codecs": _SMALL,
    "followed": _SMALL,
    "idempotent": _SMALL,
    "transactions": _SMALL,
    "compacted": {
        **_SMALL,
        "segment.bytes": "2000",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "86400000",
    },
    "trimmed": {**_SMALL, "retention.bytes": "8000", "file.delete.delay.ms": "100"},
    "stamped": {**_SMALL, "message.timestamp.type": "LogAppendTime"},
}


class Workload:
    """The writes of one client; `written` has the acknowledged records, in the order of offsets."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._numbers = itertools.count()
        self._open_transaction: Producer | None = None
        self.written: list[Written] = []

    def create_topics(self) -> None:
        admin = self._admin()
        topics = [
            NewTopic(name, 1, replica_assignment=[_replicas(name)], config=dict(settings))
            for name, settings in TOPICS.items()
        ]
        for created in admin.create_topics(topics).values():
            created.result(60)

    def write(self, log_directory: Path, *, leave_transaction_open: bool) -> None:
        """A share for every topic; returns when Kafka has cleaned and trimmed in broker 1's `log_directory`."""
        wait_for("the preferred leaders lead", self._preferred_leaders_lead, 60)
        for codec in CODECS:
            self._produce("codecs", 40, {"compression.type": codec})
            self._produce("followed", 40, {"compression.type": codec})
        for _ in range(3):
            self._produce("idempotent", 50, {"enable.idempotence": True, "compression.type": "lz4"})
        self._transact(leave_transaction_open)
        for codec in ("none", "zstd", "gzip"):
            self._produce("stamped", 30, {"compression.type": codec})
        self._produce("trimmed", 200, {})
        self._produce("compacted", 150, {"compression.type": "none"})
        self._produce("compacted", 150, {"compression.type": "zstd"})
        self._consume()
        self._trim(log_directory)
        self._wait_cleaned(log_directory)

    def _produce(self, topic: str, count: int, settings: Mapping[str, Any]) -> None:
        producer = self._producer(settings)
        self._send(producer, topic, count)
        assert producer.flush(60) == 0

    def _producer(self, settings: Mapping[str, Any]) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "linger.ms": 20,
                "batch.num.messages": 10,
                "acks": "all",
                **settings,
            }
        )

    def _send(self, producer: Producer, topic: str, count: int) -> None:
        for number in itertools.islice(self._numbers, count):
            key = None if number % 5 == 0 else b"key %d" % number
            value = None if number % 11 == 0 else b"value %d, " % number * (number % 13)
            headers = (("näme", b"\xff\0"), ("nothing", None)) if number % 3 == 0 else ()
            if topic == "compacted":
                key = b"key %d" % (number % KEYS)
            timestamp = START_MS + number * 10 - number % 4 * 35

            def acknowledged(
                error: KafkaError | None,
                message: Message,
                key: bytes | None = key,
                value: bytes | None = value,
                headers: tuple[tuple[str, bytes | None], ...] = headers,
            ) -> None:
                assert error is None, error
                offset = message.offset()
                assert offset is not None
                self.written.append(Written(topic, offset, message.timestamp()[1], key, value, headers))

            producer.produce(topic, value, key, 0, on_delivery=acknowledged, timestamp=timestamp, headers=list(headers))
            producer.poll(0)

    def _transact(self, leave_open: bool) -> None:
        for name, ending in (("one", "commit"), ("two", "abort"), ("one", "commit")):
            producer = self._producer({"transactional.id": name, "compression.type": "snappy"})
            producer.init_transactions(60)
            for _ in range(2):
                producer.begin_transaction()
                self._send(producer, "transactions", 15)
                assert producer.flush(60) == 0
                (producer.commit_transaction if ending == "commit" else producer.abort_transaction)(60)
        if leave_open:
            self._open_transaction = producer = self._producer({"transactional.id": "left open"})
            producer.init_transactions(60)
            producer.begin_transaction()
            self._send(producer, "transactions", 15)
            assert producer.flush(60) == 0

    def _admin(self) -> AdminClient:
        """librdkafka is slow to ask again for a controller that was not known when it asked first."""

        def admins() -> list[AdminClient]:
            admin = AdminClient({"bootstrap.servers": self._bootstrap_servers})
            return [admin] if admin.list_topics(timeout=10).controller_id >= 0 else []

        return wait_for("Kafka has a controller", admins)[0]

    def _preferred_leaders_lead(self) -> bool:
        topics = self._admin().list_topics(timeout=10).topics
        partitions = [topics[name].partitions.get(0) if name in topics else None for name in TOPICS]
        leaders = [partition.leader if partition else None for partition in partitions]
        return leaders == [_replicas(name)[0] for name in TOPICS]

    def _consume(self) -> None:
        """Commits an offset, so that there is an offsets topic too."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap_servers, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("codecs", 0, 7)], asynchronous=False)
        consumer.close()

    def _trim(self, log_directory: Path) -> None:
        log = log_directory / "trimmed-0"
        wait_for("Kafka trims the log", lambda: not any(log.glob("*.deleted")) and _bases(log)[0] > 0)
        wanted = (_bases(log)[0] + _bases(log)[1]) // 2
        admin = self._admin()  # its answers go with it
        for deleted in admin.delete_records([TopicPartition("trimmed", 0, wanted)]).values():
            deleted.result(60)
        checkpoint = log_directory / "log-start-offset-checkpoint"
        wait_for("Kafka notes the log start", lambda: f"trimmed 0 {wanted}" in checkpoint.read_text())

    def _wait_cleaned(self, log_directory: Path) -> None:
        checkpoint = log_directory / "cleaner-offset-checkpoint"

        def cleaned() -> bool:
            lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
            active = _bases(log_directory / "compacted-0")[-1]
            return any(line.split() == ["compacted", "0", str(active)] for line in lines)

        wait_for("Kafka cleans the log", cleaned)


def _replicas(topic: str) -> list[int]:
    return [2, 1] if topic == "followed" else [1, 2]


def _bases(log: Path) -> list[int]:
    return sorted(int(path.stem) for path in log.glob("*.log"))
