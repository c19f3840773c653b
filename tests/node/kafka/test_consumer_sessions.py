"""Fetch sessions of Kafka's consumers: which partitions a fetch covers, and which of them its response names."""

from __future__ import annotations

import pytest

from node.replication.sessions import consumer_sessions
from node.replication.sessions.consumer_sessions import (
    EVICTABLE_AFTER_MS,
    MAX_SESSIONS,
    NOT_KEPT,
    ConsumerSession,
    ConsumerSessions,
)
from tests.node.kafka.kafka_requests import new_sessions
from tidelog.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError
from tidelog.model import TopicPartition
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.messages.records import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

WITH_SESSIONS, BEFORE_SESSIONS = 12, 6


def fetch(
    session_id: int,
    epoch: int,
    named: dict[int, int],
    forgotten: tuple[int, ...] = (),
    topic: str = "t",
    leader_epoch: int = -1,
    limit: int = 1000,
) -> FetchRequest:
    """Return a fetch that names these partitions of the topic, each with its fetch offset."""
    partitions = tuple(
        FetchPartition(
            partition=number, current_leader_epoch=leader_epoch, fetch_offset=offset, partition_max_bytes=limit
        )
        for number, offset in named.items()
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=(FetchTopic(topic=topic, partitions=partitions),) if named else (),
        forgotten_topics_data=(ForgottenTopic(topic=topic, partitions=forgotten),) if forgotten else (),
    )


def offsets(session: ConsumerSession) -> list[tuple[int, int]]:
    """Return the partitions to read with their fetch offsets, in the order in which they are served."""
    return [(each.to_read.partition, each.to_read.fetch_offset) for each in session.active()]


def begun(sessions: ConsumerSessions, named: dict[int, int], now_ms: int = 0) -> ConsumerSession:
    """Return a session whose topics are known."""
    session = sessions.of_fetch(fetch(0, 0, named), WITH_SESSIONS, now_ms)
    assert session.is_kept
    for member in session.active():
        sessions.set_topic(session, member, "", "t")
    return session


def be_idle(session: ConsumerSession) -> None:
    for member in session.active():
        session.mark_idle(member)


@pytest.mark.parametrize(
    ("version", "epoch"),
    [pytest.param(BEFORE_SESSIONS, 0, id="a version without sessions"), pytest.param(WITH_SESSIONS, -1, id="epoch -1")],
)
def test_fetch_without_a_session_reads_what_it_names(version: int, epoch: int) -> None:
    sessions = new_sessions()
    session = sessions.of_fetch(fetch(0, epoch, {0: 7}), version, 0)
    assert (session.id, offsets(session), len(sessions)) == (NOT_KEPT, [(0, 7)], 0)


def test_later_fetch_covers_all_partitions_and_serves_the_named_ones_last() -> None:
    sessions = new_sessions()
    session = begun(sessions, {0: 10, 1: 20, 2: 30})
    assert sessions.of_fetch(fetch(session.id, 1, {0: 15}), WITH_SESSIONS, 0) is session
    assert offsets(session) == [(1, 20), (2, 30), (0, 15)]


def test_forgotten_partition_is_not_read_any_more() -> None:
    sessions = new_sessions()
    session = begun(sessions, {0: 10, 1: 20})
    sessions.of_fetch(fetch(session.id, 1, {}, forgotten=(0,)), WITH_SESSIONS, 0)
    assert offsets(session) == [(1, 20)]
    assert not sessions.mark_active(TopicPartition("t", 0))


def test_idle_partition_is_read_again_after_a_change_of_it() -> None:
    sessions = new_sessions()
    session, other = begun(sessions, {0: 10, 1: 20}), begun(sessions, {1: 20})
    be_idle(session)
    assert offsets(sessions.of_fetch(fetch(session.id, 1, {}), WITH_SESSIONS, 0)) == []
    assert list(sessions.mark_active(TopicPartition("t", 0))) == [session]
    assert offsets(session) == [(0, 10)]
    assert set(sessions.mark_active(TopicPartition("t", 1))) == {session, other}
    assert offsets(session) == [(0, 10), (1, 20)]
    assert not sessions.mark_active(TopicPartition("t", 2))


def test_idle_partition_is_read_again_as_the_consumer_names_it() -> None:
    sessions = new_sessions()
    session = begun(sessions, {0: 10, 1: 20})
    be_idle(session)
    sessions.of_fetch(fetch(session.id, 1, {1: 25}, leader_epoch=7, limit=500), WITH_SESSIONS, 0)
    assert [member.to_read for member in session.active()] == [native.FetchPartition("t", 1, 7, 25, 500)]
    assert session.most_bytes == 1000 + 500


def test_topic_that_becomes_known_later_is_watched_from_then_on() -> None:
    sessions = new_sessions()
    session = sessions.of_fetch(fetch(0, 0, {0: 10}), WITH_SESSIONS, 0)
    (member,) = session.active()
    sessions.set_topic(session, member, "", "")
    assert not sessions.mark_active(TopicPartition("t", 0))
    sessions.set_topic(session, member, "", "t")
    assert list(sessions.mark_active(TopicPartition("t", 0))) == [session]
    sessions.set_topic(session, member, "", "")
    assert member.topic_partition is None
    assert not sessions.mark_active(TopicPartition("t", 0))


def test_ended_session_watches_nothing() -> None:
    sessions = new_sessions()
    session = begun(sessions, {0: 10, 1: 20})
    sessions.of_fetch(fetch(session.id, -1, {}), WITH_SESSIONS, 0)
    assert not sessions.mark_active(TopicPartition("t", 0))
    assert not sessions.mark_active(TopicPartition("t", 1))


def test_partition_of_a_topic_that_was_created_again_is_watched_once() -> None:
    sessions = new_sessions()
    session = begun(sessions, {0: 10})
    (before,) = session.active()
    sessions.of_fetch(fetch(session.id, 1, {0: 0}, topic="t of another id"), WITH_SESSIONS, 0)
    after = session.active()[-1]
    sessions.set_topic(session, after, "", "t")
    sessions.set_topic(session, before, "", "")
    be_idle(session)
    assert list(sessions.mark_active(TopicPartition("t", 0))) == [session]
    assert session.active() == [after]


def test_response_names_only_partitions_with_news() -> None:
    (member,) = begun(new_sessions(), {0: 10}).active()
    assert member.has_news((5, 0)), "the first response names every partition"
    assert not member.has_news((5, 0))
    assert member.has_news((6, 0)), "a new high watermark"
    assert member.has_news((6, 1)), "a new log start offset"
    assert member.has_news((6, 1), records_bytes=5)
    assert member.has_news((6, 1), error_code=6)
    assert member.has_news((6, 1)), "after an error the consumer needs the offsets again"
    assert not member.has_news((6, 1))


def test_partition_that_is_named_again_is_not_news_by_itself() -> None:
    sessions = new_sessions()
    session = begun(sessions, {0: 10})
    session.active()[0].has_news((5, 0))
    sessions.of_fetch(fetch(session.id, 1, {0: 11}), WITH_SESSIONS, 0)
    assert not session.active()[0].has_news((5, 0))


def test_lost_or_repeated_fetch_ends_in_an_epoch_error() -> None:
    sessions = new_sessions()
    session = begun(sessions, {0: 10})
    sessions.of_fetch(fetch(session.id, 1, {}), WITH_SESSIONS, 0)
    for epoch in (1, 3):
        with pytest.raises(InvalidFetchSessionEpochError, match=f"expected epoch 2, got {epoch}"):
            sessions.of_fetch(fetch(session.id, epoch, {}), WITH_SESSIONS, 0)


def test_session_that_the_broker_does_not_have_is_refused() -> None:
    with pytest.raises(FetchSessionIdNotFoundError):
        new_sessions().of_fetch(fetch(4711, 1, {}), WITH_SESSIONS, 0)


@pytest.mark.parametrize(("began", "goes_on", "kind"), [(12, 13, "name"), (13, 12, "id"), (17, 7, "id")])
def test_session_names_topics_in_one_way_only(began: int, goes_on: int, kind: str) -> None:
    sessions = new_sessions()
    session = sessions.of_fetch(fetch(0, 0, {0: 10}), began, 0)
    with pytest.raises(FetchSessionTopicIdError, match=f"session {session.id} names topics by {kind}"):
        sessions.of_fetch(fetch(session.id, 1, {}), goes_on, 0)
    assert sessions.of_fetch(fetch(session.id, 1, {}), began, 0) is session, "the refused fetch did not count"
    assert offsets(session) == [(0, 10)]


@pytest.mark.parametrize("epoch", [0, -1])
def test_fetch_that_begins_anew_or_ends_its_session_frees_the_slot(epoch: int) -> None:
    sessions = new_sessions()
    session = begun(sessions, {0: 10})
    sessions.of_fetch(fetch(session.id, epoch, {0: 10}), WITH_SESSIONS, 0)
    with pytest.raises(FetchSessionIdNotFoundError):
        sessions.of_fetch(fetch(session.id, 1, {}), WITH_SESSIONS, 0)


def test_sessions_are_bounded_and_an_unused_one_gives_its_slot() -> None:
    sessions = new_sessions()
    first = begun(sessions, {0: 1})
    for _ in range(MAX_SESSIONS - 1):
        begun(sessions, {0: 1}, now_ms=1)
    refused = sessions.of_fetch(fetch(0, 0, {0: 1}), WITH_SESSIONS, EVICTABLE_AFTER_MS)
    assert (refused.id, offsets(refused)) == (NOT_KEPT, [(0, 1)]), "read without a session"
    begun(sessions, {0: 1}, now_ms=EVICTABLE_AFTER_MS + 1)
    assert len(sessions) == MAX_SESSIONS
    with pytest.raises(FetchSessionIdNotFoundError):
        sessions.of_fetch(fetch(first.id, 1, {}), WITH_SESSIONS, EVICTABLE_AFTER_MS + 1)


def test_partitions_of_all_sessions_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_sessions, "MAX_PARTITIONS", 5)
    sessions = new_sessions()
    kept = begun(sessions, {0: 1, 1: 1, 2: 1})
    refused = sessions.of_fetch(fetch(0, 0, {0: 7, 1: 8, 2: 9}), WITH_SESSIONS, 0)
    assert (refused.id, offsets(refused)) == (NOT_KEPT, [(0, 7), (1, 8), (2, 9)]), "read without a session"
    begun(sessions, {0: 1, 1: 1})
    assert sessions.of_fetch(fetch(kept.id, 1, {}), WITH_SESSIONS, 0) is kept


@pytest.mark.parametrize("end", ["forgets it", "ends the session", "begins another session"])
def test_partition_that_a_session_gives_up_makes_room(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_sessions, "MAX_PARTITIONS", 3)
    sessions = new_sessions()
    first = begun(sessions, {0: 1, 1: 1})
    if end == "forgets it":
        sessions.of_fetch(fetch(first.id, 1, {}, forgotten=(1,)), WITH_SESSIONS, 0)
    else:
        sessions.of_fetch(fetch(first.id, -1 if end == "ends the session" else 0, {0: 1}), WITH_SESSIONS, 0)
    begun(sessions, {0: 1, 1: 1})


def test_session_that_grows_beyond_the_room_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_sessions, "MAX_PARTITIONS", 4)
    sessions = new_sessions()
    other, growing = begun(sessions, {0: 1, 1: 1}), begun(sessions, {0: 1})
    with pytest.raises(FetchSessionIdNotFoundError, match=f"session {growing.id} has grown, and there is no room"):
        sessions.of_fetch(fetch(growing.id, 1, {5: 1, 6: 1}), WITH_SESSIONS, 0)
    assert sessions.of_fetch(fetch(other.id, 1, {2: 1, 3: 1}), WITH_SESSIONS, 0) is other, "there is room again"


def test_session_in_use_keeps_its_room_and_the_unused_ones_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_sessions, "MAX_PARTITIONS", 4)
    ended: list[ConsumerSession] = []
    sessions = ConsumerSessions(on_end=ended.append)
    used, unused, third = (begun(sessions, {0: 1}) for _ in range(3))
    sessions.of_fetch(fetch(used.id, 1, {}), WITH_SESSIONS, 1)
    later = EVICTABLE_AFTER_MS + 1
    begun(sessions, {0: 1, 1: 1, 2: 1}, now_ms=later)
    assert ended == [unused, third]
    refused = sessions.of_fetch(fetch(0, 0, {0: 1}), WITH_SESSIONS, later)
    assert refused.id == NOT_KEPT, "no session is unused for long"
    assert sessions.of_fetch(fetch(used.id, 2, {}), WITH_SESSIONS, later) is used


def test_session_epoch_begins_again_after_the_largest() -> None:
    sessions = new_sessions()
    session = begun(sessions, {0: 1})
    session.epoch = 2**31 - 1
    sessions.of_fetch(fetch(session.id, 2**31 - 1, {}), WITH_SESSIONS, 0)
    assert sessions.of_fetch(fetch(session.id, 1, {}), WITH_SESSIONS, 0) is session


def test_id_from_before_a_restart_ends_no_session_of_another_consumer() -> None:
    before = [begun(new_sessions(), {0: 1}).id for _ in range(10)]
    sessions = new_sessions()
    later = [begun(sessions, {0: 1}) for _ in range(10)]
    for session_id in before:
        sessions.of_fetch(fetch(session_id, 0, {0: 1}), WITH_SESSIONS, 0)
    for session in later:
        assert sessions.of_fetch(fetch(session.id, 1, {}), WITH_SESSIONS, 0) is session
