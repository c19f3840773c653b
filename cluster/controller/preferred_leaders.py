"""The partitions to return to their preferred leaders, so that every broker leads its share again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.model import TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderImbalance:
    """`leader.imbalance.check.interval.seconds` and `leader.imbalance.per.broker.percentage`."""

    interval_s: float = 300
    percentage: int = 10


def imbalanced(leaders: Mapping[TopicPartition, tuple[int, int]], percentage: int) -> list[TopicPartition]:
    """Return the partitions to return to their preferred leaders, in order.

    A broker's partitions are returned only if others lead more than `percentage` % of those that prefer this broker.
    `leaders` maps each partition to its preferred leader and its leader.
    """
    share: dict[int, int] = defaultdict(int)
    lacking: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp, (preferred, leader) in sorted(leaders.items()):
        share[preferred] += 1
        if leader != preferred:
            lacking[preferred].append(tp)
    return sorted(tp for broker, tps in lacking.items() if 100 * len(tps) > percentage * share[broker] for tp in tps)
