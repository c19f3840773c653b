"""Typed requests of our client reach the broker's handlers as they were, and typed responses the client.

On the way both are Kafka's messages, or the bodies of extensions, in each version that client and broker share.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node.kafka.calls import Call, KafkaApi, Later
from node.kafka.translation.extensions import EXTENSION_REQUESTS
from node.metadata.metadata_cache import MetadataCache
from node.net.server import RequestContext
from tests.node.kafka.kafka_requests import CONTEXT, a_connection, apis_of, ask_one_of
from tidelog.errors import (
    BrokerError,
    InvalidRequestError,
    NotControllerError,
    NotCoordinatorError,
    UnknownServerError,
    UnsupportedVersionError,
)
from tidelog.model import MAX_TIMESTAMP
from tidelog.protocol import admin_messages as admin
from tidelog.protocol import group_messages as groups
from tidelog.protocol import list_offsets_v0_messages as segments
from tidelog.protocol import messages as native
from tidelog.protocol import operator_messages as operator
from tidelog.protocol import partition_messages as partitions
from tidelog.protocol.kafka.client.translation.apis import translation_of
from tidelog.protocol.kafka.client.translation.translation import Translation
from tidelog.protocol.kafka.codec import decode, encode
from tidelog.protocol.kafka.extensions import EXTENSION_APIS, FIRST_EXTENSION, carrier_of, extension_number
from tidelog.protocol.kafka.messages.metadata import ApiVersionsRequest
from tidelog.protocol.kafka.schema import Response, Versions
from tidelog.protocol.messages import DescribePartition, Request

KAFKA_ONLY = frozenset(api.request.api for api in apis_of(lambda request, context: None)) - {
    carrier_of(cls).api for cls in EXTENSION_REQUESTS
}


class Broker:
    """The offered APIs of a broker whose handler notes the typed request and has one answer."""

    def __init__(self, answer: native.Response | BrokerError) -> None:
        self.received: Request | None = None
        self._answer = answer
        self.apis = apis_of(self._handle, MetadataCache("c"))

    def _handle(self, request: Request, context: RequestContext) -> native.Response:
        self.received = request
        if isinstance(self._answer, BrokerError):
            raise self._answer
        return self._answer

    def api(self, translation: Translation) -> KafkaApi:
        return next(each for each in self.apis if each.request is translation.request)

    async def ask(self, request: Request, translation: Translation, version: int) -> native.Response:
        """Return the typed response to a typed request that passes through bytes in both directions."""
        api = self.api(translation)
        written = translation.write(request, version)
        received = decode(translation.request, version, encode(written, version))
        try:
            outcome: Any = api.handle(received, Call(version, CONTEXT, a_connection()))
            if not isinstance(outcome, Response | Later):
                outcome = await outcome
        except BrokerError as error:
            outcome = api.error_response(received, error, version)
        assert not isinstance(outcome, Later)
        return translation.read(decode(written.response, version, encode(outcome, version)), request, version)


def shared_versions(request: Request, translation: Translation, broker: Broker) -> list[int]:
    low, high = translation.versions(request)
    offered = broker.api(translation).versions
    return list(range(max(low, offered.first), min(high, offered.last) + 1))


BATCH = b"\x01" * 70

#: Requests and responses that pass unchanged in every version that both sides share.
UNCHANGED: list[tuple[Request, native.Response]] = [
    (
        native.ListOffsetsRequest(
            (native.ListOffsetsPartition("a", 0, 1_000, 7), native.ListOffsetsPartition("a", 2, MAX_TIMESTAMP)),
            isolation_level=1,
        ),
        native.ListOffsetsResponse(
            (
                native.ListOffsetsPartitionResponse("a", 0, 0, 1_005, 42, 3),
                native.ListOffsetsPartitionResponse("a", 2, NotCoordinatorError.code),
            )
        ),
    ),
    (
        segments.ListSegmentOffsetsRequest((segments.SegmentOffsetsPartition("a", 0, 1_000, 5),)),
        segments.ListSegmentOffsetsResponse((segments.SegmentOffsets("a", 0, 0, (30, 20, 0)),)),
    ),
    (
        native.OffsetForLeaderEpochRequest((native.EpochPartition("a", 1, 5, 4),)),
        native.OffsetForLeaderEpochResponse((native.EpochEndOffset("a", 1, 0, 4, 99),)),
    ),
    (native.InitProducerIdRequest(), native.InitProducerIdResponse(0, 12, 3)),
    (
        native.DeleteTopicsRequest(("a", "b"), 500, {}),
        native.DeleteTopicsResponse((native.DeletedTopic("a", 0), native.DeletedTopic("b", 0))),
    ),
    (
        partitions.CreatePartitionsRequest(
            (partitions.NewPartitions("a", 3, {1: (1, 2), 2: (2, 3)}), partitions.NewPartitions("b", 9)), 500, True
        ),
        partitions.CreatePartitionsResponse(
            (partitions.ExtendedTopic("a", 0), partitions.ExtendedTopic("b", InvalidRequestError.code, "no"))
        ),
    ),
    (
        admin.DeleteRecordsRequest((admin.DeleteRecordsPartition("a", 1, 50),), 500),
        admin.DeleteRecordsResponse((admin.DeletedRecords("a", 1, 0, 50),)),
    ),
    (
        admin.IncrementalAlterConfigsRequest(
            (
                admin.ConfigAlteration(
                    2, "a", (admin.ConfigChange("k", "v", 2), admin.ConfigChange("gone", None, admin.ConfigOp.DELETE))
                ),
            ),
            True,
        ),
        admin.IncrementalAlterConfigsResponse((admin.AlteredConfigs(2, "a", InvalidRequestError.code, "no"),)),
    ),
    (
        admin.AlterConfigsRequest((admin.ReplacedConfigs(4, "1", {"k": "v"}),), True),
        admin.AlterConfigsResponse((admin.AlteredConfigs(4, "1", 0),)),
    ),
    (
        partitions.ElectLeadersRequest(1, (DescribePartition("a", 0), DescribePartition("a", 1)), 500),
        partitions.ElectLeadersResponse(
            (partitions.PartitionResult("a", 0, 0), partitions.PartitionResult("a", 1, 84, "not needed"))
        ),
    ),
    (partitions.ElectLeadersRequest(0, None, 500), partitions.ElectLeadersResponse(())),
    (
        partitions.AlterPartitionReassignmentsRequest(
            (partitions.WantedReplicas("a", 0, (1, 2)), partitions.WantedReplicas("a", 1, None)), 500
        ),
        partitions.AlterPartitionReassignmentsResponse(
            (partitions.PartitionResult("a", 0, 0), partitions.PartitionResult("a", 1, 85, "none"))
        ),
    ),
    (
        partitions.ListPartitionReassignmentsRequest((DescribePartition("a", 0),)),
        partitions.ListPartitionReassignmentsResponse(
            (partitions.PartitionReassignment("a", 0, (1, 2, 3), (3,), (1,)),)
        ),
    ),
    (partitions.ListPartitionReassignmentsRequest(), partitions.ListPartitionReassignmentsResponse(())),
    (
        admin.AlterReplicaLogDirsRequest((admin.ReplicaLogDir("a", 0, "/x"), admin.ReplicaLogDir("a", 1, "/y"))),
        admin.AlterReplicaLogDirsResponse(
            (admin.ReplicaLogDirResult("a", 0, 0), admin.ReplicaLogDirResult("a", 1, 57))
        ),
    ),
    (
        groups.OffsetFetchRequest("g", (DescribePartition("a", 0), DescribePartition("b", 1))),
        groups.OffsetFetchResponse(0, (groups.OffsetFetchPartition("a", 0, 0, 5, -1, "m"),)),
    ),
    (groups.OffsetFetchRequest("g"), groups.OffsetFetchResponse(NotCoordinatorError.code)),
    (
        groups.OffsetFetchRequest("g", (DescribePartition("a", 0),), in_zookeeper=True),
        groups.OffsetFetchResponse(0, (groups.OffsetFetchPartition("a", 0, 0, 5, -1, "m"),)),
    ),
    (
        groups.OffsetDeleteRequest("g", (DescribePartition("a", 0), DescribePartition("a", 1))),
        groups.OffsetDeleteResponse(0, (groups.CommittedPartition("a", 0, 0), groups.CommittedPartition("a", 1, 86))),
    ),
    (
        groups.SyncGroupRequest("g", 4, "m", "static", None, None, (groups.SyncGroupAssignment("m", b"x"),)),
        groups.SyncGroupResponse(25),
    ),
    (groups.HeartbeatRequest("g", 4, "m", "static"), groups.HeartbeatResponse(27)),
    (
        groups.LeaveGroupRequest("g", (groups.LeavingMember("m"), groups.LeavingMember("", "static"))),
        groups.LeaveGroupResponse(0, (groups.LeftMember("m", None, 0), groups.LeftMember("", "static", 25))),
    ),
    (
        groups.DeleteGroupsRequest(("g", "h")),
        groups.DeleteGroupsResponse((groups.DeletedGroup("g", 0), groups.DeletedGroup("h", 68))),
    ),
]


@pytest.mark.parametrize(("request_", "response"), UNCHANGED, ids=lambda each: type(each).__name__)
async def test_typed_request_and_response_pass_unchanged(request_: Request, response: native.Response) -> None:
    broker = Broker(response)
    translation = translation_of(request_, KAFKA_ONLY)
    versions = shared_versions(request_, translation, broker)
    assert versions, "client and broker share a version"
    for version in versions:
        assert await broker.ask(request_, translation, version) == response, f"version {version}"
        assert broker.received == request_, f"version {version}"


# --- messages of which some versions lack fields ---------------------------------------------------------


async def answers(request: Request, response: native.Response) -> dict[int, tuple[Any, Any]]:
    """Return the request that the handler gets, and the response that the client gets, by version."""
    broker = Broker(response)
    translation = translation_of(request, KAFKA_ONLY)
    found = {}
    for version in shared_versions(request, translation, broker):
        answer = await broker.ask(request, translation, version)
        found[version] = (broker.received, answer)
    return found


async def test_produce_carries_batches_and_outcomes() -> None:
    request = native.ProduceRequest(
        -1, 5_000, (native.ProducePartition("a", 0, BATCH), native.ProducePartition("b", 3, BATCH[1:]))
    )
    faulty = (native.RecordError(2, "too old"),)
    response = native.ProduceResponse(
        (
            native.ProducePartitionResponse("a", 0, 0, 40, 1_000, 7),
            native.ProducePartitionResponse("b", 3, 87, error_message="bad records", record_errors=faulty),
        )
    )
    for version, (received, answer) in (await answers(request, response)).items():
        sent = [(each.topic, each.partition, bytes(each.records)) for each in received.partitions]
        assert (received.acks, received.timeout_ms) == (-1, 5_000)
        assert sent == [("a", 0, BATCH), ("b", 3, BATCH[1:])]
        good, bad = response.partitions
        if version < 5:
            good = replace(good, log_start_offset=-1)
        if version < 8:
            bad = replace(bad, error_message=None, record_errors=())
        assert answer == native.ProduceResponse((good, bad)), f"version {version}"


def metadata_of(topic_id: str) -> native.MetadataResponse:
    known = native.PartitionMetadata(0, 0, 1, 5, (1, 2), (1,), (2,))
    leaderless = native.PartitionMetadata(1, 5, -1, 6, (1, 2), (2,), ())
    return native.MetadataResponse(
        "c",
        2,
        (native.BrokerAddress(1, "h", 9092), native.BrokerAddress(2, "i", 9092)),
        (native.TopicMetadata("a", 0, topic_id, True, (known, leaderless)), native.TopicMetadata("b", 3)),
    )


@pytest.mark.parametrize("topics", [None, (), ("a", "b")])
async def test_metadata_names_brokers_leaders_and_topic_ids(topics: tuple[str, ...] | None) -> None:
    topic_id = "A" * 21 + "Q"
    response = metadata_of(topic_id)
    found = await answers(native.MetadataRequest(topics, True), response)
    assert {4, 12} <= found.keys()
    for version, (received, answer) in found.items():
        assert received == native.MetadataRequest(topics, True), f"version {version}"
        expected = response if version >= 10 else metadata_of("")
        if version < 7:
            assert [each.leader_epoch for each in answer.topics[0].partitions] == [-1, -1]
        elif version >= 5:
            assert answer == expected, f"version {version}"


async def test_only_the_newest_version_finds_several_coordinators() -> None:
    one = groups.FindCoordinatorResponse((groups.Coordinator("g", 0, 1, "h", 9092),))
    found = await answers(groups.FindCoordinatorRequest(("g",)), one)
    assert list(found) == [1, 2, 3, 4]
    assert {(received, answer) for received, answer in found.values()} == {(groups.FindCoordinatorRequest(("g",)), one)}
    two = groups.FindCoordinatorResponse((*one.coordinators, groups.Coordinator("h", 15, error_message="wait")))
    assert await answers(groups.FindCoordinatorRequest(("g", "h")), two) == {
        4: (groups.FindCoordinatorRequest(("g", "h")), two)
    }


async def test_create_topics_carries_assignments_settings_and_outcomes() -> None:
    request = native.CreateTopicsRequest(
        (native.NewTopic("a", 3, 2, None, {"k": "v"}), native.NewTopic("b", -1, -1, {0: (1, 2), 1: (2, 1)})), 500, True
    )
    response = native.CreateTopicsResponse(
        (
            native.CreatedTopic("a", 0, None, "A" * 21 + "Q", 3, 2),
            native.CreatedTopic("b", NotControllerError.code, "not the controller"),
        )
    )
    for version, (received, answer) in (await answers(request, response)).items():
        assert received == request
        created, refused = response.topics
        if version < 7:
            created = replace(created, topic_id="")
        if version < 5:
            created = replace(created, num_partitions=-1, replication_factor=-1)
        assert answer == native.CreateTopicsResponse((created, refused)), f"version {version}"


async def test_describe_configs_carries_values_synonyms_and_documentation() -> None:
    request = admin.DescribeConfigsRequest((admin.ConfigQuery(2, "a", ("k",)), admin.ConfigQuery(4, "1")), True)
    entry = admin.ConfigEntry("k", "v", 1, 5, True, True, (admin.ConfigSynonym("k", "w", 5),))
    response = admin.DescribeConfigsResponse(
        (admin.DescribedConfigs(2, "a", 0, None, (entry,)), admin.DescribedConfigs(4, "1", 42, "no"))
    )
    for version, (received, answer) in (await answers(request, response)).items():
        assert received == request
        shown = entry if version >= 3 else replace(entry, config_type=0)
        expected = (replace(response.resources[0], entries=(shown,)), response.resources[1])
        assert answer == admin.DescribeConfigsResponse(expected), f"version {version}"
    explained = replace(request, include_documentation=True)
    assert list(await answers(explained, response)) == [3, 4], "earlier versions have no documentation"


async def test_describe_log_dirs_carries_replicas_and_sizes() -> None:
    replica = admin.LogDirReplica("a", 1, 500, 7, True)
    response = admin.DescribeLogDirsResponse(
        (admin.LogDir("/x", 0, None, (replica,), 1_000, 400), admin.LogDir("/y", 56))
    )
    for wanted in (None, (DescribePartition("a", 1),)):
        for version, (received, answer) in (await answers(admin.DescribeLogDirsRequest(wanted), response)).items():
            assert received == admin.DescribeLogDirsRequest(wanted)
            here = (
                response.log_dirs[0] if version >= 4 else replace(response.log_dirs[0], total_bytes=-1, usable_bytes=-1)
            )
            assert answer == admin.DescribeLogDirsResponse((here, response.log_dirs[1])), f"version {version}"


async def test_commit_carries_member_and_offsets() -> None:
    offset = groups.OffsetCommitPartition("a", 0, 50, 4, "note")
    request = groups.OffsetCommitRequest("g", (offset,), 3, "m")
    response = groups.OffsetCommitResponse((groups.CommittedPartition("a", 0, 22),))
    for version, (received, answer) in (await answers(request, response)).items():
        known = offset if version >= 6 else replace(offset, committed_leader_epoch=-1)
        assert received == replace(request, partitions=(known,)), f"version {version}"
        assert answer == response
    static = replace(request, group_instance_id="static")
    assert list(await answers(static, response)) == [7, 8], "earlier versions have no static members"
    kept = replace(request, retention_ms=9_000)
    assert list(await answers(kept, response)) == [2, 3, 4], "later versions have no retention"
    in_zookeeper = groups.OffsetCommitRequest("g", (groups.OffsetCommitPartition("a", 0, 50),), in_zookeeper=True)
    assert await answers(in_zookeeper, response) == {0: (in_zookeeper, response)}


async def test_join_group_carries_subscriptions_and_members() -> None:
    protocols = (groups.JoinGroupProtocol("range", b"r"), groups.JoinGroupProtocol("sticky", b"s"))
    request = groups.JoinGroupRequest("g", 10_000, 20_000, "m", "static", "consumer", protocols)
    members = (groups.JoinGroupMember("m", "static", b"r"),)
    response = groups.JoinGroupResponse(0, 4, "consumer", "range", "m", "m", members)
    for version, (received, answer) in (await answers(request, response)).items():
        assert received == replace(request, can_skip_assignment=version >= 9), f"version {version}"
        assert answer == response, f"version {version}"
    refused = groups.JoinGroupResponse(79, member_id="new")
    assert {answer for _, answer in (await answers(request, refused)).values()} == {refused}


async def test_assignment_names_its_protocol_from_version_5_on() -> None:
    request = groups.SyncGroupRequest("g", 4, "m", None, "consumer", "range")
    response = groups.SyncGroupResponse(0, "consumer", "range", b"assigned")
    for version, (received, answer) in (await answers(request, response)).items():
        if version >= 5:
            assert (received, answer) == (request, response)
        else:
            assert received == replace(request, protocol_type=None, protocol_name=None)
            assert answer == groups.SyncGroupResponse(0, assignment=b"assigned")


async def test_groups_are_listed_by_state_and_described_with_members() -> None:
    listed = groups.ListGroupsResponse(0, (groups.ListedGroup("g", "consumer", "Stable"),))
    wanted = groups.ListGroupsRequest(("Stable",))
    assert await answers(wanted, listed) == dict.fromkeys((4, 5), (wanted, listed))
    member = groups.DescribedMember("m", "static", "c", "h", b"meta", b"assigned")
    described = groups.DescribeGroupsResponse(
        (groups.DescribedGroup("g", 0, "Stable", "consumer", "range", (member,)), groups.DescribedGroup("h", 16))
    )
    asked = groups.DescribeGroupsRequest(("g", "h"))
    assert await answers(asked, described) == dict.fromkeys((4, 5), (asked, described))


async def test_kafkas_messages_do_not_list_groups_and_offsets_in_zookeeper() -> None:
    with pytest.raises(UnsupportedVersionError, match="LIST_GROUPS: this call needs a cluster of Tidelog"):
        await answers(groups.ListGroupsRequest(in_zookeeper=True), groups.ListGroupsResponse(0))
    with pytest.raises(UnsupportedVersionError, match="OFFSET_FETCH: this call needs a cluster of Tidelog"):
        await answers(groups.OffsetFetchRequest("g", None, in_zookeeper=True), groups.OffsetFetchResponse(0))


async def test_topics_are_deleted_by_id_only_in_the_version_that_has_ids() -> None:
    request = native.DeleteTopicsRequest(("a",), 500, {"a": "A" * 21 + "Q"})
    broker = Broker(native.DeleteTopicsResponse((native.DeletedTopic("a", 0),)))
    translation = translation_of(request, KAFKA_ONLY)
    assert shared_versions(request, translation, broker) == [6]
    written = translation.write(request, 6)
    assert [(each.name, each.topic_id.hex()) for each in written.topics] == [(None, "00" * 15 + "01")]


# --- Fetch -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topic_id", "versions"), [("", range(4, 13)), ("A" * 21 + "Q", range(4, 18))])
def test_fetch_names_topics_by_id_only_if_all_ids_are_known(topic_id: str, versions: range) -> None:
    named = native.FetchPartition("a", 0, 5, 40, 1_000, topic_id=topic_id)
    request = native.FetchRequest(-1, 500, 1, 5_000, (named,), isolation_level=1)
    translation = translation_of(request, KAFKA_ONLY)
    assert translation.versions(request) == Versions(versions[0], versions[-1])
    for version in versions:
        written = decode(translation.request, version, encode(translation.write(request, version), version))
        (topic,) = written.topics
        (wanted,) = topic.partitions
        assert (topic.topic, topic.topic_id[-1]) == (("", 1) if version >= 13 else ("a", 0))
        assert (wanted.partition, wanted.fetch_offset, wanted.partition_max_bytes) == (0, 40, 1_000)
        assert wanted.current_leader_epoch == (5 if version >= 9 else -1)
        assert (written.max_wait_ms, written.min_bytes, written.max_bytes) == (500, 1, 5_000)
        assert written.isolation_level == 1


# --- errors and extensions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        partitions.ElectLeadersRequest(0, None, 500),
        partitions.AlterPartitionReassignmentsRequest((), 500),
        partitions.ListPartitionReassignmentsRequest(),
        operator.DescribeBrokerRequest(),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_error_of_the_whole_request_is_raised(request_: Request) -> None:
    broker = Broker(NotControllerError("not the controller"))
    translation = translation_of(request_, {each.request.api for each in broker.apis})
    for version in shared_versions(request_, translation, broker):
        with pytest.raises(NotControllerError):
            await broker.ask(request_, translation, version)


async def test_extensions_carry_the_fields_that_kafka_lacks() -> None:
    commit = groups.OffsetCommitRequest(
        "g", (groups.OffsetCommitPartition("a", 0, 5),), committer_id="c", sequence=4, coordinator_epoch=9
    )
    committed = groups.OffsetCommitResponse((groups.CommittedPartition("a", 0, 22, "why"),))
    where = groups.FindCoordinatorResponse((groups.Coordinator("g", 0, 1, "h", 9092, None, 17),))
    waiting = groups.DescribedMember("m", None, "c", "h", b"", b"", "Awaited")
    described = groups.DescribeGroupsResponse((groups.DescribedGroup("g", 0, "", "", "", (waiting,), ("n",)),))
    in_zookeeper = groups.ListGroupsRequest(in_zookeeper=True)
    for request, response in (
        (commit, committed),
        (groups.FindCoordinatorRequest(("g",)), where),
        (groups.DescribeGroupsRequest(("g",)), described),
        (in_zookeeper, groups.ListGroupsResponse(0, (groups.ListedGroup("g", "", ""),))),
        (native.DescribeReplicasRequest((DescribePartition("a", 0),)), native.DescribeReplicasResponse(())),
        (operator.ExamineReplicaRequest("a", 0), operator.ExamineReplicaResponse(3)),
        (operator.DescribeClientsRequest(5, ("a",)), operator.DescribeClientsResponse(0, ())),
    ):
        broker = Broker(response)
        translation = translation_of(request, {each.request.api for each in broker.apis})
        assert translation.request.api >= FIRST_EXTENSION
        newest = shared_versions(request, translation, broker)[-1]
        assert await broker.ask(request, translation, newest) == response
        assert broker.received == request


async def test_extension_with_a_malformed_body_is_refused() -> None:
    request = operator.DescribeBrokerRequest()
    broker = Broker(UnknownServerError("not reached"))
    translation = translation_of(request, {each.request.api for each in broker.apis})
    nested = b"\x91" * 510 + b"\xcf" + b"\xff" * 8  # a number beyond signed 64 bits in 510 arrays
    for body in (b"", b"\xc1", b"\x91\x01", b"\x90\x90", nested):
        malformed = translation._replace(write=lambda typed, version, body=body: translation.request(body=body))
        with pytest.raises(InvalidRequestError):
            await broker.ask(request, malformed, 0)
        assert broker.received is None


@pytest.mark.parametrize(("name", "is_told"), [("tidelog", True), ("librdkafka", False), ("Tidelog", False)])
async def test_only_our_own_clients_are_told_of_extensions(name: str, is_told: bool) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
    apis = apis_of(lambda typed, context: None, MetadataCache("c"))
    answer = await ask_one_of(apis, request, 3)
    extensions = {each.api_key for each in answer.api_keys if each.api_key >= FIRST_EXTENSION}
    assert extensions == ({carrier_of(cls).api for cls in EXTENSION_REQUESTS} if is_told else set())
    assert {each.api_key for each in answer.api_keys} >= KAFKA_ONLY


async def test_long_error_text_of_an_extension_is_shortened() -> None:
    request = operator.DescribeBrokerRequest()
    broker = Broker(InvalidRequestError("x" * 40_000))
    translation = translation_of(request, {each.request.api for each in broker.apis})
    with pytest.raises(InvalidRequestError, match=r"^x{1000}$"):
        await broker.ask(request, translation, 0)


def test_numbers_of_extensions_are_no_numbers_of_kafka() -> None:
    numbers = [carrier_of(cls).api for cls in EXTENSION_REQUESTS]
    assert len(set(numbers)) == len(numbers) and min(numbers) >= FIRST_EXTENSION
    assert sorted(numbers) == sorted(map(extension_number, EXTENSION_APIS)), "both sides know the same extensions"
