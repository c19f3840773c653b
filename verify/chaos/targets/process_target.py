"""The cluster under test as processes: one that the run starts, or one that already runs on this machine.

A cluster of the run's own is in the run's directory. Such a cluster has the prerequisites that the requested rows need
and this machine can provide, and its brokers record histories.

A cluster that already runs records histories if `tidelog up --histories` started it. Faults hit only the processes and
ZooKeeper sessions of such a cluster. Its files stay unharmed, because a SIGKILL of the run would prevent their repair.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tidelog.errors import LocalError
from tidelog.history.history_files import DIRECTORY as HISTORIES
from tidelog.local.cluster import LocalCluster
from tidelog.local.processes.process import Process
from tidelog.local.processes.process_placement import DEFAULT_PLACEMENT, ZOOKEEPER, Placement
from tidelog.local.state import BrokerState, ClusterState
from tidelog.model import TopicPartition
from verify.chaos.fault import Need, Prerequisite, Target, View
from verify.chaos.targets.undo import UndoFile
from verify.chaos.targets.zookeeper import AsyncZooKeeperReader

CLUSTER = "cluster"
#: Settings with short timeouts, so that a run observes many consequences of a fault. The names are Tidelog's, in
#: milliseconds.
SETTINGS: Mapping[str, str | int] = {
    "zookeeper_session_timeout_ms": 4_000,
    "replica_lag_time_max_ms": 4_000,
    "offsets_topic_num_partitions": 6,
    "group_initial_rebalance_delay_ms": 500,
    # A client that still asks for a topic that the run has deleted must not bring the topic back.
    "auto_create_topics_enable": False,
}
#: The broker's defaults, used if the settings file has no value.
_SESSION_TIMEOUT_MS, _REPLICA_LAG_MS = 6_000, 30_000


class Cluster(Target, Protocol):
    """A target as a run uses it: found or started by `async with`, under the run's load. The run sets `tps`."""

    tps: tuple[TopicPartition, ...]

    def use_clients(self, processes: Callable[[], Sequence[Process]]) -> None:
        """Set the function that `client_processes` calls for the current client processes. Before, `client_processes`
        returns none. The run calls this once its clients have started.
        """
        ...

    @property
    def is_ours(self) -> bool: ...

    @property
    def broker_histories(self) -> Path | None:
        """Return the directory of the brokers' histories, or None if they record none."""
        ...

    @property
    def brokers(self) -> tuple[BrokerState, ...]:
        """Return the brokers with the pids of their last known starts."""
        ...

    async def stop(self) -> None:
        """Shut down a cluster of the run's own, whose files stay until the end of the run. Do nothing to another
        cluster.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LocalTarget:
    """A cluster of processes on this machine; an implementation of `Cluster`.

    `async with` sets up the prerequisites and starts a cluster of the run's own. Leaving stops that cluster and removes
    the prerequisites. A cluster that ran before is only found, and continues.
    """

    def __init__(
        self,
        directory: Path,
        results: Path,
        undo: UndoFile,
        cluster: LocalCluster,
        *,
        brokers: int | None = None,
        prerequisites: Sequence[Prerequisite] = (),
    ) -> None:
        """Create the target; entering starts it. `brokers` is the number of brokers to start, or None for a cluster
        that already runs.
        """
        self.directory = directory
        self.histories = results / HISTORIES
        self.undo = undo
        self.tps: tuple[TopicPartition, ...] = ()
        self._client_processes: Callable[[], Sequence[Process]] = tuple
        self._cluster = cluster
        self._brokers = brokers
        self._prerequisites = {each.need: each for each in prerequisites}
        self._unavailable_needs = dict[Need, str]()
        self._ends = AsyncExitStack()
        self._zookeeper_reader: AsyncZooKeeperReader | None = None
        # A single thread, because a LocalCluster is not thread-safe.
        self._starting = ThreadPoolExecutor(1, "chaos-starting")

    # --- from start to end -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            if self._brokers is not None:
                await self._set_up_prerequisites(self._brokers)
                self._ends.push_async_callback(self.stop)
                await self._run(lambda: self._cluster.start(self._brokers, settings=SETTINGS))
            self._zookeeper_reader = AsyncZooKeeperReader(self._state.zookeeper)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        if self._zookeeper_reader is not None:
            reader, self._zookeeper_reader = self._zookeeper_reader, None
            reader.close()
        await self._ends.aclose()
        self._starting.shutdown(wait=False)

    async def _set_up_prerequisites(self, brokers: int) -> None:
        """Set up the prerequisites in order. Remember why one cannot be provided, because `lacks`
        returns this reason.
        """
        places: Mapping[str, Placement] = {
            name: DEFAULT_PLACEMENT for name in (ZOOKEEPER, *map(str, range(1, brokers + 1)))
        }
        for need, prerequisite in list(self._prerequisites.items()):
            if (missing := await asyncio.to_thread(prerequisite.missing)) is not None:
                self._unavailable_needs[need] = missing
                del self._prerequisites[need]
                continue
            self._ends.push_async_callback(prerequisite.tear_down)
            places = await prerequisite.set_up(self.undo, self.directory, places)
        self._cluster.places.update(places)

    async def stop(self) -> None:
        """Shut down a cluster of the run's own, whose files stay until the end of the run. Do nothing to another
        cluster.
        """
        if self.is_ours:
            await self._run(self._cluster.stop)

    async def _run(self, work: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._starting, work)

    # --- the interface for faults -----------------------------------------------------------------------------------

    @property
    def is_ours(self) -> bool:
        return self._brokers is not None

    @property
    def _state(self) -> ClusterState:
        return self._cluster.known_state()

    @property
    def broker_histories(self) -> Path | None:
        """Return the directory of the brokers' histories, or None if they record none."""
        return self._cluster.histories

    @property
    def bootstrap_servers(self) -> str:
        return self._state.bootstrap_servers

    @property
    def zookeeper_hosts(self) -> str | None:
        return self._state.zookeeper

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(broker.broker_id for broker in self._state.brokers)

    @property
    def brokers(self) -> tuple[BrokerState, ...]:
        """Return the brokers with the pids of their last known starts."""
        return self._state.brokers

    @property
    def session_timeout_ms(self) -> int:
        return int(self._state.settings.get("zookeeper_session_timeout_ms", _SESSION_TIMEOUT_MS))

    @property
    def replica_lag_time_max_ms(self) -> int:
        return int(self._state.settings.get("replica_lag_time_max_ms", _REPLICA_LAG_MS))

    def lacks(self, need: Need) -> str | None:
        """Return why the target lacks `need`, or None if the target provides it."""
        if need in (Need.NETWORK, Need.DISKS, Need.SHIM, Need.OWN) and not self.is_ours:
            return "the cluster was not started by this run"
        if need in (Need.NETWORK, Need.DISKS, Need.SHIM):
            return (
                None
                if need in self._prerequisites
                else self._unavailable_needs.get(need, "nothing on this machine provides it")
            )
        if need is Need.ROOT:
            return None if os.geteuid() == 0 else "needs root"
        if need is Need.ZOOKEEPER and self._state.embedded is None:
            return "ZooKeeper is not the cluster's own"
        return None

    def prerequisite(self, need: Need) -> Prerequisite:
        """Return the prerequisite that was set up for a need. Raise KeyError if none was."""
        return self._prerequisites[need]

    def place(self, name: str) -> Placement:
        """Return the placement of "zookeeper" or of a broker such as "1"; the default one if no prerequisite changed
        it.
        """
        return self._cluster.places.get(name, DEFAULT_PLACEMENT)

    async def view(self) -> View:
        """Return the current view. Raise LocalError outside of the context, or if ZooKeeper does not answer in time."""
        if self._zookeeper_reader is None:
            raise LocalError("the run is over")
        return await self._zookeeper_reader.view(self.tps)

    def broker_dir(self, broker_id: int) -> Path:
        return self._cluster.broker_dir(broker_id)

    def broker_log(self, broker_id: int) -> Path:
        """Return the path of the broker's log file."""
        return self._cluster.log_file(broker_id)

    def broker_process(self, broker_id: int) -> Process:
        """Return the process of the broker's last start, which may have ended. Raise LocalError if the broker was
        stopped by another command.
        """
        process = self._cluster.broker_process(broker_id)
        if process is None:
            raise LocalError(f"broker {broker_id} was stopped outside of this run")
        return process

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker and wait until it is registered. Do nothing if its process runs, even if it is not registered
        yet.

        Raise LocalError if the broker ends or is not registered in time; its process is then stopped.
        """
        if not self.broker_process(broker_id).running:
            await self._run(lambda: self._cluster.start_broker(broker_id))

    async def launch_broker(self, broker_id: int) -> Process:
        """Start a broker without waiting for its registration, and return its process. The broker must
        not be running.
        """
        await self._run(lambda: self._cluster.launch_broker(broker_id))
        return self.broker_process(broker_id)

    def zookeeper_process(self) -> Process:
        """Return the process of the cluster's own ZooKeeper, which may have ended. Raise LocalError if the cluster has
        none.
        """
        embedded = self._state.embedded
        if embedded is None or embedded.process is None:
            raise LocalError("the cluster has no ZooKeeper of its own")
        return embedded.process

    async def start_zookeeper(self) -> None:
        """Start the cluster's own ZooKeeper unless it runs, and wait until it serves requests. Raise LocalError if that
        takes too long.
        """
        await self._run(self._cluster.start_zookeeper)

    def use_clients(self, processes: Callable[[], Sequence[Process]]) -> None:
        self._client_processes = processes

    def client_processes(self) -> Sequence[Process]:
        """Return the client processes that a fault may kill, or none before `use_clients`. The run replaces each killed
        process by a new one.
        """
        return self._client_processes()


def own_cluster(
    directory: Path, results: Path, brokers: int, undo: UndoFile, prerequisites: Sequence[Prerequisite]
) -> LocalTarget:
    """Return a new cluster in the run's directory, whose brokers record histories in the results.
    Entering starts it.
    """
    cluster = LocalCluster(directory / CLUSTER, home=directory / "home", histories=results / HISTORIES)
    return LocalTarget(directory, results, undo, cluster, brokers=brokers, prerequisites=prerequisites)


def running_cluster(directory: Path, results: Path, data_dir: Path, undo: UndoFile) -> LocalTarget:
    """Return a running cluster that `tidelog up` started in `data_dir`. Raise LocalError if there is none or a broker
    is not running.
    """
    cluster = LocalCluster(data_dir)
    if not all(broker.running for broker in cluster.known_state().brokers):
        raise LocalError(f"at least one broker of the cluster in {data_dir} is not running: start it with tidelog up")
    return LocalTarget(directory, results, undo, cluster)
