"""Topics that a broker creates because a metadata request names them, with a scripted controller on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from node.metadata.auto_topic_creation import MAX_TOPICS, RETRY_MS, AutoTopicCreation
from node.metadata.metadata_cache import MetadataCache
from tests.node.topic_settings import broker_settings
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.errors import (
    BrokerNotAvailableError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    LeaderNotAvailableError,
    NotControllerError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.protocol.control_messages import TopicInfo, UpdateMetadataRequest
from tidelog.protocol.messages import (
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    NewTopic,
)

UNKNOWN, COMING = UnknownTopicOrPartitionError.code, LeaderNotAvailableError.code


class Controller:
    """Creates topics after half a second. `refusal` returns the error code of a topic."""

    def __init__(self) -> None:
        self.asked: list[NewTopic] = []
        self.is_known = True
        self.refusal: Callable[[str], int] = lambda name: 0
        self.cache = MetadataCache("c")
        self.cache.update(UpdateMetadataRequest(1, 1, (), (), (), (), {}))

    async def create(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        self.asked += request.topics
        if not self.is_known:
            raise BrokerNotAvailableError("this broker knows no controller yet; try again")
        await asyncio.sleep(0.5)
        created = [CreatedTopic(each.name, self.refusal(each.name), "a reason") for each in request.topics]
        known = tuple(TopicInfo(each.name, "id", {}, 1) for each in created if not each.error_code)
        self.cache.update(UpdateMetadataRequest(1, 1, (), (), known))
        return CreateTopicsResponse(tuple(created))


def creation(controller: Controller, *, enabled: bool = True) -> AutoTopicCreation:
    settings = broker_settings(auto_create_topics_enable=enabled, num_partitions=6, default_replication_factor=3)
    return AutoTopicCreation(settings, controller.cache, controller.create, VirtualClock())


def codes(creation: AutoTopicCreation, *names: str, allow: bool = True) -> list[int]:
    """Return the error code of each topic in the response to a metadata request."""
    return [topic.error_code for topic in creation.describe(MetadataRequest(names, allow), "KAFKA").topics]


@on_virtual_time
async def test_missing_topic_is_created_once_with_the_brokers_defaults() -> None:
    controller = Controller()
    automatic = creation(controller)
    for _ in range(4):
        assert codes(automatic, "t") == [COMING], "the response does not wait"
        await asyncio.sleep(0.1)
    assert controller.asked == [NewTopic("t", 6, 3)]
    await asyncio.sleep(0.5)
    assert codes(automatic, "t") == [0]
    assert len(controller.asked) == 1


@on_virtual_time
async def test_nothing_is_created_unless_the_setting_and_the_request_allow_it() -> None:
    controller = Controller()
    assert codes(creation(controller, enabled=False), "t") == [UNKNOWN]
    assert codes(creation(controller), "t", allow=False) == [UNKNOWN]
    assert creation(controller).describe(MetadataRequest(None, True), "KAFKA").topics == ()
    await asyncio.sleep(1)
    assert controller.asked == []


@on_virtual_time
async def test_invalid_names_and_internal_topics_are_not_created() -> None:
    controller = Controller()
    automatic = creation(controller)
    invalid = InvalidTopicError.code
    assert codes(automatic, "a/b", "", OFFSETS_TOPIC, "t") == [invalid, invalid, UNKNOWN, COMING]
    await asyncio.sleep(1)
    assert [each.name for each in controller.asked] == ["t"]


@on_virtual_time
async def test_refusal_of_the_controller_is_answered_until_the_next_try() -> None:
    controller = Controller()
    controller.refusal = lambda name: InvalidReplicationFactorError.code if name == "bad" else 0
    automatic = creation(controller)
    assert codes(automatic, "bad", "good") == [COMING, COMING]
    await asyncio.sleep(0.6)
    assert codes(automatic, "bad", "good") == [InvalidReplicationFactorError.code, 0]
    assert [each.name for each in controller.asked] == ["bad", "good"]
    controller.refusal = lambda name: 0
    await asyncio.sleep(RETRY_MS / 1000)
    assert codes(automatic, "bad") == [COMING]
    await asyncio.sleep(0.6)
    assert codes(automatic, "bad") == [0]


@on_virtual_time
async def test_retriable_refusals_and_existing_topics_are_told_as_coming() -> None:
    refusals = {"moved": NotControllerError.code, "exists": TopicAlreadyExistsError.code}
    controller = Controller()
    controller.refusal = refusals.__getitem__
    automatic = creation(controller)
    for _ in range(3):
        assert codes(automatic, "moved", "exists") == [COMING, COMING]
        await asyncio.sleep(0.6)


@on_virtual_time
async def test_creation_is_tried_again_when_the_controller_is_known() -> None:
    controller = Controller()
    controller.is_known = False
    automatic = creation(controller)
    for _ in range(20):
        assert codes(automatic, "t") == [COMING]
        await asyncio.sleep(0.1)
    assert 3 <= len(controller.asked) <= 5, "a pause lies between two tries"
    controller.is_known = True
    await asyncio.sleep(RETRY_MS / 1000)
    codes(automatic, "t")
    await asyncio.sleep(0.6)
    assert codes(automatic, "t") == [0]


@on_virtual_time
async def test_broker_without_the_names_of_all_topics_creates_none() -> None:
    controller = Controller()
    controller.cache = MetadataCache("c")
    assert codes(creation(controller), "t") == [COMING]
    await asyncio.sleep(1)
    assert controller.asked == []


@on_virtual_time
async def test_number_of_topics_that_are_created_at_once_is_limited() -> None:
    controller = Controller()
    automatic = creation(controller)
    names = [f"t{number}" for number in range(MAX_TOPICS + 5)]
    assert set(codes(automatic, *names)) == {COMING}
    await asyncio.sleep(0)
    assert len(controller.asked) == MAX_TOPICS
    await asyncio.sleep(0.6)
    assert codes(automatic, *names) == [0] * MAX_TOPICS + [COMING] * 5


@on_virtual_time
async def test_stopping_broker_waits_for_no_creation() -> None:
    controller = Controller()
    automatic = creation(controller)
    codes(automatic, "t")
    await asyncio.sleep(0.1)
    automatic.close()
    await asyncio.sleep(1)
    assert codes(creation(controller, enabled=False), "t") == [UNKNOWN]
