"""Starts the demo's own cluster: three brokers and a ZooKeeper in a directory of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidelog import Admin, NewTopic
from tidelog.local.cluster import LocalCluster
from tidelog.local.processes.process import Process

TOPIC = "lines"
PARTITIONS = 6
REPLICAS = 3
_TOPIC_CONFIGS = {"min.insync.replicas": "2", "retention.ms": "-1"}  # old logs must stay


class DemoCluster:
    """The cluster of the demo in `directory`. `start` starts it, or raises LocalError, which says why it cannot run.

    bootstrap_servers   "" before the start
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bootstrap_servers = ""
        # Its own home directory, so that other commands of this user still find the cluster that they know.
        self._cluster = LocalCluster(directory, home=directory)

    def start(self, on_ready: Callable[[str, str], None]) -> None:
        self.bootstrap_servers = self._cluster.start(REPLICAS, on_ready=on_ready).bootstrap_servers

    def log_files(self) -> dict[str, Path]:
        """Return the log file of each process by name ("zookeeper", "broker-1"); a file may not exist yet."""
        brokers = {f"broker-{number}": self._cluster.log_file(number) for number in range(1, REPLICAS + 1)}
        return {"zookeeper": self._cluster.log_file(), **brokers}

    def create_topic(self, admin: Admin) -> None:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS, configs=_TOPIC_CONFIGS)], timeout_ms=30_000)

    def process(self, broker: int) -> Process:
        """Return the process of a broker's last start. Raises ProcessLookupError if there was none."""
        process = self._cluster.broker_process(broker)
        if process is None:
            raise ProcessLookupError(f"broker {broker} was never started")
        return process

    def restart(self, broker: int) -> None:
        """Start a broker that has ended, and return when it is registered."""
        self._cluster.start_broker(broker)

    def stop(self) -> None:
        self._cluster.stop()
