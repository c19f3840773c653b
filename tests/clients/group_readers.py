"""Consumers of different kinds that read in one group, each in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka
import confluent_kafka
import kafka

from tests.clients.adapters import kcat
from tests.clients.kafka_cluster import KafkaCluster
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer, ConsumerRebalanceListener, TopicPartition

GROUP = "g"
SESSION_TIMEOUT_MS = 6_000
#: A partition and an offset in it.
Seen = tuple[int, int]


class GroupReader(ABC):
    """Reads one topic until it is closed.

    owned     the partitions that it was assigned last
    revoked   all partitions that it ever gave up, which readers over consumers without a callback do not know
    seen      what it has read, in order
    error     what ended its thread
    """

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.revoked: set[int] = set()
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
    """Tidelog's own consumer."""

    def __init__(self, cluster: KafkaCluster, topic: str, **options: Any) -> None:
        options = {
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
        } | options
        self._consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers, **options)
        self._consumer.subscribe([topic], listener=_Revocations(self))
        super().__init__()

    def _read(self) -> Iterable[Seen]:
        polled = self._consumer.poll(200)
        self.owned = {tp.partition for tp in self._consumer.assignment()}
        return [(tp.partition, record.offset) for tp, records in polled.items() for record in records]

    def _close(self) -> None:
        self._consumer.close()


class _Revocations(ConsumerRebalanceListener):
    def __init__(self, reader: GroupReader) -> None:
        self._reader = reader

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._reader.revoked |= {tp.partition for tp in revoked}


class ConfluentReader(GroupReader):
    """librdkafka's consumer. `assignments` counts the generations in which it got partitions."""

    def __init__(self, cluster: KafkaCluster, topic: str, **options: Any) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 1_000,
            }
            | {name.replace("_", "."): value for name, value in options.items()}
        )
        self.assignments = 0
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        super().__init__()

    def _assigned(self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.assignments += 1

    def _revoked(self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.revoked |= {each.partition for each in partitions}

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
        options = {
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": 1_000,
        } | options
        self._consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers.split(","), **options)
        self._consumer.subscribe([topic])
        super().__init__()

    def _read(self) -> Iterable[Seen]:
        polled = self._consumer.poll(KAFKA_PYTHON_POLL_MS)
        self.owned = {tp.partition for tp in self._consumer.assignment()}
        return [(tp.partition, record.offset) for tp, records in polled.items() for record in records]

    def _close(self) -> None:
        self._consumer.close()


class AioKafkaReader(GroupReader):
    """aiokafka's consumer, on an event loop of this thread."""

    def __init__(self, cluster: KafkaCluster, topic: str, **options: Any) -> None:
        self._topic = topic
        self._options = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": 1_000,
        } | options
        self._runner = asyncio.Runner()
        self._consumer: Any = None
        super().__init__()

    def _read(self) -> Iterable[Seen]:
        return self._runner.run(self._poll())

    async def _poll(self) -> list[Seen]:
        if self._consumer is None:
            self._consumer = aiokafka.AIOKafkaConsumer(self._topic, **self._options)
            await self._consumer.start()
        polled = await self._consumer.getmany(timeout_ms=200)
        self.owned = {tp.partition for tp in self._consumer.assignment()}
        return [(tp.partition, record.offset) for tp, records in polled.items() for record in records]

    def _close(self) -> None:
        try:
            if self._consumer is not None:
                self._runner.run(self._consumer.stop())
        finally:
            self._runner.close()


class KcatReader(GroupReader):
    """The program kcat, which prints the partition and the offset of each record, and its assignments as messages."""

    def __init__(self, cluster: KafkaCluster, topic: str, *, group_id: str = GROUP) -> None:
        assert kcat.PROGRAM is not None
        options = ["-Xauto.offset.reset=earliest", f"-Xsession.timeout.ms={SESSION_TIMEOUT_MS}", "-u", "-f", "%p %o\n"]
        command = [kcat.PROGRAM, "-b", cluster.bootstrap_servers, *options, "-G", group_id, topic]
        self._messages = os.memfd_create("messages of kcat")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._messages)
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        self._line = b""
        super().__init__()

    def _read(self) -> Iterable[Seen]:
        is_readable, _, _ = select.select([self._output], [], [], 0.2)
        *lines, self._line = (self._line + (os.read(self._output, 1 << 16) if is_readable else b"")).split(b"\n")
        messages = os.pread(self._messages, 1 << 20, 0).decode()
        if self._process.poll() is not None:
            raise AssertionError(f"kcat has ended: {messages}")
        for is_assigned, partitions in re.findall(r"rebalanced.*?(?:(assigned)|revoked): (.*)", messages):
            self.owned = set(map(int, re.findall(r"\[(\d+)\]", partitions))) if is_assigned else set()
        return [(int(partition), int(offset)) for partition, offset in map(bytes.split, lines)]

    def _close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.communicate(timeout=20)
        finally:
            self._process.kill()
            os.close(self._messages)


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
