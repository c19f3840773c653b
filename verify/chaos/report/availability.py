"""Find the times in which partitions acknowledged nothing, and the faults of these times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.model import TopicPartition
from verify.chaos.injections import Injection
from verify.chaos.report.facts import RunFacts
from verify.chaos.report.sampling import gaps

#: A partition is unavailable if it acknowledged nothing for longer than this time …
LEAST_NS = 500_000_000
#: … and for longer than this many average intervals between its acknowledgements.
_TIMES_THE_AVERAGE = 20


class Gap(NamedTuple):
    """The time between two successive acknowledgements of a partition, in monotonic nanoseconds.

    After the partition's last acknowledgement, `end` is the last acknowledgement of any partition.
    """

    tp: TopicPartition
    begin: int
    end: int

    @property
    def length_s(self) -> float:
        return (self.end - self.begin) / 1e9


def unavailable(facts: RunFacts) -> list[Gap]:
    """Return all gaps in which a partition counts as unavailable, longest first: longer than 0.5 s and than 20 average
    intervals between its acknowledgements.

    The time before a partition's first acknowledgement does not count, because no client may have written to it. The
    time after the last acknowledgement of any partition does not count either. A partition with fewer than two
    acknowledgements has no gaps.
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
    """Return the faults that were injected before the end of the gap and not healed before its begin."""
    return [
        fault
        for fault in faults
        if fault.t_inject is not None
        and fault.t_inject < gap.end
        and (fault.t_heal is None or fault.t_heal > gap.begin)
    ]
