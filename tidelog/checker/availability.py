"""I19: how long a partition took no record while a fault lasted, how much was done meanwhile, and what else it cost."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping

from tidelog.checker.facts import Facts, PartitionFacts, Source
from tidelog.checker.findings import seconds
from tidelog.checker.invariant import Ending, Handler, Invariant, Window
from tidelog.checker.operations import ProduceOk, Read


class Availability(Invariant):
    """I19, of each fault's window: what was asked for is answered within its bound, and enough is; and the bounds that
    the fault judges itself were kept.

    A gap begins with the first record that is produced after the last acknowledgement, or with the fault: where nobody
    produces, nothing is unavailable.
    """

    key, name = "I19", "unavailable no longer than allowed"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._operations = array("q")

    def handlers(self) -> Mapping[type, Handler]:
        return {ProduceOk: self._produced, Read: self._read}

    def _produced(self, _source: Source, event: ProduceOk) -> None:
        self._operations.extend(event.t)

    def _read(self, _source: Source, event: Read) -> None:
        if event.ids:
            self._operations.append(event.t1)

    def conclude(self, ending: Ending) -> None:
        operations = sorted(self._operations) if ending.windows else []
        invoked = {facts.tp: sorted(facts.invoked_at.values()) for facts in self.partitions()} if ending.windows else {}
        for window in ending.windows:
            done = bisect_right(operations, window.healed) - bisect_left(operations, window.injected)
            during = f"during {window.row}, {seconds(window.injected)}–{seconds(window.healed)}"
            self.tally.observations += 1
            if done < window.least_operations and not self.only_counted():
                says = f"{done} operations succeeded {during}, and {window.least_operations} had to"
                self.violated(None, window.healed, says)
            if window.broke and not self.only_counted():
                self.violated(None, window.whole, f"{window.row}: {window.broke}", during)
            healing = window.whole - window.healed
            if window.most_healing_ns is not None and healing > window.most_healing_ns and not self.only_counted():
                says = f"it took {healing / 1e6:.0f} ms after {window.row} until all replicas were in sync again"
                self.violated(None, window.whole, says, f"healed at {seconds(window.healed)}")
            if window.most_gap_ns is not None:
                for facts in self.partitions():
                    if facts.acknowledged:
                        self._judge_gaps(facts, invoked[facts.tp], window, window.most_gap_ns)

    def _judge_gaps(self, facts: PartitionFacts, invoked: list[int], window: Window, most_ns: int) -> None:
        for begin, end in _gaps(facts, invoked, window):
            self.tally.observations += 1
            if end - begin > most_ns and not self.only_counted():
                took = f"{(end - begin) / 1e6:.0f} ms"
                says = f"nothing was acknowledged for {took} during {window.row}; allowed are {most_ns / 1e6:.0f} ms"
                self.violated(facts.tp, end, says, f"no acknowledgement from {seconds(begin)} to {seconds(end)}")


def _gaps(facts: PartitionFacts, invoked: list[int], window: Window) -> Iterator[tuple[int, int]]:
    """From when somebody waited for the next acknowledgement, to that: all that touch the window."""
    times, _ = facts.acknowledgements.settled()
    place = bisect_left(times, window.injected)
    begin = window.injected
    while begin < window.whole:
        asked = bisect_left(invoked, begin)
        if asked == len(invoked) or invoked[asked] >= window.whole:
            return
        end = int(times[place]) if place < len(times) else window.whole
        yield invoked[asked], max(invoked[asked], end)
        begin = end
        place += 1
