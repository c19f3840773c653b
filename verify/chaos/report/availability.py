"""Where partitions took no records, for how long, and what was broken then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.model import TopicPartition
from verify.chaos.injections import Injection
from verify.chaos.report.facts import RunFacts
from verify.chaos.report.sampling import gaps

#: A partition is unavailable when it has acknowledged nothing for so long …
LEAST_NS = 500_000_000
#: … and for so many times what lies between two acknowledgements of it on the average.
_TIMES_THE_AVERAGE = 20


class Gap(NamedTuple):
    """From the last acknowledged produce before it to the first one after it."""

    tp: TopicPartition
    begin: int
    end: int

    @property
    def length_s(self) -> float:
        return (self.end - self.begin) / 1e9


def unavailable(facts: RunFacts) -> list[Gap]:
    """All gaps, the longest first.

    Before its own first acknowledgement nobody may have written to a partition; after the last of all nobody does.
    """
    found = []
    last = max(
        (partition.acknowledged[-1] for partition in facts.partitions.values() if partition.acknowledged), default=0
    )
    for tp, partition in facts.partitions.items():
        times = partition.acknowledged
        if len(times) > 1:
            average = (times[-1] - times[0]) // (len(times) - 1)
            longest = max(LEAST_NS, _TIMES_THE_AVERAGE * average)
            found += [Gap(tp, begin, end) for begin, end in gaps(times, times[0], last, longest)]
    return sorted(found, key=lambda gap: gap.begin - gap.end)


def meanwhile(gap: Gap, faults: Sequence[Injection]) -> list[Injection]:
    """The faults that were there during a gap."""
    return [
        fault
        for fault in faults
        if fault.t_inject is not None
        and fault.t_inject < gap.end
        and (fault.t_heal is None or fault.t_heal > gap.begin)
    ]
