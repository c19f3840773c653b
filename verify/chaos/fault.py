"""The interfaces between a fault and the run that injects it.

A run derives a schedule of rows from its seed. For each step the run creates a new `Fault` and waits until the load is
high enough. Then the run calls `inject`, waits for the duration of the fault, calls `heal`, and waits until all
replicas are in sync. Finally `bit` states whether the cluster noticed the fault. A fault without an effect has proved
nothing. The run injects such a fault again, at most twice, and reports the fault as void if the last attempt had no
effect either. A result of `broken` is a violation (I19) in each attempt.

A fault writes each change to the machine into `target.undo` before it makes the change. After a Ctrl-C, or after a
SIGKILL of the tool, the same run or the next run undoes these entries.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from tidelog.history.broker_events import BrokerEvent
from tidelog.local.processes.process import Process
from tidelog.local.processes.process_placement import Placement as Placement
from tidelog.model import TopicPartition


class Need(Enum):
    """A precondition of a fault. The value is the need's name in reports.

    The run asks its target for each need (`Target.lacks`). If the target lacks one, the run skips the fault and reports
    the target's answer as the reason.
    """

    #: The run can send signals to the brokers' processes on this machine.
    PROCESSES = "the brokers' processes"
    #: The run can start each broker again after its process has ended.
    RESTARTS = "starting brokers"
    #: The run can read the brokers' data directories, settings and logs.
    FILES = "the brokers' files"
    #: The run may damage the files of brokers and of ZooKeeper, because no other user loses data if the run is killed
    #: before it restores them.
    OWN = "a cluster of the run's own"
    #: The run may stop, pause and restart ZooKeeper.
    ZOOKEEPER = "a ZooKeeper of the cluster's own"
    #: The run can connect to ZooKeeper, for example to end a session.
    ZOOKEEPER_ACCESS = "a connection to ZooKeeper"
    #: Each broker and ZooKeeper has its own network namespace, and clients connect from outside of it.
    NETWORK = "network namespaces"
    #: Each broker's data directory is a small file system of its own, on a loop file.
    DISKS = "disks of the brokers' own"
    #: The brokers run with a library that makes their system calls fail on demand.
    SHIM = "system calls that fail on demand"
    ROOT = "root"


@dataclass(frozen=True, slots=True)
class Availability:
    """The unavailability that a fault may cause for clients.

    most_gap_ms      the longest time for which a partition with waiting produce requests may acknowledge none, from the
                     injection until all replicas are in sync; None: unlimited
    leaves_majority  enough replicas stay for acks=all: at least 100 acknowledgements and reads must succeed from the
                     injection to the healing, or to one second after `most_gap_ms`, whichever is later; operations
                     after the healing count only until the next fault. False: there is no such minimum
    """

    most_gap_ms: int | None
    leaves_majority: bool = True


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The state of a partition in ZooKeeper. A leader of −1 means that the partition has no leader.

    `partition_epoch` is the version of the partition's state znode.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class View:
    """The state of the cluster in ZooKeeper at one time (`t`: monotonic nanoseconds, before the query).

    partitions        the partitions under load that have a state in ZooKeeper
    controller        the broker id; −1: no controller
    controller_epoch  −1: no controller was ever elected
    broker_epochs     the czxid of each registered broker's registration; None if the run cannot connect to ZooKeeper
    """

    t: int
    partitions: Mapping[TopicPartition, PartitionView]
    controller: int = -1
    controller_epoch: int = -1
    broker_epochs: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The observations from shortly before a fault until all replicas were in sync. Times are monotonic nanoseconds.

    injected        when the injection began
    healed          when the healing ended
    whole           when all replicas were in sync, or when the run stopped waiting for that
    views           in order of time, each different from the one before; the first is from before the injection
    events          the events in the brokers' histories by broker id, without append, hw, ack and processed
    acknowledged    the number of records acknowledged from `injected` to `healed`
    errors          the number of client errors by name, until `whole`; each failed record counts
    slowest_ms      the longest latency of a produce request that was acknowledged until `whole`; 0: none was
    longest_gap_ms  the longest time without an acknowledged produce request on one partition, until `whole`
    """

    injected: int
    healed: int
    whole: int
    views: Sequence[View]
    events: Mapping[int, Sequence[BrokerEvent]] = field(default_factory=dict)
    acknowledged: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    slowest_ms: float = 0.0
    longest_gap_ms: float = 0.0

    @property
    def before(self) -> View:
        return self.views[0]

    @property
    def after(self) -> View:
        return self.views[-1]


class UndoLog(Protocol):
    """The changes to undo, written to disk before each change is made. The last entry is undone first."""

    def to_run(self, *command: str) -> Callable[[], None]:
        """Record a command that undoes a change. The command must be harmless if the change was not made.

        Call the returned function once the change has been undone by other means. The command is then not run.
        """
        ...

    def to_continue(self, process: Process) -> Callable[[], None]:
        """Record that a process is about to be stopped, so that SIGCONT continues it if it is still the same process.

        Call the returned function once the process has been continued.
        """
        ...

    def to_remove(self, path: Path) -> Callable[[], None]:
        """Record a file that is about to be created, so that it is removed. A missing file is no error.

        Call the returned function once the file has been removed.
        """
        ...


class Prerequisite(Protocol):
    """A part of the environment that the run sets up before its own cluster starts, so that some faults are
    possible.
    """

    need: Need

    def missing(self) -> str | None:
        """Return why this machine cannot provide the prerequisite (for example "needs root"), or None if it can.

        The call may run commands, and blocks.
        """
        ...

    async def set_up(self, undo: UndoLog, directory: Path, places: Mapping[str, Placement]) -> Mapping[str, Placement]:
        """Set up the prerequisite, and return all placements, each changed as needed. The keys are "zookeeper" and
        broker ids such as "1".

        The run calls this before it starts any process. Each change is recorded in `undo` first. Files go below
        `directory`.
        """
        ...

    async def tear_down(self) -> None:
        """Remove the prerequisite. The run calls this after all processes have stopped, and after a failed `set_up`."""
        ...


class Target(Protocol):
    """The cluster under test, as a fault sees it. Calls that may take long are awaited and have a time limit."""

    #: The directory for files of the run.
    directory: Path

    @property
    def undo(self) -> UndoLog: ...

    @property
    def histories(self) -> Path:
        """Return the directory for the history of a fault that acts as a client itself."""
        ...

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def zookeeper_hosts(self) -> str | None:
        """Return the address of ZooKeeper, or None if the run cannot connect to it."""
        ...

    @property
    def broker_ids(self) -> tuple[int, ...]: ...

    @property
    def tps(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that clients use, or none before their topics exist.

        Each has as many replicas as there are brokers, but at most three.
        """
        ...

    @property
    def session_timeout_ms(self) -> int: ...

    @property
    def replica_lag_time_max_ms(self) -> int: ...

    def lacks(self, need: Need) -> str | None:
        """Return why the target lacks `need`, or None if the target provides it."""
        ...

    def prerequisite(self, need: Need) -> Prerequisite:
        """Return the prerequisite that was set up for a need. The fault knows the class of the prerequisite.

        The need must be `NETWORK`, `DISKS` or `SHIM`, and `lacks` must return None for it.
        """
        ...

    def place(self, name: str) -> Placement:
        """Return the placement of "zookeeper" or of a broker such as "1"."""
        ...

    async def view(self) -> View:
        """Query ZooKeeper and return the current view. Raise TidelogError if ZooKeeper does not answer in time."""
        ...

    def broker_dir(self, broker_id: int) -> Path: ...

    def broker_log(self, broker_id: int) -> Path:
        """Return the path of the broker's log file."""
        ...

    def broker_process(self, broker_id: int) -> Process:
        """Return the process of the broker's last start, so that the fault can send signals. The process may have
        ended.

        Raise LocalError if no process of the broker is known.
        """
        ...

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker unless its process runs, and wait until the broker that was started is registered.

        Raise LocalError if the broker ends or is not registered in time.
        """
        ...

    async def launch_broker(self, broker_id: int) -> Process:
        """Start a broker without waiting for its registration, and return its process. The broker must
        not be running.
        """
        ...

    def zookeeper_process(self) -> Process: ...

    async def start_zookeeper(self) -> None:
        """Start ZooKeeper unless it runs, and wait until it serves requests. Raise LocalError if that
        takes too long.
        """
        ...

    def client_processes(self) -> Sequence[Process]:
        """Return the client processes that a fault may kill. The run replaces each killed process by a new one."""
        ...


class Fault(Protocol):
    """One injection of one row. The run creates a new object for each injection."""

    #: The row of the catalogue, for example "F1".
    row: str
    #: A short description, for example "leader killed".
    name: str
    needs: frozenset[Need]

    @property
    def availability(self) -> Availability: ...

    @property
    def lasts_ms(self) -> tuple[int, int]:
        """Return the least and the greatest duration in milliseconds, from the end of `inject` to the call of `heal`.

        The schedule chooses the duration from this range.
        """
        ...

    async def inject(self, target: Target, rng: random.Random) -> str:
        """Inject the fault with victims chosen by `rng`. Return a description, for example "SIGKILL to broker 2, leader
        of t/0".

        The run may cancel the call. A TidelogError, OSError or SubprocessError makes the step void.
        """
        ...

    async def heal(self) -> None:
        """Undo the fault and make all brokers run again. An error makes the step void and ends the run's steps.

        The run may call this at any time and more than once, also after `inject` has failed or was cancelled.
        """
        ...

    def bit(self, evidence: Evidence) -> str | None:
        """Return how the cluster noticed the fault (for example "leader epoch 3 → 4 of t/0"), or None if it did not.

        The run calls this after the healing, and again with shorter evidence to find the first time of the effect.
        """
        ...

    def broken(self, evidence: Evidence) -> str | None:
        """Return which bound of the row was exceeded (for example "broker 2 took 12.3 s to stop"), or None.

        The run calls this after the healing. The bounds of availability are checked elsewhere.
        """
        ...


#: The factories of the faults of each row, such as "F1". `verify.chaos.faults.catalogue` returns all of them. The
#: factories of a row with several kinds take turns.
Catalogue = Mapping[str, Sequence[Callable[[], Fault]]]
