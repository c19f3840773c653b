"""Incremental fetch sessions of Kafka's consumers (KIP-227).

A consumer names all its partitions once. Each later fetch of the session names only partitions whose position has
changed, and the response has only partitions with records, an error, a new high watermark or a new log start offset. A
consumer with a thousand idle partitions then sends and receives a few bytes per fetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidelog.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.messages.records import FetchPartition, FetchRequest

#: `max.incremental.fetch.session.cache.slots`.
MAX_SESSIONS = 1000
#: The most partitions of all sessions together. Each takes about half a kilobyte of memory.
MAX_PARTITIONS = 500_000
#: A session without a fetch for this long gives its room to another one.
EVICTABLE_AFTER_MS = 120_000
#: The session epoch of a fetch that begins a session, and that of a fetch without a session.
FIRST_EPOCH = 0
NO_SESSION = -1
_LAST_EPOCH = 2**31 - 1
#: The first version of Fetch with sessions.
_SESSIONS = 7
#: The first version of Fetch that names topics by id.
_TOPIC_IDS = 13

#: A topic's name, or its id in versions that name topics by id; and the partition.
PartitionKey = tuple[str | bytes, int]
#: The high watermark and the log start offset of a partition.
Offsets = tuple[int, int]
#: The offsets of a partition that is not read.
NO_OFFSETS: Offsets = (-1, -1)


@dataclass(slots=True)
class Member:
    """One partition of a fetch or of a session, as the consumer named it last.

    sent      the offsets that the consumer was sent last; None before the first response and after an error
    to_read   the partition in the broker's own protocol, kept by the translation for the next fetch of the session
    """

    requested: FetchPartition
    sent: Offsets | None = None
    to_read: native.FetchPartition | None = None


@dataclass(slots=True)
class ConsumerSession:
    """One session.

    has_topic_ids   whether its fetches name topics by id
    epoch           the session epoch that its next fetch must have
    """

    id: int
    used_at_ms: int
    has_topic_ids: bool
    epoch: int = FIRST_EPOCH + 1
    members: dict[PartitionKey, Member] = field(default_factory=dict)

    def has_news(self, key: PartitionKey, offsets: Offsets, error_code: int = 0, records_bytes: int = 0) -> bool:
        """Return whether the response must have this partition's data, and note the offsets that it then has.

        After an error, the next response has the partition again. A partition that is not in the session is always in
        the response.
        """
        member = self.members.get(key)
        if member is None:
            return True
        is_news = bool(error_code or records_bytes) or member.sent != offsets
        if is_news:
            member.sent = None if error_code else offsets
        return is_news


class ConsumerSessions:
    """The sessions of one broker, by session id. Any connection may continue a session, as with Kafka."""

    def __init__(self) -> None:
        self._sessions: dict[int, ConsumerSession] = {}  # the session that was used last is the last one
        self._partitions = 0  # of all sessions
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def wanted(
        self, request: FetchRequest, version: int, now_ms: int
    ) -> tuple[ConsumerSession | None, Mapping[PartitionKey, Member]]:
        """Return the fetch's session (None: it has none), and all partitions to read, in the order to serve them.

        A fetch without a session, or one that begins a session, ends the session that it names. A new session is not
        begun, and one that grows ends, if all room is in use by sessions with a fetch in the last EVICTABLE_AFTER_MS:
        MAX_SESSIONS, and MAX_PARTITIONS. Raises FetchSessionIdNotFoundError if the broker does not have the session any
        more, so that the consumer asks for a new one, InvalidFetchSessionEpochError if the fetch does not have the
        session's next epoch, and FetchSessionTopicIdError if the session names topics by name and the fetch by id, or
        the other way round.
        """
        named = {key: Member(each) for key, each in _named(request)}
        if version < _SESSIONS or request.session_epoch == NO_SESSION:
            self._end(request.session_id)
            return None, named
        if request.session_epoch == FIRST_EPOCH:
            self._end(request.session_id)
            return self._begin(named, version, now_ms), named
        session = self._go_on(request, version, now_ms)
        had = len(session.members)
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                session.members.pop((topic.topic or topic.topic_id, partition), None)
        for key, member in named.items():
            # A partition whose records were sent is named again, and served after all others, so that none starves.
            if (before := session.members.pop(key, None)) is not None:
                member.sent = before.sent
            session.members[key] = member
        self._partitions += len(session.members) - had
        if not self._fits(now_ms):
            self._end(session.id)
            raise FetchSessionIdNotFoundError(f"fetch session {session.id} has grown, and there is no room for it")
        return session, session.members

    def _begin(self, members: dict[PartitionKey, Member], version: int, now_ms: int) -> ConsumerSession | None:
        self._last_id += 1
        session = ConsumerSession(self._last_id, now_ms, version >= _TOPIC_IDS, members=members)
        self._sessions[session.id] = session
        self._partitions += len(members)
        if not self._fits(now_ms):
            self._end(session.id)
            return None
        return session

    def _end(self, session_id: int) -> None:
        if (session := self._sessions.pop(session_id, None)) is not None:
            self._partitions -= len(session.members)

    def _fits(self, now_ms: int) -> bool:
        """End sessions that have not been used for long until the others fit, and return whether they do."""
        while len(self._sessions) > MAX_SESSIONS or self._partitions > MAX_PARTITIONS:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.used_at_ms <= EVICTABLE_AFTER_MS:
                return False
            self._end(oldest.id)
        return True

    def _go_on(self, request: FetchRequest, version: int, now_ms: int) -> ConsumerSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFoundError(f"there is no fetch session {request.session_id}")
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpochError(
                f"fetch session {session.id}: expected epoch {session.epoch}, got {request.session_epoch}"
            )
        if session.has_topic_ids != (version >= _TOPIC_IDS):
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
