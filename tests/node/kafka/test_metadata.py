"""The answers of each version about brokers, topics, coordinators, the cluster and producer ids."""

from __future__ import annotations

from typing import Any

import pytest

from node.kafka.calls import NativeOutcome
from node.metadata.metadata_cache import MetadataCache
from node.net.server import RequestContext
from tests.node.kafka.admin_client import KafkaClient
from tests.node.kafka.kafka_requests import CONTEXT, apis_of, ask_handler
from tidelog.errors import InvalidRequestError, StorageError, UnknownTopicIdError, UnknownTopicOrPartitionError
from tidelog.protocol import group_messages
from tidelog.protocol import messages as native
from tidelog.protocol.control_messages import (
    BrokerInfo,
    ListenerAddress,
    PartitionStateMessage,
    TopicInfo,
    UpdateMetadataRequest,
)
from tidelog.protocol.kafka.extensions import FIRST_EXTENSION, OWN_SOFTWARE
from tidelog.protocol.kafka.messages.metadata import (
    ApiVersionsRequest,
    Coordinator,
    DescribeClusterRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.protocol.kafka.messages.producers import InitProducerIdRequest
from tidelog.protocol.kafka.primitives import ZERO_UUID, uuid_from_text

LINES_ID = "A" * 21 + "Q"
METADATA = range(13)
_GROUP, _TRANSACTION, _OTHER = 0, 1, 2


def a_client() -> KafkaClient:
    """Return a client of broker 2. Broker 3 leads the topic "lines", broker 1 is dead, and broker 2 is controller."""
    metadata = MetadataCache("the-cluster")
    producer_ids = iter(range(1000, 2000))

    def handle(request: native.Request, context: RequestContext) -> NativeOutcome:
        assert context.listener == CONTEXT.listener
        match request:
            case native.MetadataRequest(topics=topics):
                return metadata.describe(topics, context.listener)
            case group_messages.FindCoordinatorRequest(keys=keys):
                found = (
                    group_messages.Coordinator(key, 0, 3, "host-3", 9092)
                    if key
                    else group_messages.Coordinator(key, 24, error_message="empty")
                    for key in keys
                )
                return group_messages.FindCoordinatorResponse(tuple(found))
            case native.InitProducerIdRequest():
                return native.InitProducerIdResponse(0, next(producer_ids), 0)
        raise AssertionError(request)

    client = KafkaClient(handle, metadata)
    racks = {2: "a", 3: None}
    brokers = [
        BrokerInfo(id_, 10, (ListenerAddress("KAFKA", f"host-{id_}", 9092),), rack=rack) for id_, rack in racks.items()
    ]
    lines = PartitionStateMessage("lines", 0, 1, 3, 5, (2, 3), 0, (1, 2, 3))
    topics = (TopicInfo("lines", LINES_ID, {}, 1), TopicInfo("__consumer_offsets", "", {}, 0))
    metadata.set_brokers(brokers, 0)
    metadata.admit_controller(2, 1)
    metadata.update(UpdateMetadataRequest(2, 1, (), (lines,), topics, every_topic=dict.fromkeys(("lines",), LINES_ID)))
    metadata.update(UpdateMetadataRequest(2, 1, (), (), topics))
    return client


def asked(*names: str) -> tuple[MetadataRequestTopic, ...]:
    return tuple(MetadataRequestTopic(name=name) for name in names)


async def describe(version: int, topics: tuple[MetadataRequestTopic, ...] | None) -> MetadataResponse:
    response: MetadataResponse = await a_client().ask(MetadataRequest(topics=topics), version)
    return response


@pytest.mark.parametrize("version", METADATA)
async def test_each_version_of_metadata_tells_what_it_knows(version: int) -> None:
    found = await describe(version, asked("lines", "__consumer_offsets", "unheard"))
    assert [(each.node_id, each.host, each.port, each.rack) for each in found.brokers] == [
        (2, "host-2", 9092, "a" if version >= 1 else None),
        (3, "host-3", 9092, None),
    ]
    assert found.controller_id == (2 if version >= 1 else -1)
    assert found.cluster_id == ("the-cluster" if version >= 2 else None)
    lines, offsets, unheard = found.topics
    assert (lines.error_code, unheard.error_code) == (0, UnknownTopicOrPartitionError.code)
    assert (lines.is_internal, offsets.is_internal) == (False, version >= 1)
    assert lines.topic_id == (uuid_from_text(LINES_ID) if version >= 10 else ZERO_UUID)
    (partition,) = lines.partitions
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (3, (1, 2, 3), (2, 3))
    assert partition.offline_replicas == ((1,) if version >= 5 else ())
    assert partition.leader_epoch == (5 if version >= 7 else -1)


@pytest.mark.parametrize("version", METADATA)
async def test_no_topics_mean_all_in_version_0_and_none_since(version: int) -> None:
    def names(response: MetadataResponse) -> list[str | None]:
        return [each.name for each in response.topics]

    everything = ["__consumer_offsets", "lines"]
    assert names(await describe(version, ())) == ([] if version >= 1 else everything)
    if version >= 1:
        assert names(await describe(version, None)) == everything


async def test_topics_are_found_by_their_ids() -> None:
    by_id = tuple(MetadataRequestTopic(name=None, topic_id=id_) for id_ in (uuid_from_text(LINES_ID), b"\x07" * 16))

    def summary(topic: MetadataResponseTopic) -> tuple[str | None, bytes, int]:
        return topic.name, topic.topic_id, topic.error_code

    lines, unknown = map(summary, (await describe(12, by_id)).topics)
    assert lines == ("lines", uuid_from_text(LINES_ID), 0)
    assert unknown == (None, b"\x07" * 16, UnknownTopicIdError.code)


# --- FindCoordinator -----------------------------------------------------------------------------------


async def find(version: int, *keys: str, kind: int = _GROUP) -> list[tuple[int, int, str, int, str]]:
    """Return error code, broker, host, port and message for each key; before version 4 with a request for each."""
    client = a_client()
    options: dict[str, Any] = {"key_type": kind} if version >= 1 else {}
    if version >= 4:
        found: FindCoordinatorResponse = await client.ask(FindCoordinatorRequest(coordinator_keys=keys, **options), 4)
        assert [each.key for each in found.coordinators] == list(keys)
        return [_located(each) for each in found.coordinators]
    return [_located(await client.ask(FindCoordinatorRequest(key=key, **options), version)) for key in keys]


def _located(found: Coordinator | FindCoordinatorResponse) -> tuple[int, int, str, int, str]:
    return found.error_code, found.node_id, found.host, found.port, found.error_message or ""


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("topic", [{"name": None}, {"name": "lines", "topic_id": uuid_from_text(LINES_ID)}], ids=str)
async def test_topics_by_id_are_refused_before_version_12(version: int, topic: dict[str, Any]) -> None:
    response = await a_client().ask(MetadataRequest(topics=(MetadataRequestTopic(**topic),)), version)
    (refused,) = response.topics
    assert (refused.error_code, refused.name) == (InvalidRequestError.code, topic["name"] or "")


@pytest.mark.parametrize("version", range(5))
async def test_coordinators_of_several_groups_are_found_in_every_version(version: int) -> None:
    empty = (24, -1, "", -1, "empty" if version >= 1 else "")
    assert await find(version, "a", "", "b") == [(0, 3, "host-3", 9092, ""), empty, (0, 3, "host-3", 9092, "")]


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize(("kind", "code"), [(_TRANSACTION, 53), (_OTHER, InvalidRequestError.code)])
async def test_coordinators_of_other_types_are_refused_for_each_key(version: int, kind: int, code: int) -> None:
    for located in await find(version, "a", "b", kind=kind):
        assert located[:4] == (code, -1, "", -1)
        assert "not supported" in located[4]
    if version >= 4:
        assert await find(version, kind=kind) == []


@pytest.mark.parametrize("version", range(5))
async def test_refused_request_for_coordinators_has_the_form_of_its_version(version: int) -> None:
    def refuse(request: native.Request, context: RequestContext) -> NativeOutcome:
        raise StorageError("the disk is full")

    refused = (StorageError.code, -1, "", -1, "the disk is full" if version >= 1 else "")
    if version < 4:
        found = await ask_handler(refuse, FindCoordinatorRequest(key="a"), version)
        assert _located(found) == refused
    else:
        for keys in ((), ("a", "b")):
            found = await ask_handler(refuse, FindCoordinatorRequest(coordinator_keys=keys), version)
            assert [(each.key, _located(each)) for each in found.coordinators] == [(key, refused) for key in keys]


# --- other APIs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2))
async def test_cluster_is_described_in_every_version(version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    found = await a_client().ask(request, version)
    assert (found.error_code, found.cluster_id, found.controller_id) == (0, "the-cluster", 2)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in found.brokers] == [
        (2, "host-2", 9092, "a"),
        (3, "host-3", 9092, None),
    ]


@pytest.mark.parametrize("version", range(5))
async def test_producer_gets_a_new_id_in_every_version(version: int) -> None:
    client = a_client()

    async def given(**own: int) -> tuple[int, int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000, **own)
        response = await client.ask(request, version)
        return response.error_code, response.producer_id, response.producer_epoch

    assert [await given(), await given()] == [(0, 1000, 0), (0, 1001, 0)]
    if version >= 3:  # the client has an id, and asks for its next epoch (KIP-360)
        assert await given(producer_id=1001, producer_epoch=4) == (0, 1002, 0)


@pytest.mark.parametrize(
    ("version", "name"), [*((version, "a") for version in range(5)), (3, "tidelog"), (4, "tidelog")]
)
async def test_each_version_of_api_versions_lists_all_apis(version: int, name: str) -> None:
    software = {"client_software_name": name, "client_software_version": "1"} if version >= 3 else {}
    found = await a_client().ask(ApiVersionsRequest(**software), version)
    apis = apis_of(lambda request, context: None)
    if name != OWN_SOFTWARE:
        apis = [api for api in apis if api.request.api < FIRST_EXTENSION]
    assert found.error_code == 0
    assert [(each.api_key, each.min_version, each.max_version) for each in found.api_keys] == sorted(
        (api.request.api, api.versions.first, api.versions.last) for api in apis
    )
