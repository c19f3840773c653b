"""What a report draws of a run: lines over time, and what held between two moments.

Times are CLOCK_MONOTONIC in nanoseconds, as in the histories.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.model import TopicPartition


class Span(NamedTuple):
    """`what` held from `begin` until before `end`; of a broker, if `broker` is one."""

    begin: int
    end: int
    what: str
    broker: int | None = None


class Level(NamedTuple):
    """How much it was from `begin` until before `end`, and in words."""

    begin: int
    end: int
    height: int
    what: str = ""


class Moments(NamedTuple):
    """Times in order, each with a number: what was measured then, or held from then on."""

    times: array[int]
    values: array[int]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Moments:
        ordered = sorted(pairs, key=lambda pair: pair[0])
        return cls(array("q", [time for time, _ in ordered]), array("q", [value for _, value in ordered]))


NOTHING = Moments(array("q"), array("q"))


@dataclass(frozen=True, slots=True)
class About:
    """What the run itself says of it.

    values     what to know of it, by name, as its seed
    rows       of the catalogue, that it was asked for
    troubles   what it could not do, or not read
    """

    values: Mapping[str, object] = field(default_factory=dict)
    rows: Sequence[str] = ()
    troubles: Sequence[str] = ()


@dataclass(slots=True)
class PartitionFacts:
    """One partition's, each in the order of time.

    leaders           who led it; what a span says is the leader epoch
    isr               how many were in sync, and who
    high_watermarks   those of its leaders
    acknowledged      when a produce to it succeeded
    """

    leaders: list[Span] = field(default_factory=list)
    isr: list[Level] = field(default_factory=list)
    high_watermarks: Moments = NOTHING
    acknowledged: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class RunFacts:
    """All that is drawn besides faults; `begin` and `end` are those of the time axis.

    latencies     of produces that succeeded: when they were answered, and how long they took (ns)
    records_read  when how many records were read
    unfinished    when a produce was refused, or nobody knows what became of it
    controllers   who held the controller's seat; what a span says is the controller epoch
    sessions      of each broker with ZooKeeper; what a span says is its state
    complaints    what of the histories could not be read
    """

    begin: int = 0
    end: int = 1
    partitions: dict[TopicPartition, PartitionFacts] = field(default_factory=dict)
    latencies: Moments = NOTHING
    records_read: Moments = NOTHING
    unfinished: array[int] = field(default_factory=lambda: array("q"))
    controllers: list[Span] = field(default_factory=list)
    sessions: dict[int, list[Span]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
