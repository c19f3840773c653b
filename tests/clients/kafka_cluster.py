"""Real brokers, which `tidelog broker` starts, and a ZooKeeper of their own."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.processes.harness.waiting import wait_for
from tidelog import Admin, NewTopic
from tidelog.errors import TidelogError
from tidelog.local.broker import broker_command, broker_environment
from tidelog.local.processes.ports import LOOPBACK, choose_port
from tidelog.local.processes.process import Process
from tidelog.local.zookeeper import EmbeddedZooKeeper


class KafkaCluster:
    """Started by `kafka_cluster`. `bootstrap_servers` are the addresses that the brokers tell clients."""

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        brokers: int,
        settings: dict[str, str | int],
        through: Callable[[int], int] | None = None,
    ) -> None:
        self._directory = directory
        self._zookeeper = zookeeper
        self._settings = settings
        self._held = ExitStack()  # other tests choose ports while a broker is dead
        self._ports = {broker_id: [choose_port(self._held) for _ in range(2)] for broker_id in range(1, brokers + 1)}
        self._processes: dict[int, Process] = {}
        self._advertised = {
            broker_id: ports[0] if through is None else through(ports[0]) for broker_id, ports in self._ports.items()
        }
        self.bootstrap_servers = ",".join(f"{LOOPBACK}:{port}" for port in self._advertised.values())

    def start(self) -> None:
        """Start all brokers, and wait until they serve."""
        for broker_id in self._ports:
            self._start_broker(broker_id)
        self._wait_registered()

    def restart(self, broker_id: int) -> None:
        """Start a broker that was killed, and wait until all brokers serve."""
        self._start_broker(broker_id)
        self._wait_registered()

    def _wait_registered(self) -> None:
        with Admin(self.bootstrap_servers) as admin:
            wait_for("all brokers to serve", lambda: self._are_registered(admin), 60)

    def _are_registered(self, admin: Admin) -> bool:
        try:
            return len(admin.describe_cluster().brokers) == len(self._ports)
        except TidelogError:
            return False

    def _start_broker(self, broker_id: int) -> None:
        """Start a broker that does not run."""
        clients, brokers = (f"{LOOPBACK}:{port}" for port in self._ports[broker_id])
        settings: dict[str, str | int | list[str]] = {
            "broker_id": broker_id,
            "log_dirs": [str(self._directory / f"broker-{broker_id}")],
            "zookeeper": self._zookeeper,
            "listeners": [f"KAFKA://{clients}", f"REPLICATION://{brokers}"],
            "log_file": str(self._directory / f"broker-{broker_id}.log"),
            **self._settings,
        }
        if self._advertised[broker_id] != self._ports[broker_id][0]:
            settings["advertised_listeners"] = [f"KAFKA://{LOOPBACK}:{self._advertised[broker_id]}"]
        config = self._directory / f"broker-{broker_id}.toml"
        config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        self._processes[broker_id] = Process.spawn(
            broker_command(config),
            output=config.with_suffix(".out"),
            directory=self._directory,
            environment=broker_environment(),
        )

    def create_topic(self, name: str, partitions: int = 1) -> None:
        replicas = min(3, len(self._ports))
        with Admin(self.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, partitions, replicas)])

    def kill(self, broker_id: int) -> None:
        """SIGKILL, and wait until it is gone."""
        process = self._processes[broker_id]
        assert process.signal(signal.SIGKILL) and process.wait(30_000)

    def stop(self) -> None:
        for process in self._processes.values():
            process.stop(30_000)
        self._held.close()


@contextmanager
def kafka_cluster(
    directory: Path, brokers: int = 3, *, through: Callable[[int], int] | None = None, **settings: str | int
) -> Iterator[KafkaCluster]:
    """Run a cluster. `settings` are settings of all its brokers.

    through   returns for a broker's port the port that the broker tells clients; None: the same
    """
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(directory / "zookeeper"))
        cluster = KafkaCluster(directory, zookeeper.hosts, brokers, settings, through)
        stack.callback(cluster.stop)
        cluster.start()
        yield cluster
