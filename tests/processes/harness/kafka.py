"""Real Apache Kafka brokers with a ZooKeeper of their own."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.processes.harness.waiting import wait_for
from tests.reserved_ports import reserved_port
from tidelog.local.processes.ports import LOOPBACK
from tidelog.local.processes.process import Process
from tidelog.local.zookeeper import EmbeddedZooKeeper
from tools.check.toolbox import BROKER, kafka_command

#: Everything that Kafka does by itself once in a while, it does soon.
_SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "leader.imbalance.check.interval.seconds": 1,
    "leader.imbalance.per.broker.percentage": 0,
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.flush.offset.checkpoint.interval.ms": 1000,
    "log.flush.start.offset.checkpoint.interval.ms": 500,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 300,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 2,
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 2,
}


class KafkaBroker:
    """Its log directory is `data`; it may be started again after either kind of end."""

    def __init__(
        self, broker_id: int, directory: Path, zookeeper: str, settings: Mapping[str, str | int] | None = None
    ) -> None:
        self.data = directory / "data"
        self.port = reserved_port()
        self._directory = directory
        self._process: Process | None = None
        written: Mapping[str, object] = {
            **_SETTINGS,
            **(settings or {}),
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "log.dirs": self.data,
            "zookeeper.connect": zookeeper,
        }
        directory.mkdir()
        (directory / "broker.properties").write_text("".join(f"{name}={value}\n" for name, value in written.items()))

    @property
    def bootstrap_servers(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Raises NotRun where Java, or Kafka, is missing."""
        command = [*kafka_command(BROKER), str(self._directory / "broker.properties")]
        self._process = process = Process.spawn(command, output=self._directory / "out", directory=self._directory)
        wait_for("Kafka listens, or has ended", lambda: not process.running or self._listens(), 120)
        assert process.running, (self._directory / "out").read_text()

    def stop(self) -> None:
        """Stop the broker by SIGTERM, so that its log directory gets the clean-shutdown marker."""
        assert self._process is not None and self._process.stop(60_000), "Kafka did not end in time"

    def kill(self) -> None:
        if self._process is not None:
            self._process.signal(signal.SIGKILL)
            self._process.wait(10_000)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0


@contextmanager
def kafka_brokers(
    directory: Path, count: int, settings: Mapping[str, str | int] | None = None
) -> Iterator[list[KafkaBroker]]:
    """Make brokers 1 to `count` and start their ZooKeeper. The brokers are started by the caller, and end here.

    `settings` are further settings of all brokers.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper:
        ids = range(1, count + 1)
        brokers = [KafkaBroker(number, directory / f"kafka-{number}", zookeeper.hosts, settings) for number in ids]
        try:
            yield brokers
        finally:
            for broker in brokers:
                broker.kill()
