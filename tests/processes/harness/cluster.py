"""Real brokers and a real ZooKeeper in a temporary directory, and the ways to hurt them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from cluster import znodes
from cluster.state import VersionedState
from tests.processes.harness.waiting import wait_for
from tidelog import Admin, NewTopic, TopicPartition
from tidelog.errors import TidelogError
from tidelog.local.cluster import LocalCluster


class RunningCluster:
    """Started by `running_cluster`; every process is stopped by its own pid when that ends."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.admin = Admin(self.bootstrap_servers)

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

    def wait_in_sync(self, tp: TopicPartition, replicas: int = 3, timeout_s: float = 60) -> None:
        wait_for(f"{replicas} replicas of {tp} in sync", lambda: len(self.znode(tp).state.isr) == replicas, timeout_s)

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
        client = KazooClient(self.local.known_state().zookeeper, timeout=5)
        client.start(timeout=10)
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

    def terminate(self, broker_id: int) -> None:
        """SIGTERM, and wait until it has left politely."""
        self.signal(broker_id, signal.SIGTERM)
        self._wait_gone(broker_id)

    @contextmanager
    def paused(self, broker_id: int) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end, also of a test that failed."""
        self.signal(broker_id, signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(broker_id, signal.SIGCONT)

    def restart(self, broker_id: int) -> None:
        """Start a broker that does not run."""
        self.local.start_broker(broker_id)

    def expire_session(self, broker_id: int) -> None:
        """End the broker's ZooKeeper session as the server would: a second client takes it over and closes it."""
        with self.zookeeper() as client:
            stat = client.exists(znodes.broker_path(broker_id))
            assert stat is not None, f"broker {broker_id} is not registered"
            czxid, session = stat.czxid, stat.ephemeralOwner
        credentials = (session, session_password(session))
        thief = KazooClient(self.local.known_state().zookeeper, timeout=5, client_id=credentials)
        thief.start(timeout=10)
        thief.stop()
        thief.close()
        with self.zookeeper() as client:
            wait_for(
                f"the registration of broker {broker_id} to go",
                lambda: (found := client.exists(znodes.broker_path(broker_id))) is None or found.czxid != czxid,
                timeout_s=10,
            )

    def _wait_gone(self, broker_id: int) -> None:
        process = self.local.broker_process(broker_id)
        assert process is not None and process.wait(30_000), f"broker {broker_id} did not end"


def session_password(session_id: int) -> bytes:
    """What ZooKeeper gives a session as its password: the first 16 bytes of Java's Random, seeded from the id."""
    mask = (1 << 48) - 1
    state = ((session_id ^ 0xB3415C00) ^ 0x5DEECE66D) & mask
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & mask
        password += ((state >> 16) & 0xFFFFFFFF).to_bytes(4, "little")
    return password


def _controller_of(client: KazooClient) -> int | None:
    stat = client.exists(znodes.CONTROLLER)
    return znodes.decode_controller(client.get(znodes.CONTROLLER)[0]) if stat is not None else None


@contextmanager
def running_cluster(directory: Path, brokers: int = 3, **settings: str | int) -> Iterator[RunningCluster]:
    """A cluster that is up; `settings` are brokers' settings."""
    local = LocalCluster(directory / "data", home=directory / "home")
    try:
        local.start(brokers, settings=settings)
        cluster = RunningCluster(local)
        try:
            yield cluster
        finally:
            cluster.admin.close()
    finally:
        local.stop()
