"""A cluster whose brokers run in containers of this machine, as docker-compose.yml makes it.

Nothing of it is ours: brokers are killed, paused and started again, and sessions ended; its network, its disks and its
ZooKeeper stay as they are. Where the engine restarts what ended by itself, it may be quicker than we are.
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
from tidelog.local.processes.process_placement import HERE, Place
from tidelog.local.state import BrokerState
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.admin_messages import ConfigEntry
from verify.chaos.fault import Furnishing, Need, View
from verify.chaos.targets.engine import Container, Engine, find_engine
from verify.chaos.targets.undo import UndoFile
from verify.chaos.targets.zookeeper import ZooKeeperSight

_ASK_MS = 10_000
#: From `start` until a broker is registered, and between two looks for it.
_START_S, _LOOK_EVERY_S = 60.0, 0.2
_HERE: Final = (LOOPBACK, "localhost", "::1")


class ContainerTarget:
    """Implements `verify.chaos.targets.process_target.Cluster`. `async with` finds the containers; they stay as they
    are.
    """

    is_ours: Final = False
    broker_histories: Final = None

    def __init__(self, directory: Path, results: Path, bootstrap_servers: str, undo: UndoFile) -> None:
        self.directory = directory
        self.histories = results / HISTORIES
        self.bootstrap_servers = bootstrap_servers
        self.undo = undo
        self.tps: tuple[TopicPartition, ...] = ()
        self.clients: Callable[[], Sequence[Process]] = tuple
        self.zookeeper_hosts: str | None = None
        self.session_timeout_ms = self.replica_lag_time_max_ms = 0
        self._engine: Engine
        self._containers: dict[int, Container] = {}
        self._brokers: tuple[BrokerState, ...] = ()
        self._sight: ZooKeeperSight | None = None

    async def __aenter__(self) -> Self:
        async with Admin(self.bootstrap_servers, client_id="chaos") as admin:
            doors = (await admin.describe_cluster(_ASK_MS)).brokers
            asked = [ConfigResource.broker(broker) for broker in doors]
            answers = await admin.describe_configs(asked, _ASK_MS)
        settings = {resource.broker_id: settings_of(entries) for resource, entries in answers.items()}
        if elsewhere := [door for door in doors.values() if door.host not in _HERE]:
            raise LocalError(f"{elsewhere[0]} is not on this machine: only clusters of this machine can be broken")
        try:
            self._engine, found = await asyncio.to_thread(find_engine, [door.port for door in doors.values()])
        except LocalError as error:
            not_here = "is neither the cluster of your last tidelog up nor one in containers"
            raise LocalError(f"{self.bootstrap_servers} {not_here}: {error}") from None
        self._containers = {broker: found[door.port] for broker, door in doors.items()}
        self._brokers = tuple(
            _state(broker, door, self._containers[broker], settings[broker]) for broker, door in doors.items()
        )
        first = settings[min(doors)]
        self.session_timeout_ms = int(first["zookeeper_session_timeout_ms"])
        self.replica_lag_time_max_ms = int(first["replica_lag_time_max_ms"])
        self.zookeeper_hosts = reachable(first["zookeeper"], await asyncio.to_thread(self._engine.containers))
        self._sight = ZooKeeperSight(self.zookeeper_hosts)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sight is not None:
            self._sight.close()

    async def stop(self) -> None:
        """It is not ours."""

    @property
    def brokers(self) -> tuple[BrokerState, ...]:
        """As they were started last; their ports for those who watch them are in the containers' network."""
        return tuple(_now(state, self._containers[state.broker_id]) for state in self._brokers)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(sorted(self._containers))

    def lacks(self, need: Need) -> str | None:
        """Why a need cannot be met here; None: it can."""
        match need:
            case Need.NETWORK | Need.DISKS | Need.SHIM | Need.OWN:
                return "the cluster was not started by this run"
            case Need.FILES:
                return "the brokers' files lie in containers"
            case Need.ZOOKEEPER:
                return "ZooKeeper is not the cluster's own"
            case Need.PROCESSES | Need.RESTARTS if any(c.process is None for c in self._containers.values()):
                return "processes of containers are not seen from here"
            case _:
                return None

    def furnishing(self, need: Need) -> Furnishing:
        """There is none."""
        raise LocalError(f"not in a cluster that was not started by this run: {need.value}")

    def place(self, name: str) -> Place:
        """Its container is where it always is."""
        return HERE

    async def view(self) -> View:
        """The cluster now; LocalError where ZooKeeper does not answer in time."""
        if self._sight is None:
            raise LocalError("the run is over")
        return await self._sight.view(self.tps)

    def broker_dir(self, broker_id: int) -> Path:
        """LocalError: in its container."""
        raise LocalError(f"the files of broker {broker_id} lie in a container")

    broker_log = broker_dir

    def broker_process(self, broker_id: int) -> Process:
        """Of the last start that we know of: it may have ended."""
        if (process := self._containers[broker_id].process) is None:
            raise LocalError(f"broker {broker_id} does not run")
        return process

    async def start_broker(self, broker_id: int) -> None:
        """Starts a broker that does not run, and waits until it is registered. Nothing where it runs."""
        await self.launch_broker(broker_id)
        deadline = asyncio.get_running_loop().time() + _START_S
        while broker_id not in ((await self.view()).broker_epochs or {}):
            if asyncio.get_running_loop().time() >= deadline:
                raise LocalError(f"broker {broker_id} was not registered within {_START_S:g} s")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def launch_broker(self, broker_id: int) -> Process:
        """Starts a broker that does not run, without waiting for anything."""
        known = self._containers[broker_id]
        await asyncio.to_thread(self._engine.start, known.id)
        self._containers[broker_id] = await asyncio.to_thread(self._engine.container, known.id)
        return self.broker_process(broker_id)

    def zookeeper_process(self) -> Process:
        """LocalError: it is not the cluster's own."""
        raise LocalError("the cluster has no ZooKeeper of its own")

    async def start_zookeeper(self) -> None:
        """It runs."""

    def client_processes(self) -> Sequence[Process]:
        """The clients that may be killed; each is replaced by a new one."""
        return self.clients()


def settings_of(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """A broker's settings by the names that its file has, which are told by Kafka's."""
    return {name.replace(".", "_"): entry.value or "" for name, entry in entries.items()}


def reachable(hosts: str, containers: Sequence[Container]) -> str:
    """ZooKeeper's hosts as containers know them, as this machine does: `zk-1:2181/x` → `10.89.0.2:2181/x`."""
    servers, slash, chroot = hosts.partition("/")
    addresses = {name: container.address for container in containers for name in container.names}
    found = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        found.append(f"{addresses.get(host) or host}:{port}")
    return ",".join(found) + slash + chroot


def _state(broker_id: int, door: Endpoint, container: Container, settings: Mapping[str, str]) -> BrokerState:
    watched = settings.get("http_listener", "").rpartition(":")[2]
    host, http_port = container.address or door.host, int(watched) if watched else 0
    return _now(BrokerState(door.port, host=host, broker_id=broker_id, http_port=http_port), container)


def _now(state: BrokerState, container: Container) -> BrokerState:
    process = container.process
    return replace(state, pid=container.pid, birth="" if process is None else process.birth)
