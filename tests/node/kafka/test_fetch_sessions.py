"""Fetch sessions of Kafka's consumers: which partitions a fetch covers, and which of them its response names."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from node.kafka import fetch_sessions
from node.kafka.fetch_sessions import (
    EVICTABLE_AFTER_MS,
    MAX_SESSIONS,
    ConsumerSession,
    ConsumerSessions,
    Member,
    PartitionKey,
)
from tidelog.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError
from tidelog.protocol.kafka.messages.records import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

WITH_SESSIONS, BEFORE_SESSIONS = 12, 6


def fetch(
    session_id: int, epoch: int, named: dict[int, int], forgotten: tuple[int, ...] = (), topic: str = "t"
) -> FetchRequest:
    """Return a fetch that names these partitions of the topic, each with its fetch offset."""
    partitions = tuple(
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1000)
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


def offsets(wanted: Mapping[PartitionKey, Member]) -> list[tuple[int, int]]:
    """Return the partitions to read with their fetch offsets, in the order in which they are served."""
    return [(each.requested.partition, each.requested.fetch_offset) for each in wanted.values()]


def begun(sessions: ConsumerSessions, named: dict[int, int], now_ms: int = 0) -> ConsumerSession:
    session, _ = sessions.wanted(fetch(0, 0, named), WITH_SESSIONS, now_ms)
    assert session is not None
    return session


@pytest.mark.parametrize(
    ("version", "epoch"),
    [pytest.param(BEFORE_SESSIONS, 0, id="a version without sessions"), pytest.param(WITH_SESSIONS, -1, id="epoch -1")],
)
def test_fetch_without_a_session_reads_what_it_names(version: int, epoch: int) -> None:
    sessions = ConsumerSessions()
    session, wanted = sessions.wanted(fetch(0, epoch, {0: 7}), version, 0)
    assert (session, offsets(wanted), len(sessions)) == (None, [(0, 7)], 0)


def test_later_fetch_covers_all_partitions_and_serves_the_named_ones_last() -> None:
    sessions = ConsumerSessions()
    session = begun(sessions, {0: 10, 1: 20, 2: 30})
    same, wanted = sessions.wanted(fetch(session.id, 1, {0: 15}), WITH_SESSIONS, 0)
    assert same is session
    assert offsets(wanted) == [(1, 20), (2, 30), (0, 15)]


def test_forgotten_partition_is_not_read_any_more() -> None:
    sessions = ConsumerSessions()
    session = begun(sessions, {0: 10, 1: 20})
    _, wanted = sessions.wanted(fetch(session.id, 1, {}, forgotten=(0,)), WITH_SESSIONS, 0)
    assert offsets(wanted) == [(1, 20)]


def test_response_names_only_partitions_with_news() -> None:
    session = begun(ConsumerSessions(), {0: 10})
    key = ("t", 0)
    assert session.has_news(key, (5, 0)), "the first response names every partition"
    assert not session.has_news(key, (5, 0))
    assert session.has_news(key, (6, 0)), "a new high watermark"
    assert session.has_news(key, (6, 0), records_bytes=5)
    assert session.has_news(key, (6, 0), error_code=6)
    assert session.has_news(key, (6, 0)), "after an error the consumer needs the offsets again"
    assert not session.has_news(key, (6, 0))


def test_partition_that_is_named_again_is_not_news_by_itself() -> None:
    sessions = ConsumerSessions()
    session = begun(sessions, {0: 10})
    session.has_news(("t", 0), (5, 0))
    sessions.wanted(fetch(session.id, 1, {0: 11}), WITH_SESSIONS, 0)
    assert not session.has_news(("t", 0), (5, 0))


def test_lost_or_repeated_fetch_ends_in_an_epoch_error() -> None:
    sessions = ConsumerSessions()
    session = begun(sessions, {0: 10})
    sessions.wanted(fetch(session.id, 1, {}), WITH_SESSIONS, 0)
    for epoch in (1, 3):
        with pytest.raises(InvalidFetchSessionEpochError, match=f"expected epoch 2, got {epoch}"):
            sessions.wanted(fetch(session.id, epoch, {}), WITH_SESSIONS, 0)


def test_session_that_the_broker_does_not_have_is_refused() -> None:
    with pytest.raises(FetchSessionIdNotFoundError):
        ConsumerSessions().wanted(fetch(4711, 1, {}), WITH_SESSIONS, 0)


@pytest.mark.parametrize(("began", "goes_on", "kind"), [(12, 13, "name"), (13, 12, "id"), (17, 7, "id")])
def test_session_names_topics_in_one_way_only(began: int, goes_on: int, kind: str) -> None:
    sessions = ConsumerSessions()
    session, _ = sessions.wanted(fetch(0, 0, {0: 10}), began, 0)
    assert session is not None
    with pytest.raises(FetchSessionTopicIdError, match=f"session {session.id} names topics by {kind}"):
        sessions.wanted(fetch(session.id, 1, {}), goes_on, 0)
    same, wanted = sessions.wanted(fetch(session.id, 1, {}), began, 0)
    assert (same, offsets(wanted)) == (session, [(0, 10)]), "the refused fetch did not count"


@pytest.mark.parametrize("epoch", [0, -1])
def test_fetch_that_begins_anew_or_ends_its_session_frees_the_slot(epoch: int) -> None:
    sessions = ConsumerSessions()
    session = begun(sessions, {0: 10})
    sessions.wanted(fetch(session.id, epoch, {0: 10}), WITH_SESSIONS, 0)
    with pytest.raises(FetchSessionIdNotFoundError):
        sessions.wanted(fetch(session.id, 1, {}), WITH_SESSIONS, 0)


def test_sessions_are_bounded_and_an_unused_one_gives_its_slot() -> None:
    sessions = ConsumerSessions()
    first = begun(sessions, {0: 1})
    for _ in range(MAX_SESSIONS - 1):
        begun(sessions, {0: 1}, now_ms=1)
    refused, wanted = sessions.wanted(fetch(0, 0, {0: 1}), WITH_SESSIONS, EVICTABLE_AFTER_MS)
    assert (refused, offsets(wanted)) == (None, [(0, 1)]), "read without a session"
    begun(sessions, {0: 1}, now_ms=EVICTABLE_AFTER_MS + 1)
    assert len(sessions) == MAX_SESSIONS
    with pytest.raises(FetchSessionIdNotFoundError):
        sessions.wanted(fetch(first.id, 1, {}), WITH_SESSIONS, EVICTABLE_AFTER_MS + 1)


def test_partitions_of_all_sessions_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 5)
    sessions = ConsumerSessions()
    kept = begun(sessions, {0: 1, 1: 1, 2: 1})
    refused, wanted = sessions.wanted(fetch(0, 0, {0: 7, 1: 8, 2: 9}), WITH_SESSIONS, 0)
    assert (refused, offsets(wanted)) == (None, [(0, 7), (1, 8), (2, 9)]), "read without a session"
    begun(sessions, {0: 1, 1: 1})
    assert sessions.wanted(fetch(kept.id, 1, {}), WITH_SESSIONS, 0)[0] is kept


@pytest.mark.parametrize("end", ["forgets it", "ends the session", "begins another session"])
def test_partition_that_a_session_gives_up_makes_room(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 3)
    sessions = ConsumerSessions()
    first = begun(sessions, {0: 1, 1: 1})
    if end == "forgets it":
        sessions.wanted(fetch(first.id, 1, {}, forgotten=(1,)), WITH_SESSIONS, 0)
    else:
        sessions.wanted(fetch(first.id, -1 if end == "ends the session" else 0, {0: 1}), WITH_SESSIONS, 0)
    begun(sessions, {0: 1, 1: 1})


def test_session_that_grows_beyond_the_room_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 4)
    sessions = ConsumerSessions()
    other, growing = begun(sessions, {0: 1, 1: 1}), begun(sessions, {0: 1})
    with pytest.raises(FetchSessionIdNotFoundError, match=f"session {growing.id} has grown, and there is no room"):
        sessions.wanted(fetch(growing.id, 1, {5: 1, 6: 1}), WITH_SESSIONS, 0)
    assert sessions.wanted(fetch(other.id, 1, {2: 1, 3: 1}), WITH_SESSIONS, 0)[0] is other, "there is room again"


def test_sessions_end_in_the_order_of_their_last_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 4)
    sessions = ConsumerSessions()
    used, unused, third = (begun(sessions, {0: 1}) for _ in range(3))
    sessions.wanted(fetch(used.id, 1, {}), WITH_SESSIONS, 1)
    later = begun(sessions, {0: 1, 1: 1, 2: 1}, now_ms=EVICTABLE_AFTER_MS + 1)
    for gone in (unused, third):
        with pytest.raises(FetchSessionIdNotFoundError):
            sessions.wanted(fetch(gone.id, 1, {}), WITH_SESSIONS, EVICTABLE_AFTER_MS + 1)
    for left, epoch in ((used, 2), (later, 1)):
        assert sessions.wanted(fetch(left.id, epoch, {}), WITH_SESSIONS, EVICTABLE_AFTER_MS + 1)[0] is left
