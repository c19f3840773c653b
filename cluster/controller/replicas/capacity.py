"""The number of partitions that a broker may hold (KIP-578: max.broker.partitions)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from tidelog.errors import PolicyViolationError


class BrokerCapacity:
    """Counts the partitions of each broker, and refuses partitions beyond a broker's limit.

    held   the partitions that each broker holds now, by broker id
    most   how many partitions each broker may hold

    New replicas are given as the ids of their brokers, with each id as often as the broker gets a replica.
    """

    def __init__(self, held: Mapping[int, int], most: int) -> None:
        self._held = Counter(held)
        self._most = most

    def without_room(self, replicas: Iterable[int]) -> set[int]:
        """Return the brokers that cannot take these replicas."""
        added = Counter(replicas)
        return {id_ for id_, count in added.items() if self._held[id_] + count > self._most}

    def refusal(self, topic: str, replicas: Iterable[int]) -> PolicyViolationError:
        """Return the error about the first broker without room for these replicas; there must be one."""
        added = Counter(replicas)
        broker_id = min(self.without_room(added.elements()))
        return PolicyViolationError(
            f"topic {topic!r}: broker {broker_id} cannot take {added[broker_id]:,} more partitions, because it holds "
            f"{self._held[broker_id]:,} and may hold {self._most:,} (max.broker.partitions); choose fewer partitions "
            "or other brokers, add brokers, or raise the setting"
        )

    def add(self, topic: str, replicas: Collection[int]) -> None:
        """Count new replicas of the topic. Raise PolicyViolationError, and count none, if a broker has no room."""
        if self.without_room(replicas):
            raise self.refusal(topic, replicas)
        self._held.update(replicas)
