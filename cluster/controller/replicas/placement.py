"""The placement of new partitions' replicas on brokers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import itemgetter

from tidelog.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
)
from tidelog.quantities import MOST_NAMED, ranges_of

Assignment = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The load before a placement, by broker id: how many partitions prefer it as leader, and how many replicas."""

    leaders: Mapping[int, int]
    replicas: Mapping[int, int]


NO_LOAD = BrokerLoad({}, {})
NO_RACKS: Mapping[int, str] = {}


def place_replicas(
    brokers: Collection[int],
    partitions: int,
    replication_factor: int,
    source: random.Random,
    load: BrokerLoad = NO_LOAD,
    racks: Mapping[int, str] = NO_RACKS,
) -> Assignment:
    """Return the replicas of each partition, the preferred leader first.

    A round is as many partitions as there are brokers. All complete rounds are placed by Kafka's round robin: leaders
    rotate, and followers shift further each round. Each broker then has as many leaders and replicas as any other. The
    remaining partitions go to the brokers that have least, so that the brokers stay even over many topics. `source`
    chooses the first broker and the first shift, and `load` is that of the other topics.

    The racks of a partition have equally many of its replicas (KIP-36: no two in one rack while another rack has none),
    except that a rack has at most one on each of its brokers. If racks differ in their number of brokers, rounds would
    not be even. Then all partitions go to the brokers that have least.

    InvalidPartitionsError if `partitions` is not positive. InvalidReplicationFactorError if the factor is not positive
    or exceeds the number of brokers, or if only some of the brokers are in `racks`.
    """
    if partitions <= 0:
        raise InvalidPartitionsError(f"a topic needs at least one partition, not {partitions}")
    if replication_factor <= 0:
        raise InvalidReplicationFactorError(f"a topic needs at least one replica, not {replication_factor}")
    _require_brokers(brokers, replication_factor)
    ring = _Ring.of(brokers, racks)
    start, shift = source.randrange(len(ring.brokers)), source.randrange(len(ring.brokers))
    return _place(ring, range(partitions), replication_factor, start, shift, {}, load)


def place_more_replicas(
    brokers: Collection[int],
    existing: Assignment,
    total: int,
    replication_factor: int,
    load: BrokerLoad = NO_LOAD,
    racks: Mapping[int, str] = NO_RACKS,
) -> Assignment:
    """Return the replicas of the partitions to be added only, continuing the round robin of the existing ones.

    `total` is the new number of partitions, and `load` is that of all topics. InvalidPartitionsError if `total` adds
    none. InvalidReplicationFactorError if the factor exceeds the number of brokers, or if only some of the brokers are
    in `racks`.
    """
    if total <= len(existing):
        raise InvalidPartitionsError(f"the topic already has {len(existing)} partitions, and {total} would add none")
    _require_brokers(brokers, replication_factor)
    ring = _Ring.of(brokers, racks)
    start = ring.brokers.index(min((b for b in brokers if b >= existing[0][0]), default=ring.brokers[0]))
    shift = start + len(existing) // len(ring.brokers)
    return _place(ring, range(len(existing), total), replication_factor, start, shift, existing, load)


def _require_brokers(brokers: Collection[int], replication_factor: int) -> None:
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor} is larger than the number of live brokers, {len(brokers)}"
        )


@dataclass(frozen=True, slots=True)
class _Ring:
    """The brokers in the order of the round robin.

    brokers   the first broker of each rack, then the second one of each, and so on
    rack_of   a number for the rack of each broker; without racks, each broker is a rack of its own
    even      whether all racks have equally many brokers. Brokers whose distance in the ring is a multiple of the
              number of racks are then in the same rack.
    """

    brokers: Sequence[int]
    rack_of: Mapping[int, int]
    even: bool

    @classmethod
    def of(cls, brokers: Collection[int], racks: Mapping[int, str]) -> _Ring:
        """InvalidReplicationFactorError if only some of the brokers have a rack."""
        ids = sorted(brokers)
        without = [broker for broker in ids if broker not in racks]
        if not without:
            names = sorted({racks[broker] for broker in ids})
            members = [[broker for broker in ids if racks[broker] == name] for name in names]
        elif len(without) == len(ids):
            members = [[broker] for broker in ids]
        else:
            within = [broker for broker in ids if broker in racks]
            raise InvalidReplicationFactorError(
                f"not all brokers have a rack (without one: {ranges_of(without, MOST_NAMED)}; with one: "
                f"{ranges_of(within, MOST_NAMED)}); set broker_rack on each broker or on none, or assign the replicas "
                "to brokers yourself"
            )
        turns = zip_longest(*members)
        return cls(
            [broker for turn in turns for broker in turn if broker is not None],
            {broker: number for number, rack in enumerate(members) for broker in rack},
            len(set(map(len, members))) == 1,
        )


def _place(
    ring: _Ring,
    partitions: Sequence[int],
    replication_factor: int,
    start: int,
    shift: int,
    existing: Assignment,
    load: BrokerLoad,
) -> Assignment:
    in_rounds = len(partitions) - len(partitions) % len(ring.brokers) if ring.even else 0
    placed = _go_round(ring, partitions[:in_rounds], replication_factor, start, shift)
    # Complete rounds add the same to each broker, so that they do not change which broker has least.
    order = [*ring.brokers[start:], *ring.brokers[:start]]
    rest = _place_evenly(order, ring.rack_of, len(partitions) - in_rounds, replication_factor, existing, load)
    return placed | dict(zip(partitions[in_rounds:], map(tuple, rest), strict=True))


def _go_round(ring: _Ring, partitions: Iterable[int], replication_factor: int, start: int, shift: int) -> Assignment:
    assignment: Assignment = {}
    brokers, racks = len(ring.brokers), len(set(ring.rack_of.values()))
    distances: list[int] = []
    for count, partition in enumerate(partitions):
        if count % brokers == 0:
            distances = _distances(brokers, racks, shift + count // brokers)[: replication_factor - 1]
        first = (partition + start) % brokers
        assignment[partition] = tuple(ring.brokers[(first + distance) % brokers] for distance in (0, *distances))
    return assignment


def _distances(brokers: int, racks: int, shift: int) -> list[int]:
    """Return the distances of all followers from their leader in the ring, in the order in which they are chosen.

    All racks must have equally many brokers. The order is Kafka's, but a broker is chosen only when its rack has no
    more replicas than any other rack with brokers left. Each distance is between 1 and brokers − 1.
    """
    chosen = Counter({0: 1})  # by distance of the rack from the leader's rack
    turns: list[tuple[int, int]] = []
    for index in range(brokers - 1):
        distance = 1 + (shift * racks + index) % (brokers - 1)
        turns.append((chosen[distance % racks], distance))
        chosen[distance % racks] += 1
    return [distance for _, distance in sorted(turns, key=itemgetter(0))]


def _place_evenly(
    order: Sequence[int],
    rack_of: Mapping[int, int],
    count: int,
    replication_factor: int,
    existing: Assignment,
    load: BrokerLoad,
) -> list[list[int]]:
    """Return the replicas of `count` partitions, each on the brokers that have least.

    The brokers are compared by what they have of this topic (`existing`), then by what they have in all (`load`).
    Among equal brokers, the first one of `order` leads, and the next ones behind the leader follow. A follower is in a
    rack with as few replicas of the partition as possible.
    """
    leads = Counter(replicas[0] for replicas in existing.values())
    holds = Counter(broker for replicas in existing.values() for broker in replicas)
    # Leaders come first, because a broker that leads a later partition should not follow an earlier one.
    placed: list[list[int]] = []
    for _ in range(count):
        least = min(order, key=lambda b: (leads[b], load.leaders.get(b, 0), holds[b], load.replicas.get(b, 0)))
        leads[least] += 1
        holds[least] += 1
        placed.append([least])
    for number, replicas in enumerate(placed):
        # The followers shift each round, so that a broker's followers are not always the same.
        behind = order.index(replicas[0]) + 1 + number // len(order)
        others = [order[(behind + index) % len(order)] for index in range(len(order))]
        in_rack = Counter({rack_of[replicas[0]]: 1})
        for _ in range(replication_factor - 1):
            least = min(
                (broker for broker in others if broker not in replicas),
                key=lambda b: (in_rack[rack_of[b]], holds[b], load.replicas.get(b, 0)),
            )
            in_rack[rack_of[least]] += 1
            holds[least] += 1
            replicas.append(least)
    if count < len(order):
        _level(placed, order, rack_of, holds)
    return placed


def _level(placed: list[list[int]], order: Sequence[int], rack_of: Mapping[int, int], holds: Counter[int]) -> None:
    """Move followers away from the brokers that have the most replicas, until no chain of moves is left that helps.

    Racks can leave too few choices to the last partitions. A chain moves a follower from a broker with most replicas to
    a second broker, one from there to a third, and so on, to a broker with at least two replicas less. The shortest
    chain is taken, so that its moves do not disturb each other. If racks have equally many brokers, the replicas of a
    new topic then differ by at most one for each broker.
    """
    while True:
        followers = [broker for replicas in placed for broker in replicas[1:]]
        most = max((holds[broker] for broker in followers), default=0)
        #: By broker: the partition whose follower moves here, and the broker from which it moves.
        moves: dict[int, tuple[list[int], int] | None] = {b: None for b in followers if holds[b] == most}
        reached = list(moves)
        for broker in reached:
            if holds[broker] <= most - 2:
                break
            for replicas in placed:
                if broker not in replicas[1:]:
                    continue
                for other in order:
                    if other not in moves and _may_replace(replicas, broker, other, rack_of):
                        moves[other] = replicas, broker
                        reached.append(other)
        else:
            return
        holds[broker] += 1
        while (move := moves[broker]) is not None:
            replicas, before = move
            replicas[replicas.index(before)] = broker
            broker = before
        holds[broker] -= 1


def _may_replace(replicas: Sequence[int], broker: int, other: int, rack_of: Mapping[int, int]) -> bool:
    """Return whether the replica on `broker` can move to `other`, and the racks stay as evenly used as they are."""
    in_rack = Counter(rack_of[replica] for replica in replicas)
    before, after = rack_of[broker], rack_of[other]
    return other not in replicas and (before == after or in_rack[after] < in_rack[before])


def check_assignment(
    assignment: Mapping[int, Sequence[int]], brokers: Collection[int], *, first: int = 0, factor: int | None = None
) -> Assignment:
    """Return a manual assignment of the partitions from `first` on, in their order.

    InvalidReplicaAssignmentError if it is empty or has a gap, if a partition fails `check_replicas`, or if partitions
    have different numbers of replicas. `factor` is the required number; None: that of the first partition.
    """
    if not assignment:
        raise InvalidReplicaAssignmentError("the assignment names no partition; it must name at least one")
    if sorted(assignment) != list(range(first, first + len(assignment))):
        raise InvalidReplicaAssignmentError(
            f"partitions must be numbered from {first} without a gap, not {sorted(assignment)}"
        )
    wanted = len(assignment[first]) if factor is None else factor
    for partition, replicas in sorted(assignment.items()):
        check_replicas(partition, replicas, brokers)
        if len(replicas) != wanted:
            raise InvalidReplicaAssignmentError(
                f"partition {partition} has {len(replicas)} replicas, not {wanted} as the other partitions"
                if factor is not None
                else f"partitions 0 and {partition} have different numbers of replicas"
            )
    return {partition: tuple(replicas) for partition, replicas in sorted(assignment.items())}


def check_replicas(partition: int, replicas: Sequence[int], brokers: Collection[int]) -> None:
    """Raise InvalidReplicaAssignmentError unless these are one or more live brokers, each named once."""
    if not replicas:
        raise InvalidReplicaAssignmentError(f"partition {partition} has no replica")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignmentError(f"partition {partition} names a broker twice: {list(replicas)}")
    if unknown := sorted(set(replicas) - set(brokers)):
        raise InvalidReplicaAssignmentError(
            f"partition {partition} names brokers that are not alive: {unknown}; the live brokers are {sorted(brokers)}"
        )
