"""Track the acknowledged records, their pauses and the brokers' events during a run."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import cast

from tidelog.history import operations
from tidelog.history.broker_events import BrokerEvent
from tidelog.history.events import Event
from tidelog.model import TopicPartition

_SECOND_NS = 1_000_000_000
#: Records are counted in intervals of this length, because the histories of several clients are not ordered by time.
_STRETCH_NS = 50_000_000
#: The number of broker events kept for the current fault.
_MOST_EVENTS = 200_000


class Activity:
    """The recent activity of clients and brokers, from the events that `take` gets. Events must arrive roughly in order
    of time.

    Times are monotonic nanoseconds. Latencies, errors and brokers' events are kept up to a large number, the last ones.
    """

    def __init__(self, tps: Sequence[TopicPartition]) -> None:
        self.tps = tuple(tps)
        self._done: Counter[int] = Counter()
        self._acknowledged: dict[TopicPartition, list[int]] = {tp: [] for tp in tps}
        self._asked: set[TopicPartition] = set()
        self._begun: dict[int, int] = {}
        self._latencies: deque[tuple[int, int]] = deque(maxlen=200_000)
        self._errors: deque[tuple[int, str]] = deque(maxlen=100_000)
        self._events: dict[int, deque[BrokerEvent]] = defaultdict(lambda: deque(maxlen=_MOST_EVENTS))

    def take(self, kind: str, name: str, event: Event) -> None:
        """Add one event of the history `name`. `kind` is "client" or "broker"; a broker's history is
        named by its id.
        """
        if kind == "broker":
            self._events[int(name)].append(cast(BrokerEvent, event))
        elif isinstance(event, operations.ProduceInvoked):
            self._asked.add(event.tp)
            self._begun.update(zip(event.ids, event.t, strict=True))
        elif isinstance(event, operations.ProduceOk):
            self._produced(event)
        elif isinstance(event, (operations.ProduceFailed, operations.ProduceUnknown)):
            for record_id, why, t in zip(event.ids, event.errors, event.t, strict=True):
                self._begun.pop(record_id, None)
                self._errors.append((t, why))
        elif (error := getattr(event, "error", None)) is not None:
            self._errors.append((cast(operations.ReadFailed, event).t1, error))

    def _produced(self, event: operations.ProduceOk) -> None:
        times = self._acknowledged.get(event.tp)
        if times is not None:
            for t in event.t:
                insort(times, t)  # near the end, because events arrive roughly in order
        for record_id, t in zip(event.ids, event.t, strict=True):
            self._done[t // _STRETCH_NS] += 1
            if (begun := self._begun.pop(record_id, None)) is not None:
                self._latencies.append((t, t - begun))

    def rate(self, now: int) -> int:
        """Return the number of records acknowledged in the second before `now`, at a resolution of 50 ms."""
        return self.between(now - _SECOND_NS, now)

    def between(self, begin: int, end: int) -> int:
        """Return the number of records of all partitions acknowledged between two times, at a resolution of 50 ms."""
        return sum(self._done[stretch] for stretch in range(begin // _STRETCH_NS, end // _STRETCH_NS))

    def longest_gap_ms(self, begin: int, end: int) -> Mapping[TopicPartition, float]:
        """Return for each partition the longest time without an acknowledged produce request between two times.

        The times from `begin` to the first acknowledgement and from the last one to `end` count too.
        """
        gaps = {}
        for tp, times in self._acknowledged.items():
            inside = [begin, *times[bisect_left(times, begin) : bisect_left(times, end)], end]
            gaps[tp] = max(b - a for a, b in pairwise(inside)) / 1e6
        return gaps

    def is_served(self, since: int) -> bool:
        """Return whether every partition that a client produced to has acknowledged a record at `since` or later."""
        return all(times[-1] >= since if times else tp not in self._asked for tp, times in self._acknowledged.items())

    def slowest_ms(self, begin: int, end: int) -> float:
        """Return the longest latency of the records that were acknowledged between two times; 0 if none were."""
        return max((took for t, took in self._latencies if begin <= t < end), default=0) / 1e6

    def errors(self, begin: int, end: int) -> Mapping[str, int]:
        """Return the number of client errors between two times, by the error's name. Each failed record and each other
        failed operation counts.
        """
        return Counter(name for t, name in self._errors if begin <= t < end)

    def broker_events(self, begin: int, end: int) -> Mapping[int, Sequence[BrokerEvent]]:
        """Return the brokers' events from `begin` until before `end`, by broker id."""
        return {
            broker: [event for event in events if begin <= event.t < end] for broker, events in self._events.items()
        }
