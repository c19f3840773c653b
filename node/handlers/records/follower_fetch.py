"""Handle a follower's fetch. Its fetch offsets acknowledge all records before them; the answer carries the news.

The fetch covers all members of its fetch session (`node.replication.sessions.follower_sessions`). Only active members
are checked.

The throttle (KIP-73) limits the records that followers get while they are not in sync. All records of throttled
replicas count. Records are left out only if the high watermark does not wait for the follower, so that no produce waits
for the throttle.
"""

from __future__ import annotations

from node.handlers.records.read_partition import MAX_RESPONSE_BYTES, error_response, leader_for, read_partition
from node.net.server import RequestContext
from node.purgatory.delayed_response import DelayedResponse
from node.replication.replica_manager import ReplicaManager
from node.replication.sessions.follower_sessions import FIRST_EPOCH, NO_SESSION, FollowerMember, FollowerSession
from node.runtime.deferred_response import DeferredResponse
from tidelog.errors import BrokerError, UnknownLeaderEpochError
from tidelog.model import TopicPartition
from tidelog.protocol.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, Response


class DelayedFollowerFetch(DelayedResponse):
    """A follower's fetch that waits for records, or until a leader epoch ends, a disk fails or a read is refused.

    Records that the throttle leaves out do not end the wait. If a check finds some, the fetch waits at most until the
    throttle allows more. A throttled partition that was just named ends the wait, so that the follower learns whether
    it lags.
    """

    __slots__ = ("_refused", "_replicas", "_request", "session")

    def __init__(
        self,
        deadline_ms: int,
        replicas: ReplicaManager,
        request: FetchRequest,
        session: FollowerSession,
        refused: list[FetchPartitionResponse],
    ) -> None:
        super().__init__(deadline_ms)
        self.session = session
        self._replicas = replicas
        self._request = request
        self._refused = refused

    def is_satisfied(self) -> bool:
        if self._refused:
            return True
        leaves_out = False
        for _, member in self.session.active():
            replica, offset = member.replica, member.requested.fetch_offset
            if not member.is_led or not replica.is_in_range(offset):
                return True
            is_throttled = self._is_throttled(member)
            if is_throttled and member.sent_high_watermark < 0:
                return True
            if replica.log.log_end_offset > offset:
                if not (is_throttled and self._pause_ms()):
                    return True
                leaves_out = True
        if leaves_out:
            self.deadline_ms = min(self.deadline_ms, self._replicas.clock.monotonic_ms() + self._pause_ms())
        return False

    def _is_throttled(self, member: FollowerMember) -> bool:
        """Return whether a throttle applies to this member: the high watermark must not wait for the follower."""
        replica, clock = member.replica, self._replicas.clock
        return replica.throttled_as_leader and not replica.partition.awaits(
            self.session.replica_id, replica.log.log_end_offset, clock.monotonic_ms()
        )

    def _pause_ms(self) -> int:
        return self._replicas.leader_throttle.pause_ms(self._replicas.clock.monotonic_ms())

    def answer(self) -> Response:
        session = self.session
        news, size = list(self._refused), 0
        budget = min(self._request.max_bytes, MAX_RESPONSE_BYTES)
        throttle, now_ms = self._replicas.leader_throttle, self._replicas.clock.monotonic_ms()
        allowance = throttle.allowance(now_ms)
        for tp, member in session.active():
            left_out = allowance <= 0 and self._is_throttled(member)
            answer, read_bytes = read_partition(
                self._replicas, member.requested, member.replica, member.leader_epoch,
                0 if left_out else budget - size, for_follower=True, first=size == 0 and not left_out,
            )  # fmt: skip
            size += read_bytes
            if member.replica.throttled_as_leader:
                throttle.record(read_bytes, now_ms)
                allowance -= read_bytes
            if answer.error_code or answer.records is not None:
                session.drop(tp)
                news.append(answer)
                continue
            known = (member.sent_high_watermark, member.sent_log_start)
            if known != (answer.high_watermark, answer.log_start_offset):
                member.sent_high_watermark, member.sent_log_start = answer.high_watermark, answer.log_start_offset
                news.append(answer)
            session.mark_idle(tp)
        return FetchResponse(tuple(news), 0 if self._request.session_epoch == NO_SESSION else session.id)


class FollowerFetches:
    """The handler of followers' fetches. At most one fetch of a session is parked; the next fetch completes it."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._parked: dict[FollowerSession, DelayedFollowerFetch] = {}

    def handle(self, request: FetchRequest, context: RequestContext) -> Response | DeferredResponse:
        """Acknowledge the records before the fetch offsets, and return the answer, or a deferred one.

        The answer has only partitions with news. The session's parked fetch is answered first. Raise
        FetchSessionIdNotFoundError or InvalidFetchSessionEpochError if the request does not continue its session.
        """
        replicas = self._replicas
        now_ms = replicas.clock.monotonic_ms()
        session = self._session(request, context, now_ms)
        for forgotten in request.forgotten:
            session.drop(TopicPartition(forgotten.topic, forgotten.partition))
        refused = [refusal for requested in request.partitions if (refusal := self._add(session, requested))]
        for _, member in session.active():
            self._acknowledge(session, member, now_ms)
        session.fetched_at_ms = now_ms
        due_ms = context.due_ms(now_ms, request.max_wait_ms)
        fetch = DelayedFollowerFetch(due_ms, replicas, request, session, refused)
        at_once = request.max_wait_ms == 0 or request.min_bytes == 0 or request.session_epoch == FIRST_EPOCH
        if at_once or (not len(session) and request.session_epoch == NO_SESSION):
            return fetch.answer()
        if not replicas.purgatories.follower_fetches.try_complete_else_watch(fetch, (session,)):
            self._parked[session] = fetch
        return fetch.response

    def _session(self, request: FetchRequest, context: RequestContext, now_ms: int) -> FollowerSession:
        sessions, replica_id = self._replicas.purgatories.follower_sessions, request.replica_id
        if request.session_epoch > FIRST_EPOCH:
            session = sessions.next_fetch(
                request.session_id, request.session_epoch, replica_id, context.peer, context.sender_epoch
            )
            self._answer_parked(session)
            return session
        session, ended = sessions.begin(replica_id, context.peer, context.sender_epoch, now_ms)
        for each in ended:
            self._answer_parked(each)
        return session

    def _answer_parked(self, session: FollowerSession) -> None:
        parked = self._parked.pop(session, None)
        if parked is not None:
            self._replicas.purgatories.follower_fetches.force_complete_operation(parked)

    def _add(self, session: FollowerSession, requested: FetchPartition) -> FetchPartitionResponse | None:
        """Add the partition to the session and return None, or drop the partition and return its error response."""
        tp = TopicPartition(requested.topic, requested.partition)
        try:
            replica = leader_for(self._replicas, requested)
            if requested.current_leader_epoch < 0:
                raise UnknownLeaderEpochError(f"{tp}: a follower's fetch must carry its leader epoch")
        except BrokerError as error:
            session.drop(tp)
            return error_response(requested, error)
        known = replica.partition.leader_epoch
        self._replicas.events.processed(FetchRequest.api, epoch=requested.current_leader_epoch, known=known)
        session.add(tp, FollowerMember(requested, replica, known))
        return None

    def _acknowledge(self, session: FollowerSession, member: FollowerMember, now_ms: int) -> None:
        replica, log, offset = member.replica, member.replica.log, member.requested.fetch_offset
        end = log.log_end_offset
        # An offset outside this log acknowledges no records, because the follower's log still differs from this one.
        if member.is_led and log.log_start_offset <= offset <= end:
            partition = replica.partition
            facts = partition.follower_fetched(
                session.replica_id, offset, session.broker_epoch, end, now_ms, member.requested.log_start_offset
            )
            self._replicas.apply_facts(replica, facts)
