"""The encoded topics of Metadata responses: always what encoding everything again would give, at a bounded cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.kafka.calls import Call, KafkaApi
from node.kafka.translation import encoded_topics
from node.kafka.translation.encoded_topics import EncodedAs, EncodedTopics
from node.metadata.metadata_cache import MetadataCache
from storage.steps import SteppedWork, run_steps
from tests.executed_lines import executed_lines
from tests.hand_clock import HandClock
from tests.node.kafka.kafka_requests import CONTEXT, a_connection, apis_of
from tidelog.protocol import messages as native
from tidelog.protocol.control_messages import (
    BrokerInfo,
    ListenerAddress,
    PartitionStateMessage,
    TopicInfo,
    UpdateMetadataRequest,
)
from tidelog.protocol.kafka.codec import encode
from tidelog.protocol.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.kafka.primitives import uuid_from_text
from tidelog.protocol.kafka.schema import EncodedArray

FEW, MANY = 100, 10_000
LISTENERS = ("KAFKA", "OUTSIDE")
NEWEST = 12
_ALL_ON_TOPIC, _NOT_ASKED = 0b110111111000, -(2**31)


def state(topic: str, partition: int, leader: int = 1, epoch: int = 0) -> PartitionStateMessage:
    return PartitionStateMessage(topic, partition, 1, leader, epoch, (1, 2), epoch, (1, 2, 3))


def update(*states: PartitionStateMessage, deleted: tuple[str, ...] = (), **counts: int) -> UpdateMetadataRequest:
    """Return an update with these states, and with these topics and their numbers of partitions."""
    infos = tuple(TopicInfo(name, "", {}, count) for name, count in counts.items())
    return UpdateMetadataRequest(1, 1, (), states, infos, deleted)


def brokers(*ids: int, reached: tuple[int, ...] = (1, 2, 3)) -> list[BrokerInfo]:
    """Return brokers, of which only those in `reached` have the listener OUTSIDE."""
    return [
        BrokerInfo(
            id_, 10, tuple(ListenerAddress(name, f"h{id_}", 9) for name in LISTENERS[: 2 if id_ in reached else 1])
        )
        for id_ in ids
    ]


class Broker:
    """A broker's metadata cache, and its API Metadata."""

    def __init__(self) -> None:
        self.metadata = MetadataCache("c")
        self.metadata.informed = True
        apis = apis_of(self._handle, self.metadata, HandClock())
        self._api = next(api for api in apis if api.request is MetadataRequest)
        self._connection = a_connection()
        self._connection.metadata_ms = 0

    def _handle(self, request: native.Request, context: Any) -> native.Response:
        assert isinstance(request, native.MetadataRequest)
        return self.metadata.describe(request.topics, context.listener)

    @property
    def api(self) -> KafkaApi:
        return self._api

    def ask(self, request: MetadataRequest, version: int = NEWEST, listener: str = "KAFKA") -> Any:
        return self._api.handle(request, Call(version, replace(CONTEXT, listener=listener), self._connection))

    async def bytes_of(self, request: MetadataRequest, version: int, listener: str) -> bytes:
        outcome = self.ask(request, version, listener)
        return encode(await outcome if isinstance(outcome, Awaitable) else outcome, version)


def named(*names: str, operations: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names),
        include_topic_authorized_operations=operations,
    )


def encoded_at_once(metadata: MetadataCache, request: MetadataRequest, version: int, listener: str) -> bytes:
    """Return the bytes of the response as the simple twin makes it: each topic is described and encoded anew."""
    names = None if request.topics is None else tuple(str(topic.name) for topic in request.topics)
    found = metadata.describe(names, listener)
    response = MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=each.broker_id, host=each.host, port=each.port)
            for each in (*found.brokers, *metadata.departed(0, listener))
        ),
        cluster_id=found.cluster_id,
        controller_id=found.controller_id,
        topics=tuple(
            MetadataResponseTopic(
                error_code=topic.error_code,
                name=topic.name,
                topic_id=uuid_from_text(topic.topic_id),
                is_internal=topic.is_internal,
                partitions=tuple(
                    MetadataResponsePartition(
                        error_code=each.error_code,
                        partition_index=each.partition,
                        leader_id=each.leader,
                        leader_epoch=each.leader_epoch,
                        replica_nodes=each.replicas,
                        isr_nodes=each.isr,
                        offline_replicas=each.offline_replicas,
                    )
                    for each in topic.partitions
                ),
                topic_authorized_operations=(
                    _ALL_ON_TOPIC if request.include_topic_authorized_operations else _NOT_ASKED
                ),
            )
            for topic in found.topics
        ),
    )
    return encode(response, version)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(encoded_topics, "_PARTITIONS_PER_PIECE", 2)
    monkeypatch.setattr(encoded_topics, "_PARTITIONS_PER_STEP", 2)
    yield


NAMES = st.sampled_from(["t", "u", "v"])
STATES = st.builds(state, NAMES, st.integers(0, 6), st.sampled_from([-1, 1, 2, 3]), st.integers(0, 3))
UPDATES = st.builds(
    lambda states, counts, deleted: update(*states, deleted=deleted, **counts),
    st.lists(STATES, max_size=4),
    st.dictionaries(NAMES, st.integers(0, 7), max_size=2),
    st.one_of(st.just(()), st.tuples(NAMES)),
)
LIVE = st.builds(
    lambda ids, reached: brokers(*sorted(ids), reached=tuple(reached)),
    st.sets(st.sampled_from([1, 2, 3])),
    st.sets(st.sampled_from([1, 2, 3])),
)
REQUESTS = st.one_of(
    st.just(MetadataRequest(topics=None)),
    st.builds(lambda names: named(*names), st.lists(NAMES, min_size=1, max_size=3, unique=True)),
)


@pytest.mark.usefixtures("small_pieces")
@given(
    st.lists(
        st.one_of(
            UPDATES,
            LIVE,
            st.tuples(REQUESTS, st.integers(0, NEWEST), st.sampled_from(LISTENERS), st.booleans()),
        ),
        max_size=25,
    ),
    st.sampled_from([100, 300, 1 << 20]),
)
@settings(max_examples=300, deadline=None)
def test_response_is_what_encoding_everything_anew_gives(steps: list[Any], max_bytes: int) -> None:
    async def play() -> None:
        broker, news = Broker(), list[Any]()
        where = broker.api.handle.__self__  # type: ignore[attr-defined]
        where._topics._max_bytes = max_bytes
        for step in steps:
            if not isinstance(step, tuple):
                news.append(step)
                apply(broker.metadata, step)
                continue
            request, version, listener, operations = step
            request.include_topic_authorized_operations = operations and version >= 8
            twin = MetadataCache("c")
            twin.informed = True
            for each in news:
                apply(twin, each)
            assert await broker.bytes_of(request, version, listener) == encoded_at_once(
                twin, request, version, listener
            )
            assert where._topics.size_bytes <= max_bytes

    asyncio.run(play())


def apply(metadata: MetadataCache, news: UpdateMetadataRequest | list[BrokerInfo]) -> None:
    if isinstance(news, UpdateMetadataRequest):
        metadata.update(news)
    else:
        metadata.set_brokers(news, 0)


def broker_with(partitions: int) -> Broker:
    """Return a broker with a wide topic of so many partitions, and a small one, which has answered about both."""
    broker = Broker()
    broker.metadata.set_brokers(brokers(1, 2, 3), 0)
    states = [state("wide", number) for number in range(partitions)]
    broker.metadata.update(update(*states, state("small", 0), wide=partitions, small=1))
    asyncio.run(broker.bytes_of(named("wide", "small"), NEWEST, "KAFKA"))
    return broker


def test_unchanged_topic_costs_the_same_with_many_partitions() -> None:
    few, many = (
        executed_lines(lambda broker=broker: broker.ask(named("wide")))  # type: ignore[misc]
        for broker in (broker_with(FEW), broker_with(MANY))
    )
    assert few == many
    assert few > 20


def test_changed_topic_costs_the_same_beside_many_partitions() -> None:
    lines = []
    for partitions in (FEW, MANY):
        broker = broker_with(partitions)

        def change_and_ask(broker: Broker = broker) -> None:
            broker.metadata.update(update(state("small", 0, leader=2, epoch=1)))
            broker.ask(named("small"))

        lines.append(executed_lines(change_and_ask))
    assert lines[0] == lines[1]
    assert lines[0] > 20


def count_encoded(monkeypatch: pytest.MonkeyPatch) -> list[MetadataResponsePartition]:
    """Return a list to which each partition is added that is encoded from now on."""
    encoded: list[MetadataResponsePartition] = []
    encode_elements = encoded_topics.encode_elements

    def counted(elements: Any, message: Any, version: int) -> bytes:
        listed = list(elements)
        encoded.extend(each for each in listed if isinstance(each, MetadataResponsePartition))
        return encode_elements(listed, message, version)

    monkeypatch.setattr(encoded_topics, "encode_elements", counted)
    return encoded


def test_change_of_one_partition_encodes_one_piece_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = broker_with(MANY)
    encoded = count_encoded(monkeypatch)
    broker.metadata.update(update(state("wide", 5000, leader=2, epoch=1)))
    broker.ask(named("wide"))
    assert 5000 in (each.partition_index for each in encoded)
    assert len(encoded) <= 512


def test_requests_at_the_same_time_share_one_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = MetadataCache("c")
    metadata.update(update(*(state("wide", number) for number in range(5_000)), wide=5_000))
    cache, how = EncodedTopics(metadata), EncodedAs("KAFKA", NEWEST, _NOT_ASKED)
    encoded = count_encoded(monkeypatch)
    together = [SteppedWork(cache.array_of(metadata.describe(("wide",)).topics, (), how)) for _ in range(3)]
    while not all(each.finished for each in together):
        for each in together:
            if not each.finished:
                each.resume()
    assert sorted(each.partition_index for each in encoded) == list(range(5_000))
    first, *others = (b"".join(cast(EncodedArray, each.result).parts) for each in together)
    assert others == [first] * 2
    assert cache.size_bytes > 0


def test_topic_that_changes_while_it_is_encoded_is_encoded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = MetadataCache("c")
    metadata.update(update(*(state("wide", number) for number in range(5_000)), wide=5_000))
    cache, how = EncodedTopics(metadata), EncodedAs("KAFKA", NEWEST, _NOT_ASKED)
    encoded = count_encoded(monkeypatch)
    given_up = SteppedWork(cache.array_of(metadata.describe(("wide",)).topics, (), how))
    given_up.resume()
    assert not given_up.finished and encoded
    metadata.update(update(state("wide", 4_999, leader=2, epoch=1)))
    run_steps(cache.array_of(metadata.describe(("wide",)).topics, (), how))
    begun = len(encoded) - 5_000
    assert begun == encoded_topics._PARTITIONS_PER_STEP, "the topic has changed, so that its pieces are made anew"


def test_many_partitions_are_encoded_in_bounded_steps() -> None:
    most = []
    for partitions in (5_000, MANY):
        metadata = MetadataCache("c")
        states = [state("wide", number) for number in range(partitions)]
        metadata.update(update(*states, wide=partitions))
        topics = metadata.describe(("wide",)).topics
        cache, how = EncodedTopics(metadata), EncodedAs("KAFKA", NEWEST, _NOT_ASKED)
        work = SteppedWork(cache.array_of(topics, (), how))
        lines = []
        while not work.finished:
            lines.append(executed_lines(work.resume))
        assert len(lines) >= partitions // encoded_topics._PARTITIONS_PER_STEP
        most.append(max(lines))
    assert most[1] <= most[0] + 100


def test_deleted_topics_leave_the_cache() -> None:
    metadata = MetadataCache("c")
    cache, how = EncodedTopics(metadata), EncodedAs("KAFKA", NEWEST, _NOT_ASKED)
    metadata.update(update(state("t", 0), state("u", 0), t=1, u=1))
    run_steps(cache.array_of(metadata.describe(("t", "u")).topics, (), how))
    both = cache.size_bytes
    metadata.update(update(deleted=("t",)))
    assert 0 < cache.size_bytes < both
    metadata.update(update(deleted=("u",)))
    assert cache.size_bytes == 0


def test_names_of_unknown_topics_are_not_kept() -> None:
    metadata = MetadataCache("c")
    cache, how = EncodedTopics(metadata), EncodedAs("KAFKA", NEWEST, _NOT_ASKED)
    run_steps(cache.array_of(metadata.describe(("unheard",)).topics, (), how))
    assert cache.size_bytes == 0
