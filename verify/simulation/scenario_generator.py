"""Generate scenarios: choose clients, faults and the guarantee of the topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from verify.simulation.fault_kinds import (
    CONTROLLER,
    COORDINATOR,
    COORDINATORS_FOLLOWER,
    FOLLOWER,
    IN_SYNC,
    IT,
    LEADER,
    Fault,
    Kind,
    Moment,
)

#: The relative frequency of each kind.
_WEIGHTS: Mapping[Kind, int] = {
    Kind.KILL: 16,
    Kind.STOP: 7,
    Kind.POWER: 8,
    Kind.HOLD: 10,
    Kind.TORN: 5,
    Kind.CUT: 8,
    Kind.ONE_WAY: 6,
    Kind.ISOLATE: 7,
    Kind.RESET: 4,
    Kind.SLOW: 4,
    Kind.LOSS: 4,
    Kind.CLIENT_CUT: 3,
    Kind.CLIENT_DEAF: 3,
    Kind.CLIENT_KILL: 3,
    Kind.ZOOKEEPER_CUT: 7,
    Kind.ZOOKEEPER_BREAK: 4,
    Kind.ZOOKEEPER_SLOW: 6,
    Kind.ZOOKEEPER_STOP: 2,
    Kind.ZOOKEEPER_FREEZE: 2,
    Kind.EXPIRE: 6,
    Kind.CLOCK: 3,
    Kind.CLOCK_RATE: 2,
    Kind.DISK_SLOW: 3,
    Kind.DISK_WRITE: 3,
    Kind.DISK_SYNC: 3,
    Kind.DISK_FULL: 3,
    Kind.FLIP: 4,
    Kind.STRANGE: 3,
    Kind.ELECT: 6,
    Kind.REASSIGN: 6,
}
#: The ranges of durations in ms. Some faults end before any broker notices, others outlast every timeout.
_LENGTHS = ((50, 1_000), (1_000, 5_000), (5_000, 15_000))
_MENDED = frozenset(Kind) - {
    Kind.RESET,
    Kind.ZOOKEEPER_BREAK,
    Kind.EXPIRE,
    Kind.CLOCK,
    Kind.STRANGE,
    Kind.ELECT,
    Kind.REASSIGN,
    Kind.MOVE,
    Kind.MOVE_OFFSETS,
    Kind.ALTER,
    Kind.ADD,
    Kind.CREATE,
    Kind.DELETE,
}
_TWO_BROKERS = frozenset({Kind.CUT, Kind.ONE_WAY, Kind.RESET})
_OF_CLIENTS = frozenset({Kind.CLIENT_CUT, Kind.CLIENT_DEAF, Kind.CLIENT_KILL})
_OF_ALL = frozenset(
    {
        Kind.ZOOKEEPER_STOP,
        Kind.ZOOKEEPER_FREEZE,
        Kind.SLOW,
        Kind.LOSS,
        Kind.STRANGE,
        Kind.ELECT,
        Kind.REASSIGN,
    }
)
_ALL_AT_ONCE = 0.05
_TWO_AT_ONCE = 0.15
#: The share of scenarios in which records are deleted.
_TRIMMED = 0.2
#: The share of scenarios with a burst of records.
_BURSTS = 0.1
_MOST_CHANGES = 4
_FIRST_FAULT_MS = 3_000

_AMOUNTS: Mapping[Kind, tuple[int, ...]] = {
    Kind.SLOW: (20, 100, 400),
    Kind.LOSS: (1, 5, 10, 20, 30),
    Kind.ZOOKEEPER_SLOW: (100, 500, 1_000, 2_000),
    Kind.CLOCK: (-3_600_000, 3_600_000, -5_000, 5_000),
    Kind.CLOCK_RATE: (-50, 10, 90, 200),
    Kind.DISK_SLOW: (20, 200, 1_000),
    Kind.TORN: (0, 10, 50, 90, 100),
    Kind.REASSIGN: (2, 3, 3),
}
#: The events that a fault may wait for, each with the roles of victims to choose from.
_MOMENTS: tuple[tuple[Moment, tuple[str, ...]], ...] = (
    (Moment.APPENDS, (IT, IT, FOLLOWER)),
    (Moment.COPIES, (IT, LEADER)),
    (Moment.ACKNOWLEDGES, (IT, IT, FOLLOWER, IN_SYNC)),
    (Moment.PROPOSES, (IT, IT, LEADER, CONTROLLER)),
    (Moment.CHANGES_ISR, (IT, FOLLOWER)),
    (Moment.LEADS, (IT, IT, CONTROLLER)),
    (Moment.FOLLOWS, (IT, LEADER)),
    (Moment.CUTS, (IT, LEADER)),
    (Moment.REGISTERS, (IT, CONTROLLER)),
    (Moment.CONTROLS, (IT,)),
)

#: The kinds of clients. Each scenario has a producer, a reader and a few more. It does not have all kinds, because each
#: client costs time.
COMMITTER = "committer"
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
    COMMITTER,
    "member",
    "member",
    "administrator",
)
_MOST_OTHERS = 3

#: The guarantee of the topics of a scenario: the defaults; acknowledgements after a flush, so that all machines may
#: lose power at once; unclean elections allowed.
PLAIN, DURABLE, UNCLEAN = "plain", "durable", "unclean"


@dataclass(frozen=True, slots=True)
class Density:
    """How many faults a scenario has, and how many of them act together.

    calm_s        the seconds between two faults: one of these
    upon          the share of faults that wait for an event
    plot          the share of faults that are replaced by a whole sequence
    forgetful     the share of scenarios in which a topic is deleted
    compacted     the share of scenarios with a compacted topic
    administered  the share of scenarios in which an administrator changes topics
    promises      the guarantees of topics, each with the same probability
    """

    calm_s: range
    upon: float
    plot: float
    forgetful: float
    compacted: float
    administered: float
    promises: tuple[str, ...]


USUAL = Density(range(2, 9), 0.3, 0.08, 0.2, 0.15, 0.3, (PLAIN,) * 7 + (DURABLE,) * 2 + (UNCLEAN,))
#: Dangerous combinations are more frequent. A scenario takes half as long again.
DENSE = Density(range(1, 4), 0.45, 0.3, 0.4, 0.3, 0.6, (PLAIN,) * 4 + (DURABLE,) * 2 + (UNCLEAN,) * 3)


def draw_cast(dice: Random, density: Density) -> tuple[int, tuple[str, ...], str]:
    """Return the number of brokers, the clients and the guarantee of the topics."""
    brokers = dice.choice((3, 3, 3, 5))
    others = dice.sample(_OTHERS, dice.randint(1, _MOST_OTHERS))
    return brokers, ("producer", dice.choice(_READERS), *others), dice.choice(density.promises)


def draw_trimmers(dice: Random) -> tuple[str, ...]:
    """Return the clients that delete records. The call comes after all others, so that scenarios without one stay the
    same.
    """
    return ("trimmer",) if dice.random() < _TRIMMED else ()


def draw_compaction(dice: Random, density: Density) -> bool:
    """Return whether there is a compacted topic. The call comes after all others for the same reason."""
    return dice.random() < density.compacted


def draw_changes(dice: Random, seconds: float, density: Density) -> tuple[Fault, ...]:
    """Return the administrator's changes of topics. The call comes after all others for the same reason."""
    if dice.random() >= density.administered:
        return ()
    kinds = dice.choices((Kind.MOVE, Kind.MOVE_OFFSETS, Kind.ALTER, Kind.ADD), k=dice.randint(1, _MOST_CHANGES))
    latest_ms = max(_FIRST_FAULT_MS, round(seconds * 1000))
    return tuple(Fault(dice.randint(_FIRST_FAULT_MS, latest_ms), kind, amount=dice.randint(2, 3)) for kind in kinds)


def draw_bursts(dice: Random) -> tuple[str, ...]:
    """Return the clients that send a burst of records. The call comes after all others for the same reason."""
    return ("burst",) if dice.random() < _BURSTS else ()


def draw_faults(
    dice: Random, seconds: float, brokers: int, clients: tuple[str, ...], promises: str, density: Density
) -> tuple[Fault, ...]:
    """Return the faults in order of time."""
    calm = dice.choice(density.calm_s)
    faults: list[Fault] = []
    if promises != PLAIN:
        faults += _PLOTS_OF[promises](_early_ms(dice, seconds), dice)
    at_ms = _FIRST_FAULT_MS
    while True:
        at_ms += round(dice.expovariate(1 / (calm * 1000)))
        if at_ms > seconds * 1000:
            # Drawn last, so that scenarios without committers or deletions stay the same.
            if COMMITTER in clients:
                faults += _unread_offsets(_early_ms(dice, seconds), dice)
            if dice.random() < density.forgetful:
                faults += _deleted_meanwhile(_early_ms(dice, seconds), dice)
            return tuple(sorted(faults, key=lambda fault: fault.at_ms))
        if dice.random() < density.plot:
            faults += dice.choice(_PLOTS)(at_ms, dice)
        else:
            faults.append(_fault(at_ms, brokers, len(clients), dice, density))


def _early_ms(dice: Random, seconds: float) -> int:
    """Return a time in the first half of the scenario."""
    return dice.randint(_FIRST_FAULT_MS, max(_FIRST_FAULT_MS, round(seconds * 500)))


def _fault(at_ms: int, brokers: int, clients: int, dice: Random, density: Density) -> Fault:
    (kind,) = dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    for_ms = dice.randint(*dice.choice(_LENGTHS)) if kind in _MENDED else 0
    amount = dice.choice(_AMOUNTS[kind]) if kind in _AMOUNTS else 0
    ids = [str(number) for number in range(1, brokers + 1)]
    upon, after_us = None, 0
    if kind in _OF_CLIENTS:
        whom: tuple[str, ...] = (f"client-{dice.randint(1, clients)}", dice.choice([*ids, LEADER]))
    elif kind in _TWO_BROKERS:
        whom = tuple(dice.sample(ids, 2)) if dice.random() < 0.5 else tuple(dice.sample((LEADER, FOLLOWER), 2))
    elif kind in _OF_ALL:
        whom = ()
    elif dice.random() < _ALL_AT_ONCE:
        whom = tuple(ids)
    elif dice.random() < density.upon:
        upon, roles = dice.choice(_MOMENTS)
        whom = (dice.choice(roles),)
        after_us = dice.choice((0, 0, dice.randint(0, 5_000), dice.randint(0, 200_000)))
    else:
        others = dice.sample(ids, 1) if dice.random() < _TWO_AT_ONCE else []
        whom = (dice.choice([*ids, LEADER, LEADER, FOLLOWER, CONTROLLER, COORDINATOR]), *others)
    return Fault(at_ms, kind, whom, for_ms, amount, upon, after_us)


# --- sequences of faults that are dangerous together, and that rarely occur at the right times by chance ----------


def _succession(at_ms: int, dice: Random) -> list[Fault]:
    """Elect two leaders in a row: a follower misses records that the ISR acknowledges, and then the leader is killed
    before the others know the high watermark. The next leader is isolated while it adds the follower to the ISR.
    """
    gone_ms = dice.randint(2_500, 4_500)
    return [
        Fault(at_ms, Kind.KILL, (FOLLOWER,), gone_ms, upon=Moment.APPENDS),
        Fault(at_ms + 50, Kind.KILL, (IT,), 12_000, upon=Moment.ACKNOWLEDGES),
        Fault(at_ms + 1_000, Kind.ISOLATE, (IT,), 12_000, upon=Moment.PROPOSES, after_us=dice.choice((0, 300, 1_500))),
        Fault(at_ms + 1_010, Kind.EXPIRE, (LEADER,), upon=Moment.CHANGES_ISR, after_us=dice.choice((0, 50_000))),
    ]


def _slow_promise(at_ms: int, dice: Random) -> list[Fault]:
    """Delay ZooKeeper's answer about a follower that rejoins the ISR while new records arrive."""
    return [
        Fault(at_ms, Kind.KILL, (FOLLOWER,), dice.randint(500, 2_500)),
        Fault(at_ms + 600, Kind.ZOOKEEPER_SLOW, (LEADER,), 12_000, dice.choice((500, 1_000, 2_000))),
    ]


def _two_writers(at_ms: int, dice: Random) -> list[Fault]:
    """Delay a leader's ISR update on its way to ZooKeeper while the controller gives the partition to another
    leader.
    """
    return [
        *_slow_promise(at_ms, dice),
        Fault(at_ms + 700, dice.choice((Kind.ELECT, Kind.REASSIGN)), (), 0, 3, Moment.PROPOSES, 200_000),
        Fault(at_ms + 710, Kind.STOP, (IT,), 5_000, upon=Moment.PROPOSES, after_us=dice.randint(0, 500_000)),
        Fault(at_ms + 3_000, Kind.ELECT),
    ]


def _zombie(at_ms: int, dice: Random) -> list[Fault]:
    """Pause a leader between an append and its acknowledgement for longer than its session timeout."""
    moment = dice.choice((Moment.APPENDS, Moment.COPIES, Moment.ACKNOWLEDGES))
    whom = LEADER if moment is Moment.COPIES else IT
    return [Fault(at_ms, Kind.HOLD, (whom,), dice.randint(5_500, 12_000), 0, moment, dice.randint(0, 3_000))]


def _ended_in_office(at_ms: int, dice: Random) -> list[Fault]:
    """Expire sessions again and again, each as soon as its broker has got a role."""
    moments = (Moment.LEADS, Moment.FOLLOWS, Moment.REGISTERS, Moment.PROPOSES, Moment.CONTROLS)
    return [
        Fault(at_ms + 300 * number, Kind.EXPIRE, (IT,), 0, 0, dice.choice(moments), dice.choice((0, 1_000, 10_000)))
        for number in range(dice.randint(2, 6))
    ]


def _all_dark(at_ms: int, dice: Random) -> list[Fault]:
    """Cut the power of all in-sync replicas, at once or nearly."""
    dark = [Fault(at_ms, Kind.POWER, (IN_SYNC,), dice.randint(500, 6_000), 0, Moment.ACKNOWLEDGES)]
    more = dice.choice(((), (Fault(at_ms + 200, Kind.POWER, ("1", "2", "3"), 3_000),)))
    return [*dark, *more]


def _last_resort(at_ms: int, dice: Random) -> list[Fault]:
    """Isolate a follower until it has left the ISR, and kill all others when it is back."""
    away_ms = dice.randint(9_500, 12_000)
    return [
        Fault(at_ms, Kind.ISOLATE, (FOLLOWER,), away_ms),
        Fault(at_ms + away_ms - 20, Kind.KILL, (IN_SYNC,), dice.randint(8_000, 15_000)),
    ]


def _unread_offsets(at_ms: int, dice: Random) -> list[Fault]:
    """Replace a coordinator while its successor cannot commit what it loads, because the third ISR member does not
    answer.
    """
    return [
        Fault(at_ms, Kind.HOLD, (COORDINATORS_FOLLOWER,), dice.randint(2_000, 5_000)),
        Fault(at_ms + dice.randint(0, 1_000), Kind.EXPIRE, (COORDINATOR,)),
    ]


def _deleted_meanwhile(at_ms: int, dice: Random) -> list[Fault]:
    """Delete a topic while one of its replicas has no session, and perhaps create it again on fewer brokers. The
    controller that deleted the topic may be dead when the absent broker returns.
    """
    asleep_ms = dice.randint(8_500, 13_000)
    faults = [
        Fault(at_ms, Kind.CREATE, amount=3),
        Fault(at_ms + 1_500, dice.choice((Kind.HOLD, Kind.ZOOKEEPER_CUT)), (dice.choice("123"),), asleep_ms),
        Fault(at_ms + 9_000, Kind.DELETE),
    ]
    if dice.random() < 0.5:
        faults.append(Fault(at_ms + 9_000 + dice.randint(300, 4_000), Kind.CREATE, amount=2))
    if dice.random() < 0.3:
        faults.append(Fault(at_ms + 9_000 + dice.randint(100, 4_000), Kind.KILL, (CONTROLLER,), 3_000))
    return faults


_Plot = Callable[[int, Random], list[Fault]]
_PLOTS: tuple[_Plot, ...] = (
    _succession,
    _succession,
    _slow_promise,
    _two_writers,
    _two_writers,
    _zombie,
    _ended_in_office,
    _last_resort,
)
_PLOTS_OF: Mapping[str, _Plot] = {DURABLE: _all_dark, UNCLEAN: _last_resort}
