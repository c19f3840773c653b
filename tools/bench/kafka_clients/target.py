"""A running cluster that speaks Kafka's protocol, as the measurements see it, and Tidelog's cluster as one."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tools.bench import machine
from tools.bench.environment import MIN_IN_SYNC, REPLICAS, ClusterUnderTest, wait_for
from tools.bench.results import NotMeasured

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_CREATED_S = 120.0


class Target(ABC):
    """A cluster of REPLICAS brokers.

    bootstrap_servers   the addresses for clients
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    @property
    @abstractmethod
    def pids(self) -> Mapping[int, int]:
        """Return the processes of the brokers by broker id."""

    def kill(self, broker_id: int) -> None:
        """Send SIGKILL to a broker, and return when its process has ended."""
        raise NotImplementedError(f"{type(self).__name__} kills no brokers")

    def shut_down(self, broker_id: int, timeout_s: float) -> None:
        """Send SIGTERM to a broker, and return when its process has ended; NotMeasured after `timeout_s`."""
        raise NotImplementedError(f"{type(self).__name__} shuts no brokers down")

    def restart(self, broker_id: int) -> None:
        """Start a broker that has ended, and return when it is registered."""
        raise NotImplementedError(f"{type(self).__name__} restarts no brokers")

    @property
    def client(self) -> dict[str, Any]:
        """Return the settings that every client needs: the addresses, and no log lines about lost brokers."""
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0}

    def cpu_s(self) -> float:
        """Return the CPU seconds of all brokers since each began."""
        return machine.cpu_time(self.pids.values()).total

    def resident_mb(self) -> float:
        """Return the resident memory of all brokers together."""
        return sum(map(machine.resident_mb, self.pids.values()))

    def create_topic(self, partitions: int) -> str:
        """Create a topic with REPLICAS replicas, wait until all are in sync, and return its name."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        topic = f"bench-{uuid.uuid4().hex[:8]}"
        configs = {"min.insync.replicas": str(MIN_IN_SYNC)}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=REPLICAS, config=configs)
        admin = self._admin()  # calls fail when the client is deleted before they end
        try:
            admin.create_topics([new])[topic].result(_CREATED_S)
        except KafkaException as refusal:
            raise NotMeasured(f"topic {topic} cannot be created: {refusal}") from None
        self.wait_in_sync(topic, partitions)
        return topic

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, so that its files do not fill the disk."""
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(_CREATED_S)

    def wait_in_sync(self, topic: str, partitions: int, timeout_s: float = _CREATED_S) -> None:
        """Wait until each partition of the topic has a leader and all replicas in its ISR."""
        admin = self._admin()

        def are_in_sync() -> bool:
            found = self._metadata(admin, topic).partitions.values()
            return len(found) == partitions and all(len(each.isrs) == REPLICAS and each.leader >= 0 for each in found)

        wait_for(f"all replicas of {topic} in sync", are_in_sync, timeout_s)

    def wait_for_preferred_leaders(self, topic: str, timeout_s: float) -> None:
        """Wait until the first replica of each partition of the topic is its leader."""
        admin = self._admin()

        def are_leaders() -> bool:
            found = self._metadata(admin, topic).partitions.values()
            return bool(found) and all(each.leader == each.replicas[0] for each in found)

        wait_for(f"the preferred leaders of {topic}", are_leaders, timeout_s)

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition of the topic by number."""
        found = self._metadata(self._admin(), topic).partitions
        return {number: each.leader for number, each in found.items()}

    def brokers(self) -> set[int]:
        """Return the ids of the registered brokers; none if no broker answers yet."""
        from confluent_kafka import KafkaException

        try:
            return set(self._admin().list_topics(timeout=10).brokers)
        except KafkaException:
            return set()

    def ports(self) -> dict[int, int]:
        """Return the port of each broker for clients, by broker id."""
        return {number: each.port for number, each in self._admin().list_topics(timeout=30).brokers.items()}

    def controller(self) -> int:
        """Return the broker that is the controller; wait until there is one."""
        admin = self._admin()
        return wait_for("a controller", lambda: max(int(admin.list_topics(timeout=30).controller_id), 0))

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self.client)

    @staticmethod
    def _metadata(admin: AdminClient, topic: str) -> Any:
        return admin.list_topics(topic, timeout=30).topics[topic]


class TidelogTarget(Target):
    """Tidelog's cluster under test, at its listeners for clients."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        super().__init__(cluster.local.known_state().bootstrap_servers)
        self._cluster = cluster

    @property
    def pids(self) -> Mapping[int, int]:
        return {broker.broker_id: broker.pid for broker in self._cluster.local.known_state().brokers}

    def kill(self, broker_id: int) -> None:
        self._cluster.kill(broker_id)

    def shut_down(self, broker_id: int, timeout_s: float) -> None:
        self._cluster.shut_down(broker_id, timeout_s)

    def restart(self, broker_id: int) -> None:
        self._cluster.restart(broker_id)
