"""Collect the data of a report from the events of all histories."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

from tidelog.history.broker_events import (
    Ack,
    BecomeFollower,
    BecomeLeader,
    Broker,
    Controller,
    HighWatermark,
    IsrChange,
    Registered,
    Resources,
    Session,
)
from tidelog.history.events import Event, Header
from tidelog.history.operations import Client, ProduceFailed, ProduceInvoked, ProduceOk, ProduceUnknown, Read
from tidelog.model import TopicPartition
from verify.chaos.report.facts import Level, Moments, PartitionFacts, RunFacts, Span

T = TypeVar("T")

#: The session state between a broker's start and its first event about it.
_STARTING, _CONNECTED = "starting", "connected"


class Observer:
    """The collector. `take` takes one history after another in any order, and `facts` returns the result of all."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._last = 0
        self._acknowledged: defaultdict[TopicPartition, array[int]] = defaultdict(lambda: array("q"))
        self._latencies: list[tuple[int, int]] = []
        self._reads: list[tuple[int, int]] = []
        self._unfinished = array("q")
        self._leads: defaultdict[TopicPartition, list[tuple[int, int, int]]] = defaultdict(list)
        self._steps_down: defaultdict[tuple[TopicPartition, int], list[tuple[int, int]]] = defaultdict(list)
        self._isr: defaultdict[TopicPartition, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
        self._watermarks: defaultdict[tuple[TopicPartition, int, int], list[tuple[int, int]]] = defaultdict(list)
        self._controllers: list[tuple[int, int, int]] = []
        self._sessions: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)

    def take(self, history: Iterable[Header | Event]) -> None:
        """Take the history of one client or broker. A HistoryError passes through, and the events before it count."""
        broker_id, born = -1, 0
        waiting: dict[int, int] = {}
        for event in history:
            if isinstance(event, Client):
                waiting = {}
            elif isinstance(event, Broker):
                broker_id = event.broker_id
                born = event.t
            elif broker_id < 0:
                self._take_client(event, waiting)
            else:
                # Resource counts are in histories of their own, which do not begin with a start of the broker.
                if born and not isinstance(event, Resources):
                    self._sessions[broker_id].append((born, _STARTING))
                    self._saw((born,))
                    born = 0
                self._take_broker(event, broker_id)

    def facts(self, faults_begin: Iterable[int] = (), faults_end: Iterable[int] = ()) -> RunFacts:
        """Return the data of the histories taken so far. The time axis also includes the begins and ends of faults.

        The states at the end of the histories last until the end of the axis.
        """
        begin = min([*(() if self._first is None else (self._first,)), *faults_begin], default=0)
        end = max([self._last, *faults_end, begin + 1])
        facts = RunFacts(begin, end)
        facts.latencies, facts.records_read = Moments.of(self._latencies), Moments.of(self._reads)
        facts.unfinished = array("q", sorted(self._unfinished))
        for tp in sorted({*self._acknowledged, *self._leads, *self._isr}):
            facts.partitions[tp] = self._partition(tp, end)
        facts.controllers = _terms([(time, epoch, broker, None) for time, epoch, broker in self._controllers], end)
        for broker_id, states in sorted(self._sessions.items()):
            facts.sessions[broker_id] = [
                Span(time, until, state, broker_id)
                for time, until, state in _until_the_next(sorted(states, key=lambda pair: pair[0]), end)
            ]
        return facts

    def _take_client(self, event: Event, waiting: dict[int, int]) -> None:
        if isinstance(event, ProduceInvoked):
            waiting.update(zip(event.ids, event.t, strict=True))
            self._saw(event.t)
        elif isinstance(event, ProduceOk):
            self._acknowledged[event.tp].extend(event.t)
            for record_id, time in zip(event.ids, event.t, strict=True):
                if (invoked := waiting.pop(record_id, None)) is not None:
                    self._latencies.append((time, time - invoked))
            self._saw(event.t)
        elif isinstance(event, ProduceFailed | ProduceUnknown):
            for record_id in event.ids:
                waiting.pop(record_id, None)
            self._unfinished.extend(event.t)
            self._saw(event.t)
        elif isinstance(event, Read):
            self._reads.append((event.t1, len(event.offsets)))
            self._saw((event.t1,))

    def _take_broker(self, event: Event, broker_id: int) -> None:
        if isinstance(event, HighWatermark):
            self._watermarks[event.tp, event.epoch, broker_id].append((event.t, event.value))
        elif isinstance(event, BecomeLeader):
            self._leads[event.tp].append((event.t, event.epoch, broker_id))
            self._watermarks[event.tp, event.epoch, broker_id].append((event.t, event.hw))
        elif isinstance(event, BecomeFollower):
            self._steps_down[event.tp, broker_id].append((event.t, event.epoch))
        elif isinstance(event, IsrChange) and event.ok:
            self._isr[event.tp].append((event.t, tuple(event.isr)))
        elif isinstance(event, Ack):
            known = self._isr[event.tp]
            if not known or known[-1][1] != tuple(event.isr):
                known.append((event.t, tuple(event.isr)))
        elif isinstance(event, Controller):
            self._controllers.append((event.t, event.epoch, broker_id))
        elif isinstance(event, Registered):
            # The history of a session without disturbances has no other event.
            self._sessions[broker_id].append((event.t, _CONNECTED))
        elif isinstance(event, Session):
            self._sessions[broker_id].append((event.t, event.state))
        else:
            return
        self._saw((event.t,))

    def _saw(self, times: Sequence[int]) -> None:
        if times:
            earliest = min(times)
            self._first = earliest if self._first is None else min(self._first, earliest)
            self._last = max(self._last, *times)

    def _partition(self, tp: TopicPartition, end: int) -> PartitionFacts:
        leads = self._leads.get(tp, [])
        terms = _terms([(time, epoch, broker, self._end_of(tp, broker, epoch)) for time, epoch, broker in leads], end)
        watermarks = [pair for time, epoch, broker in leads for pair in self._watermarks[tp, epoch, broker]]
        changes = sorted(self._isr.get(tp, []), key=lambda pair: pair[0])
        return PartitionFacts(
            leaders=terms,
            isr=[
                Level(time, until, len(isr), "{" + ", ".join(map(str, sorted(isr))) + "}")
                for time, until, isr in _until_the_next(changes, end)
            ],
            high_watermarks=Moments.of(watermarks),
            acknowledged=array("q", sorted(self._acknowledged.get(tp, ()))),
        )

    def _end_of(self, tp: TopicPartition, broker_id: int, epoch: int) -> int | None:
        """Return the earliest time at which this leader became a follower in a later epoch, or None if it never did."""
        return min((time for time, of in self._steps_down[tp, broker_id] if of > epoch), default=None)


def _terms(begins: list[tuple[int, int, int, int | None]], end: int) -> list[Span]:
    """Return the leaders or controllers (time, epoch, broker, time of resignation or None) as spans, in order of
    epochs.

    A span ends at the resignation, at the begin of the next epoch or at `end`, whichever is first.
    """
    spans = []
    ordered = sorted(set(begins), key=lambda begin: (begin[1], begin[0]))
    ends = [*(begin for begin, *_ in ordered), end][1:]
    for (begin, epoch, broker, resigned), following in zip(ordered, ends, strict=False):
        until = min(following, end if resigned is None else resigned)
        spans.append(Span(begin, max(until, begin), str(epoch), broker))
    return spans


def _until_the_next(steps: list[tuple[int, T]], end: int) -> list[tuple[int, int, T]]:
    """Return each state with its begin and end. The last one ends at `end`, and a repeated state does not start a new
    one.
    """
    changes = [next(group) for _, group in groupby(steps, key=itemgetter(1))]
    ends = [*(time for time, _ in changes), end][1:]
    return [(time, until, state) for (time, state), until in zip(changes, ends, strict=False)]
