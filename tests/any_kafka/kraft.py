"""Real brokers of Apache Kafka 4 without ZooKeeper: each process is a broker and a voter of the controllers' quorum."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes.harness.waiting import wait_for
from tests.reserved_ports import reserved_port
from tidelog.local.processes.ports import LOOPBACK
from tidelog.local.processes.process import Process
from tools.check.toolbox import BROKER, FORMAT_TOOL, KAFKA_4_VERSION, kafka_command

_CLUSTER_ID = "tidelogTestsOfKafka4AA"
_START_S = 120
_SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": 6_000,
    "default.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.retention.ms": -1,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
}


class KRaftNode:
    """One process. It may be started again after a kill."""

    def __init__(self, node_id: int, directory: Path, port: int, voters: dict[int, int]) -> None:
        self.port = port
        self._directory = directory
        self._process: Process | None = None
        written: dict[str, object] = {
            **_SETTINGS,
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": ",".join(f"{each}@{LOOPBACK}:{at}" for each, at in voters.items()),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{voters[node_id]}",
            "log.dirs": directory / "data",
        }
        directory.mkdir(parents=True)
        self._config = directory / "server.properties"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in written.items()))

    def format(self) -> None:
        """Write the metadata of an empty log directory, which a node needs before its first start."""
        command = [*kafka_command(FORMAT_TOOL, version=KAFKA_4_VERSION), "format", "-t", _CLUSTER_ID]
        subprocess.run([*command, "-c", str(self._config)], check=True, capture_output=True, timeout=_START_S)

    def launch(self) -> None:
        """Start the process; `wait_listening` waits until it serves."""
        command = [*kafka_command(BROKER, version=KAFKA_4_VERSION), str(self._config)]
        self._process = Process.spawn(command, output=self._directory / "out", directory=self._directory)

    def wait_listening(self) -> None:
        process = self._process
        assert process is not None
        wait_for("Kafka listens, or has ended", lambda: not process.running or self._listens(), _START_S)
        assert process.running, (self._directory / "out").read_text()[-2000:]

    def kill(self) -> None:
        if self._process is not None:
            self._process.signal(signal.SIGKILL)
            self._process.wait(10_000)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0


@contextmanager
def kraft_nodes(directory: Path, count: int = 3) -> Iterator[dict[int, KRaftNode]]:
    """Run nodes 1 to `count`, and end them at the end."""
    ids = range(1, count + 1)
    voters = {number: reserved_port() for number in ids}
    nodes = {number: KRaftNode(number, directory / f"node-{number}", reserved_port(), voters) for number in ids}
    try:
        for each in nodes.values():
            each.format()
            each.launch()
        for each in nodes.values():
            each.wait_listening()
        yield nodes
    finally:
        for each in nodes.values():
            each.kill()
