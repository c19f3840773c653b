"""Chooses the brokers that get the replicas of drained brokers. The functions are pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from tidelog.model import TopicPartition
from tidelog.quantities import count_of, plural


def drain(
    assignment: Mapping[TopicPartition, Sequence[int]],
    leaving: Collection[int],
    alive: Collection[int],
    racks: Mapping[int, str] = MappingProxyType({}),
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return, by partition, the new replicas of each partition that has a replica on a leaving broker.

    `assignment` has the replicas of each partition of some topics, and `racks` the racks of the brokers that have one.
    A replica of a leaving broker moves to a live broker in a rack with the fewest other replicas of the partition.
    Among these brokers, it moves to one with the fewest replicas of the topic, then of all these topics, and among
    equals to the lowest id. A broker without a rack counts as a rack of its own. The replica keeps its position in the
    list, and the number of replicas stays the same. Raises ValueError if fewer brokers remain than a partition needs,
    or if a leaving broker is not alive and has no replica.
    """
    held = {broker for replicas in assignment.values() for broker in replicas}
    unknown = sorted(set(leaving) - set(alive) - held)
    if unknown:
        raise ValueError(
            f"broker {unknown[0]} is not in the cluster now (there are: {_names(alive)}), and has no replica"
        )
    load = Load(set(alive) - set(leaving), assignment)
    drained: dict[TopicPartition, tuple[int, ...]] = {}
    for tp, replicas in sorted(assignment.items()):
        if not set(replicas).isdisjoint(leaving):
            drained[tp] = _replace(tp, replicas, leaving, load, racks)
    return drained


class Load:
    """How many replicas each broker that stays has, of each topic and of all."""

    def __init__(self, staying: Collection[int], assignment: Mapping[TopicPartition, Sequence[int]]) -> None:
        self.staying = sorted(staying)
        self._of_topic: Counter[tuple[str, int]] = Counter()
        self._of_all: Counter[int] = Counter()
        for tp, replicas in assignment.items():
            for broker in replicas:
                self.add(tp.topic, broker)

    def add(self, topic: str, broker: int) -> None:
        self._of_topic[topic, broker] += 1
        self._of_all[broker] += 1

    def of(self, topic: str, broker: int) -> tuple[int, int]:
        """Return the numbers of the broker's replicas: of the topic, and of all topics."""
        return self._of_topic[topic, broker], self._of_all[broker]


def _replace(
    tp: TopicPartition,
    replicas: Sequence[int],
    leaving: Collection[int],
    load: Load,
    racks: Mapping[int, str],
) -> tuple[int, ...]:
    moved = list(replicas)
    in_rack = Counter(racks[broker] for broker in replicas if broker in racks and broker not in leaving)
    for index, broker in enumerate(replicas):
        if broker not in leaving:
            continue
        free = [candidate for candidate in load.staying if candidate not in moved]
        if not free:
            drained = sorted(set(replicas) & set(leaving))
            raise ValueError(
                f"{tp.topic}/{tp.partition} has {count_of(len(replicas), 'replica')}, and too few other brokers are "
                f"alive to take the replicas of {plural(len(drained), 'broker')} {_names(drained)}: "
                "start more brokers, or name fewer replicas with --replicas"
            )
        chosen = min(
            free, key=lambda each: (in_rack[racks[each]] if each in racks else 0, load.of(tp.topic, each), each)
        )
        moved[index] = chosen
        load.add(tp.topic, chosen)
        in_rack.update([racks[chosen]] if chosen in racks else ())
    return tuple(moved)


def _names(brokers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))
