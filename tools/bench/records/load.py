"""Produces at full speed and measures its cost. The measured time ends with the last acknowledgement."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from typing import ClassVar

from tidelog import Producer, RecordFuture, TopicPartition
from tidelog.client.settings import ProducerOptions
from tools.bench import machine
from tools.bench.environment import ClusterUnderTest
from tools.bench.records import reading
from tools.bench.results import NotMeasured

#: The number of different values, which are made before the measured time.
VALUES = 1 << 12
#: Records between two readings of the clock.
_STRIDE = 1 << 10
FLUSH_S = 120.0


def in_words(size: int) -> str:
    return "1 KB" if size == 1000 else f"{size} B"


class Load(ABC):
    """Sends random values of `size` bytes to the partitions of a new topic in turn.

    sent          the number of records, all of which are acknowledged if `check` raises no error
    elapsed_s     from the first send to the last acknowledgement, without the first record of each partition
    brokers_cpu, client_cpu   the CPU time of all brokers, and of this process, in that time
    """

    SETTINGS: ClassVar[str]
    PRODUCERS: ClassVar[int] = 1
    OPTIONS: ClassVar[ProducerOptions] = {"client_id": "bench"}

    def __init__(self, cluster: ClusterUnderTest, size: int, partitions: int) -> None:
        self.cluster = cluster
        self.tps = cluster.create_topic(partitions)
        self.sent = 0
        self.elapsed_s = 0.0
        self.brokers_cpu = self.client_cpu = machine.CpuTime(0, 0)
        self._size = size
        self._futures: list[RecordFuture] = []

    def produce(self, seconds: float) -> None:
        """Send for `seconds`, wait until all records are acknowledged or have failed, and set the fields."""
        self._prepare()
        value = os.urandom(self._size)
        with ExitStack() as stack:
            servers = self.cluster.bootstrap_servers
            producers = [stack.enter_context(Producer(servers, **self.OPTIONS)) for _ in range(self.PRODUCERS)]
            for producer in producers:  # connections, leaders and the producer's id come first; these records count too
                self._futures += [producer.send(tp.topic, value, partition=tp.partition) for tp in self.tps]
                producer.flush(FLUSH_S)
            self.sent = len(self._futures)
            brokers, client = machine.cpu_time(self.cluster.broker_pids), machine.own_cpu_time()
            started = time.perf_counter()
            self.sent += self._send(producers, started + seconds)
            for producer in producers:
                producer.flush(FLUSH_S)
            self.elapsed_s = time.perf_counter() - started
            self.client_cpu = machine.own_cpu_time().since(client)
            self.brokers_cpu = machine.cpu_time(self.cluster.broker_pids).since(brokers)

    @abstractmethod
    def _prepare(self) -> None:
        """Make the values that are to be sent, before the measured time."""

    @abstractmethod
    def _send(self, producers: Sequence[Producer], until: float) -> int:
        """Send until `until` (by `time.perf_counter`), and return the number of records; add futures to `_futures`."""

    def check(self) -> None:
        """Raise NotMeasured unless every record was acknowledged, and all of them can be read.

        Call once, after `produce`.
        """
        failed = sum(not future.succeeded() for future in self._futures)
        if failed:
            raise NotMeasured(f"{failed} of {len(self._futures)} futures were not acknowledged")
        self._futures.clear()
        reading.check(self.cluster.bootstrap_servers, self.tps, self.sent, self._size)


class RecordLoad(Load):
    """A load by one producer, with one call of `Producer.send` for each record."""

    SETTINGS = "one producer with its defaults"

    def _prepare(self) -> None:
        self._values = [os.urandom(self._size) for _ in range(VALUES)]

    def _send(self, producers: Sequence[Producer], until: float) -> int:
        [producer] = producers
        send, keep, values = producer.send, self._futures.append, self._values
        topic, partitions = self.tps[0].topic, len(self.tps)
        for first in count(0, _STRIDE):
            if time.perf_counter() >= until:
                return first
            for number in range(first, first + _STRIDE):
                keep(send(topic, values[number % VALUES], partition=number % partitions))
        raise AssertionError


def topic_of(cluster: ClusterUnderTest, rows: int, size: int, partitions: int) -> Sequence[TopicPartition]:
    """Create a topic, send `rows` records of `size` random bytes to its partitions in turn, and return the partitions.

    Whether every record was acknowledged is not checked.
    """
    tps = cluster.create_topic(partitions)
    values = [os.urandom(size) for _ in range(VALUES)]
    with Producer(cluster.bootstrap_servers, client_id="bench") as producer:
        for number in range(rows):
            producer.send(tps[0].topic, values[number % VALUES], partition=number % partitions)
        producer.flush(FLUSH_S)
    return tps
