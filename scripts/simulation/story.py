"""The plot of one simulation: from a seed a schedule of faults and of clients; as JSON it is kept and told again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any


class Kind(StrEnum):
    """What can go wrong. What has a `for_ms` is mended after it."""

    KILL = "kill"
    STOP = "stop"
    POWER = "power"
    HOLD = "hold"
    CUT = "cut"
    ONE_WAY = "one-way"
    ISOLATE = "isolate"
    RESET = "reset"
    SLOW = "slow"
    LOSS = "loss"
    CLIENT_CUT = "client-cut"
    CLIENT_KILL = "client-kill"
    ZOOKEEPER_CUT = "zookeeper-cut"
    ZOOKEEPER_BREAK = "zookeeper-break"
    ZOOKEEPER_STOP = "zookeeper-stop"
    ZOOKEEPER_FREEZE = "zookeeper-freeze"
    EXPIRE = "expire"
    CLOCK = "clock"
    DISK_SLOW = "disk-slow"


#: How often each is drawn, of a hundred and some.
_WEIGHTS: Mapping[Kind, int] = {
    Kind.KILL: 18,
    Kind.STOP: 7,
    Kind.POWER: 8,
    Kind.HOLD: 10,
    Kind.CUT: 10,
    Kind.ONE_WAY: 6,
    Kind.ISOLATE: 8,
    Kind.RESET: 4,
    Kind.SLOW: 4,
    Kind.LOSS: 4,
    Kind.CLIENT_CUT: 3,
    Kind.CLIENT_KILL: 3,
    Kind.ZOOKEEPER_CUT: 8,
    Kind.ZOOKEEPER_BREAK: 4,
    Kind.ZOOKEEPER_STOP: 2,
    Kind.ZOOKEEPER_FREEZE: 2,
    Kind.EXPIRE: 6,
    Kind.CLOCK: 4,
    Kind.DISK_SLOW: 3,
}
#: For how long, in ms: some end before anybody notices, some after every time-out.
_LENGTHS = ((50, 1_000), (1_000, 5_000), (5_000, 15_000))
_MENDED = frozenset(Kind) - {Kind.RESET, Kind.ZOOKEEPER_BREAK, Kind.EXPIRE, Kind.CLOCK}
_TWO_BROKERS = frozenset({Kind.CUT, Kind.ONE_WAY, Kind.RESET})
_ALL_AT_ONCE = 0.05
_FIRST_FAULT_MS = 3_000

#: The kinds of clients. Each story has a producer and a reader, and a few more: not all, since each of them costs time.
_READERS = ("tail", "tail", "wanderer", "direct", "member")
_OTHERS = (
    "producer",
    "unsafe-producer",
    "tail",
    "wanderer",
    "reset",
    "direct",
    "asker",
    "asker",
    "committer",
    "member",
    "member",
    "administrator",
)
_MOST_OTHERS = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """
    at_ms    since the cluster stands
    whom     brokers by their ids, or by what they are then: "leader", "controller", "follower"; "client-N"
    for_ms   until it is mended; 0: it needs no mending
    amount   what the kind says: ms of a clock's jump, of a delay, of a sync; per cent of loss
    """

    at_ms: int
    kind: Kind
    whom: tuple[str, ...] = ()
    for_ms: int = 0
    amount: int = 0

    def __str__(self) -> str:
        told = f"{self.at_ms / 1000:7.3f} s  {self.kind.value} {' '.join(self.whom)}".rstrip()
        told += f" by {self.amount}" if self.amount else ""
        return told + (f" for {self.for_ms / 1000:g} s" if self.for_ms else "")


@dataclass(frozen=True, slots=True)
class Story:
    """`seed` rolls the dice of all that is not written here. `found` says what it once found."""

    seed: int
    seconds: float
    clients: tuple[str, ...]
    faults: tuple[Fault, ...]
    brokers: int = 3
    found: str = ""

    @classmethod
    def of_seed(cls, seed: int, seconds: float = 60) -> Story:
        dice = Random(seed)
        brokers = dice.choice((3, 3, 3, 5))
        others = dice.sample(_OTHERS, dice.randint(1, _MOST_OTHERS))
        clients = ["producer", dice.choice(_READERS), *others]
        calm = dice.randrange(2, 9)  # seconds between two faults
        faults, at_ms = [], _FIRST_FAULT_MS
        while True:
            at_ms += round(dice.expovariate(1 / (calm * 1000)))
            if at_ms > seconds * 1000:
                break
            faults.append(_fault(at_ms, brokers, len(clients), dice))
        return cls(seed, seconds, tuple(clients), tuple(faults), brokers)

    @classmethod
    def from_json(cls, text: str) -> Story:
        told: dict[str, Any] = json.loads(text)
        faults = tuple(
            Fault(each["at_ms"], Kind(each["kind"]), tuple(each["whom"]), each["for_ms"], each["amount"])
            for each in told.pop("faults")
        )
        return cls(faults=faults, clients=tuple(told.pop("clients")), **told)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    def without(self, *, faults: Sequence[int] = (), clients: Sequence[int] = ()) -> Story:
        """What is left when these, by their places, are dropped; a client's place stays, empty."""
        return replace(
            self,
            faults=tuple(fault for place, fault in enumerate(self.faults) if place not in faults),
            clients=tuple("" if place in clients else kind for place, kind in enumerate(self.clients)),
        )

    def __str__(self) -> str:
        clients = ", ".join(filter(None, self.clients))
        head = f"seed {self.seed}: {self.brokers} brokers, {self.seconds:g} s; clients: {clients}"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def _fault(at_ms: int, brokers: int, clients: int, dice: Random) -> Fault:
    (kind,) = dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    for_ms = dice.randint(*dice.choice(_LENGTHS)) if kind in _MENDED else 0
    ids = [str(number) for number in range(1, brokers + 1)]
    if kind in (Kind.CLIENT_CUT, Kind.CLIENT_KILL):
        return Fault(at_ms, kind, (f"client-{dice.randint(1, clients)}", dice.choice(ids)), for_ms)
    if kind in (Kind.ZOOKEEPER_STOP, Kind.ZOOKEEPER_FREEZE):
        return Fault(at_ms, kind, (), for_ms)
    if kind in (Kind.SLOW, Kind.LOSS):
        return Fault(at_ms, kind, (), for_ms, dice.choice((20, 100, 400)) if kind is Kind.SLOW else dice.randint(1, 30))
    if kind in _TWO_BROKERS:
        return Fault(at_ms, kind, tuple(dice.sample(ids, 2)), for_ms)
    if dice.random() < _ALL_AT_ONCE:
        return Fault(at_ms, kind, tuple(ids), for_ms)
    one = dice.choice([*ids, "leader", "leader", "follower", "controller"])
    others = dice.sample(ids, 1) if dice.random() < 0.15 else []
    amount = 0
    if kind is Kind.CLOCK:
        amount = dice.choice((-3_600_000, 3_600_000, -5_000, 5_000))
    elif kind is Kind.DISK_SLOW:
        amount = dice.choice((20, 200, 1_000))
    return Fault(at_ms, kind, (one, *others), for_ms, amount)
