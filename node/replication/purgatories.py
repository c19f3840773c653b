"""The four purgatories of a broker: produces, consumer fetches, follower fetches, and deletions of records.

Appends and acknowledgements only mark what has changed. Once for each turn of the event loop `complete_ready` checks
the waiting requests. So one answer to a follower carries all partitions to which this turn has appended. If the checks
of very many fetches of consumers are due, some of them are made in later turns.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from node.purgatory.delayed_response import DelayedResponse
from node.purgatory.gradual_checks import LONGEST_TURN_NS, GradualChecks
from node.purgatory.purgatory import Purgatory
from node.replication.delayed_produce import DelayedProduce
from node.replication.sessions.consumer_sessions import ConsumerSession, ConsumerSessions
from node.replication.sessions.follower_sessions import FollowerSession, FollowerSessions
from tidelog.client.tasks.async_event import Signal
from tidelog.model import TopicPartition


class Purgatories:
    """The purgatories of one broker, and the changes since the last `complete_ready`.

    follower_sessions   the fetch sessions of followers
    consumer_sessions   those of Kafka's consumers
    alarm               set when a deadline becomes earlier, so that the task that sleeps until `next_deadline_ms` wakes

    `soon` runs a callback in the next turn of the event loop (`loop.call_soon`). `now_ns` measures how long requests
    wait.
    """

    def __init__(self, soon: Callable[[Callable[[], None]], object], now_ns: Callable[[], int] = lambda: 0) -> None:
        self._soon = soon
        self._now_ns = now_ns
        self._scheduled = False
        self._is_checking = False
        self._active_follower_sessions: dict[FollowerSession, None] = {}
        self._advanced: dict[TopicPartition, None] = {}
        self.follower_sessions = FollowerSessions()
        self.consumer_sessions = ConsumerSessions(on_end=self._session_ended)
        self.alarm = alarm = Signal()
        self.produces: Purgatory[TopicPartition, DelayedProduce] = Purgatory(now_ns=now_ns, on_earlier=alarm.set)
        self.consumer_fetches: Purgatory[TopicPartition | ConsumerSession, DelayedResponse] = Purgatory(
            now_ns=now_ns, on_earlier=alarm.set
        )
        self._checks = GradualChecks(self.consumer_fetches, now_ns)
        self.follower_fetches: Purgatory[FollowerSession, DelayedResponse] = Purgatory(
            now_ns=now_ns, on_earlier=alarm.set
        )
        self.deletions: Purgatory[TopicPartition, DelayedResponse] = Purgatory(now_ns=now_ns, on_earlier=alarm.set)

    def __len__(self) -> int:
        return sum(map(len, self._purgatories))

    @property
    def _purgatories(self) -> tuple[Purgatory[Any, Any], ...]:
        return self.produces, self.consumer_fetches, self.follower_fetches, self.deletions

    def log_grew(self, tp: TopicPartition) -> None:
        """Mark that the log end offset has risen. `complete_ready` then checks the fetches of its followers."""
        for session in self.follower_sessions:
            if session.mark_active(tp):
                self._active_follower_sessions[session] = None
        self._schedule()

    def high_watermark_rose(self, tp: TopicPartition) -> None:
        """Mark that the high watermark has risen. `complete_ready` then checks produces and fetches of consumers."""
        self._advanced[tp] = None
        self.mark_changed(tp)
        self._schedule()

    def mark_changed(self, tp: TopicPartition) -> None:
        """Make the next fetch of each session check this partition, whose high watermark, log start or ISR has changed.

        No fetch completes now. The next answer has a changed high watermark and log start, but no ISR.
        """
        for session in self.follower_sessions:
            session.mark_active(tp)
        self.consumer_sessions.mark_active(tp)

    def followers_registered(self, broker_ids: Container[int], tp: TopicPartition) -> None:
        """Make the next fetch of these followers check this partition, which has forgotten what they reported before.

        No fetch completes now.
        """
        for session in self.follower_sessions:
            if session.replica_id in broker_ids:
                session.mark_active(tp)

    def records_deleted(self, tp: TopicPartition) -> None:
        """Answer the followers' fetches at once with a raised log start offset, because a DeleteRecords waits.

        Consumers' fetches of the partition are checked in the next turns of the event loop, because their offsets may
        be deleted.
        """
        self._check_soon(tp)
        for session in self.follower_sessions:
            if session.mark_active(tp):
                self.follower_fetches.force_complete(session)

    def epoch_ended(self, tp: TopicPartition) -> None:
        """Complete the requests that wait in an ended leader epoch: after a new epoch, a new role, or a failed disk.

        Consumers' fetches complete in the next turns of the event loop, when a check finds that their epoch has ended.
        """
        self.produces.check_and_complete(tp)
        self.deletions.check_and_complete(tp)
        self._check_soon(tp)
        for session in self.follower_sessions:
            if session.mark_active(tp):
                self.follower_fetches.force_complete(session)

    def hosting_ended(self, tp: TopicPartition) -> None:
        """Remove the partition from the sessions of followers, which would keep its log in memory.

        The followers were told in `epoch_ended`. After a deletion they may never fetch again.
        """
        for session in self.follower_sessions:
            session.drop(tp)

    def complete_ready(self) -> None:
        """Complete the requests whose conditions hold after the marked changes, and forget the marks.

        Some of the fetches of consumers may complete in later turns of the event loop.
        """
        self._scheduled = False
        active_follower_sessions, self._active_follower_sessions = self._active_follower_sessions, {}
        advanced, self._advanced = self._advanced, {}
        for session in active_follower_sessions:
            self.follower_fetches.check_and_complete(session)
        self.produces.check_and_complete(*advanced)
        for tp in advanced:
            self._consumers_changed(tp)
        if not self._is_checking:
            self._run_due_checks()

    def expire(self, now_ms: int) -> None:
        """Expire requests whose deadline is at or before `now_ms`, for a short time.

        If more of them are due, `next_deadline_ms` returns a deadline that has passed.
        """
        until_ns = self._now_ns() + LONGEST_TURN_NS
        for purgatory in self._purgatories:
            purgatory.expire(now_ms, until_ns)

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline, or None if no request waits."""
        deadlines = (purgatory.next_deadline_ms() for purgatory in self._purgatories)
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    def complete_all(self) -> None:
        """Complete all waiting requests, because the broker stops."""
        for purgatory in self._purgatories:
            purgatory.force_complete_all()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._soon(self.complete_ready)

    def _check_soon(self, tp: TopicPartition) -> None:
        self._consumers_changed(tp)
        self._run_due_checks_soon()

    def _consumers_changed(self, tp: TopicPartition) -> None:
        """Make the checks of the consumers' fetches of this partition due."""
        self._checks.changed(tp)
        for session in self.consumer_sessions.mark_active(tp):
            self._checks.changed(session)

    def _session_ended(self, session: ConsumerSession) -> None:
        """Answer the fetches of an ended consumer's session that wait, in the next turn of the event loop."""

        def answer() -> None:
            self.consumer_fetches.force_complete(session)

        self._soon(answer)

    def _run_due_checks_soon(self) -> None:
        if self._checks and not self._is_checking:
            self._is_checking = True
            self._soon(self._run_due_checks)

    def _run_due_checks(self) -> None:
        self._is_checking = False
        try:
            self._checks.run_due()
        finally:
            self._run_due_checks_soon()  # also after the failure of one operation, for those behind it
