"""The data of a report: values over time, and states with a begin and an end.

Times are CLOCK_MONOTONIC in nanoseconds, as in the histories.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.model import TopicPartition


class Span(NamedTuple):
    """The state `what` from `begin` until before `end`, of one broker unless `broker` is None."""

    begin: int
    end: int
    what: str
    broker: int | None = None


class Level(NamedTuple):
    """The value `height` from `begin` until before `end`, with a description for the tooltip."""

    begin: int
    end: int
    height: int
    what: str = ""


class Moments(NamedTuple):
    """Times in order, each with the number at the same index in `values`: measured at that time, or
    valid from then on.
    """

    times: array[int]
    values: array[int]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Moments:
        ordered = sorted(pairs, key=lambda pair: pair[0])
        return cls(array("q", [time for time, _ in ordered]), array("q", [value for _, value in ordered]))


NOTHING = Moments(array("q"), array("q"))


@dataclass(frozen=True, slots=True)
class About:
    """The description of the run, as run.json has it.

    values     properties of the run by name, such as its seed
    rows       the requested rows of the catalogue; empty: unknown
    troubles   the failures of the run itself
    """

    values: Mapping[str, object] = field(default_factory=dict)
    rows: Sequence[str] = ()
    troubles: Sequence[str] = ()


@dataclass(slots=True)
class PartitionFacts:
    """The data of one partition, each in order of time.

    leaders           the leaders; the state of a span is the leader epoch, in order of epochs
    isr               the size of the ISR, and its members as text
    high_watermarks   the high watermarks of the partition's leaders
    acknowledged      the times at which records were acknowledged
    """

    leaders: list[Span] = field(default_factory=list)
    isr: list[Level] = field(default_factory=list)
    high_watermarks: Moments = NOTHING
    acknowledged: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class RunFacts:
    """All data of the chart except the faults; `begin` and `end` are those of the time axis.

    latencies     acknowledged records: the time of the acknowledgement, and the latency in ns
    records_read  the ends of reads, and the number of records
    unfinished    the times of the outcomes of refused records and of those with an unknown outcome
    controllers   the controllers; the state of a span is the controller epoch
    sessions      the ZooKeeper sessions of each broker; the state of a span is that of the session
    complaints    the histories that could not be read, and why
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
