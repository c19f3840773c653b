"""Chooses the brokers that get the replicas of drained brokers. The functions are pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from tidelog.quantities import count_of, plural


def drain(
    assignment: Mapping[int, Sequence[int]],
    leaving: Collection[int],
    alive: Collection[int],
    racks: Mapping[int, str] = MappingProxyType({}),
) -> dict[int, tuple[int, ...]]:
    """Return, by partition, the new replicas of each partition that has a replica on a leaving broker.

    `assignment` has the replicas of each partition of a topic, and `racks` the racks of the brokers that have one. A
    replica of a leaving broker moves to a live broker in a rack with the fewest other replicas of the partition. Among
    these brokers, it moves to one with the fewest replicas of the topic, and among equals to the lowest id. A broker
    without a rack counts as a rack of its own. The replica keeps its position in the list, and the number of replicas
    stays the same. Raises ValueError if fewer brokers remain than a partition needs, or if a leaving broker is not
    alive and has no replica.
    """
    held = {broker for replicas in assignment.values() for broker in replicas}
    unknown = sorted(set(leaving) - set(alive) - held)
    if unknown:
        raise ValueError(
            f"broker {unknown[0]} is not in the cluster now (there are: {_names(alive)}), and has no replica"
        )
    load = Counter(dict.fromkeys(sorted(set(alive) - set(leaving)), 0))
    load.update(broker for replicas in assignment.values() for broker in replicas if broker in load)
    drained: dict[int, tuple[int, ...]] = {}
    for partition, replicas in sorted(assignment.items()):
        if not set(replicas).isdisjoint(leaving):
            drained[partition] = _replace(partition, replicas, leaving, load, racks)
    return drained


def _replace(
    partition: int,
    replicas: Sequence[int],
    leaving: Collection[int],
    load: Counter[int],
    racks: Mapping[int, str],
) -> tuple[int, ...]:
    moved = list(replicas)
    in_rack = Counter(racks[broker] for broker in replicas if broker in racks and broker not in leaving)
    for index, broker in enumerate(replicas):
        if broker not in leaving:
            continue
        free = [candidate for candidate in load if candidate not in moved]
        if not free:
            drained = sorted(set(replicas) & set(leaving))
            raise ValueError(
                f"partition {partition} has {count_of(len(replicas), 'replica')}, and too few other brokers are alive "
                f"to take the replicas of {plural(len(drained), 'broker')} {_names(drained)}: "
                "start more brokers, or name fewer replicas with --replicas"
            )
        chosen = min(free, key=lambda each: (in_rack[racks[each]] if each in racks else 0, load[each], each))
        moved[index] = chosen
        load[chosen] += 1
        in_rack.update([racks[chosen]] if chosen in racks else ())
    return tuple(moved)


def _names(brokers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))
