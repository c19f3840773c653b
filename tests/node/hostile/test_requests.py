"""Well-formed requests that must have no effect: stale, replayed, misaddressed, or with invalid names."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from tests.node.client_requests import TP, batch_of, produce_request
from tests.node.hostile.live_listeners import BROKER_EPOCH, TOPIC_ID, Canary, LiveListeners
from tests.node.kafka.live_listener import framed
from tidelog.errors import (
    FencedLeaderEpochError,
    InconsistentClusterIdError,
    InvalidRequestError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    UnknownLeaderEpochError,
    UnsupportedVersionError,
)
from tidelog.protocol.codec import encode_body
from tidelog.protocol.control_messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionStateMessage,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicInfo,
)
from tidelog.protocol.kafka.client.translation.apis import translation_of
from tidelog.protocol.kafka.headers import encode_request
from tidelog.protocol.kafka.messages import records as kafka
from tidelog.protocol.kafka.primitives import uuid_from_text
from tidelog.protocol.messages import (
    ApiKey,
    DescribePartition,
    DescribeReplicasRequest,
    EpochPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartition,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    Request,
)

NAMES = ["..", ".", "", "a/b", "../../etc/passwd", "t\0", "\0", "x" * 250, "é", "t t", "canary\n"]


def end_offset(live: LiveListeners) -> int:
    return live.cluster.nodes[1].log().log_end_offset


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ({"api_key": 999}, UnsupportedVersionError.code),
        ({"api_version": 1 << 40}, UnsupportedVersionError.code),
        ({"addressee_epoch": BROKER_EPOCH - 1}, StaleBrokerEpochError.code),
        ({"deadline_ms": 0}, RequestTimedOutError.code),
        ({"cluster_id": "another"}, InconsistentClusterIdError.code),
    ],
)
def test_stale_or_misaddressed_produce_appends_nothing(live: LiveListeners, header: dict[str, int], code: int) -> None:
    before = end_offset(live)
    with live.caller() as caller:
        assert caller.call(produce_request(b"never"), **header) == code
    assert end_offset(live) == before


@pytest.mark.parametrize("start", [pack(">hh", 999, 9), pack(">hh", 0, -1), pack(">hh", 0, 11), pack(">hh", 1100, 0)])
def test_kafka_produce_under_another_number_or_version_appends_nothing(live: LiveListeners, start: bytes) -> None:
    before = end_offset(live)
    request = translation_of(produce_request(b"never"), ()).write(produce_request(b"never"), 9)
    frame = b"".join(encode_request(request, 9, 7, "hostile"))
    with live.client() as client:
        client.send(frame[:4] + start + frame[8:])
        assert client.rest() == b""
    assert end_offset(live) == before
    Canary(live).check()


def test_replayed_produce_appends_nothing_and_gets_its_first_answer(live: LiveListeners) -> None:
    batch = batch_of(b"once", producer_id=77, sequence=0)
    with live.client() as caller, live.client() as other:
        first = caller.call(produce_request(batch=batch))
        end = end_offset(live)
        for each in (caller, other, caller):
            assert each.call(produce_request(batch=batch)) == first
    assert end_offset(live) == end


def test_wrong_leader_epoch_is_fenced(live: LiveListeners) -> None:
    with live.client() as caller:
        for epoch, code in ((5, UnknownLeaderEpochError.code), (2**31 - 1, UnknownLeaderEpochError.code)):
            answers = [
                caller.call(FetchRequest(-1, 0, 1, 100, (FetchPartition(*TP, epoch, 0, 100),))),
                caller.call(ListOffsetsRequest((ListOffsetsPartition(*TP, -1, epoch),))),
                caller.call(OffsetForLeaderEpochRequest((EpochPartition(*TP, epoch, 0),))),
            ]
            assert [each.partitions[0].error_code for each in answers] == [code] * 3  # type: ignore[union-attr]


def test_follower_of_an_ended_epoch_moves_no_high_watermark(live: LiveListeners) -> None:
    partition = live.cluster.nodes[1].replica().partition
    before = partition.high_watermark
    with live.caller() as caller:
        for epoch in (-1, -2, 7):
            fetch = FetchRequest(2, 0, 1, 100, (FetchPartition(*TP, epoch, 1 << 40, 100, 0),))
            answer = caller.call(fetch, sender_epoch=5)
            assert isinstance(answer, FetchResponse)
            codes = {FencedLeaderEpochError.code, UnknownLeaderEpochError.code}
            assert answer.partitions[0].error_code in codes
    assert partition.high_watermark == before


def test_deposed_controller_changes_nothing(live: LiveListeners) -> None:
    cluster = live.cluster
    current = cluster.leader_and_isr()
    with live.caller() as caller:
        stale = LeaderAndIsrRequest(1, 0, current.partitions, current.topics, current.live_brokers)
        for request in (stale, StopReplicaRequest(1, 0, (StopReplicaPartition(*TP, 5, True),))):
            answer = caller.call(request, sender_epoch=1)
            refused = answer if isinstance(answer, int) else answer.error_code  # type: ignore[attr-defined]
            assert refused == StaleControllerEpochError.code
    Canary(live).check()
    with live.client() as caller:
        assert isinstance(caller.call(produce_request(b"still led")), ProduceResponse)


#: The numbers of requests that only brokers send: Kafka's, Tidelog's own, and those of extensions that Fetch,
#: ListOffsets, LeaderAndIsr and OffsetForLeaderEpoch would have.
FOR_BROKERS = (4, 5, 6, 7, ApiKey.LOG_ENDS, ApiKey.LIST_SEGMENT_OFFSETS, 1101, 1102, 1104, 1123)


@pytest.mark.parametrize("api", FOR_BROKERS)
def test_client_listener_serves_no_controller_and_no_follower(live: LiveListeners, api: int) -> None:
    state = live.cluster.states.states[TP]
    body = encode_body(StopReplicaRequest(1, 9, (StopReplicaPartition(*TP, 9, True),)))
    with live.client() as client:
        assert api not in client.apis
        client.send(framed(pack(">hhih", api, 0, 7, -1) + pack(">i", len(body)) + body))
        assert client.rest() == b""
    assert live.cluster.states.states[TP] == state
    Canary(live).check()


@pytest.mark.parametrize("version", range(4, 18))
def test_kafka_fetch_with_the_id_of_a_replica_moves_no_high_watermark(live: LiveListeners, version: int) -> None:
    partition = live.cluster.nodes[1].replica().partition
    before = partition.high_watermark
    part = kafka.FetchPartition(partition=0, fetch_offset=end_offset(live), partition_max_bytes=100)
    topic = kafka.FetchTopic(topic=TP.topic, topic_id=uuid_from_text(TOPIC_ID), partitions=(part,))
    for replica_id in (0, 1, 2, -2):
        follower = {"replica_state": kafka.ReplicaState(replica_id=replica_id, replica_epoch=5)}
        sender = {"replica_id": replica_id} if version < 15 else follower
        with live.client() as client:
            answer = client.ask(kafka.FetchRequest(max_wait_ms=0, min_bytes=0, topics=(topic,), **sender), version)
        assert isinstance(answer, kafka.FetchResponse)
        (refused,) = answer.responses[0].partitions
        assert refused.error_code == InvalidRequestError.code and not refused.records
    assert partition.high_watermark == before


@pytest.mark.parametrize("name", NAMES)
def test_invalid_topic_name_reaches_no_file(live: LiveListeners, name: str) -> None:
    def everything() -> set[Path]:
        return {path for path in live.directory.rglob("*") if path.is_dir()}

    before = everything()
    asked: list[Request] = [
        ProduceRequest(1, 1000, (ProducePartition(name, 0, batch_of(b"x")),)),
        FetchRequest(-1, 0, 1, 100, (FetchPartition(name, 0, -1, 0, 100),)),
        ListOffsetsRequest((ListOffsetsPartition(name, 0, -1),)),
        OffsetForLeaderEpochRequest((EpochPartition(name, 0, -1, 0),)),
        DescribeReplicasRequest((DescribePartition(name, 0),)),
    ]
    with live.client() as caller:
        for request in asked:
            answer = caller.call(request)
            assert not isinstance(answer, int) and answer.partitions[0].error_code > 0  # type: ignore[attr-defined]
        metadata = caller.call(MetadataRequest((name,)))
        assert not isinstance(metadata, int) and metadata.topics[0].error_code > 0  # type: ignore[attr-defined]
    with live.caller() as caller:
        state = PartitionStateMessage(name, 0, 1, 1, 0, (1,), 0, (1,))
        topics = (TopicInfo(name, "id-of-none", {}, 1),)
        answer = caller.call(LeaderAndIsrRequest(1, 1, (state,), topics, live.cluster.live()), sender_epoch=1)
        assert isinstance(answer, int) or (
            isinstance(answer, LeaderAndIsrResponse) and answer.partitions[0].error_code != 0
        )
        caller.call(StopReplicaRequest(1, 1, (StopReplicaPartition(name, 0, 0, True),)), sender_epoch=1)
    assert everything() == before
    Canary(live).check()


def test_request_with_an_endless_deadline_does_not_wait(live: LiveListeners) -> None:
    with live.caller() as caller:
        fetch = FetchRequest(-1, 50, 1 << 30, 100, (FetchPartition(*TP, -1, end_offset(live), 100),))
        assert isinstance(caller.call(fetch, deadline_ms=2**63 - 1), FetchResponse)
