"""Which brokers hold which replicas of a new topic."""

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
    """Kafka's round robin without racks: leaders go round, and the followers' distance grows with each round.

    So both leaders and the followers of any one broker spread evenly. `source` chooses where to begin.
    InvalidPartitionsError, InvalidReplicationFactorError.
    """
    if partitions <= 0:
        raise InvalidPartitionsError(f"a topic needs at least one partition, not {partitions}")
    if replication_factor <= 0:
        raise InvalidReplicationFactorError(f"a topic needs at least one replica, not {replication_factor}")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"{replication_factor} replicas need as many live brokers, and there are {len(brokers)}"
        )
    ring = sorted(brokers)
    start, shift = source.randrange(len(ring)), source.randrange(len(ring))
    return _go_round(ring, range(partitions), replication_factor, start, shift)


def place_more_replicas(
    brokers: Collection[int], existing: Assignment, total: int, replication_factor: int
) -> Assignment:
    """The replicas of the partitions that are to come, up to `total`: the round goes on where the first one began.

    InvalidPartitionsError where there would be no more partitions than there are; InvalidReplicationFactorError.
    """
    if total <= len(existing):
        raise InvalidPartitionsError(f"it has {len(existing)} partitions already: {total} would add none")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"{replication_factor} replicas need as many live brokers, and there are {len(brokers)}"
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
    """Never the leader itself: the distance is between 1 and brokers − 1."""
    return (first + 1 + (shift + index) % (brokers - 1)) % brokers


def check_assignment(
    assignment: Mapping[int, Sequence[int]], brokers: Collection[int], *, first: int = 0, factor: int | None = None
) -> Assignment:
    """A manual assignment of the partitions from `first` on, if it makes sense; else InvalidReplicaAssignmentError."""
    if not assignment:
        raise InvalidReplicaAssignmentError("an assignment names at least one partition")
    if sorted(assignment) != list(range(first, first + len(assignment))):
        raise InvalidReplicaAssignmentError(
            f"partitions are numbered from {first} without a gap, not {sorted(assignment)}"
        )
    wanted = len(assignment[first]) if factor is None else factor
    for partition, replicas in sorted(assignment.items()):
        check_replicas(partition, replicas, brokers)
        if len(replicas) != wanted:
            raise InvalidReplicaAssignmentError(
                f"partition {partition} has another number of replicas than {wanted}"
                if factor is not None
                else f"partitions 0 and {partition} have different numbers of replicas"
            )
    return {partition: tuple(replicas) for partition, replicas in sorted(assignment.items())}


def check_replicas(partition: int, replicas: Sequence[int], brokers: Collection[int]) -> None:
    """InvalidReplicaAssignmentError unless these are live brokers, each once, and at least one."""
    if not replicas:
        raise InvalidReplicaAssignmentError(f"partition {partition} has no replica")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignmentError(f"partition {partition} names a broker twice: {list(replicas)}")
    if unknown := sorted(set(replicas) - set(brokers)):
        raise InvalidReplicaAssignmentError(
            f"partition {partition} names brokers that are not alive: {unknown}; there are {sorted(brokers)}"
        )
