"""Each cluster that our clients must work with: Tidelog, Kafka 3.9 with ZooKeeper, and Kafka 4 without."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.any_kafka.kraft import kraft_nodes
from tests.clients.apache_kafka import apache_kafka
from tests.processes.harness.cluster import running_cluster
from tests.processes.harness.waiting import wait_for
from tidelog import Admin, NewTopic, TopicPartition
from tidelog.errors import TidelogError

CLUSTERS = ("tidelog", "kafka-3.9", "kafka-4.1")

_numbers = itertools.count(1)


@dataclass(frozen=True)
class AnyCluster:
    """A cluster of three brokers. `kill` and `restart` take a broker's id."""

    kind: str
    bootstrap_servers: str
    kill: Callable[[int], None]
    restart: Callable[[int], None]

    @property
    def is_kafka(self) -> bool:
        return self.kind != "tidelog"

    def create_topic(self, partitions: int = 1, **configs: str) -> list[TopicPartition]:
        """Create a topic with three replicas and `min.insync.replicas=2`, and wait until all are in sync."""
        name = f"topic-{next(_numbers)}"
        settings = {"min.insync.replicas": "2", **{key.replace("_", "."): value for key, value in configs.items()}}
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, partitions, 3, configs=settings)])

            def is_in_sync() -> bool:
                (topic,) = admin.describe_topics([name])
                return all(len(each.isr) == 3 and each.leader >= 0 for each in topic.partitions)

            wait_for(f"all replicas of {name} to be in sync", is_in_sync, 60)
        return [TopicPartition(name, number) for number in range(partitions)]

    def leader(self, tp: TopicPartition) -> int:
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            (topic,) = admin.describe_topics([tp.topic])
        return next(each.leader for each in topic.partitions if each.partition == tp.partition)

    def wait_whole(self, tp: TopicPartition) -> None:
        """Wait until all replicas of the partition are in sync."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:

            def is_whole() -> bool:
                try:
                    (topic,) = admin.describe_topics([tp.topic])
                except TidelogError:
                    return False
                return all(len(each.isr) == 3 for each in topic.partitions)

            wait_for(f"all replicas of {tp} to be in sync again", is_whole, 120)


@contextmanager
def any_cluster(kind: str, directory: Path) -> Iterator[AnyCluster]:
    """Run a cluster of this kind below the directory, and end it at the end."""
    with ExitStack() as ends:
        yield _start(kind, directory, ends)


def _start(kind: str, directory: Path, ends: ExitStack) -> AnyCluster:
    if kind == "kafka-3.9":
        kafka = ends.enter_context(apache_kafka(directory, auto_create_topics_enable="false"))
        return AnyCluster(kind, kafka.bootstrap_servers, kafka.kill, kafka.restart)
    if kind == "kafka-4.1":
        nodes = ends.enter_context(kraft_nodes(directory))
        servers = ",".join(f"127.0.0.1:{each.port}" for each in nodes.values())

        def restart(node_id: int) -> None:
            nodes[node_id].launch()
            nodes[node_id].wait_listening()

        return AnyCluster(kind, servers, lambda node_id: nodes[node_id].kill(), restart)
    cluster = ends.enter_context(running_cluster(directory, group_initial_rebalance_delay_ms=0))
    return AnyCluster(kind, cluster.bootstrap_servers, cluster.kill, cluster.restart)
