"""What is drawn of a story: who its clients are, what goes wrong, and what its topics promise."""

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

#: How often each is drawn, beside the others.
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
#: For how long, in ms: some end before anybody notices, some after every time-out.
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
#: The share of stories in which records are deleted.
_TRIMMED = 0.2
#: The share of stories in which somebody sends a lot at once.
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
#: What a broker that is to be hit may have come to, and those to whom it happens.
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

#: The kinds of clients. Each story has a producer and a reader, and a few more: not all, since each of them costs time.
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

#: What the topics of a story promise: as most do; an acknowledgement waits for the disk, so that all machines may lose
#: their power at once; anybody may lead where nobody is left.
PLAIN, DURABLE, UNCLEAN = "plain", "durable", "unclean"


@dataclass(frozen=True, slots=True)
class Density:
    """How much goes wrong in a story, and how much of it together.

    calm_s        seconds between two faults: one of these
    upon          the share of faults that wait for a moment
    plot          the share of faults in whose place a whole plot comes
    forgetful     the share of stories in which a topic is deleted
    compacted     the share of stories with a topic that is compacted
    administered  the share of stories in which an administrator changes more than where the leaders are
    promises      of the topics, one as often as the other
    """

    calm_s: range
    upon: float
    plot: float
    forgetful: float
    compacted: float
    administered: float
    promises: tuple[str, ...]


USUAL = Density(range(2, 9), 0.3, 0.08, 0.2, 0.15, 0.3, (PLAIN,) * 7 + (DURABLE,) * 2 + (UNCLEAN,))
#: What is dangerous together comes together more often. A story takes half as long again.
DENSE = Density(range(1, 4), 0.45, 0.3, 0.4, 0.3, 0.6, (PLAIN,) * 4 + (DURABLE,) * 2 + (UNCLEAN,) * 3)


def draw_cast(dice: Random, density: Density) -> tuple[int, tuple[str, ...], str]:
    """How many brokers, which clients, and which promises."""
    brokers = dice.choice((3, 3, 3, 5))
    others = dice.sample(_OTHERS, dice.randint(1, _MOST_OTHERS))
    return brokers, ("producer", dice.choice(_READERS), *others), dice.choice(density.promises)


def draw_trimmers(dice: Random) -> tuple[str, ...]:
    """Who deletes records. Behind all else, so that stories without one are what they were."""
    return ("trimmer",) if dice.random() < _TRIMMED else ()


def draw_compaction(dice: Random, density: Density) -> bool:
    """Whether there is a topic that is compacted. Behind all else, for the same reason."""
    return dice.random() < density.compacted


def draw_changes(dice: Random, seconds: float, density: Density) -> tuple[Fault, ...]:
    """What an administrator does to topics under load. Behind all else, for the same reason."""
    if dice.random() >= density.administered:
        return ()
    kinds = dice.choices((Kind.MOVE, Kind.MOVE_OFFSETS, Kind.ALTER, Kind.ADD), k=dice.randint(1, _MOST_CHANGES))
    latest_ms = max(_FIRST_FAULT_MS, round(seconds * 1000))
    return tuple(Fault(dice.randint(_FIRST_FAULT_MS, latest_ms), kind, amount=dice.randint(2, 3)) for kind in kinds)


def draw_bursts(dice: Random) -> tuple[str, ...]:
    """Who sends a lot at once. Behind all else, for the same reason."""
    return ("burst",) if dice.random() < _BURSTS else ()


def draw_faults(
    dice: Random, seconds: float, brokers: int, clients: tuple[str, ...], promises: str, density: Density
) -> tuple[Fault, ...]:
    """In the order of their times."""
    calm = dice.choice(density.calm_s)
    faults: list[Fault] = []
    if promises != PLAIN:
        faults += _PLOTS_OF[promises](_early_ms(dice, seconds), dice)
    at_ms = _FIRST_FAULT_MS
    while True:
        at_ms += round(dice.expovariate(1 / (calm * 1000)))
        if at_ms > seconds * 1000:
            # Last of all, so that stories without committers or deletions are what they were.
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
    """Some time in the first half."""
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


# --- plots: faults that are dangerous together, which chance alone would seldom bring there at the right time --------


def _succession(at_ms: int, dice: Random) -> list[Fault]:
    """One follower misses what the ISR acknowledges; then its leader goes, before the rest know how far that is; then
    the next one vanishes from sight while it takes the follower in.
    """
    gone_ms = dice.randint(2_500, 4_500)
    return [
        Fault(at_ms, Kind.KILL, (FOLLOWER,), gone_ms, upon=Moment.APPENDS),
        Fault(at_ms + 50, Kind.KILL, (IT,), 12_000, upon=Moment.ACKNOWLEDGES),
        Fault(at_ms + 1_000, Kind.ISOLATE, (IT,), 12_000, upon=Moment.PROPOSES, after_us=dice.choice((0, 300, 1_500))),
        Fault(at_ms + 1_010, Kind.EXPIRE, (LEADER,), upon=Moment.CHANGES_ISR, after_us=dice.choice((0, 50_000))),
    ]


def _slow_promise(at_ms: int, dice: Random) -> list[Fault]:
    """ZooKeeper is slow to say whether a follower that was away is in the ISR again, and records come meanwhile."""
    return [
        Fault(at_ms, Kind.KILL, (FOLLOWER,), dice.randint(500, 2_500)),
        Fault(at_ms + 600, Kind.ZOOKEEPER_SLOW, (LEADER,), 12_000, dice.choice((500, 1_000, 2_000))),
    ]


def _two_writers(at_ms: int, dice: Random) -> list[Fault]:
    """A leader's new ISR is long on its way to ZooKeeper, while the controller gives the partition to another one."""
    return [
        *_slow_promise(at_ms, dice),
        Fault(at_ms + 700, dice.choice((Kind.ELECT, Kind.REASSIGN)), (), 0, 3, Moment.PROPOSES, 200_000),
        Fault(at_ms + 710, Kind.STOP, (IT,), 5_000, upon=Moment.PROPOSES, after_us=dice.randint(0, 500_000)),
        Fault(at_ms + 3_000, Kind.ELECT),
    ]


def _zombie(at_ms: int, dice: Random) -> list[Fault]:
    """A leader is stopped somewhere between an append and its acknowledgement, for longer than its session lasts."""
    moment = dice.choice((Moment.APPENDS, Moment.COPIES, Moment.ACKNOWLEDGES))
    whom = LEADER if moment is Moment.COPIES else IT
    return [Fault(at_ms, Kind.HOLD, (whom,), dice.randint(5_500, 12_000), 0, moment, dice.randint(0, 3_000))]


def _ended_in_office(at_ms: int, dice: Random) -> list[Fault]:
    """Sessions end as soon as they are worth something, again and again."""
    moments = (Moment.LEADS, Moment.FOLLOWS, Moment.REGISTERS, Moment.PROPOSES, Moment.CONTROLS)
    return [
        Fault(at_ms + 300 * number, Kind.EXPIRE, (IT,), 0, 0, dice.choice(moments), dice.choice((0, 1_000, 10_000)))
        for number in range(dice.randint(2, 6))
    ]


def _all_dark(at_ms: int, dice: Random) -> list[Fault]:
    """All in-sync replicas lose their power, at once or nearly."""
    dark = [Fault(at_ms, Kind.POWER, (IN_SYNC,), dice.randint(500, 6_000), 0, Moment.ACKNOWLEDGES)]
    more = dice.choice(((), (Fault(at_ms + 200, Kind.POWER, ("1", "2", "3"), 3_000),)))
    return [*dark, *more]


def _last_resort(at_ms: int, dice: Random) -> list[Fault]:
    """A follower is away for so long that it leaves the ISR; when it is back, all others are gone."""
    away_ms = dice.randint(9_500, 12_000)
    return [
        Fault(at_ms, Kind.ISOLATE, (FOLLOWER,), away_ms),
        Fault(at_ms + away_ms - 20, Kind.KILL, (IN_SYNC,), dice.randint(8_000, 15_000)),
    ]


def _unread_offsets(at_ms: int, dice: Random) -> list[Fault]:
    """A coordinator is deposed, and its successor cannot know for a while that what it reads is committed, since the
    third in-sync replica does not answer.
    """
    return [
        Fault(at_ms, Kind.HOLD, (COORDINATORS_FOLLOWER,), dice.randint(2_000, 5_000)),
        Fault(at_ms + dice.randint(0, 1_000), Kind.EXPIRE, (COORDINATOR,)),
    ]


def _deleted_meanwhile(at_ms: int, dice: Random) -> list[Fault]:
    """A topic is deleted while one of its replicas has no session, and perhaps made anew on fewer brokers; whoever
    deleted it may be gone when the one that slept is back.
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
