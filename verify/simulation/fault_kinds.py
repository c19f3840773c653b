"""Define the faults of a simulated cluster: their kinds, their victims, and the events that they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """The kinds of faults. The nemesis heals a fault that has a `for_ms` after this time.

    KILL, STOP, HOLD     SIGKILL, SIGTERM and SIGSTOP to a broker
    POWER                the broker's machine loses power, and perhaps unsynced bytes
    TORN                 the broker is killed in the middle of its next write to a log
    CUT, ONE_WAY         two brokers cannot reach each other, or the first cannot reach the second
    ISOLATE              the broker and all other brokers cannot reach each other
    RESET                the connections between two brokers break
    SLOW, LOSS           the whole network delays messages, or loses segments
    CLIENT_CUT           a client and a broker cannot reach each other
    CLIENT_DEAF          the broker's messages do not reach the client
    ZOOKEEPER_CUT        the broker does not reach ZooKeeper
    ZOOKEEPER_BREAK      the broker's connection to ZooKeeper breaks once
    ZOOKEEPER_SLOW       the broker's requests to ZooKeeper take longer
    ZOOKEEPER_STOP       all of ZooKeeper stops
    ZOOKEEPER_FREEZE     all of ZooKeeper is paused
    EXPIRE               the broker's session is expired before its timeout
    CLOCK, CLOCK_RATE    the broker's wall clock jumps, or runs at another rate
    FLIP                 a bit in a closed segment of the broker flips
    STRANGE              __consumer_offsets gets records of a later version
    ELECT, REASSIGN      an administrator elects preferred leaders, or reassigns the main partition
    MOVE, MOVE_OFFSETS   an administrator reassigns a random partition, or one of __consumer_offsets
    MOVE_DIR             an administrator moves a random replica of the broker to its other log directory
    ADD                  an administrator adds a partition to the main partition's topic
    CREATE, DELETE       an administrator creates or deletes the temporary topic
    """

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
    MOVE_DIR = "move-log-dir"
    ALTER = "alter-configs"
    ADD = "add-partition"
    CREATE = "create-topic"
    DELETE = "delete-topic"


class Moment(StrEnum):
    """An event of a broker that concerns the scenario's main partition, as the broker's history records the event. A
    fault may wait for it.

    APPENDS        the leader appends records
    COPIES         a follower appends records
    ACKNOWLEDGES   the leader acknowledges records
    PROPOSES       a leader's new ISR, or a controller's new state, is about to be sent to ZooKeeper; not in the history
    CHANGES_ISR    a leader's ISR change has succeeded
    LEADS          the broker becomes leader
    FOLLOWS        the broker becomes follower
    CUTS           the broker truncates its log
    REGISTERS      the broker registers; of no partition
    CONTROLS       the broker becomes controller; of no partition
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


#: The roles of victims, besides broker ids and "client-N". A role is resolved when the fault is injected. `IT` is the
#: broker of the event that the fault waited for.
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
    """One fault of a scenario.

    at_ms     the time since the start of the workload
    whom      the victims: broker ids or roles; "client-N" together with the broker that the client is cut off from
    for_ms    the time until the fault is healed; 0: the fault needs no healing
    amount    a quantity whose meaning depends on the kind: ms of a clock's jump, of a delay or of a sync; percent of
              loss, of a clock's rate or of the bytes that are written; a number of replicas
    upon      inject at the next event of this kind, instead of at once
    after_us  the delay after that event
    """

    at_ms: int
    kind: FaultKind
    whom: tuple[str, ...] = ()
    for_ms: int = 0
    amount: int = 0
    upon: Moment | None = None
    after_us: int = 0

    def __str__(self) -> str:
        line = f"{self.at_ms / 1000:7.3f} s  {self.kind.value} {' '.join(self.whom)}".rstrip()
        line += f" by {self.amount}" if self.amount else ""
        line += f" for {self.for_ms / 1000:g} s" if self.for_ms else ""
        if self.upon is not None:
            delay = f"{self.after_us / 1000:g} ms after one" if self.after_us else "as soon as one"
            line += f", {delay} {self.upon.value}"
        return line
