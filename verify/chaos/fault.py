"""What a fault is, to the run that injects it and to whoever writes one.

A run draws a schedule of rows from its seed. For each entry it makes a fresh `Fault`, waits until the load is high
enough to be hurt, calls `inject`, lets it last, calls `heal`, waits until the partitions are whole again, and then
asks `bit` whether anybody noticed: a fault that nobody noticed has proved nothing and is reported as void. What
`broken` then names is a violation (I19).

What a fault changes on the machine it first writes into `target.undo`: after a Ctrl-C, and after a SIGKILL of the tool
itself, that is what the same or the next run puts back.
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
from tidelog.local.processes.process_placement import Place as Place
from tidelog.model import TopicPartition


class Need(Enum):
    """What a fault cannot do without; the value is how a report names it.

    The run asks its target for each (`Target.lacks`), and skips a fault with the target's answer as the reason.
    """

    #: Signals to the brokers' processes on this machine.
    PROCESSES = "the brokers' processes"
    #: The target can start its brokers again, with other settings or another environment.
    RESTARTS = "starting brokers"
    #: The brokers' data directories, settings and logs can be read.
    FILES = "the brokers' files"
    #: What lies in those of brokers and of ZooKeeper may be damaged: nobody else misses it if a run is killed before it
    #: has put it back.
    OWN = "a cluster of the run's own"
    #: ZooKeeper is ours to stop, pause and start again.
    ZOOKEEPER = "a ZooKeeper of the cluster's own"
    #: A way to ZooKeeper from here, as for ending a session.
    ZOOKEEPER_ACCESS = "a way to ZooKeeper"
    #: Each broker and ZooKeeper in a network namespace of its own, which the clients reach from outside.
    NETWORK = "network namespaces"
    #: Each broker's data directory on a small file system of its own, on a loop file.
    DISKS = "disks of the brokers' own"
    #: Brokers run with a library that fails their system calls on demand.
    SHIM = "system calls that fail on demand"
    ROOT = "root"


@dataclass(frozen=True, slots=True)
class Availability:
    """What the clients may notice of a fault.

    most_gap_ms      the longest time without an acknowledged produce on a partition, from the injection until the
                     partitions are whole again; None: unavailable as long as it lasts
    leaves_majority  enough replicas stay for acks=all: at least 100 operations must succeed while it lasts,
                     or until a second after the pause that it may cost, whichever is later
    """

    most_gap_ms: int | None
    leaves_majority: bool = True


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as ZooKeeper has it; leader −1: none."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at one moment (`t`: monotonic nanoseconds), for as much of it as could be seen.

    broker_epochs   registered brokers; None where ZooKeeper cannot be reached from here
    """

    t: int
    partitions: Mapping[TopicPartition, PartitionView]
    controller: int = -1
    controller_epoch: int = -1
    broker_epochs: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen from shortly before a fault until the partitions were whole again. Times: monotonic nanoseconds.

    views           in the order of time, each different from the one before; the first is from before the injection
    events          of the brokers' own histories meanwhile, by broker id, without append, hw and ack
    acknowledged    records acknowledged from `injected` to `healed`
    errors          how often clients met which error meanwhile, by its name
    slowest_ms      the longest that an acknowledged produce took meanwhile
    longest_gap_ms  the longest time in which no produce of some partition was acknowledged
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
    """What has to be put back, on the disk before the change is made. Entries are undone last first."""

    def to_run(self, *command: str) -> Callable[[], None]:
        """`command` puts it back; it must do no harm where there is nothing to put back. Call the result when the
        change was put back otherwise."""
        ...

    def to_continue(self, process: Process) -> Callable[[], None]:
        """SIGCONT for a process about to be stopped, if it is still the same one."""
        ...

    def to_remove(self, path: Path) -> Callable[[], None]:
        """A file about to be made."""
        ...


class Furnishing(Protocol):
    """What a cluster of ours is built upon so that a kind of fault can be made in it later."""

    need: Need

    def missing(self) -> str | None:
        """Why it cannot be had here, in words for a user ("needs root"); None: it can."""
        ...

    async def set_up(self, undo: UndoLog, directory: Path, places: Mapping[str, Place]) -> Mapping[str, Place]:
        """Before anything is started: the places, each changed as needed. Keys: "zookeeper" and broker ids ("1")."""
        ...

    async def tear_down(self) -> None:
        """After everything was stopped; also after a set-up that failed."""
        ...


class Target(Protocol):
    """The cluster under test, as a fault sees it. Calls that may take long are awaited and bounded."""

    #: Where files of the run may lie.
    directory: Path

    @property
    def undo(self) -> UndoLog: ...

    @property
    def histories(self) -> Path:
        """Where a fault that is a client itself keeps its history."""
        ...

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def zookeeper_hosts(self) -> str | None:
        """Where the run reaches ZooKeeper; None where it does not."""
        ...

    @property
    def broker_ids(self) -> tuple[int, ...]: ...

    @property
    def tps(self) -> tuple[TopicPartition, ...]:
        """What the clients use. Each has as many replicas as there are brokers, at most three."""
        ...

    @property
    def session_timeout_ms(self) -> int: ...

    @property
    def replica_lag_time_max_ms(self) -> int: ...

    def lacks(self, need: Need) -> str | None:
        """Why a need cannot be met here; None: it can."""
        ...

    def furnishing(self, need: Need) -> Furnishing:
        """The one that was set up for a need that is not lacking; the fault knows its class."""
        ...

    def place(self, name: str) -> Place:
        """Of "zookeeper" or a broker ("1")."""
        ...

    async def view(self) -> View:
        """The cluster now; TidelogError where nobody answers in time."""
        ...

    def broker_dir(self, broker_id: int) -> Path: ...

    def broker_log(self, broker_id: int) -> Path:
        """What the broker says, as text."""
        ...

    def broker_process(self, broker_id: int) -> Process:
        """For signals. Of the last start: it may have ended."""
        ...

    async def start_broker(self, broker_id: int) -> None:
        """Starts a broker that does not run, and waits until it is registered. Nothing where it runs."""
        ...

    async def launch_broker(self, broker_id: int) -> Process:
        """Starts a broker that does not run, without waiting for anything."""
        ...

    def zookeeper_process(self) -> Process: ...

    async def start_zookeeper(self) -> None:
        """Starts ZooKeeper where it does not run, and waits until it serves."""
        ...

    def client_processes(self) -> Sequence[Process]:
        """The clients that may be killed; each is replaced by a new one."""
        ...


class Fault(Protocol):
    """One injection of one row; made anew for each."""

    #: "F1"
    row: str
    #: In a few words: "leader killed".
    name: str
    needs: frozenset[Need]

    @property
    def availability(self) -> Availability: ...

    @property
    def lasts_ms(self) -> tuple[int, int]:
        """How long it lasts, from and to, for the schedule to draw from."""
        ...

    async def inject(self, target: Target, dice: random.Random) -> str:
        """Does it, to whom the dice say; returns what was done, as "SIGKILL to broker 2, leader of t/0"."""
        ...

    async def heal(self) -> None:
        """Puts everything back, brokers running again included. May be called at any time, more than once, also when
        `inject` failed or was cancelled halfway."""
        ...

    def bit(self, evidence: Evidence) -> str | None:
        """By what the cluster shows that it noticed, as "leader epoch 3 → 4 of t/0"; None: it did not."""
        ...

    def broken(self, evidence: Evidence) -> str | None:
        """Which bound of its row was not kept, as "broker 2 took 12.3 s to stop"; None: all were. What availability
        may cost is no part of it."""
        ...


#: Each row ("F1") with how to make its faults; `verify.chaos.faults.catalogue` returns them all. A row with several
#: kinds has several factories, which come in turn.
Catalogue = Mapping[str, Sequence[Callable[[], Fault]]]
