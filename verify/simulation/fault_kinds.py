"""What can go wrong in a simulated cluster, whom it hits, and when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What has a `for_ms` is mended after it."""

    KILL = "kill"
    STOP = "stop"
    POWER = "power"
    HOLD = "hold"
    TORN = "torn-write"
    CUT = "cut"
    ONE_WAY = "one-way"
    ISOLATE = "isolate"
    RESET = "reset"
    SLOW = "slow"
    LOSS = "loss"
    CLIENT_CUT = "client-cut"
    CLIENT_DEAF = "client-deaf"
    CLIENT_KILL = "client-kill"
    ZOOKEEPER_CUT = "zookeeper-cut"
    ZOOKEEPER_BREAK = "zookeeper-break"
    ZOOKEEPER_SLOW = "zookeeper-slow"
    ZOOKEEPER_STOP = "zookeeper-stop"
    ZOOKEEPER_FREEZE = "zookeeper-freeze"
    EXPIRE = "expire"
    CLOCK = "clock"
    CLOCK_RATE = "clock-rate"
    DISK_SLOW = "disk-slow"
    DISK_WRITE = "disk-write-error"
    DISK_SYNC = "disk-sync-error"
    DISK_FULL = "disk-full"
    FLIP = "bit-flip"
    STRANGE = "strange-offsets"
    ELECT = "elect"
    REASSIGN = "reassign"
    MOVE = "move-another"
    MOVE_OFFSETS = "move-offsets"
    ALTER = "alter-configs"
    ADD = "add-partition"
    CREATE = "create-topic"
    DELETE = "delete-topic"


class Moment(StrEnum):
    """What a broker does with the partition that a story is about, as its journal tells it. A fault may wait for it.

    PROPOSES is not the journal's: a leader's new ISR, or a controller's new state, is on its way to ZooKeeper.
    """

    APPENDS = "appends"
    COPIES = "copies"
    ACKNOWLEDGES = "acknowledges"
    PROPOSES = "proposes"
    CHANGES_ISR = "changes-isr"
    LEADS = "leads"
    FOLLOWS = "follows"
    CUTS = "cuts"
    REGISTERS = "registers"
    CONTROLS = "controls"


#: Whom a fault may hit, besides brokers by their ids and "client-N": as it is when the fault comes. `IT` is who has
#: come to the moment that the fault has waited for.
LEADER, FOLLOWER, IN_SYNC, CONTROLLER, COORDINATOR, COORDINATORS_FOLLOWER, IT = (
    "leader",
    "follower",
    "in-sync",
    "controller",
    "coordinator",
    "coordinators-follower",
    "it",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    at_ms     since the cluster stands
    whom      brokers by their ids, or by what they are then; "client-N" with the broker that it is cut from
    for_ms    until it is mended; 0: it needs no mending
    amount    what the kind says: ms of a clock's jump, of a delay, of a sync; per cent of loss, of a clock's pace, of
              the bytes that are written; how many replicas
    upon      not at once, but at the next such moment
    after_us  so much later than that
    """

    at_ms: int
    kind: Kind
    whom: tuple[str, ...] = ()
    for_ms: int = 0
    amount: int = 0
    upon: Moment | None = None
    after_us: int = 0

    def __str__(self) -> str:
        told = f"{self.at_ms / 1000:7.3f} s  {self.kind.value} {' '.join(self.whom)}".rstrip()
        told += f" by {self.amount}" if self.amount else ""
        told += f" for {self.for_ms / 1000:g} s" if self.for_ms else ""
        if self.upon is not None:
            later = f"{self.after_us / 1000:g} ms after one" if self.after_us else "as soon as one"
            told += f", {later} {self.upon.value}"
        return told
