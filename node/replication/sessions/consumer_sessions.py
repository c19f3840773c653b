"""Incremental fetch sessions of Kafka's consumers (KIP-227).

A consumer names all its partitions once. Each later fetch of the session names only partitions whose position has
changed, and the response has only partitions with records, an error, a new high watermark or a new log start offset. A
consumer with a thousand idle partitions then sends and receives a few bytes per fetch. A member of a session is in one
of two states:

    active   each fetch of the session reads it, because it may have records, an error or new offsets
    idle     the consumer has read all committed records and knows the offsets. No fetch visits it

Each change of a partition makes its members active (`ConsumerSessions.mark_active`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView
from dataclasses import dataclass, replace
from random import randrange

from node.replication.replica import Replica
from tidelog.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
    UnknownTopicIdError,
)
from tidelog.model import TopicPartition
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.messages.records import FetchPartition, FetchRequest

#: `max.incremental.fetch.session.cache.slots`.
MAX_SESSIONS = 1000
#: The most partitions of all sessions together. Each takes about 0.8 KB of memory.
MAX_PARTITIONS = 300_000
#: A session without a fetch for this long may end so that another one can begin.
EVICTABLE_AFTER_MS = 120_000
#: The session epoch of a fetch that begins a session, and that of a fetch without a session.
FIRST_EPOCH = 0
NO_SESSION = -1
#: The id of a session that ends with its fetch.
NOT_KEPT = 0
_LAST_EPOCH = 2**31 - 1
#: The first version of Fetch with sessions.
_SESSIONS = 7
#: The first version of Fetch that names topics by id.
_TOPIC_IDS = 13

#: A topic's name, or its id in versions that name topics by id; and the partition.
PartitionKey = tuple[str | bytes, int]
#: The high watermark and the log start offset of a partition.
Offsets = tuple[int, int]


@dataclass(slots=True)
class FetchTarget:
    """One partition of a fetch, and the replica to read from.

    leader_epoch   the leader epoch in which the replica was found; a wait of the fetch ends with this epoch
    """

    requested: native.FetchPartition
    replica: Replica
    leader_epoch: int


#: What to read for a partition, or the answer that refuses it.
Target = FetchTarget | native.FetchPartitionResponse


class ConsumerMember:
    """One partition of a fetch or of a session, as the consumer named it last.

    to_read   the partition in the broker's own protocol; its topic is "" while the topic of the id is unknown
    target    the replica to read from, or the answer that refuses the partition, as a fetch found it when the member
              was active last; at first the answer for an unknown topic
    sent      the offsets that the consumer was sent last; None before the first response and after an error
    """

    __slots__ = ("key", "sent", "target", "to_read")

    def __init__(self, key: PartitionKey, named: FetchPartition) -> None:
        self.key = key
        self.to_read = _to_read(named, "", "")
        self.target: Target = native.FetchPartitionResponse("", named.partition, UnknownTopicIdError.code)
        self.sent: Offsets | None = None

    @property
    def topic_partition(self) -> TopicPartition | None:
        """Return the partition by its topic's name, or None while the topic of its id is unknown."""
        return TopicPartition(self.to_read.topic, self.to_read.partition) if self.to_read.topic else None

    def name_again(self, named: FetchPartition) -> None:
        """Take over the position, the leader epoch and the limit that the consumer names now."""
        self.to_read = _to_read(named, self.to_read.topic, self.to_read.topic_id)

    def set_topic(self, topic_id: str, name: str) -> None:
        """Set the topic's id and its name, as `ConsumerSessions.set_topic` gets them."""
        self.to_read = replace(self.to_read, topic=name, topic_id=topic_id)

    def has_news(self, offsets: Offsets, error_code: int = 0, records_bytes: int = 0) -> bool:
        """Return whether a session's response must have this partition's data, and note the offsets that it then has.

        After an error, the next response has the partition again.
        """
        is_news = bool(error_code or records_bytes) or self.sent != offsets
        if is_news:
            self.sent = None if error_code else offsets
        return is_news


class ConsumerSession:
    """One session, or the partitions of a fetch without a session.

    id              NOT_KEPT for a fetch without a session, and after the end of a session
    has_topic_ids   whether its fetches name topics by id
    epoch           the session epoch that its next fetch must have
    most_bytes      the sum of the limits of all members
    """

    __slots__ = ("_active", "_members", "epoch", "has_topic_ids", "id", "most_bytes", "used_at_ms")

    def __init__(self, session_id: int, members: Iterable[ConsumerMember], has_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.has_topic_ids = has_topic_ids
        self.used_at_ms = now_ms
        self.epoch = FIRST_EPOCH + 1
        self._members = {member.key: member for member in members}
        # In the order in which they are served. A partition whose records were sent is named again, and then served
        # after all others, so that none starves.
        self._active = dict(self._members)
        self.most_bytes = sum(member.to_read.partition_max_bytes for member in self)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(self._members.values())

    @property
    def is_kept(self) -> bool:
        """Return whether later fetches may continue this session."""
        return self.id != NOT_KEPT

    def active(self) -> list[ConsumerMember]:
        """Return the members that a fetch must read, in the order in which they are served."""
        return list(self._active.values())

    def name(self, key: PartitionKey, named: FetchPartition) -> None:
        """Add a partition that the consumer names, or take over what it names. It is active, and served last."""
        member = self._members.get(key)
        if member is None:
            member = self._members[key] = ConsumerMember(key, named)
        else:
            self.most_bytes -= member.to_read.partition_max_bytes
            member.name_again(named)
            self._active.pop(key, None)
        self.most_bytes += named.partition_max_bytes
        self._active[key] = member

    def drop(self, key: PartitionKey) -> ConsumerMember | None:
        """Remove the partition, and return its member, or None if there is none."""
        self._active.pop(key, None)
        member = self._members.pop(key, None)
        if member is not None:
            self.most_bytes -= member.to_read.partition_max_bytes
        return member

    def resolve(self, find: Callable[[native.FetchPartition], Target]) -> None:
        """Set the target of each active member to what `find` returns for it."""
        for member in self._active.values():
            member.target = find(member.to_read)

    @property
    def targets(self) -> list[Target]:
        """Return the targets of the active members, in the order in which they are served."""
        return [member.target for member in self._active.values()]

    def mark_active(self, member: ConsumerMember) -> None:
        """Make each later fetch read this member, if it was idle."""
        self._active.setdefault(member.key, member)

    def mark_idle(self, member: ConsumerMember) -> None:
        """Let later fetches leave this member out, until its partition changes."""
        self._active.pop(member.key, None)


class ConsumerSessions:
    """The sessions of one broker, by session id. Any connection may continue a session, as with Kafka.

    on_end   called with each session that ends; a fetch of it that waits must be answered, because no change of a
             partition makes its members active any more
    """

    def __init__(self, on_end: Callable[[ConsumerSession], None]) -> None:
        self._on_end = on_end
        self._sessions: dict[int, ConsumerSession] = {}  # the session that was used last is the last one
        self._watching: dict[TopicPartition, dict[ConsumerSession, ConsumerMember]] = {}
        self._partitions = 0  # of all sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def of_fetch(self, request: FetchRequest, version: int, now_ms: int) -> ConsumerSession:
        """Return the session that this fetch begins or continues, with all its partitions.

        A fetch with session epoch FIRST_EPOCH or NO_SESSION ends the session that it names. Its own session is
        NOT_KEPT if it asks for none. Raises FetchSessionIdNotFoundError if the broker does not have the session any
        more, so that the consumer begins a new one, InvalidFetchSessionEpochError if the fetch does not have the
        session's next epoch, and FetchSessionTopicIdError if the session names topics by name and the fetch by id, or
        the other way round.

        There is room for MAX_SESSIONS sessions with MAX_PARTITIONS partitions in all. If there is none, sessions that
        have not been used for EVICTABLE_AFTER_MS end. If there is none even then, a new session is NOT_KEPT, and one
        that has grown ends with FetchSessionIdNotFoundError.
        """
        if version >= _SESSIONS and request.session_epoch not in (FIRST_EPOCH, NO_SESSION):
            return self._continued(request, version >= _TOPIC_IDS, now_ms)
        self._end(request.session_id)
        begins = version >= _SESSIONS and request.session_epoch == FIRST_EPOCH
        members = [ConsumerMember(key, named) for key, named in _named(request)]
        session = ConsumerSession(self._new_id() if begins else NOT_KEPT, members, version >= _TOPIC_IDS, now_ms)
        if begins:
            self._keep_if_it_fits(session)
        return session

    def _new_id(self) -> int:
        """Return a random id, so that an id from before a restart of the broker is not that of another session."""
        while (session_id := randrange(1, 2**31)) in self._sessions:
            pass
        return session_id

    def _continued(self, request: FetchRequest, has_topic_ids: bool, now_ms: int) -> ConsumerSession:
        session = self._next_fetch(request, has_topic_ids, now_ms)
        had = len(session)
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                if (member := session.drop((topic.topic or topic.topic_id, partition))) is not None:
                    self._unwatch(session, member)
        for key, named in _named(request):
            session.name(key, named)
        self._partitions += len(session) - had
        if not self._fits(now_ms):
            self._end(request.session_id)
            raise FetchSessionIdNotFoundError(f"fetch session {request.session_id} has grown, and there is no room")
        return session

    def set_topic(self, session: ConsumerSession, member: ConsumerMember, topic_id: str, name: str) -> None:
        """Set a member's topic.

        topic_id   "" if the consumer names topics by name
        name       "" while the topic of this id is unknown
        """
        if name == member.to_read.topic:
            return
        self._unwatch(session, member)
        member.set_topic(topic_id, name)
        if session.is_kept and (tp := member.topic_partition) is not None:
            self._watching.setdefault(tp, {})[session] = member

    def mark_active(self, tp: TopicPartition) -> KeysView[ConsumerSession] | tuple[()]:
        """Make the members of a changed partition active, and return their sessions."""
        watching = self._watching.get(tp)
        if watching is None:
            return ()
        for session, member in watching.items():
            session.mark_active(member)
        return watching.keys()

    def _keep_if_it_fits(self, session: ConsumerSession) -> None:
        """Keep a new session if there is room for it."""
        self._sessions[session.id] = session
        self._partitions += len(session)
        if not self._fits(session.used_at_ms):
            self._end(session.id)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        session.id = NOT_KEPT
        self._partitions -= len(session)
        for member in session:
            self._unwatch(session, member)
        self._on_end(session)

    def _unwatch(self, session: ConsumerSession, member: ConsumerMember) -> None:
        tp = member.topic_partition
        # A session may have two members of one partition, by two topic ids, of which one is unknown by now.
        if tp is None or self._watching.get(tp, {}).get(session) is not member:
            return
        del self._watching[tp][session]
        if not self._watching[tp]:
            del self._watching[tp]

    def _fits(self, now_ms: int) -> bool:
        """End sessions that have not been used for long until the others fit, and return whether they do."""
        while len(self._sessions) > MAX_SESSIONS or self._partitions > MAX_PARTITIONS:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.used_at_ms <= EVICTABLE_AFTER_MS:
                return False
            self._end(oldest.id)
        return True

    def _next_fetch(self, request: FetchRequest, has_topic_ids: bool, now_ms: int) -> ConsumerSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFoundError(f"there is no fetch session {request.session_id}")
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpochError(
                f"fetch session {session.id}: expected epoch {session.epoch}, got {request.session_epoch}"
            )
        if session.has_topic_ids != has_topic_ids:
            kind = "id" if session.has_topic_ids else "name"
            raise FetchSessionTopicIdError(f"fetch session {session.id} names topics by {kind}")
        session.epoch = FIRST_EPOCH + 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        session.used_at_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        return session


def _named(request: FetchRequest) -> Iterable[tuple[PartitionKey, FetchPartition]]:
    for topic in request.topics:
        for each in topic.partitions:
            yield (topic.topic or topic.topic_id, each.partition), each


def _to_read(named: FetchPartition, topic: str, topic_id: str) -> native.FetchPartition:
    return native.FetchPartition(
        topic,
        named.partition,
        named.current_leader_epoch,
        named.fetch_offset,
        named.partition_max_bytes,
        topic_id=topic_id,
    )
