"""The leader's account of what each follower fetches: so that a partition in which nothing happens costs nothing.

A follower names a partition once. From then on each fetch of the session stands for it too, until it is answered with
records or an error, whereupon the follower names it again (KIP-227). Members are of two kinds:

    restless   something may have to be told, or the follower lags, or is not in the ISR: looked at on every fetch
    at rest    the follower has the whole log, is in sync, and knows high watermark and log start. The session's one
               timestamp says of all of these when they were last fetched; nobody looks at them

What happens to a partition makes it restless (`stir`), before anybody asks how long its follower has been caught up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from node.replication.replica import Replica
from tidelog.errors import FetchSessionIdNotFoundError, InvalidFetchSessionEpochError
from tidelog.model import TopicPartition
from tidelog.protocol.messages import FetchPartition

#: One for each follower is needed. Beyond it the one that was silent the longest begins anew when it comes back.
MAX_SESSIONS = 1000
#: So long a silence ends a session when another begins: its connection is gone.
MAX_SILENCE_MS = 120_000
#: The epoch of the fetch that begins a session, and that of one which wants none.
FIRST_EPOCH = 0
NO_SESSION = -1


@dataclass(slots=True)
class Member:
    """A partition as the follower named it.

    leader_epoch                          when it was named; another one later ends the membership
    told_high_watermark, told_log_start   what the follower knows of the leader's log; −1: nothing
    """

    asked: FetchPartition
    replica: Replica
    leader_epoch: int
    told_high_watermark: int = -1
    told_log_start: int = -1

    @property
    def is_led(self) -> bool:
        """The replica still leads in the epoch that the follower means."""
        return self.replica.leads_in(self.leader_epoch)


class FetchSession:
    """What one follower fetches over one connection.

    epoch           the number of its last fetch
    fetched_at_ms   when that came: so long every member at rest was caught up
    """

    __slots__ = ("_members", "_restless", "broker_epoch", "epoch", "fetched_at_ms", "id", "peer", "replica_id")

    def __init__(self, session_id: int, replica_id: int, peer: bytes, broker_epoch: int, now_ms: int) -> None:
        self.id = session_id
        self.replica_id = replica_id
        self.peer = peer
        self.broker_epoch = broker_epoch
        self.epoch = FIRST_EPOCH
        self.fetched_at_ms = now_ms
        self._members: dict[TopicPartition, Member] = {}
        # In the order in which their turns come: whoever was answered is named again, behind all others.
        self._restless: dict[TopicPartition, Member] = {}

    def __len__(self) -> int:
        return len(self._members)

    def restless(self) -> list[tuple[TopicPartition, Member]]:
        """Those that are to be looked at."""
        return list(self._restless.items())

    def name(self, tp: TopicPartition, member: Member) -> None:
        """The follower wants this from now on; what it said of the partition before is over."""
        self.drop(tp)
        self._members[tp] = self._restless[tp] = member

    def drop(self, tp: TopicPartition) -> None:
        """No fetch of the session stands for this one any more, until it is named again."""
        self._members.pop(tp, None)
        self._restless.pop(tp, None)

    def stir(self, tp: TopicPartition) -> bool:
        """Something happens to the partition. False where the session has no such member."""
        if tp in self._restless:
            return True
        member = self._members.get(tp)
        if member is None:
            return False
        self._restless[tp] = member
        # At rest it was until now, of which the partition has not been told.
        member.replica.partition.follower_rested(self.replica_id, self.broker_epoch, self.fetched_at_ms)
        return True

    def settle(self, tp: TopicPartition) -> None:
        """There is nothing more to tell of this one: it rests, if its follower has everything and is in sync."""
        member = self._restless[tp]
        replica, partition = member.replica, member.replica.partition
        if member.asked.fetch_offset == replica.log.log_end_offset and self.replica_id in partition.isr:
            del self._restless[tp]


class FetchSessions:
    """All sessions of one leader, by number; one for each follower and connection."""

    def __init__(self) -> None:
        self._sessions: dict[int, FetchSession] = {}
        self._begun = 0

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, replica_id: int, peer: bytes, broker_epoch: int, now_ms: int
    ) -> tuple[FetchSession, list[FetchSession]]:
        """A new session, and those that end by it: nobody should wait for an answer in them."""
        over = [each for each in self if self._is_over(each, replica_id, peer, broker_epoch, now_ms)]
        for session in over:
            del self._sessions[session.id]
        if len(self._sessions) >= MAX_SESSIONS:
            silent = min(self, key=lambda session: session.fetched_at_ms)
            over.append(self._sessions.pop(silent.id))
        self._begun += 1
        session = self._sessions[self._begun] = FetchSession(self._begun, replica_id, peer, broker_epoch, now_ms)
        return session, over

    def go_on(self, session_id: int, epoch: int, replica_id: int, peer: bytes, broker_epoch: int) -> FetchSession:
        """The session for its next fetch. FetchSessionIdNotFoundError, InvalidFetchSessionEpochError."""
        session = self._sessions.get(session_id)
        if session is None or (session.replica_id, session.peer, session.broker_epoch) != (
            replica_id,
            peer,
            broker_epoch,
        ):
            raise FetchSessionIdNotFoundError(f"no fetch session {session_id} of broker {replica_id} over this line")
        if epoch != session.epoch + 1:
            raise InvalidFetchSessionEpochError(f"fetch {epoch} of session {session_id} follows {session.epoch}")
        session.epoch = epoch
        return session

    @staticmethod
    def _is_over(session: FetchSession, replica_id: int, peer: bytes, broker_epoch: int, now_ms: int) -> bool:
        if now_ms - session.fetched_at_ms > MAX_SILENCE_MS:
            return True
        same_connection, earlier_life = session.peer == peer, session.broker_epoch < broker_epoch
        return session.replica_id == replica_id and (same_connection or earlier_life)
