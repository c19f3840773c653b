"""A cluster under test whose brokers run in containers of this machine, as docker-compose.yml starts it.

The run does not own this cluster: it kills, pauses and restarts brokers, and expires sessions, but leaves network,
disks and ZooKeeper alone. An engine with a restart policy may restart a broker before the run does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tidelog.aio import Admin
from tidelog.client.admin.config_requests import ConfigResource
from tidelog.errors import LocalError
from tidelog.history.history_files import DIRECTORY as HISTORIES
from tidelog.local.processes.ports import LOOPBACK
from tidelog.local.processes.process import Process
from tidelog.local.processes.process_placement import DEFAULT_PLACEMENT, Placement
from tidelog.local.state import BrokerState
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.admin_messages import ConfigEntry
from verify.chaos.fault import Need, Prerequisite, View
from verify.chaos.targets.engine import Container, Engine, find_engine
from verify.chaos.targets.undo import UndoFile
from verify.chaos.targets.zookeeper import AsyncZooKeeperReader

_ASK_MS = 10_000
#: The time limit from a start until a broker is registered, and the interval of checks.
_START_S, _LOOK_EVERY_S = 60.0, 0.2
_HERE: Final = (LOOPBACK, "localhost", "::1")


class ContainerTarget:
    """The container cluster, an implementation of `verify.chaos.targets.process_target.Cluster`.

    Entering the context finds the brokers' containers by their published ports. Entering raises LocalError if a broker
    is not on this machine or no engine publishes its port, and TidelogError if no broker answers. Leaving the context
    leaves the containers as they are.
    """

    is_ours: Final = False
    broker_histories: Final = None

    def __init__(self, directory: Path, results: Path, bootstrap_servers: str, undo: UndoFile) -> None:
        self.directory = directory
        self.histories = results / HISTORIES
        self.bootstrap_servers = bootstrap_servers
        self.undo = undo
        self.tps: tuple[TopicPartition, ...] = ()
        self._client_processes: Callable[[], Sequence[Process]] = tuple
        self.zookeeper_hosts: str | None = None
        self.session_timeout_ms = self.replica_lag_time_max_ms = 0
        self._engine: Engine
        self._containers: dict[int, Container] = {}
        self._brokers: tuple[BrokerState, ...] = ()
        self._zookeeper_reader: AsyncZooKeeperReader | None = None

    async def __aenter__(self) -> Self:
        async with Admin(self.bootstrap_servers, client_id="chaos") as admin:
            endpoints = (await admin.describe_cluster(_ASK_MS)).brokers
            asked = [ConfigResource.broker(broker) for broker in endpoints]
            answers = await admin.describe_configs(asked, _ASK_MS)
        settings = {resource.broker_id: settings_of(entries) for resource, entries in answers.items()}
        if elsewhere := [endpoint for endpoint in endpoints.values() if endpoint.host not in _HERE]:
            raise LocalError(f"{elsewhere[0]} is not on this machine: chaos can only break clusters of this machine")
        try:
            self._engine, found = await asyncio.to_thread(
                find_engine, [endpoint.port for endpoint in endpoints.values()]
            )
        except LocalError as error:
            unknown = "is neither the cluster of your last tidelog up nor one in containers"
            raise LocalError(f"{self.bootstrap_servers} {unknown}: {error}") from None
        self._containers = {broker: found[endpoint.port] for broker, endpoint in endpoints.items()}
        self._brokers = tuple(
            _state(broker, endpoint, self._containers[broker], settings[broker])
            for broker, endpoint in endpoints.items()
        )
        first = settings[min(endpoints)]
        self.session_timeout_ms = int(first["zookeeper_session_timeout_ms"])
        self.replica_lag_time_max_ms = int(first["replica_lag_time_max_ms"])
        self.zookeeper_hosts = reachable(first["zookeeper"], await asyncio.to_thread(self._engine.containers))
        self._zookeeper_reader = AsyncZooKeeperReader(self.zookeeper_hosts)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._zookeeper_reader is not None:
            self._zookeeper_reader.close()

    async def stop(self) -> None:
        """Do nothing, because the cluster is not the run's own."""

    @property
    def brokers(self) -> tuple[BrokerState, ...]:
        """Return the brokers with their processes as of their last known start. Their ports for metrics are in the
        containers' network.
        """
        return tuple(_now(state, self._containers[state.broker_id]) for state in self._brokers)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(sorted(self._containers))

    def lacks(self, need: Need) -> str | None:
        """Return why the target lacks `need`, or None if the target provides it."""
        match need:
            case Need.NETWORK | Need.DISKS | Need.SHIM | Need.OWN:
                return "the cluster was not started by this run"
            case Need.FILES:
                return "the brokers' files are in containers"
            case Need.ZOOKEEPER:
                return "ZooKeeper is not the cluster's own"
            case Need.PROCESSES | Need.RESTARTS if any(c.process is None for c in self._containers.values()):
                return "the processes of the containers are not visible on this machine"
            case _:
                return None

    def prerequisite(self, need: Need) -> Prerequisite:
        """Raise LocalError, because there are no prerequisites."""
        raise LocalError(f"{need.value}: not available, because this run did not start the cluster")

    def place(self, name: str) -> Placement:
        """Return the default placement, because containers are not moved."""
        return DEFAULT_PLACEMENT

    async def view(self) -> View:
        """Return the current view. Raise LocalError before the context is entered, or if ZooKeeper does not answer in
        time.
        """
        if self._zookeeper_reader is None:
            raise LocalError("the run is over")
        return await self._zookeeper_reader.view(self.tps)

    def broker_dir(self, broker_id: int) -> Path:
        """Raise LocalError, because the files are in a container."""
        raise LocalError(f"the files of broker {broker_id} are in a container")

    broker_log = broker_dir

    def broker_process(self, broker_id: int) -> Process:
        """Return the process of the last known start. Raise LocalError if this process has ended or is not visible
        here.
        """
        if (process := self._containers[broker_id].process) is None:
            raise LocalError(f"broker {broker_id} is not running")
        return process

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker's container unless it runs, and wait in both cases until the broker is registered.

        Raise LocalError if that takes longer than 60 s, if the engine fails or ZooKeeper does not answer, or if the
        started process has ended or is not visible here.
        """
        await self.launch_broker(broker_id)
        deadline = asyncio.get_running_loop().time() + _START_S
        while broker_id not in ((await self.view()).broker_epochs or {}):
            if asyncio.get_running_loop().time() >= deadline:
                raise LocalError(f"broker {broker_id} was not registered within {_START_S:g} s")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def launch_broker(self, broker_id: int) -> Process:
        """Start a broker's container unless it runs, without waiting for the broker's registration, and return its
        process.

        Raise LocalError if the engine fails, or if the process has ended or is not visible here.
        """
        known = self._containers[broker_id]
        await asyncio.to_thread(self._engine.start, known.id)
        self._containers[broker_id] = await asyncio.to_thread(self._engine.container, known.id)
        return self.broker_process(broker_id)

    def zookeeper_process(self) -> Process:
        """Raise LocalError, because ZooKeeper is not the cluster's own."""
        raise LocalError("the cluster has no ZooKeeper of its own")

    async def start_zookeeper(self) -> None:
        """Do nothing, because ZooKeeper is running."""

    def use_clients(self, processes: Callable[[], Sequence[Process]]) -> None:
        self._client_processes = processes

    def client_processes(self) -> Sequence[Process]:
        """Return the client processes that a fault may kill, or none before `use_clients`. The run replaces each killed
        process by a new one.
        """
        return self._client_processes()


def settings_of(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """Return a broker's settings by their names in a settings file: Kafka's names with `_` in place of `.`. A setting
    without a value is empty.
    """
    return {name.replace(".", "_"): entry.value or "" for name, entry in entries.items()}


def reachable(hosts: str, containers: Sequence[Container]) -> str:
    """Return `hosts` with each name of the containers' network replaced by an address that this machine can reach.

    Example: `zk-1:2181/x` → `10.89.0.2:2181/x`. Ports, the chroot and other names stay.
    """
    servers, slash, chroot = hosts.partition("/")
    addresses = {name: container.address for container in containers for name in container.names}
    found = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        found.append(f"{addresses.get(host) or host}:{port}")
    return ",".join(found) + slash + chroot


def _state(broker_id: int, endpoint: Endpoint, container: Container, settings: Mapping[str, str]) -> BrokerState:
    watched = settings.get("http_listener", "").rpartition(":")[2]
    host, http_port = container.address or endpoint.host, int(watched) if watched else 0
    return _now(BrokerState(endpoint.port, host=host, broker_id=broker_id, http_port=http_port), container)


def _now(state: BrokerState, container: Container) -> BrokerState:
    process = container.process
    return replace(state, pid=container.pid, birth="" if process is None else process.birth)
