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
    FaultKind,
    Moment,
)

#: The relative frequency of each kind.
_WEIGHTS: Mapping[FaultKind, int] = {
    FaultKind.KILL: 16,
    FaultKind.STOP: 7,
    FaultKind.POWER: 8,
    FaultKind.HOLD: 10,
    FaultKind.TORN: 5,
    FaultKind.CUT: 8,
    FaultKind.ONE_WAY: 6,
    FaultKind.ISOLATE: 7,
    FaultKind.RESET: 4,
    FaultKind.SLOW: 4,
    FaultKind.LOSS: 4,
    FaultKind.CLIENT_CUT: 3,
    FaultKind.CLIENT_DEAF: 3,
    FaultKind.CLIENT_KILL: 3,
    FaultKind.ZOOKEEPER_CUT: 7,
    FaultKind.ZOOKEEPER_BREAK: 4,
    FaultKind.ZOOKEEPER_SLOW: 6,
    FaultKind.ZOOKEEPER_STOP: 2,
    FaultKind.ZOOKEEPER_FREEZE: 2,
    FaultKind.EXPIRE: 6,
    FaultKind.CLOCK: 3,
    FaultKind.CLOCK_RATE: 2,
    FaultKind.DISK_SLOW: 3,
    FaultKind.DISK_WRITE: 3,
    FaultKind.DISK_SYNC: 3,
    FaultKind.DISK_FULL: 3,
    FaultKind.FLIP: 4,
    FaultKind.STRANGE: 3,
    FaultKind.ELECT: 6,
    FaultKind.REASSIGN: 6,
}
#: The ranges of durations in ms. Some faults end before any broker notices, others outlast every timeout.
_LENGTHS = ((50, 1_000), (1_000, 5_000), (5_000, 15_000))
_MENDED = frozenset(FaultKind) - {
    FaultKind.RESET,
    FaultKind.ZOOKEEPER_BREAK,
    FaultKind.EXPIRE,
    FaultKind.CLOCK,
    FaultKind.STRANGE,
    FaultKind.ELECT,
    FaultKind.REASSIGN,
    FaultKind.MOVE,
    FaultKind.MOVE_OFFSETS,
    FaultKind.MOVE_DIR,
    FaultKind.ALTER,
    FaultKind.ADD,
    FaultKind.CREATE,
    FaultKind.DELETE,
}
_TWO_BROKERS = frozenset({FaultKind.CUT, FaultKind.ONE_WAY, FaultKind.RESET})
_OF_CLIENTS = frozenset({FaultKind.CLIENT_CUT, FaultKind.CLIENT_DEAF, FaultKind.CLIENT_KILL})
_OF_ALL = frozenset(
    {
        FaultKind.ZOOKEEPER_STOP,
        FaultKind.ZOOKEEPER_FREEZE,
        FaultKind.SLOW,
        FaultKind.LOSS,
        FaultKind.STRANGE,
        FaultKind.ELECT,
        FaultKind.REASSIGN,
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

_AMOUNTS: Mapping[FaultKind, tuple[int, ...]] = {
    FaultKind.SLOW: (20, 100, 400),
    FaultKind.LOSS: (1, 5, 10, 20, 30),
    FaultKind.ZOOKEEPER_SLOW: (100, 500, 1_000, 2_000),
    FaultKind.CLOCK: (-3_600_000, 3_600_000, -5_000, 5_000),
    FaultKind.CLOCK_RATE: (-50, 10, 90, 200),
    FaultKind.DISK_SLOW: (20, 200, 1_000),
    FaultKind.TORN: (0, 10, 50, 90, 100),
    FaultKind.REASSIGN: (2, 3, 3),
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

    calm_s         the mean seconds between two faults: each scenario chooses one of these
    upon           the share of faults that wait for an event, among those that may
    plot           the share of faults that are replaced by a whole sequence
    forgetful      the share of scenarios in which a topic is deleted
    compacted      the share of scenarios with a compacted topic
    administered   the share of scenarios in which an administrator changes topics
    promises       the guarantees of topics, each with the same probability
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


def draw_cast(rng: Random, density: Density) -> tuple[int, tuple[str, ...], str]:
    """Return the number of brokers, the clients and the guarantee of the topics.

    The clients are the kinds of a producer, a reader and one to three others.
    """
    brokers = rng.choice((3, 3, 3, 5))
    others = rng.sample(_OTHERS, rng.randint(1, _MOST_OTHERS))
    return brokers, ("producer", rng.choice(_READERS), *others), rng.choice(density.promises)


def draw_trimmers(rng: Random) -> tuple[str, ...]:
    """Return the clients that delete records: one trimmer in a fifth of the scenarios, otherwise none.

    The caller makes this draw after all older ones, so that the other parts of a seed's scenario stay the same.
    """
    return ("trimmer",) if rng.random() < _TRIMMED else ()


def draw_compaction(rng: Random, density: Density) -> bool:
    """Return whether there is a compacted topic.

    The caller makes this draw after all older ones, so that the other parts of a seed's scenario stay the same.
    """
    return rng.random() < density.compacted


def draw_changes(rng: Random, seconds: float, density: Density) -> tuple[Fault, ...]:
    """Return the administrator's changes of topics, in no order; none in some scenarios.

    The caller makes this draw after all older ones, so that the other parts of a seed's scenario stay the same.
    """
    if rng.random() >= density.administered:
        return ()
    kinds = rng.choices(
        (FaultKind.MOVE, FaultKind.MOVE_OFFSETS, FaultKind.ALTER, FaultKind.ADD), k=rng.randint(1, _MOST_CHANGES)
    )
    latest_ms = max(_FIRST_FAULT_MS, round(seconds * 1000))
    return tuple(Fault(rng.randint(_FIRST_FAULT_MS, latest_ms), kind, amount=rng.randint(2, 3)) for kind in kinds)


def draw_bursts(rng: Random) -> tuple[str, ...]:
    """Return the clients that send bursts of records: one in a tenth of the scenarios, otherwise none.

    The caller makes this draw after all older ones, so that the other parts of a seed's scenario stay the same.
    """
    return ("burst",) if rng.random() < _BURSTS else ()


def draw_faults(
    rng: Random, seconds: float, brokers: int, clients: tuple[str, ...], promises: str, density: Density
) -> tuple[Fault, ...]:
    """Return the faults and the sequences of faults of a scenario, in order of time."""
    calm = rng.choice(density.calm_s)
    faults: list[Fault] = []
    if promises != PLAIN:
        faults += _PLOTS_OF[promises](_early_ms(rng, seconds), rng)
    at_ms = _FIRST_FAULT_MS
    while True:
        at_ms += round(rng.expovariate(1 / (calm * 1000)))
        if at_ms > seconds * 1000:
            # Drawn last, so that scenarios without committers or deletions stay the same.
            if COMMITTER in clients:
                faults += _unread_offsets(_early_ms(rng, seconds), rng)
            if rng.random() < density.forgetful:
                faults += _deleted_meanwhile(_early_ms(rng, seconds), rng)
            return tuple(sorted(faults, key=lambda fault: fault.at_ms))
        if rng.random() < density.plot:
            faults += rng.choice(_PLOTS)(at_ms, rng)
        else:
            faults.append(_fault(at_ms, brokers, len(clients), rng, density))


def _early_ms(rng: Random, seconds: float) -> int:
    """Return a random time in the first half of the scenario, but not before the first fault."""
    return rng.randint(_FIRST_FAULT_MS, max(_FIRST_FAULT_MS, round(seconds * 500)))


def _fault(at_ms: int, brokers: int, clients: int, rng: Random, density: Density) -> Fault:
    """Return a random fault at this time. Its victims may be missing from the cluster when it is injected."""
    (kind,) = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    for_ms = rng.randint(*rng.choice(_LENGTHS)) if kind in _MENDED else 0
    amount = rng.choice(_AMOUNTS[kind]) if kind in _AMOUNTS else 0
    ids = [str(number) for number in range(1, brokers + 1)]
    upon, after_us = None, 0
    if kind in _OF_CLIENTS:
        victims: tuple[str, ...] = (f"client-{rng.randint(1, clients)}", rng.choice([*ids, LEADER]))
    elif kind in _TWO_BROKERS:
        victims = tuple(rng.sample(ids, 2)) if rng.random() < 0.5 else tuple(rng.sample((LEADER, FOLLOWER), 2))
    elif kind in _OF_ALL:
        victims = ()
    elif rng.random() < _ALL_AT_ONCE:
        victims = tuple(ids)
    elif rng.random() < density.upon:
        upon, roles = rng.choice(_MOMENTS)
        victims = (rng.choice(roles),)
        after_us = rng.choice((0, 0, rng.randint(0, 5_000), rng.randint(0, 200_000)))
    else:
        others = rng.sample(ids, 1) if rng.random() < _TWO_AT_ONCE else []
        victims = (rng.choice([*ids, LEADER, LEADER, FOLLOWER, CONTROLLER, COORDINATOR]), *others)
    return Fault(at_ms, kind, victims, for_ms, amount, upon, after_us)


# --- sequences of faults that are dangerous together, and that rarely occur at the right times by chance ----------


def _succession(at_ms: int, rng: Random) -> list[Fault]:
    """Return faults that elect two leaders in a row.

    A follower misses records that the ISR acknowledges, and then the leader is killed before the others know the high
    watermark. The next leader is isolated while it adds the follower to the ISR.
    """
    gone_ms = rng.randint(2_500, 4_500)
    return [
        Fault(at_ms, FaultKind.KILL, (FOLLOWER,), gone_ms, upon=Moment.APPENDS),
        Fault(at_ms + 50, FaultKind.KILL, (IT,), 12_000, upon=Moment.ACKNOWLEDGES),
        Fault(
            at_ms + 1_000, FaultKind.ISOLATE, (IT,), 12_000, upon=Moment.PROPOSES, after_us=rng.choice((0, 300, 1_500))
        ),
        Fault(at_ms + 1_010, FaultKind.EXPIRE, (LEADER,), upon=Moment.CHANGES_ISR, after_us=rng.choice((0, 50_000))),
    ]


def _slow_promise(at_ms: int, rng: Random) -> list[Fault]:
    """Return faults that delay ZooKeeper's answer about a follower that rejoins the ISR while new records arrive."""
    return [
        Fault(at_ms, FaultKind.KILL, (FOLLOWER,), rng.randint(500, 2_500)),
        Fault(at_ms + 600, FaultKind.ZOOKEEPER_SLOW, (LEADER,), 12_000, rng.choice((500, 1_000, 2_000))),
    ]


def _two_writers(at_ms: int, rng: Random) -> list[Fault]:
    """Return faults that delay a leader's ISR update on its way to ZooKeeper while another broker gets to lead."""
    return [
        *_slow_promise(at_ms, rng),
        Fault(at_ms + 700, rng.choice((FaultKind.ELECT, FaultKind.REASSIGN)), (), 0, 3, Moment.PROPOSES, 200_000),
        Fault(at_ms + 710, FaultKind.STOP, (IT,), 5_000, upon=Moment.PROPOSES, after_us=rng.randint(0, 500_000)),
        Fault(at_ms + 3_000, FaultKind.ELECT),
    ]


def _zombie(at_ms: int, rng: Random) -> list[Fault]:
    """Return a fault that pauses a leader between an append and its acknowledgement.

    The pause lasts about as long as the leader's session timeout, or longer.
    """
    moment = rng.choice((Moment.APPENDS, Moment.COPIES, Moment.ACKNOWLEDGES))
    victims = LEADER if moment is Moment.COPIES else IT
    return [Fault(at_ms, FaultKind.HOLD, (victims,), rng.randint(5_500, 12_000), 0, moment, rng.randint(0, 3_000))]


def _ended_in_office(at_ms: int, rng: Random) -> list[Fault]:
    """Return faults that expire sessions again and again.

    Each session expires at most 10 ms after its broker gets a role, registers, or proposes a partition's state.
    """
    moments = (Moment.LEADS, Moment.FOLLOWS, Moment.REGISTERS, Moment.PROPOSES, Moment.CONTROLS)
    return [
        Fault(at_ms + 300 * number, FaultKind.EXPIRE, (IT,), 0, 0, rng.choice(moments), rng.choice((0, 1_000, 10_000)))
        for number in range(rng.randint(2, 6))
    ]


def _all_dark(at_ms: int, rng: Random) -> list[Fault]:
    """Return faults that cut the power of all in-sync replicas, at once or nearly."""
    dark = [Fault(at_ms, FaultKind.POWER, (IN_SYNC,), rng.randint(500, 6_000), 0, Moment.ACKNOWLEDGES)]
    more = rng.choice(((), (Fault(at_ms + 200, FaultKind.POWER, ("1", "2", "3"), 3_000),)))
    return [*dark, *more]


def _last_resort(at_ms: int, rng: Random) -> list[Fault]:
    """Return faults that isolate a follower until it leaves the ISR, and kill the whole ISR 20 ms before its return."""
    away_ms = rng.randint(9_500, 12_000)
    return [
        Fault(at_ms, FaultKind.ISOLATE, (FOLLOWER,), away_ms),
        Fault(at_ms + away_ms - 20, FaultKind.KILL, (IN_SYNC,), rng.randint(8_000, 15_000)),
    ]


def _unread_offsets(at_ms: int, rng: Random) -> list[Fault]:
    """Return faults that replace a coordinator while its successor cannot commit what it loads.

    The reason is that the third ISR member does not answer.
    """
    return [
        Fault(at_ms, FaultKind.HOLD, (COORDINATORS_FOLLOWER,), rng.randint(2_000, 5_000)),
        Fault(at_ms + rng.randint(0, 1_000), FaultKind.EXPIRE, (COORDINATOR,)),
    ]


def _deleted_meanwhile(at_ms: int, rng: Random) -> list[Fault]:
    """Return faults that delete a topic while one of its replicas has no session.

    Some of them also create the topic again on fewer brokers. The controller that deleted the topic may be dead when
    the absent broker returns.
    """
    asleep_ms = rng.randint(8_500, 13_000)
    faults = [
        Fault(at_ms, FaultKind.CREATE, amount=3),
        Fault(at_ms + 1_500, rng.choice((FaultKind.HOLD, FaultKind.ZOOKEEPER_CUT)), (rng.choice("123"),), asleep_ms),
        Fault(at_ms + 9_000, FaultKind.DELETE),
    ]
    if rng.random() < 0.5:
        faults.append(Fault(at_ms + 9_000 + rng.randint(300, 4_000), FaultKind.CREATE, amount=2))
    if rng.random() < 0.3:
        faults.append(Fault(at_ms + 9_000 + rng.randint(100, 4_000), FaultKind.KILL, (CONTROLLER,), 3_000))
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
