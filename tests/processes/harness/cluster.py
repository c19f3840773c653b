"""Real brokers and a real ZooKeeper in a temporary directory, and the ways to hurt them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kazoo.client import KazooClient

from cluster.state import VersionedState
from cluster.zookeeper import znodes
from tests.processes.harness.waiting import wait_for
from tests.reserved_ports import reserved_port
from tidelog import Admin, NewTopic, TopicPartition
from tidelog.errors import TidelogError
from tidelog.local.broker import broker_command, broker_environment
from tidelog.local.cluster import LocalCluster
from tidelog.local.processes.ports import hold_port
from tidelog.local.processes.process_placement import Placement
from verify.chaos.targets.sessions import expire


class RunningCluster:
    """Started by `running_cluster`; every process is stopped by its own pid when that ends."""

    def __init__(self, local: LocalCluster, zookeeper_hosts: str = "") -> None:
        self.local = local
        self.zookeeper_hosts = zookeeper_hosts or local.known_state().zookeeper
        self.admin = Admin(self.bootstrap_servers)
        #: A second log directory of a broker that has one.
        self.other_log_dirs: dict[int, Path] = {}
        self._held_ports = ExitStack()

    def close(self) -> None:
        """Free the connections and ports of the test itself. The processes go on."""
        self.admin.close()
        self._held_ports.close()

    @property
    def bootstrap_servers(self) -> str:
        return self.local.known_state().bootstrap_servers

    @property
    def broker_ids(self) -> list[int]:
        return [broker.broker_id for broker in self.local.known_state().brokers]

    def address(self, broker_id: int) -> str:
        return self.local.known_state().broker(broker_id).address

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, configs: Mapping[str, str] | None = None
    ) -> list[TopicPartition]:
        settings = {"min.insync.replicas": "2", **(configs or {})}
        self.admin.create_topics([NewTopic(name, partitions, replicas, configs=settings)])
        tps = [TopicPartition(name, partition) for partition in range(partitions)]
        for tp in tps:
            self.wait_in_sync(tp, replicas)
        return tps

    def delete_records(self, tp: TopicPartition, before: int) -> None:
        self.admin.delete_records({tp: before})

    # --- looking -----------------------------------------------------------------------------------------------

    def znode(self, tp: TopicPartition) -> VersionedState:
        """The partition's state as ZooKeeper has it, with the znode's version."""
        with self.zookeeper() as client:
            data, stat = client.get(znodes.state_path(tp))
        return VersionedState(znodes.decode_state(data), stat.version)

    def leader(self, tp: TopicPartition) -> int:
        return wait_for(f"a leader of {tp}", lambda: max(self.znode(tp).state.leader, 0))

    def controller(self) -> int:
        with self.zookeeper() as client:
            return wait_for("a controller", lambda: _controller_of(client))

    def coordinator(self, group: str) -> int:
        return self.admin.describe_consumer_groups([group])[group].coordinator

    def broker_epoch(self, broker_id: int) -> int:
        """The czxid of its registration, 0 while there is none."""
        with self.zookeeper() as client:
            stat = client.exists(znodes.broker_path(broker_id))
        return 0 if stat is None else int(stat.czxid)

    def replica_dir(self, broker_id: int, tp: TopicPartition) -> Path:
        """Return the directory of the broker's log of the partition."""
        own, other = self.local.broker_dir(broker_id) / str(tp), self.other_log_dirs.get(broker_id)
        return own if other is None or own.exists() else other / str(tp)

    def said(self, broker_id: int, words: str) -> int:
        """Return how often the broker's log file contains this text."""
        return self.local.log_file(broker_id).read_text().count(words)

    def wait_in_sync(self, tp: TopicPartition, replicas: int = 3, timeout_s: float = 60) -> None:
        wait_for(f"{replicas} replicas of {tp} in sync", lambda: len(self.znode(tp).state.isr) == replicas, timeout_s)

    def wait_leader_knows(self, tp: TopicPartition, isr: tuple[int, ...]) -> None:
        """The leader hears of what stands in ZooKeeper a moment after we see it there."""

        def known() -> bool:
            try:
                described = self.admin.describe_topics([tp.topic])[0].partitions[tp.partition]
            except TidelogError:
                return False
            return described.lag is not None and described.isr == isr

        wait_for(f"the leader of {tp} to know that {isr} are in sync", known)

    def wait_same_end(self, tp: TopicPartition, timeout_s: float = 60) -> int:
        """Waits until every replica has everything and all of it is committed; returns the end."""

        def end() -> int | None:
            try:
                described = self.admin.describe_topics([tp.topic])[0].partitions[tp.partition]
            except TidelogError:
                return None
            level = (
                all(lag == 0 for lag in described.lag.values()) and len(described.lag) == len(described.replicas) - 1
            )
            return (
                described.log_end_offset + 1 if level and described.high_watermark == described.log_end_offset else None
            )

        return wait_for(f"the replicas of {tp} to be level", end, timeout_s) - 1

    @contextmanager
    def zookeeper(self) -> Iterator[KazooClient]:
        client = KazooClient(self.zookeeper_hosts, timeout=5)
        client.start(timeout=30)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    # --- hurting -----------------------------------------------------------------------------------------------

    def signal(self, broker_id: int, number: signal.Signals) -> None:
        process = self.local.broker_process(broker_id)
        assert process is not None and process.signal(number), f"broker {broker_id} does not run"

    def kill(self, broker_id: int) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(broker_id, signal.SIGKILL)
        self._wait_gone(broker_id)

    def kill_all(self) -> None:
        """Kill all brokers by SIGKILL at once, so that none of them notices the death of another."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for broker_id in self.broker_ids:
                self.signal(broker_id, number)
        for broker_id in self.broker_ids:
            self._wait_gone(broker_id)

    def terminate(self, broker_id: int) -> None:
        """Send SIGTERM, and wait until the broker has completed its controlled shutdown."""
        self.signal(broker_id, signal.SIGTERM)
        self._wait_gone(broker_id)

    @contextmanager
    def paused(self, broker_id: int) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end, also of a test that failed, unless the broker was killed meanwhile."""
        self.signal(broker_id, signal.SIGSTOP)
        try:
            yield
        finally:
            if (process := self.local.broker_process(broker_id)) is not None:
                process.signal(signal.SIGCONT)

    def restart(self, broker_id: int) -> None:
        """Start a broker that does not run."""
        self.local.start_broker(broker_id)

    def config(self, broker_id: int, name: str, /, **changes: str | int | list[str]) -> Path:
        """A file `name` of the broker's settings with some of them changed."""
        directory = self.local.data_dir / "config"
        settings = tomllib.loads((directory / f"broker-{broker_id}.toml").read_text()) | changes
        path = directory / f"{name}.toml"
        path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
        return path

    def second_config(self, broker_id: int, **changes: str | int | list[str]) -> Path:
        """Return settings for a second process of the same broker, with its own listeners, that logs to stderr."""
        written = tomllib.loads((self.local.data_dir / "config" / f"broker-{broker_id}.toml").read_text())
        listeners = {
            name: _any_port(value) for name, value in written.items() if name.endswith(("listener", "listeners"))
        }
        return self.config(broker_id, "second", **{**listeners, "log_file": "", **changes})

    @contextmanager
    def launched(self, config: Path, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Run a broker process without waiting until it serves, and stop it at the end."""
        with subprocess.Popen(
            broker_command(config),
            env={**broker_environment(), **(environment or {})},
            cwd=config.parent,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(30)
                process.kill()

    def wait_serves(self, broker_id: int, since: int = 0, timeout_s: float = 60) -> int:
        """Until it is registered with an epoch above `since`, which is returned."""
        return wait_for(
            f"broker {broker_id} to be registered",
            lambda: epoch if (epoch := self.broker_epoch(broker_id)) > since else None,
            timeout_s,
        )

    def expire_session(self, broker_id: int) -> None:
        """End the broker's ZooKeeper session as the server would."""
        expire(self.zookeeper_hosts, znodes.broker_path(broker_id))

    def _wait_gone(self, broker_id: int) -> None:
        process = self.local.broker_process(broker_id)
        assert process is not None and process.wait(30_000), f"broker {broker_id} did not end"
        self._hold_ports(broker_id)

    def _hold_ports(self, broker_id: int) -> None:
        """Keep the ports of a dead broker for its next start, because other tests choose ports at the same time."""
        for port in self.local.known_state().broker(broker_id).ports:
            if (hold := hold_port(port)) is not None:
                self._held_ports.enter_context(hold)


def _any_port(addresses: str | list[str]) -> str | list[str]:
    """Return the same addresses with ports that are not in use."""
    if isinstance(addresses, str):
        return re.sub(r":\d+$", f":{reserved_port()}", addresses)
    return [str(_any_port(each)) for each in addresses]


def _controller_of(client: KazooClient) -> int | None:
    stat = client.exists(znodes.CONTROLLER)
    return znodes.decode_controller(client.get(znodes.CONTROLLER)[0]) if stat is not None else None


@contextmanager
def running_cluster(
    directory: Path,
    brokers: int = 3,
    zookeeper: str | None = None,
    zookeeper_hosts: str = "",
    histories: Path | None = None,
    places: Mapping[str, Placement] | None = None,
    **settings: str | int,
) -> Iterator[RunningCluster]:
    """Run a cluster. `settings` are brokers' settings; brokers write their histories into `histories`.

    `places` has the placement of processes by broker id ("1"). Brokers reach ZooKeeper at `zookeeper`, or start one of
    their own. The test itself uses `zookeeper_hosts`, if this is another way to the same ZooKeeper.
    """
    local = LocalCluster(directory / "data", home=directory / "home", histories=histories, places=places)
    try:
        local.start(brokers, zookeeper=zookeeper, settings=settings)
        cluster = RunningCluster(local, zookeeper_hosts)
        try:
            yield cluster
        finally:
            cluster.close()
    finally:
        local.stop()
