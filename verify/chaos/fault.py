"""The interfaces between a fault and the run that injects it.

A run derives a schedule of rows from its seed. For each step the run creates a new `Fault` and waits until the load is
high enough. Then the run calls `inject`, waits for the duration of the fault, calls `heal`, and waits until all
replicas are in sync. Finally `bit` states whether the cluster noticed the fault. A fault without an effect has proved
nothing, and is reported as void. A result of `broken` is a violation (I19).

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
    """A precondition of a fault. The value is its name in reports.

    The run asks its target for each need (`Target.lacks`). If the target lacks one, the run skips the fault and reports
    the answer as the reason.
    """

    #: The run can send signals to the brokers' processes on this machine.
    PROCESSES = "the brokers' processes"
    #: The target can restart its brokers with other settings or another environment.
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

    most_gap_ms      the longest time without an acknowledged produce request on a partition, from the injection to the
                     time when all replicas are in sync; None: the partition may be unavailable as long as the fault
                     lasts
    leaves_majority  enough replicas stay for acks=all: at least 100 operations must succeed during the fault, or until
                     one second after the permitted pause, whichever is later
    """

    most_gap_ms: int | None
    leaves_majority: bool = True


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The state of a partition in ZooKeeper. A leader of −1 means that the partition has no leader."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class View:
    """The observable state of the cluster at one time (`t`: monotonic nanoseconds).

    broker_epochs   the registered brokers; None if the run cannot connect to ZooKeeper
    """

    t: int
    partitions: Mapping[TopicPartition, PartitionView]
    controller: int = -1
    controller_epoch: int = -1
    broker_epochs: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The observations from shortly before a fault until all replicas were in sync. Times are monotonic nanoseconds.

    views           in order of time, each different from the one before; the first is from before the injection
    events          the events in the brokers' histories by broker id, without append, hw and ack
    acknowledged    the number of records acknowledged from `injected` to `healed`
    errors          the number of client errors by name
    slowest_ms      the longest latency of an acknowledged produce request
    longest_gap_ms  the longest time without an acknowledged produce request on one partition
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

        Call the returned function once the change has been undone by other means.
        """
        ...

    def to_continue(self, process: Process) -> Callable[[], None]:
        """Record that a process is about to be stopped, so that SIGCONT continues it if it is still the same
        process.
        """
        ...

    def to_remove(self, path: Path) -> Callable[[], None]:
        """Record a file that is about to be created."""
        ...


class Prerequisite(Protocol):
    """A part of the environment that the run sets up before its own cluster starts, so that some faults are
    possible.
    """

    need: Need

    def missing(self) -> str | None:
        """Return why this machine cannot provide the prerequisite (for example "needs root"), or None if it can."""
        ...

    async def set_up(self, undo: UndoLog, directory: Path, places: Mapping[str, Placement]) -> Mapping[str, Placement]:
        """Return the placements, each changed as needed. The keys are "zookeeper" and broker ids such as "1".

        The run calls this before it starts any process.
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
        """Return the partitions that clients use. Each has as many replicas as there are brokers, but at most three."""
        ...

    @property
    def session_timeout_ms(self) -> int: ...

    @property
    def replica_lag_time_max_ms(self) -> int: ...

    def lacks(self, need: Need) -> str | None:
        """Return why the target lacks `need`, or None if the target provides it."""
        ...

    def prerequisite(self, need: Need) -> Prerequisite:
        """Return the prerequisite that was set up for a need. The fault knows the class of the prerequisite."""
        ...

    def place(self, name: str) -> Placement:
        """Return the placement of "zookeeper" or of a broker such as "1"."""
        ...

    async def view(self) -> View:
        """Return the current view of the cluster. Raise TidelogError if no broker answers in time."""
        ...

    def broker_dir(self, broker_id: int) -> Path: ...

    def broker_log(self, broker_id: int) -> Path:
        """Return the path of the broker's log file."""
        ...

    def broker_process(self, broker_id: int) -> Process:
        """Return the process of the broker's last start, which may have ended, so that the fault can send signals."""
        ...

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker unless it runs, and wait until it is registered."""
        ...

    async def launch_broker(self, broker_id: int) -> Process:
        """Start a broker that is not running, without waiting for its registration."""
        ...

    def zookeeper_process(self) -> Process: ...

    async def start_zookeeper(self) -> None:
        """Start ZooKeeper unless it runs, and wait until it serves requests."""
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
        """Return the least and the greatest duration, from which the schedule chooses."""
        ...

    async def inject(self, target: Target, rng: random.Random) -> str:
        """Inject the fault with victims chosen by `rng`.

        Return a description, for example "SIGKILL to broker 2, leader of t/0".
        """
        ...

    async def heal(self) -> None:
        """Undo the fault and make all brokers run again.

        The run may call this at any time and more than once, also after `inject` has failed or was cancelled.
        """
        ...

    def bit(self, evidence: Evidence) -> str | None:
        """Return how the cluster noticed the fault (for example "leader epoch 3 → 4 of t/0"), or None if it did not."""
        ...

    def broken(self, evidence: Evidence) -> str | None:
        """Return which bound of the row was exceeded (for example "broker 2 took 12.3 s to stop"), or None.

        The bounds of availability are checked elsewhere.
        """
        ...


#: The factories of the faults of each row, such as "F1". `verify.chaos.faults.catalogue` returns all of them. The
#: factories of a row with several kinds take turns.
Catalogue = Mapping[str, Sequence[Callable[[], Fault]]]
