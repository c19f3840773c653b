"""Fetch sessions of followers (KIP-227), kept by the leader so that a partition without news costs nothing.

A follower names a partition in one fetch. Each later fetch of the session also covers that partition, until the leader
answers it with records or an error. Then the follower must name the partition again. A member is in one of two states:

    active   the leader checks it on every fetch, because there may be news, or the follower lags or is not in the ISR
    idle     the follower has the whole log, is in sync, and knows the high watermark and the log start offset. The
             session's `fetched_at_ms` is the last fetch of all idle members, so no fetch touches them one by one

Each change of a partition makes the member active (`mark_active`) before the ISR rules check how long the follower has
been caught up. This order matters because `mark_active` passes the time of the last fetch on to the partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from node.replication.replica import Replica
from tidelog.errors import FetchSessionIdNotFoundError, InvalidFetchSessionEpochError
from tidelog.model import TopicPartition
from tidelog.protocol.messages import FetchPartition

#: The limit of sessions. Each follower needs one. Beyond the limit, the session with the oldest fetch is dropped.
MAX_SESSIONS = 1000
#: A session without a fetch for this long is dropped when another session begins, because its connection is gone.
MAX_FETCH_INTERVAL_MS = 120_000
#: The session epoch of a fetch that begins a session, and that of a fetch without a session.
FIRST_EPOCH = 0
NO_SESSION = -1


@dataclass(slots=True)
class FollowerMember:
    """One partition of a session, as the follower named it.

    leader_epoch          the leader epoch when the follower named it; the membership ends with this epoch
    sent_high_watermark   the high watermark that the follower was sent last; −1: none yet
    sent_log_start        the log start offset that the follower was sent last; −1: none yet
    """

    requested: FetchPartition
    replica: Replica
    leader_epoch: int
    sent_high_watermark: int = -1
    sent_log_start: int = -1

    @property
    def is_led(self) -> bool:
        """Return whether this broker still leads the partition in the member's leader epoch."""
        return self.replica.leads_in(self.leader_epoch)


class FollowerSession:
    """The partitions that one follower fetches over one connection.

    epoch           the session epoch of the last fetch
    fetched_at_ms   the time of the last fetch; all idle members were caught up until then
    """

    __slots__ = ("_active", "_members", "broker_epoch", "epoch", "fetched_at_ms", "id", "peer", "replica_id")

    def __init__(self, session_id: int, replica_id: int, peer: bytes, broker_epoch: int, now_ms: int) -> None:
        self.id = session_id
        self.replica_id = replica_id
        self.peer = peer
        self.broker_epoch = broker_epoch
        self.epoch = FIRST_EPOCH
        self.fetched_at_ms = now_ms
        self._members: dict[TopicPartition, FollowerMember] = {}
        # In the order in which the leader serves them. A member that was answered is named again, behind all others, so
        # that no partition starves when the response is full.
        self._active: dict[TopicPartition, FollowerMember] = {}

    def __len__(self) -> int:
        return len(self._members)

    def active(self) -> list[tuple[TopicPartition, FollowerMember]]:
        """Return the members that the next answer must check, in the order in which they are served."""
        return list(self._active.items())

    def add(self, tp: TopicPartition, member: FollowerMember) -> None:
        """Add a partition that the follower has named, as an active member that is served after all others.

        The partition's earlier member is replaced.
        """
        self.drop(tp)
        self._members[tp] = self._active[tp] = member

    def drop(self, tp: TopicPartition) -> None:
        """Remove the partition from the session, until the follower names it again, if it is a member."""
        self._members.pop(tp, None)
        self._active.pop(tp, None)

    def mark_active(self, tp: TopicPartition) -> bool:
        """Make the partition's member active because the partition has changed. Return False if there is no member.

        If the member was idle, the partition learns that its follower was caught up until the last fetch.
        """
        if tp in self._active:
            return True
        member = self._members.get(tp)
        if member is None:
            return False
        self._active[tp] = member
        # The member was idle until now, so the partition does not know yet when its follower fetched last.
        member.replica.partition.follower_idle_until(self.replica_id, self.broker_epoch, self.fetched_at_ms)
        return True

    def mark_idle(self, tp: TopicPartition) -> None:
        """Make the partition's active member idle if its follower has the whole log and is in the ISR."""
        member = self._active[tp]
        replica, partition = member.replica, member.replica.partition
        if member.requested.fetch_offset == replica.log.log_end_offset and self.replica_id in partition.isr:
            del self._active[tp]


class FollowerSessions:
    """All fetch sessions of one leader, by session id: one for each follower, except while its registration changes."""

    def __init__(self) -> None:
        self._sessions: dict[int, FollowerSession] = {}
        self._last_id = 0

    def __iter__(self) -> Iterator[FollowerSession]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, replica_id: int, peer: bytes, broker_epoch: int, now_ms: int
    ) -> tuple[FollowerSession, list[FollowerSession]]:
        """Begin a session. Return the session, and the sessions that end now, whose parked fetches must be answered.

        The other sessions of this follower end, except those of a later registration. A follower has one connection,
        and a fetch that the network has delayed on an earlier connection must acknowledge nothing. Every session
        without a fetch for MAX_FETCH_INTERVAL_MS ends too. If MAX_SESSIONS are left, the one with the oldest fetch
        ends.
        """
        ended = [each for each in self if self._has_ended(each, replica_id, broker_epoch, now_ms)]
        for session in ended:
            del self._sessions[session.id]
        if len(self._sessions) >= MAX_SESSIONS:
            oldest = min(self, key=lambda session: session.fetched_at_ms)
            ended.append(self._sessions.pop(oldest.id))
        self._last_id += 1
        session = self._sessions[self._last_id] = FollowerSession(self._last_id, replica_id, peer, broker_epoch, now_ms)
        return session, ended

    def next_fetch(
        self, session_id: int, epoch: int, replica_id: int, peer: bytes, broker_epoch: int
    ) -> FollowerSession:
        """Return the session for its next fetch, and advance its session epoch to `epoch`.

        Raise FetchSessionIdNotFoundError if this follower has no such session over this connection and under this
        registration. Raise InvalidFetchSessionEpochError if `epoch` does not follow the session's epoch.
        """
        session = self._sessions.get(session_id)
        if session is None or (session.replica_id, session.peer, session.broker_epoch) != (
            replica_id,
            peer,
            broker_epoch,
        ):
            raise FetchSessionIdNotFoundError(
                f"broker {replica_id} has no fetch session {session_id} over this connection"
            )
        if epoch != session.epoch + 1:
            raise InvalidFetchSessionEpochError(
                f"fetch session {session_id}: expected epoch {session.epoch + 1}, got {epoch}"
            )
        session.epoch = epoch
        return session

    @staticmethod
    def _has_ended(session: FollowerSession, replica_id: int, broker_epoch: int, now_ms: int) -> bool:
        if now_ms - session.fetched_at_ms > MAX_FETCH_INTERVAL_MS:
            return True
        return session.replica_id == replica_id and session.broker_epoch <= broker_epoch
