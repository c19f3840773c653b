"""Build a cluster on one timeline: ZooKeeper, brokers, the network between them, and the processes of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from random import Random
from typing import Any, TypeVar

from cluster.zookeeper.in_memory import MemoryZooKeeper, NetworkConditions
from cluster.zookeeper.store import Set
from node.settings.broker_settings import BrokerSettings
from storage.configs.log_config import LogConfig
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.history.broker_events import BrokerEvent
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.kafka.client.connection import Connection
from verify.simulation.cluster.brokers import MachineClock, SimulatedBroker
from verify.simulation.cluster.network import Machine, Network
from verify.simulation.cluster.tcp_streams import SimulatedTcpLine
from verify.simulation.disks.disks import SimulatedDisk
from verify.simulation.timeline import NS_PER_MS, NS_PER_S, Process
from verify.simulation.trace import Trace

T = TypeVar("T")

SESSION_TIMEOUT_MS = 6000
CLIENT_PORT, BROKER_PORT = 9600, 9601
#: The conditions of ZooKeeper: the followers of the leading server lag behind it, and some requests break their
#: connection.
ZOOKEEPER_SERVERS = 3
ZOOKEEPER_CONDITIONS = NetworkConditions(
    request_ms=(0.2, 3), answer_ms=(0.2, 3), watch_ms=(0.2, 20), reconnect_ms=(20, 500), lag_ms=(0.2, 30), breaks=0.003
)

#: The partitions of __consumer_offsets, which exist after the first request for a coordinator.
OFFSETS_TPS = tuple(TopicPartition(OFFSETS_TOPIC, number) for number in range(2))
#: Settings that reduce idle work and make little difference to a simulated minute.
_QUIET = {
    "replica_fetch_wait_max_ms": 1000,
    "log_flush_scheduler_interval_ms": 60_000,
    "replica_lag_time_max_ms": 8000,
    "zookeeper_session_timeout_ms": SESSION_TIMEOUT_MS,
    "offsets_topic_num_partitions": len(OFFSETS_TPS),
    "log_cleaner_enable": False,
    "group_initial_rebalance_delay_ms": 500,
}


def address_of(broker_id: int) -> str:
    return f"127.0.0.{broker_id}"


class ClientProcess:
    """The process of a client, on a machine of its own without a disk.

    lives   the number of restarts
    """

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.machine: Machine = cluster.network.machine(f"127.0.1.{number}")
        self.rng = Random(cluster.rng.getrandbits(64))
        self.clock = MachineClock(cluster.timeline, self.rng.randrange(1_000, 10_000_000))
        self.lives = 0
        self._name = f"client-{number}"
        self._work: Callable[[ClientProcess], Coroutine[Any, Any, None]] | None = None
        self._cluster = cluster
        self._network = cluster.network
        self._begin()

    def _begin(self) -> None:
        timeline, add = self._cluster.timeline, self._cluster.trace.add
        self.process = Process(timeline, f"{self._name}.{self.lives}", self.rng, partial(add, "failure", self._name))
        self.machine.run(self.process)
        self._network.changed()

    def start(self, work: Callable[[ClientProcess], Coroutine[Any, Any, None]]) -> None:
        """Run `work` now and after each restart. The work gets this client."""
        self._work = work
        self.process.start(work(self))

    def kill(self) -> None:
        """Kill the process and close its connections; no effect on a process that is not alive."""
        if self.process.alive:
            self.process.kill()
            self._network.hang_up(self.machine)

    def restart(self) -> None:
        """Begin a new process after a kill, with the work of `start` if any; no effect while the process is alive."""
        if not self.process.alive:
            self.lives += 1
            self._begin()
            if self._work is not None:
                self.start(self._work)

    async def open(self, endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> Connection:
        """Open a connection from this client's machine (`tidelog.client.cluster_client.Opener`)."""
        return await Connection.open(
            endpoint,
            client_id=client_id,
            timeout_ms=timeout_ms,
            cluster_id=cluster_id,
            dial=partial(SimulatedTcpLine, self._network, self.machine, self.process),
            clock=self.clock,
        )


class Cluster:
    """The brokers on machines of their own, and all other processes. No broker is started yet.

    settings   settings of all brokers besides the usual ones
    configs    the default configs of topics
    keep       called with a broker's id and each event of the broker's history
    on_write   called with a broker's id and each change of an existing znode's data, before it leaves the broker

    The attribute `first` is the main partition, whose leader is the victim "leader".
    """

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 3,
        trace: Trace,
        settings: dict[str, Any] | None = None,
        configs: Mapping[str, str] | None = None,
        keep: Callable[[int, BrokerEvent], object] = lambda broker_id, event: None,
        on_write: Callable[[int, Set], object] = lambda broker_id, write: None,
    ) -> None:
        self.rng = Random(seed)
        self.trace = trace
        self.timeline = trace.timeline
        self.network = Network(self.timeline, self._new_rng())
        self._there = Process(self.timeline, "zookeeper", self._new_rng(), partial(trace.add, "failure", "zookeeper"))
        self.zookeeper = MemoryZooKeeper(
            MachineClock(self.timeline, 0),
            SESSION_TIMEOUT_MS,
            servers=ZOOKEEPER_SERVERS,
            conditions=ZOOKEEPER_CONDITIONS,
            rng=self._new_rng(),
            get_loop=lambda: self._there,
        )
        self._fate = Process(self.timeline, "fate", self.rng, partial(trace.add, "failure", "fate"))
        self.clients: list[ClientProcess | None] = []
        self.first = TopicPartition("orders", 0)
        self.brokers: dict[int, SimulatedBroker] = {}
        for broker_id in range(1, brokers + 1):
            self.brokers[broker_id] = SimulatedBroker(
                _settings(broker_id, brokers, settings or {}, configs or {}),
                self.network,
                self.zookeeper,
                self._there,
                SimulatedDisk(),
                self._new_rng(),
                keep,
                trace.add,
                on_write,
            )

    def _new_rng(self) -> Random:
        return Random(self.rng.getrandbits(64))

    @property
    def now_ms(self) -> int:
        return self.timeline.now_ns // NS_PER_MS

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{address_of(broker_id)}:{CLIENT_PORT}" for broker_id in self.brokers)

    def client(self) -> ClientProcess:
        """Add a client process on a machine of its own, and return it."""
        self.clients.append(client := ClientProcess(self, len(self.clients) + 1))
        return client

    def later(self, after_ms: float, call: Callable[[], object]) -> None:
        """Call `call` after that virtual time, outside of all processes of the cluster."""
        self._fate.deliver(self.timeline.now_ns + round(after_ms * NS_PER_MS), call)

    def in_zookeeper(self, call: Callable[[], object]) -> None:
        """Call `call` in the process of ZooKeeper, in its next turn."""
        self._there.call_soon(call)

    def vanish(self) -> None:
        """End all processes and free their resources."""
        self.timeline.end()

    def run(self, seconds: float) -> None:
        """Run the cluster for that virtual time."""
        self.timeline.run(self.timeline.now_ns + round(seconds * NS_PER_S))

    def run_until(self, condition: Callable[[], bool], within_s: float = 60) -> bool:
        """Run the cluster until the condition holds, or for that virtual time. Return whether the condition holds."""
        return self.timeline.run_while(lambda: not condition(), self.timeline.now_ns + round(within_s * NS_PER_S))

    def within(self, client: ClientProcess, work: Coroutine[Any, Any, T], within_s: float = 60) -> T:
        """Run the cluster until the client's work has ended, and return its result or raise its error.

        TimeoutError after the time limit; the work then goes on.
        """
        task: list[asyncio.Task[T]] = []
        client.process.call_soon(lambda: task.append(client.process.create_task(work)))
        if not self.run_until(lambda: bool(task) and task[0].done(), within_s):
            raise TimeoutError(f"the client's work was not done within {within_s} s")
        return task[0].result()


def _settings(broker_id: int, brokers: int, more: dict[str, Any], configs: Mapping[str, str]) -> BrokerSettings:
    address = address_of(broker_id)
    few = min(3, brokers)
    return BrokerSettings(
        broker_id=broker_id,
        zookeeper="zookeeper:2181",
        listeners=(f"KAFKA://{address}:{CLIENT_PORT}", f"REPLICATION://{address}:{BROKER_PORT}"),
        default_replication_factor=few,
        offsets_topic_replication_factor=few,
        topic_defaults=LogConfig.from_topic_configs({"min.insync.replicas": str(min(2, few)), **configs}),
        **{"log_dirs": ("/data",), **_QUIET, **more},
    )
