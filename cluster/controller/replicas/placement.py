"""The placement of new partitions' replicas on brokers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
)

Assignment = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The load before a placement, by broker id: how many partitions prefer it as leader, and how many replicas."""

    leaders: Mapping[int, int]
    replicas: Mapping[int, int]


NO_LOAD = BrokerLoad({}, {})


def place_replicas(
    brokers: Collection[int],
    partitions: int,
    replication_factor: int,
    source: random.Random,
    load: BrokerLoad = NO_LOAD,
) -> Assignment:
    """Return the replicas of each partition, the preferred leader first.

    A round is as many partitions as there are brokers. All complete rounds are placed by Kafka's rack-unaware round
    robin: leaders rotate, and followers shift by one more each round. Each broker then has as many leaders and replicas
    as any other. The remaining partitions go to the brokers that have least, so that the brokers stay even over many
    topics. `source` chooses the first broker and the first shift, and `load` is that of the other topics.

    InvalidPartitionsError if `partitions` is not positive. InvalidReplicationFactorError if the factor is not positive
    or exceeds the number of brokers.
    """
    if partitions <= 0:
        raise InvalidPartitionsError(f"a topic needs at least one partition, not {partitions}")
    if replication_factor <= 0:
        raise InvalidReplicationFactorError(f"a topic needs at least one replica, not {replication_factor}")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor} is larger than the number of live brokers, {len(brokers)}"
        )
    ring = sorted(brokers)
    start, shift = source.randrange(len(ring)), source.randrange(len(ring))
    return _place(ring, range(partitions), replication_factor, start, shift, {}, load)


def place_more_replicas(
    brokers: Collection[int],
    existing: Assignment,
    total: int,
    replication_factor: int,
    load: BrokerLoad = NO_LOAD,
) -> Assignment:
    """Return the replicas of the partitions to be added only, continuing the round robin of the existing ones.

    `total` is the new number of partitions, and `load` is that of all topics. InvalidPartitionsError if `total` adds
    none. InvalidReplicationFactorError if the factor exceeds the number of brokers.
    """
    if total <= len(existing):
        raise InvalidPartitionsError(f"the topic already has {len(existing)} partitions, and {total} would add none")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor} is larger than the number of live brokers, {len(brokers)}"
        )
    ring = sorted(brokers)
    start = next((index for index, broker in enumerate(ring) if broker >= existing[0][0]), 0)
    shift = start + len(existing) // len(ring)
    return _place(ring, range(len(existing), total), replication_factor, start, shift, existing, load)


def _place(
    ring: Sequence[int],
    partitions: Sequence[int],
    replication_factor: int,
    start: int,
    shift: int,
    existing: Assignment,
    load: BrokerLoad,
) -> Assignment:
    in_rounds = len(partitions) - len(partitions) % len(ring)
    placed = _go_round(ring, partitions[:in_rounds], replication_factor, start, shift)
    # Complete rounds add the same to each broker, so that they do not change which broker has least.
    rest = _place_evenly(
        [*ring[start:], *ring[:start]], len(partitions) - in_rounds, replication_factor, existing, load
    )
    return placed | dict(zip(partitions[in_rounds:], rest, strict=True))


def _go_round(
    ring: Sequence[int], partitions: Iterable[int], replication_factor: int, start: int, shift: int
) -> Assignment:
    assignment: Assignment = {}
    for count, partition in enumerate(partitions):
        first, moved = (partition + start) % len(ring), shift + count // len(ring)
        followers = [ring[_follower(first, moved, index, len(ring))] for index in range(replication_factor - 1)]
        assignment[partition] = (ring[first], *followers)
    return assignment


def _follower(first: int, shift: int, index: int, brokers: int) -> int:
    """Return the index in the ring of the follower numbered `index`.

    The index is never the leader's (`first`), because the distance is between 1 and brokers − 1.
    """
    return (first + 1 + (shift + index) % (brokers - 1)) % brokers


def _place_evenly(
    ring: Sequence[int], count: int, replication_factor: int, existing: Assignment, load: BrokerLoad
) -> list[tuple[int, ...]]:
    """Return the replicas of `count` partitions, each on the brokers that have least.

    The brokers are compared by what they have of this topic (`existing`), then by what they have in all (`load`).
    Among equal brokers, the first one of `ring` leads, and the next ones behind the leader follow.
    """
    leads = Counter(replicas[0] for replicas in existing.values())
    holds = Counter(broker for replicas in existing.values() for broker in replicas)
    # Leaders come first, because a broker that leads a later partition should not follow an earlier one.
    leaders: list[int] = []
    for _ in range(count):
        least = min(ring, key=lambda b: (leads[b], load.leaders.get(b, 0), holds[b], load.replicas.get(b, 0)))
        leads[least] += 1
        holds[least] += 1
        leaders.append(least)
    placed: list[tuple[int, ...]] = []
    for leader in leaders:
        behind = ring.index(leader) + 1
        others = [*ring[behind:], *ring[: behind - 1]]
        followers = sorted(others, key=lambda b: (holds[b], load.replicas.get(b, 0)))[: replication_factor - 1]
        holds.update(followers)
        placed.append((leader, *followers))
    return placed


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
