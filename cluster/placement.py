"""Which brokers hold which replicas of a new topic."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

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
    start = source.randrange(len(ring))
    shift = source.randrange(len(ring))
    assignment: Assignment = {}
    for partition in range(partitions):
        if partition and partition % len(ring) == 0:
            shift += 1
        first = (partition + start) % len(ring)
        followers = [ring[_follower(first, shift, index, len(ring))] for index in range(replication_factor - 1)]
        assignment[partition] = (ring[first], *followers)
    return assignment


def _follower(first: int, shift: int, index: int, brokers: int) -> int:
    """Never the leader itself: the distance is between 1 and brokers − 1."""
    return (first + 1 + (shift + index) % (brokers - 1)) % brokers


def check_assignment(assignment: Mapping[int, Sequence[int]], brokers: Collection[int]) -> Assignment:
    """A manual assignment, if it makes sense; else InvalidReplicaAssignmentError."""
    if not assignment:
        raise InvalidReplicaAssignmentError("an assignment names at least one partition")
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidReplicaAssignmentError(f"partitions are numbered from 0 without a gap, not {sorted(assignment)}")
    factor = len(assignment[0])
    for partition, replicas in sorted(assignment.items()):
        if not replicas:
            raise InvalidReplicaAssignmentError(f"partition {partition} has no replica")
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignmentError(f"partition {partition} names a broker twice: {list(replicas)}")
        if len(replicas) != factor:
            raise InvalidReplicaAssignmentError(f"partitions 0 and {partition} have different numbers of replicas")
        if unknown := sorted(set(replicas) - set(brokers)):
            raise InvalidReplicaAssignmentError(f"partition {partition} names brokers that are not alive: {unknown}")
    return {partition: tuple(replicas) for partition, replicas in sorted(assignment.items())}
