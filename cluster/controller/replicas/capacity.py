"""The number of partitions that a broker may hold (KIP-578: max.broker.partitions)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tidelog.errors import PolicyViolationError


class BrokerCapacity:
    """Counts the partitions that each broker holds, and refuses those that are too many for a broker.

    held   the partitions that each broker holds now, by broker id
    most   how many partitions each broker may hold
    """

    def __init__(self, held: Mapping[int, int], most: int) -> None:
        self._held = Counter(held)
        self._most = most

    def add(self, topic: str, replicas: Iterable[int]) -> None:
        """Add partitions of the topic to brokers: `replicas` has a broker once for each partition that it gets.

        Raise PolicyViolationError, and add nothing, if a broker would hold too many partitions.
        """
        added = Counter(replicas)
        for broker_id, count in sorted(added.items()):
            if self._held[broker_id] + count > self._most:
                raise PolicyViolationError(
                    f"topic {topic!r}: broker {broker_id} holds {self._held[broker_id]:,} partitions and may hold "
                    f"{self._most:,} (max.broker.partitions), so that it cannot take {count:,} more: choose fewer "
                    "partitions or replicas, add brokers, or raise the setting"
                )
        self._held += added
