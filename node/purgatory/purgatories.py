"""What waits for replication: produces for the high watermark, fetches for data (DESIGN 6).

Appends and acknowledgements only mark what has changed. What waits is woken once for all that happened in one
turn of the loop: one answer to a follower then carries every partition of a produce, and of its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from node.purgatory.delayed_produce import DelayedProduce, DelayedResponse
from node.purgatory.purgatory import Purgatory
from node.replication.fetch_sessions import FetchSession, FetchSessions
from tidelog.client.async_event import Signal
from tidelog.model import TopicPartition


class Purgatories:
    """The purgatories of one broker, and what has changed since they were last looked at.

    alarm   set when something is due earlier than was known: whoever sleeps until `next_deadline_ms` looks again

    `soon` runs a callback in the loop's next turn (`loop.call_soon`). By `now_ns` it is measured how long each waits.
    """

    def __init__(self, soon: Callable[[Callable[[], None]], object], now_ns: Callable[[], int] = lambda: 0) -> None:
        self._soon = soon
        self._scheduled = False
        self._stirred: dict[FetchSession, None] = {}
        self._advanced: dict[TopicPartition, None] = {}
        self.sessions = FetchSessions()
        self.alarm = alarm = Signal()
        self.produces: Purgatory[TopicPartition, DelayedProduce] = Purgatory(now_ns=now_ns, on_earlier=alarm.set)
        self.consumer_fetches: Purgatory[TopicPartition, DelayedResponse] = Purgatory(
            now_ns=now_ns, on_earlier=alarm.set
        )
        self.follower_fetches: Purgatory[FetchSession, DelayedResponse] = Purgatory(now_ns=now_ns, on_earlier=alarm.set)
        self.deletions: Purgatory[TopicPartition, DelayedResponse] = Purgatory(now_ns=now_ns, on_earlier=alarm.set)

    def __len__(self) -> int:
        return sum(map(len, self._purgatories))

    @property
    def _purgatories(self) -> tuple[Purgatory[Any, Any], ...]:
        return self.produces, self.consumer_fetches, self.follower_fetches, self.deletions

    def log_grew(self, tp: TopicPartition) -> None:
        """The log end moved: followers have something to fetch."""
        for session in self.sessions:
            if session.stir(tp):
                self._stirred[session] = None
        self._schedule()

    def high_watermark_rose(self, tp: TopicPartition) -> None:
        """More is committed: produces may be acknowledged, and consumers read on."""
        self._advanced[tp] = None
        self.changed(tp)
        self._schedule()

    def changed(self, tp: TopicPartition) -> None:
        """Its log start or its ISR is another: nothing to wake anybody for, and told with the next answer."""
        for session in self.sessions:
            session.stir(tp)

    def records_deleted(self, tp: TopicPartition) -> None:
        """The log begins later, as somebody wanted: followers hear of it at once, since he waits for them."""
        self.consumer_fetches.check_and_complete(tp)
        for session in self.sessions:
            if session.stir(tp):
                self.follower_fetches.force_complete(session)

    def epoch_ended(self, tp: TopicPartition) -> None:
        """Another epoch, another role or no disk: nobody waits here for what the old one promised."""
        self.produces.check_and_complete(tp)
        self.deletions.check_and_complete(tp)
        self.consumer_fetches.force_complete(tp)
        for session in self.sessions:
            if session.stir(tp):
                self.follower_fetches.force_complete(session)

    def wake(self) -> None:
        """Complete what the marked changes allow."""
        self._scheduled = False
        stirred, self._stirred = self._stirred, {}
        advanced, self._advanced = self._advanced, {}
        for session in stirred:
            self.follower_fetches.check_and_complete(session)
        for tp in advanced:
            self.produces.check_and_complete(tp)
            self.consumer_fetches.check_and_complete(tp)

    def expire(self, now_ms: int) -> None:
        """Complete what is due."""
        for purgatory in self._purgatories:
            purgatory.expire(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `expire` will next have something to do."""
        deadlines = (purgatory.next_deadline_ms() for purgatory in self._purgatories)
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    def complete_all(self) -> None:
        """The broker stops: everybody gets an answer."""
        for purgatory in self._purgatories:
            purgatory.force_complete_all()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._soon(self.wake)
