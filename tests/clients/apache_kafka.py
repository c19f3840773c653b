"""Three brokers of Apache Kafka, as the control of the tests: what fails here says nothing about Tidelog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from tests.processes.harness.kafka import KafkaBroker, kafka_brokers
from tests.processes.harness.waiting import wait_for
from tidelog import TopicPartition

_TIMEOUT_S = 30
_SETTINGS = {
    "auto.create.topics.enable": "true",  # as for `tidelog up`
    "auto.leader.rebalance.enable": "false",  # the tests elect preferred leaders
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "zookeeper.session.timeout.ms": 6_000,
    "log.retention.ms": -1,  # the tests write records with timestamps of years ago, and this Kafka checks often
}


class ApacheKafka:
    """Implements `ClusterUnderTest`."""

    def __init__(self, brokers: list[KafkaBroker]) -> None:
        self._brokers = {number: broker for number, broker in enumerate(brokers, start=1)}
        self.broker_ids = list(self._brokers)
        self.bootstrap_servers = ",".join(each.bootstrap_servers for each in brokers)
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, configs: Mapping[str, str] | None = None
    ) -> list[TopicPartition]:
        settings = {"min.insync.replicas": "2", **(configs or {})}
        new = ck.admin.NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=settings)
        self._admin.create_topics([new])[name].result(_TIMEOUT_S)
        tps = [TopicPartition(name, partition) for partition in range(partitions)]
        for tp in tps:
            self.wait_in_sync(tp, replicas)
        self._wait_until_served(tps)
        return tps

    def _wait_until_served(self, tps: list[TopicPartition]) -> None:
        """Wait until each leader answers requests, because acks=0 loses the records of earlier ones.

        The metadata names a leader before that leader serves.
        """
        latest = {ck.TopicPartition(*tp): ck.admin.OffsetSpec.latest() for tp in tps}

        def are_served() -> bool:
            try:
                return all(each.result(_TIMEOUT_S) for each in self._admin.list_offsets(latest).values())
            except ck.KafkaException:
                return False

        wait_for(f"the leaders of {tps} to serve", are_served)

    def delete_records(self, tp: TopicPartition, before: int) -> None:
        asked = ck.TopicPartition(tp.topic, tp.partition, before)
        self._admin.delete_records([asked])[asked].result(_TIMEOUT_S)

    def leader(self, tp: TopicPartition) -> int:
        return wait_for(f"a leader of {tp}", lambda: max(self._partition(tp).leader, 0))

    def coordinator(self, group: str) -> int:
        found: int = self._admin.describe_consumer_groups([group])[group].result(_TIMEOUT_S).coordinator.id
        return found

    def wait_in_sync(self, tp: TopicPartition, replicas: int = 3, timeout_s: float = 60) -> None:
        wait_for(f"{replicas} replicas of {tp} in sync", lambda: len(self._partition(tp).isrs) == replicas, timeout_s)

    def replica_dir(self, broker_id: int, tp: TopicPartition) -> Path:
        return self._brokers[broker_id].data / str(tp)

    def kill(self, broker_id: int) -> None:
        self._brokers[broker_id].kill()

    def restart(self, broker_id: int) -> None:
        self._brokers[broker_id].start()

    def _partition(self, tp: TopicPartition) -> Any:
        found = self._admin.list_topics(tp.topic, timeout=_TIMEOUT_S).topics[tp.topic]
        return found.partitions.get(tp.partition, _Unknown)


class _Unknown:
    leader = -1
    isrs = ()


@contextmanager
def apache_kafka(directory: Path, **settings: str | int) -> Iterator[ApacheKafka]:
    """Run three brokers and their ZooKeeper. `settings` are the brokers' settings, with underscores for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with kafka_brokers(directory, 3, _SETTINGS | named) as brokers:
        for each in brokers:
            each.start()
        yield ApacheKafka(brokers)
