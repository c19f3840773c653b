"""The cluster that foreign clients are tested with: Tidelog's brokers or, as the control, those of Apache Kafka.

The environment variable TIDELOG_CLIENTS_AGAINST=kafka chooses the control.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.clients.apache_kafka import apache_kafka
from tests.processes.harness.cluster import running_cluster
from tidelog import TopicPartition

#: Whether the tests run against Apache Kafka.
IS_CONTROL = os.environ.get("TIDELOG_CLIENTS_AGAINST", "tidelog") == "kafka"


class ClusterUnderTest(Protocol):
    """Three brokers, and what the tests of foreign clients ask of them without the client."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def broker_ids(self) -> list[int]: ...

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, configs: Mapping[str, str] | None = None
    ) -> list[TopicPartition]:
        """Create a topic with `min.insync.replicas=2`, and wait until all replicas are in sync."""
        ...

    def delete_records(self, tp: TopicPartition, before: int) -> None: ...

    def leader(self, tp: TopicPartition) -> int: ...

    def coordinator(self, group: str) -> int: ...

    def wait_in_sync(self, tp: TopicPartition, replicas: int = 3, timeout_s: float = 60) -> None: ...

    def replica_dir(self, broker_id: int, tp: TopicPartition) -> Path: ...

    def kill(self, broker_id: int) -> None: ...

    def restart(self, broker_id: int) -> None: ...


@contextmanager
def cluster_under_test(directory: Path, **settings: str | int) -> Iterator[ClusterUnderTest]:
    """Run the cluster. `settings` are settings of the brokers that Tidelog and Kafka both have."""
    run = apache_kafka if IS_CONTROL else running_cluster
    with run(directory, **settings) as started:
        yield started
