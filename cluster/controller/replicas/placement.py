"""The placement of a new topic's replicas on brokers."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence

from tidelog.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
)

Assignment = dict[int, tuple[int, ...]]


def place_replicas(
    brokers: Collection[int], partitions: int, replication_factor: int, source: random.Random
) -> Assignment:
    """Return the replicas of each partition, the preferred leader first, by Kafka's rack-unaware round robin.

    Leaders rotate, and followers shift by one more each round. Leaders, and the followers of each broker, are therefore
    spread evenly. `source` chooses the first broker and the first shift.

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
    return _go_round(ring, range(partitions), replication_factor, start, shift)


def place_more_replicas(
    brokers: Collection[int], existing: Assignment, total: int, replication_factor: int
) -> Assignment:
    """Return the replicas of the partitions to be added only, continuing the round robin of the existing ones.

    `total` is the new number of partitions. InvalidPartitionsError if it adds none. InvalidReplicationFactorError if
    the factor exceeds the number of brokers.
    """
    if total <= len(existing):
        raise InvalidPartitionsError(f"the topic already has {len(existing)} partitions, and {total} would add none")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor} is larger than the number of live brokers, {len(brokers)}"
        )
    ring = sorted(brokers)
    start = next((index for index, broker in enumerate(ring) if broker >= existing[0][0]), 0)
    return _go_round(ring, range(len(existing), total), replication_factor, start, start)


def _go_round(
    ring: Sequence[int], partitions: Iterable[int], replication_factor: int, start: int, shift: int
) -> Assignment:
    assignment: Assignment = {}
    for partition in partitions:
        if partition and partition % len(ring) == 0:
            shift += 1
        first = (partition + start) % len(ring)
        followers = [ring[_follower(first, shift, index, len(ring))] for index in range(replication_factor - 1)]
        assignment[partition] = (ring[first], *followers)
    return assignment


def _follower(first: int, shift: int, index: int, brokers: int) -> int:
    """Return the index in the ring of the follower numbered `index`.

    The index is never the leader's (`first`), because the distance is between 1 and brokers − 1.
    """
    return (first + 1 + (shift + index) % (brokers - 1)) % brokers


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
