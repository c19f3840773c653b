"""Results of partitions, as Kafka's responses nest them: grouped by topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

Topic = TypeVar("Topic", bound=Hashable)
T = TypeVar("T")


def by_topic(results: Iterable[tuple[Topic, T]]) -> list[tuple[Topic, tuple[T, ...]]]:
    """Return the results of each topic, in the order in which the topics first occur."""
    grouped: defaultdict[Topic, list[T]] = defaultdict(list)
    for topic, result in results:
        grouped[topic].append(result)
    return [(topic, tuple(found)) for topic, found in grouped.items()]
