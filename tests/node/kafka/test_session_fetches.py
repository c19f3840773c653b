"""Fetches of Kafka consumers in a fetch session, over replicas in memory. Partitions without news are not visited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.net.server import RequestContext
from node.replication.sessions import consumer_sessions
from node.replication.sessions.consumer_fetch import ConsumerFetch
from node.replication.sessions.consumer_sessions import ConsumerSession
from tests.node.client_requests import produce_request, values_of
from tests.node.kafka.admin_client import KafkaClient
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    BrokerError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
    InvalidRequestError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import DeleteRecordsPartition, DeleteRecordsRequest
from tidelog.protocol.control_messages import ANY_EPOCH, StopReplicaPartition, StopReplicaRequest, UpdateMetadataRequest
from tidelog.protocol.kafka.messages.records import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tidelog.protocol.kafka.primitives import uuid_from_text
from tidelog.protocol.messages import Request

TOPIC, TOPIC_ID = "t", "A" * 21 + "Q"
PARTITIONS = 4
BY_NAME, BY_ID = 12, 16
WAIT_MS = 10_000
#: Longer than replication and the checks of waiting fetches take, and shorter than WAIT_MS.
A_WHILE_S = 1.0


class Answer(NamedTuple):
    """The data of one partition in a response."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    values: tuple[bytes, ...]


class Consumer:
    """A consumer of broker 1 with a fetch session. Its fetches name the partitions whose position has changed."""

    def __init__(self, client: KafkaClient, version: int) -> None:
        self._client = client
        self._version = version
        self.session_id = self.epoch = 0
        self.limit = 1 << 20
        self.positions: dict[int, int] = {}
        #: The partitions of the last response with records, and the offsets behind those.
        self.behind: dict[int, int] = {}

    async def fetch(
        self,
        moved: dict[int, int] | None = None,
        forgotten: tuple[int, ...] = (),
        wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        ends: bool = False,
    ) -> dict[int, Answer]:
        """Return the partitions of the response after these moves to other positions, and without those forgotten.

        ends   whether the session may end with this fetch
        """
        moved = moved or {}
        self.positions = {**self.positions, **moved}
        for partition in forgotten:
            del self.positions[partition]
        topic_id = uuid_from_text(TOPIC_ID)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=(_topic(moved, self.limit),) if moved else (),
            forgotten_topics_data=(ForgottenTopic(topic=TOPIC, topic_id=topic_id, partitions=forgotten),)
            if forgotten
            else (),
        )
        self.epoch += 1
        response = await self._client.ask(request, self._version)
        assert response.error_code == 0
        assert ends or self.session_id in (0, response.session_id)
        self.session_id = response.session_id
        found = self._answers(response)
        self.behind = {
            partition: self.positions[partition] + len(answer.values)
            for partition, answer in found.items()
            if answer.values
        }
        return found

    async def fetch_all(self) -> dict[int, Answer]:
        """Return all partitions at the same positions, from a fetch without a session."""
        request = FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=-1, topics=(_topic(self.positions),))
        return self._answers(await self._client.ask(request, self._version))

    def _answers(self, response: Any) -> dict[int, Answer]:
        return {
            each.partition_index: Answer(
                each.error_code,
                each.high_watermark,
                each.log_start_offset,
                tuple(values_of(each.records or b"", self.positions.get(each.partition_index, 0))),
            )
            for topic in response.responses
            for each in topic.partitions
        }


def _topic(positions: dict[int, int], limit: int = 1 << 20) -> FetchTopic:
    return FetchTopic(
        topic=TOPIC,
        topic_id=uuid_from_text(TOPIC_ID),
        partitions=tuple(
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=limit)
            for partition, offset in positions.items()
        ),
    )


class Stage:
    """Two brokers with four partitions of a topic, which broker 1 leads at first, and a consumer at broker 1."""

    def __init__(self, cluster: MemoryCluster, version: int) -> None:
        self.cluster = cluster
        self.node = cluster.nodes[1]
        self.session: ConsumerSession | None = None
        self.sessions = self.node.purgatories.consumer_sessions
        self.consumer = Consumer(KafkaClient(self._handle, self.node.metadata, sessions=self.sessions), version)

    def _handle(self, request: Request, context: RequestContext) -> Any:
        if isinstance(request, ConsumerFetch) and request.session.is_kept:
            self.session = request.session
        return self.node.handlers.handle(request, context)

    @property
    def visited(self) -> list[int]:
        """The partitions of the session that its next fetch visits."""
        assert self.session is not None
        return sorted(member.to_read.partition for member in self.session.active())

    async def elect(self, partition: int, leader: int = 1) -> None:
        tp = TopicPartition(TOPIC, partition)
        await self.cluster.elect(leader, tp=tp)
        request = self.cluster.leader_and_isr(tp)
        self.node.metadata.update(UpdateMetadataRequest(1, 1, request.live_brokers, request.partitions, request.topics))

    async def append(self, partition: int) -> None:
        """Append a record without waiting for the follower. An error is ignored."""
        await self.node.ask(produce_request(b"v", acks=1, tp=TopicPartition(TOPIC, partition)))

    async def delete_records(self, partition: int) -> None:
        """Delete all committed records. An error is ignored."""
        await self.node.ask(DeleteRecordsRequest((DeleteRecordsPartition(TOPIC, partition, -1),), 5000))

    def retention_deletes(self, partition: int) -> None:
        """Delete all committed records of a partition that broker 1 leads, as log maintenance does."""
        replica = self.node.replica(TopicPartition(TOPIC, partition))
        if replica.partition.is_leader and replica.log.raise_log_start(replica.partition.high_watermark):
            self.node.replicas.log_start_rose(replica.topic_partition)

    async def delete_topic(self) -> None:
        stopped = tuple(StopReplicaPartition(TOPIC, each, ANY_EPOCH, delete=True) for each in range(PARTITIONS))
        await self.node.ask(StopReplicaRequest(1, self.cluster.controller_epoch, stopped), sender_epoch=1)
        self.node.metadata.update(UpdateMetadataRequest(1, 1, self.cluster.live(), (), (), (TOPIC,)))

    async def read_to_the_end(self) -> None:
        """Let the consumer read all partitions, so that none has news."""
        await self.consumer.fetch(dict.fromkeys(range(PARTITIONS), 0))
        while found := await self.consumer.fetch(self.consumer.behind):
            assert not any(answer.error_code for answer in found.values())
        assert self.visited == []


def on_stage(story: Callable[[Stage], Awaitable[None]], version: int) -> None:
    """Run the story on virtual time, with one committed record in each partition."""

    @on_virtual_time
    async def run() -> None:
        async with MemoryCluster(2, topic_id=TOPIC_ID) as cluster:
            stage = Stage(cluster, version)
            for partition in range(PARTITIONS):
                await stage.elect(partition)
                await stage.append(partition)
            await asyncio.sleep(A_WHILE_S)
            await story(stage)

    run()


# --- The partitions that a fetch visits -----------------------------------------------------------------


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_fetch_visits_only_partitions_that_may_have_news(version: int) -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        await stage.append(2)
        await asyncio.sleep(A_WHILE_S)
        assert stage.visited == [2]
        found = await stage.consumer.fetch()
        assert {partition: answer.values for partition, answer in found.items()} == {2: (b"v",)}
        assert stage.visited == [2], "its records were sent, and the consumer has not moved"
        assert await stage.consumer.fetch(stage.consumer.behind) == {}
        assert stage.visited == []

    on_stage(story, version)


def test_partition_with_an_error_is_visited_until_it_has_none() -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        await stage.elect(1, leader=2)
        for _ in range(2):
            assert stage.visited == [1]
            assert (await stage.consumer.fetch())[1].error_code == NotLeaderOrFollowerError.code
        await stage.elect(1, leader=1)
        await asyncio.sleep(A_WHILE_S)
        assert (await stage.consumer.fetch())[1].error_code == 0, "the consumer learns the offsets again"
        assert stage.visited == []

    on_stage(story, BY_ID)


def test_records_that_did_not_fit_are_visited_by_the_next_fetch() -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        for partition in (0, 1):
            await stage.append(partition)
        await asyncio.sleep(A_WHILE_S)
        sent = []
        for _ in range(2):
            found = await stage.consumer.fetch(stage.consumer.behind, max_bytes=1)
            sent.append([partition for partition, answer in found.items() if answer.values])
            assert stage.visited == [0, 1] if len(sent) == 1 else [1]
        assert sent == [[0], [1]], "each response has one batch, although that is more than the limit"

    on_stage(story, BY_ID)


# --- The changes that end a wait ------------------------------------------------------------------------


async def _committed(stage: Stage) -> None:
    await stage.append(2)


async def _leader_moved(stage: Stage) -> None:
    await stage.elect(2, leader=2)


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
@pytest.mark.parametrize(
    ("change", "error_code"),
    [(_committed, 0), (_leader_moved, NotLeaderOrFollowerError.code)],
    ids=["records", "epoch"],
)
def test_change_of_one_idle_partition_ends_the_wait(
    change: Callable[[Stage], Awaitable[None]], error_code: int, version: int
) -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        waiting = asyncio.ensure_future(stage.consumer.fetch(wait_ms=WAIT_MS))
        await asyncio.sleep(A_WHILE_S)
        assert not waiting.done()
        await change(stage)
        found = await asyncio.wait_for(waiting, A_WHILE_S)
        assert {partition: answer.error_code for partition, answer in found.items()} == {2: error_code}

    on_stage(story, version)


def test_deletion_at_the_position_ends_a_wait_for_more_bytes() -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        waiting = asyncio.ensure_future(stage.consumer.fetch({3: 0}, wait_ms=WAIT_MS, min_bytes=10_000))
        await asyncio.sleep(A_WHILE_S)
        assert not waiting.done()
        await stage.delete_records(3)
        found = await asyncio.wait_for(waiting, A_WHILE_S)
        assert {partition: answer.error_code for partition, answer in found.items()} == {3: OffsetOutOfRangeError.code}

    on_stage(story, BY_ID)


def test_wait_for_more_bytes_counts_those_of_all_partitions() -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        tp = TopicPartition(TOPIC, 0)
        record_bytes = stage.node.replica(tp).log.bytes_between(0, 1)
        assert record_bytes
        waiting = asyncio.ensure_future(stage.consumer.fetch(wait_ms=WAIT_MS, min_bytes=2 * record_bytes))
        await stage.append(0)
        await asyncio.sleep(A_WHILE_S)
        assert not waiting.done()
        await stage.append(1)
        assert set(await asyncio.wait_for(waiting, A_WHILE_S)) == {0, 1}

    on_stage(story, BY_ID)


def test_wait_ends_if_the_topic_is_deleted_and_its_id_is_unknown_then() -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        waiting = asyncio.ensure_future(stage.consumer.fetch(wait_ms=WAIT_MS))
        await asyncio.sleep(A_WHILE_S)
        await stage.delete_topic()
        found = await asyncio.wait_for(waiting, A_WHILE_S)
        assert set(found) == set(range(PARTITIONS))
        assert all(answer.error_code for answer in found.values())
        found = await asyncio.wait_for(stage.consumer.fetch(wait_ms=WAIT_MS), A_WHILE_S)
        assert {answer.error_code for answer in found.values()} == {UnknownTopicIdError.code}
        assert len(found) == PARTITIONS

    on_stage(story, BY_ID)


@pytest.mark.parametrize("end", ["by its consumer", "by a new session of another consumer"])
def test_end_of_the_session_ends_the_wait(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        waiting = asyncio.ensure_future(stage.consumer.fetch(wait_ms=WAIT_MS, ends=True))
        await asyncio.sleep(A_WHILE_S)
        other = Consumer(KafkaClient(stage.node.handlers.handle, stage.node.metadata, sessions=stage.sessions), BY_ID)
        if end == "by its consumer":
            other.session_id = stage.consumer.session_id  # over another connection, because this one broke
        else:
            monkeypatch.setattr(consumer_sessions, "MAX_SESSIONS", 1)
            monkeypatch.setattr(consumer_sessions, "EVICTABLE_AFTER_MS", -1)
        await other.fetch({0: 0}, ends=True)
        assert await asyncio.wait_for(waiting, A_WHILE_S) == {}
        assert stage.consumer.session_id == 0, "the consumer learns that its session has ended"

    on_stage(story, BY_ID)


def test_session_answers_have_no_more_than_the_limit_of_a_partition() -> None:
    async def story(stage: Stage) -> None:
        for _ in range(2):
            await stage.append(2)
        await asyncio.sleep(A_WHILE_S)
        batch = stage.node.replica(TopicPartition(TOPIC, 2)).log.bytes_between(0, 1)
        assert batch
        stage.consumer.limit = batch
        found = await stage.consumer.fetch({2: 0})
        assert found[2].values == (b"v",), "one batch of three"
        stage.consumer.limit = 2 * batch
        assert (await stage.consumer.fetch({2: 0}))[2].values == (b"v", b"v")

    on_stage(story, BY_ID)


def test_wait_ends_at_the_limits_of_all_partitions() -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        stage.consumer.limit = 1
        moved = dict.fromkeys(range(PARTITIONS), 1)
        waiting = asyncio.ensure_future(stage.consumer.fetch(moved, wait_ms=WAIT_MS, min_bytes=10_000))
        for partition in range(PARTITIONS):
            assert not waiting.done()
            await stage.append(partition)
            await asyncio.sleep(A_WHILE_S)
        assert await asyncio.wait_for(waiting, A_WHILE_S), "no answer can have more than one byte of each partition"

    on_stage(story, BY_ID)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param({"session_id": 1}, FetchSessionIdNotFoundError, id="an unknown session"),
        pytest.param({"session_epoch": 9}, InvalidFetchSessionEpochError, id="another epoch"),
        pytest.param({"version": BY_NAME}, FetchSessionTopicIdError, id="topics by name"),
    ],
)
def test_error_of_a_session_says_nothing_about_partitions(change: dict[str, int], error: type[BrokerError]) -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        client = KafkaClient(stage.node.handlers.handle, stage.node.metadata, sessions=stage.sessions)
        version = change.pop("version", BY_ID)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            session_id=stage.consumer.session_id,
            session_epoch=stage.consumer.epoch,
            topics=(_topic({0: 0}),),
        )
        response = await client.ask(replace(request, **change), version)
        assert (response.error_code, response.session_id, response.responses) == (error.code, 0, ())

    on_stage(story, BY_ID)


@pytest.mark.parametrize("limit", ["max_wait_ms", "min_bytes", "max_bytes"])
def test_fetch_with_a_negative_limit_leaves_its_session_alone(limit: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.consumer.fetch({0: 1})
        waiting = asyncio.ensure_future(stage.consumer.fetch(wait_ms=WAIT_MS))
        await asyncio.sleep(A_WHILE_S)
        client = KafkaClient(stage.node.handlers.handle, stage.node.metadata, sessions=stage.sessions)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            session_id=stage.consumer.session_id,
            session_epoch=stage.consumer.epoch,
            topics=(_topic({1: 0}),),
        )
        refused = await client.ask(replace(request, **{limit: -1}), BY_ID)
        assert refused.error_code == InvalidRequestError.code
        await asyncio.sleep(A_WHILE_S)
        assert not waiting.done()
        await stage.append(0)
        assert set(await asyncio.wait_for(waiting, A_WHILE_S)) == {0}

    on_stage(story, BY_ID)


def test_new_epoch_of_the_same_leader_is_no_error_without_an_epoch() -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        waiting = asyncio.ensure_future(stage.consumer.fetch(wait_ms=WAIT_MS))
        await asyncio.sleep(A_WHILE_S)
        await stage.elect(2, leader=1)
        found = await asyncio.wait_for(waiting, A_WHILE_S)
        assert {partition: answer.error_code for partition, answer in found.items()} in ({}, {2: 0})

    on_stage(story, BY_ID)


def test_forgotten_partition_does_not_end_the_wait() -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        waiting = asyncio.ensure_future(stage.consumer.fetch(forgotten=(2,), wait_ms=WAIT_MS))
        await asyncio.sleep(A_WHILE_S)
        await stage.append(2)
        await asyncio.sleep(A_WHILE_S)
        assert not waiting.done()
        await stage.append(1)
        assert set(await asyncio.wait_for(waiting, A_WHILE_S)) == {1}

    on_stage(story, BY_ID)


@pytest.mark.parametrize("by", ["retention", "DeleteRecords"])
def test_raised_log_start_is_told_by_the_next_response(by: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        if by == "retention":
            stage.retention_deletes(3)
        else:
            await stage.delete_records(3)
        found = await stage.consumer.fetch()
        assert {partition: answer.log_start_offset for partition, answer in found.items()} == {3: 1}
        assert await stage.consumer.fetch() == {}

    on_stage(story, BY_ID)


def test_session_without_partitions_is_answered_at_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        everything = tuple(range(PARTITIONS))
        assert await asyncio.wait_for(stage.consumer.fetch(forgotten=everything, wait_ms=WAIT_MS), A_WHILE_S) == {}

    on_stage(story, BY_ID)


def test_expired_fetch_watches_nothing_more() -> None:
    async def story(stage: Stage) -> None:
        await stage.read_to_the_end()
        assert await stage.consumer.fetch(wait_ms=10) == {}
        assert stage.session is not None
        assert stage.node.purgatories.consumer_fetches.operations(stage.session) == []

    on_stage(story, BY_ID)


# --- The twin that visits every partition ---------------------------------------------------------------

PARTITION = st.integers(0, PARTITIONS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["append", "delete records", "retention", "lead", "follow", "forget", "read on"]), PARTITION
        ),
        st.tuples(st.just("move"), PARTITION, st.integers(0, 6)),
        st.tuples(st.just("wait"), st.sampled_from([0.001, 0.02, 0.3])),
        st.tuples(st.just("nothing")),
    ),
    max_size=25,
)


@given(STEPS, st.sampled_from([BY_NAME, BY_ID]))
@settings(max_examples=60, deadline=None)
def test_session_answers_what_visiting_every_partition_would(steps: list[Any], version: int) -> None:
    async def story(stage: Stage) -> None:
        consumer, sent = stage.consumer, dict[int, tuple[int, int] | None]()
        moved, forgotten = dict.fromkeys(range(PARTITIONS), 0), tuple[int, ...]()
        for kind, *arguments in [("nothing",), *steps]:
            if kind == "append":
                await stage.append(*arguments)
            elif kind == "delete records":
                await stage.delete_records(*arguments)
            elif kind == "retention":
                stage.retention_deletes(*arguments)
            elif kind in ("lead", "follow"):
                await stage.elect(*arguments, leader=1 if kind == "lead" else 2)
            elif kind == "wait":
                await asyncio.sleep(*arguments)
            elif kind == "move":
                moved = {arguments[0]: arguments[1]}
            elif kind == "read on":
                moved = consumer.behind
            elif kind == "forget":
                forgotten = tuple(each for each in arguments if each in consumer.positions)
                for each in forgotten:
                    sent.pop(each)
            found = await consumer.fetch(moved, forgotten)
            everything = await consumer.fetch_all()
            expected = {}
            for partition, answer in everything.items():
                offsets = (answer.high_watermark, answer.log_start_offset)
                if answer.error_code or answer.values or sent.get(partition) != offsets:
                    expected[partition] = answer
                    sent[partition] = None if answer.error_code else offsets
            assert found == expected, kind
            moved, forgotten = {}, ()

    on_stage(story, version)
