"""Consumers of different kinds that read in one group, each in a thread of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka

from tests.clients.kafka_cluster import KafkaCluster
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer

GROUP = "g"
SESSION_TIMEOUT_MS = 6_000
#: A partition and an offset in it.
Seen = tuple[int, int]


class GroupReader(ABC):
    """Reads one topic until it is closed.

    owned   the partitions that it was assigned last
    seen    what it has read, in order
    error   what ended its thread
    """

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.seen: list[Seen] = []
        self.error: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @abstractmethod
    def _read(self) -> Iterable[Seen]:
        """Poll once, and note the assignment in `owned`."""

    @abstractmethod
    def _close(self) -> None:
        """Commit and leave the group."""

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.seen += self._read()
        except Exception as error:
            self.error = error
        finally:
            self._close()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        assert self.error is None, self.error


class OurReader(GroupReader):
    """Tidelog's own consumer, over Tidelog's own protocol."""

    def __init__(self, cluster: KafkaCluster, topic: str, **options: Any) -> None:
        options = {
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
        } | options
        self._consumer = Consumer(cluster.bootstrap_servers, **options)
        self._consumer.subscribe([topic])
        super().__init__()

    def _read(self) -> Iterable[Seen]:
        polled = self._consumer.poll(200)
        self.owned = {tp.partition for tp in self._consumer.assignment()}
        return [(tp.partition, record.offset) for tp, records in polled.items() for record in records]

    def _close(self) -> None:
        self._consumer.close()


class ConfluentReader(GroupReader):
    """librdkafka's consumer. `assignments` counts the generations in which it got partitions."""

    def __init__(self, cluster: KafkaCluster, topic: str, **options: Any) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.kafka_bootstrap_servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 1_000,
            }
            | {name.replace("_", "."): value for name, value in options.items()}
        )
        self.assignments = 0
        self._consumer.subscribe([topic], on_assign=self._assigned)
        super().__init__()

    def _assigned(self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.assignments += 1

    def _read(self) -> Iterable[Seen]:
        messages = self._consumer.consume(500, timeout=0.2)
        self.owned = {tp.partition for tp in self._consumer.assignment()}
        for message in messages:
            if (error := message.error()) is not None:
                if error.retriable() or error.code() in _PASSING:
                    continue
                raise confluent_kafka.KafkaException(error)
            yield message.partition(), message.offset()

    def _close(self) -> None:
        self._consumer.close()


#: Errors of librdkafka that only report a lost connection.
_PASSING = (
    confluent_kafka.KafkaError._TRANSPORT,
    confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
    confluent_kafka.KafkaError._RESOLVE,
)


#: If a poll's time ends between the responses to JoinGroup and SyncGroup, kafka-python 3.0.12 neither takes its
#: assignment nor sends heartbeats any more. Long polls have few such ends.
KAFKA_PYTHON_POLL_MS = 2_000


class KafkaPythonReader(GroupReader):
    """kafka-python's consumer."""

    def __init__(self, cluster: KafkaCluster, topic: str, **options: Any) -> None:
        import kafka

        options = {
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": 1_000,
        } | options
        self._consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.kafka_bootstrap_servers.split(","), **options)
        self._consumer.subscribe([topic])
        super().__init__()

    def _read(self) -> Iterable[Seen]:
        polled = self._consumer.poll(KAFKA_PYTHON_POLL_MS)
        self.owned = {tp.partition for tp in self._consumer.assignment()}
        return [(tp.partition, record.offset) for tp, records in polled.items() for record in records]

    def _close(self) -> None:
        self._consumer.close()


@contextmanager
def closing(*readers: GroupReader) -> Iterator[None]:
    """Close all readers at the end. The first error of a reader is raised, unless the test has failed already."""
    try:
        yield
    except BaseException:
        for each in readers:
            each._stopping.set()
        raise
    for each in readers:
        each.close()


def wait_shared(partitions: int, *readers: GroupReader, timeout_s: float = 150) -> None:
    """Wait until the readers own all partitions, each its own part."""

    def is_shared() -> bool:
        for each in readers:
            assert each.error is None, each.error
        owned = [partition for each in readers for partition in each.owned]
        return sorted(owned) == list(range(partitions)) and all(each.owned for each in readers)

    wait_for("the readers to share all partitions", is_shared, timeout_s)
