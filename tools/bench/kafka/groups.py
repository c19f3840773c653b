"""Measures consumer groups of a real Kafka cluster, through confluent-kafka and the logs of its coordinators.

Values have the keys NAME:FIELD, as in `Figure.kafka`. A rebalance begins with the log line "Stabilized group", which
the coordinator writes when the last member has joined. The time of a load is what the new coordinator logs.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tools.bench.command_output import output_of
from tools.bench.environment import wait_for
from tools.bench.groups import commits, offsets_load, rebalance

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

COMMITS, REBALANCE, LOAD = "group commits", "rebalance", "offsets load"

#: The heap of 512 MB, with which everything else is measured, does not hold a million offsets.
LOAD_HEAP = "1536m"
_WARM_UP_S = 1.0
_POLL_S = 0.1
_ROUNDS = 3
_REBALANCED_S = 60
_LOADED_S = 120
_REQUESTS_IN_FLIGHT = 100


class KafkaGroups:
    """Measures the groups of one running Kafka cluster.

    addresses   the bootstrap servers
    directory   the cluster's directory, with the logs of its brokers
    kill        kills the broker with this name, such as "broker-1"
    """

    def __init__(self, addresses: str, directory: Path, kill: Callable[[str], object]) -> None:
        from confluent_kafka.admin import AdminClient

        self._addresses = addresses
        self._directory = directory
        self._kill = kill
        self._client: dict[str, Any] = {"bootstrap.servers": addresses, "log_level": 0}
        self._admin = AdminClient(self._client)

    def measure(self, wanted: set[str], seconds: float) -> Iterator[dict[str, float]]:
        """Measure commits and the rebalance as far as `wanted` has their figures, and yield the values of each part.

        `seconds` is the measured time of each number of committing groups. The load is measured by `load` alone.
        """
        asked = {name.partition(":")[0] for name in wanted}
        if any(name.startswith(COMMITS) for name in asked):
            topic = self._create_topic(1)
            for groups in commits.GROUPS:
                yield self._commit(topic, groups, seconds)
        if REBALANCE in asked:
            self._log_what_coordinators_do()
            yield {f"{REBALANCE}:after_last_join_ms": self._rebalance() * 1e3}

    def _create_topic(self, partitions: int) -> str:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        topic = f"bench-{uuid.uuid4().hex[:8]}"
        self._admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=3)])[topic].result(60)
        return topic

    # --- commits -------------------------------------------------------------------------------------

    def _commit(self, topic: str, count: int, seconds: float) -> dict[str, float]:
        from confluent_kafka import Consumer, TopicPartition

        took: list[float] = []
        consumers = [Consumer({**self._client, "group.id": f"{topic}-{count}-{each}"}) for each in range(count)]

        def commit_all_the_time(consumer: Consumer, begin: float) -> None:
            offset, started = 0, time.perf_counter()
            while started < begin + seconds:
                consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
                ended = time.perf_counter()
                if started >= begin:
                    took.append(ended - started)
                offset, started = offset + 1, ended

        try:
            for consumer in consumers:  # the first commit finds the coordinator
                consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
            begin = time.perf_counter() + _WARM_UP_S
            threads = [threading.Thread(target=commit_all_the_time, args=(each, begin)) for each in consumers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            for consumer in consumers:
                consumer.close()
        took.sort()
        name = f"{COMMITS} x{count}"
        return {
            f"{name}:commits_per_s": len(took) / seconds,
            f"{name}:p50_ms": took[len(took) // 2] * 1e3,
            f"{name}:p99_ms": took[len(took) * 99 // 100] * 1e3,
        }

    # --- a rebalance ---------------------------------------------------------------------------------

    def _rebalance(self) -> float:
        topic = self._create_topic(rebalance.PARTITIONS)
        with ExitStack() as members:
            group = [members.enter_context(_Member(self._client, topic)) for _ in range(rebalance.MEMBERS - 1)]
            slowest = 0.0
            for _ in range(_ROUNDS):
                with _Member(self._client, topic) as last:
                    slowest = max(slowest, self._settled(topic, [*group, last]))
            return slowest

    def _settled(self, topic: str, group: Sequence[_Member]) -> float:
        """Wait for the generation with all members; return the seconds from its last join to its last assignment."""
        pattern = re.compile(rf"^(\S+ \S+) INFO .*Stabilized group {topic} generation \d+ .*with {len(group)} members")

        def elapsed_s() -> float | None:
            if sum(len(member.owned) for member in group) != rebalance.PARTITIONS:
                return None
            begun = max(map(_timestamp, self._logged(pattern)), default=0.0)
            assigned_at = [member.assigned_at for member in group]
            return max(assigned_at) - begun if begun and min(assigned_at) >= begun else None

        return wait_for("a rebalance of Kafka's", elapsed_s, _REBALANCED_S)

    # --- loading -------------------------------------------------------------------------------------

    def load(self) -> dict[str, float]:
        """Measure the load of a million offsets by a new coordinator, and return its figure.

        The cluster must have `LOAD_HEAP`. The call kills the coordinator's broker.
        """
        self._log_what_coordinators_do()
        topic = self._create_topic(offsets_load.PARTITIONS)
        self._fill(topic)
        partition = offsets_load.OFFSETS_PARTITION
        described = self._admin.list_topics(OFFSETS_TOPIC, timeout=60)
        leader = f"broker-{described.topics[OFFSETS_TOPIC].partitions[partition].leader}"
        pattern = re.compile(
            rf"Finished loading offsets and group metadata from {OFFSETS_TOPIC}-{partition} in (\d+) milli"
        )
        before = len(list(self._logged(pattern)))
        self._kill(leader)
        wait_for("a load of Kafka's", lambda: len(list(self._logged(pattern))) > before, _LOADED_S)
        return {f"{LOAD}:million_s": int(list(self._logged(pattern))[-1]) / 1e3}

    def _fill(self, topic: str) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        names = offsets_load.groups()
        while some := list(islice(names, _REQUESTS_IN_FLIGHT)):
            futures: list[Future[object]] = []
            for number, name in enumerate(some):
                offsets = [TopicPartition(topic, each, number + each) for each in range(offsets_load.PARTITIONS)]
                futures += self._admin.alter_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(name, offsets)]
                ).values()
            for future in futures:
                future.result(60)

    # --- the logs of brokers -------------------------------------------------------------------------

    def _log_what_coordinators_do(self) -> None:
        """Make running brokers log what coordinators do, by Kafka's own tool (KIP-412).

        The level of the root logger changes, because not all coordinators have a logger of their own yet.
        """
        command = ["java", "-cp", f"{self._directory.parent / 'kafka-lib'}/*", "kafka.admin.ConfigCommand"]
        command += ["--bootstrap-server", self._addresses, "--alter", "--add-config", "root=INFO"]
        for number in range(1, len(self._addresses.split(",")) + 1):
            asked = [*command, "--entity-type", "broker-loggers", "--entity-name", str(number)]
            output_of(asked, "Kafka's logging could not be changed", timeout_s=60)

    def _logged(self, words: re.Pattern[str]) -> Iterator[str]:
        """Yield the first group of `words` in each line of the brokers' logs that matches, broker after broker."""
        for path in sorted(self._directory.glob("broker-*.out")):
            for line in path.read_text(errors="replace").splitlines():
                if found := words.search(line):
                    yield found[1]


class _Member:
    """A consumer that polls in a thread of its own while its context is open; the topic is also its group.

    owned         its assignment
    assigned_at   the wall-clock time (s) of its last assignment; 0 before the first
    """

    def __init__(self, client: dict[str, Any], topic: str) -> None:
        from confluent_kafka import Consumer

        self.owned: list[TopicPartition] = []
        self.assigned_at = 0.0
        self._consumer = Consumer({**client, "group.id": topic})
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> _Member:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self._consumer.poll(_POLL_S)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned_at, self.owned = time.time(), partitions

    def _revoked(self, _: Consumer, __: list[TopicPartition]) -> None:
        self.owned = []


def _timestamp(logged: str) -> float:
    return datetime.strptime(logged, "%Y-%m-%d %H:%M:%S,%f").timestamp()
