"""Check I19: the longest time without an acknowledgement during a fault, the number of operations, and other bounds."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate
from operator import itemgetter

from tidelog.history.operations import ProduceFailed, ProduceOk, ProduceUnknown, Read
from tidelog.model import TopicPartition
from verify.checker.facts import Facts, PartitionFacts, Source
from verify.checker.findings import seconds
from verify.checker.invariant import Ending, Handler, Invariant, Window

#: The time after a permitted pause within which the required operations must have succeeded.
_SOON_NS = 1_000_000_000


class Availability(Invariant):
    """Check I19 for each fault's window: requests are answered within the bound, enough of them succeed, and the
    fault's other bounds are kept.

    A gap begins with the last acknowledgement or with the fault if a record is waiting at that time, otherwise with the
    next produce call, because a partition without requests is not unavailable. A gap ends at the next fault, which has
    its own bound. Every partition with produce calls with acks=all is checked, including one that never acknowledged a
    record.
    """

    key, name = "I19", "unavailable no longer than allowed"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._operations = array("q")
        #: The time at which a record's producer gave up or was refused, by id.
        self._given_up: dict[TopicPartition, dict[int, int]] = defaultdict(dict)

    def handlers(self) -> Mapping[type, Handler]:
        return {
            ProduceOk: self._produced,
            ProduceFailed: self._gave_up,
            ProduceUnknown: self._gave_up,
            Read: self._read,
        }

    def _produced(self, _source: Source, event: ProduceOk) -> None:
        self._operations.extend(event.t)

    def _gave_up(self, _source: Source, event: ProduceFailed | ProduceUnknown) -> None:
        self._given_up[event.tp].update(zip(event.ids, event.t, strict=True))

    def _read(self, _source: Source, event: Read) -> None:
        if event.ids:
            self._operations.append(event.t1)

    def conclude(self, ending: Ending) -> None:
        operations = sorted(self._operations) if ending.windows else []
        waits = {facts.tp: _Waits(facts, self._given_up[facts.tp]) for facts in self.partitions() if ending.windows}
        injected = sorted(window.injected for window in ending.windows)
        for window in ending.windows:
            next_fault = next(iter(injected[bisect_left(injected, window.whole) :]), None)
            until = _counted_until(window, next_fault)
            done = bisect_right(operations, until) - bisect_left(operations, window.injected)
            self.tally.observations += 1
            if done < window.least_operations and not self.only_counted():
                during = f"during {window.row}, {seconds(window.injected)}–{seconds(until)}"
                says = f"{done} operations succeeded {during}, but at least {window.least_operations} were required"
                self.violated(None, until, says)
            if window.broke and not self.only_counted():
                lasted = f"the fault lasted from {seconds(window.injected)} to {seconds(window.healed)}"
                self.violated(None, window.whole, f"{window.row}: {window.broke}", lasted)
            healing = window.whole - window.healed
            if window.most_healing_ns is not None and healing > window.most_healing_ns and not self.only_counted():
                says = f"it took {healing / 1e6:.0f} ms after {window.row} until all replicas were in sync again"
                self.violated(None, window.whole, says, f"healed at {seconds(window.healed)}")
            if window.most_gap_ns is not None:
                for facts in self.partitions():
                    if facts.is_awaited:
                        self._judge_gaps(facts, waits[facts.tp], window, window.most_gap_ns, next_fault)

    def _judge_gaps(
        self, facts: PartitionFacts, waits: _Waits, window: Window, most_ns: int, next_fault: int | None
    ) -> None:
        for begin, last in _gaps(facts, waits, window):
            end = last if next_fault is None else min(last, next_fault)
            self.tally.observations += 1
            if end - begin > most_ns and not self.only_counted():
                took = f"{(end - begin) / 1e6:.0f} ms"
                says = f"no record was acknowledged for {took} during {window.row}; the limit is {most_ns / 1e6:.0f} ms"
                self.violated(facts.tp, end, says, f"no acknowledgement from {seconds(begin)} to {seconds(end)}")


def _counted_until(window: Window, next_fault: int | None) -> int:
    """Return the end (ns) of the time in which operations count: `healed`, or if later a second after `injected` plus
    the permitted gap.

    Without a limit of the gap, return `healed`. The next fault (None: none) ends the time after `healed`, because later
    operations count for the next fault.
    """
    if window.most_gap_ns is None:
        return window.healed
    enough = window.injected + window.most_gap_ns + _SOON_NS
    return max(window.healed, enough if next_fault is None else min(enough, next_fault))


class _Waits:
    """The waiting requests of a partition. A request without an end, because its client was killed or hangs, counts
    only at its begin.
    """

    def __init__(self, facts: PartitionFacts, given_up: Mapping[int, int]) -> None:
        invoked = sorted(facts.invoked_at.items(), key=itemgetter(1))
        ends = (facts.acknowledged.get(each) or given_up.get(each, 0) for each, _ in invoked)
        self._asked = [t for _, t in invoked]
        self._ended = list(accumulate(ends, max))

    def asked(self, since: int) -> int | None:
        """Return the time of the first produce call at or after `since`, or None."""
        place = bisect_left(self._asked, since)
        return self._asked[place] if place < len(self._asked) else None

    def until(self, moment: int) -> int:
        """Return the latest end of the calls made before that time; 0 without one. If it is not later than the time, no
        call is waiting.
        """
        place = bisect_left(self._asked, moment)
        return self._ended[place - 1] if place else 0


def _gaps(facts: PartitionFacts, waits: _Waits, window: Window) -> Iterator[tuple[int, int]]:
    """Yield the gaps that touch the window as (begin, end) in ns.

    A gap lasts from the window's begin or an acknowledgement, or from the next produce call if none is waiting, to the
    next acknowledgement, or to the end of the window if none follows. A gap ends earlier if all waiting calls end
    before the next call.
    """
    times, _ = facts.acknowledgements.settled()
    place = bisect_left(times, window.injected)
    begin = window.injected
    while begin < window.whole:
        asked, until = waits.asked(begin), waits.until(begin)
        if asked is None or asked >= window.whole:
            asked = window.whole
            if until <= begin:
                return
        end = int(times[place]) if place < len(times) else window.whole
        if begin < until:
            yield begin, end if asked <= until else min(until, end)
        if until < asked < window.whole:
            yield asked, max(asked, end)
        begin = end
        place += 1
