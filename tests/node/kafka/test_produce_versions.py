"""Produce of Kafka clients: versions before 3 send message sets, which the leader converts to a batch."""

from __future__ import annotations

import pytest

from tests.message_sets import message, wrapped
from tests.node.client_requests import TP, batch_of
from tests.node.kafka.kafka_requests import ask
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time
from tidelog.errors import InvalidRecordError, MessageTooLargeError, NotEnoughReplicasError
from tidelog.protocol.kafka.messages.records import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.records import Codec, encode_batch, read_header

VERSIONS = range(11)
T0 = 1_700_000_000_000


def formats_of(version: int) -> list[bytes]:
    """Return the same record in the formats that clients send in this version."""
    if version >= 3:
        return [batch_of(b"v", timestamp=T0)]
    magic = int(version == 2)
    plain = message(b"v", magic=magic, timestamp=T0)
    return [plain, *(wrapped(plain, codec, magic) for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4))]


async def produce(cluster: MemoryCluster, records: bytes | None, version: int) -> PartitionProduceResponse:
    partition = PartitionProduceData(index=TP.partition, records=records)
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=(TopicProduceData(name=TP.topic, partition_data=(partition,)),)
    )
    (topic,) = (await ask(cluster.leader, request, version)).responses
    (produced,) = topic.partition_responses
    assert isinstance(produced, PartitionProduceResponse)
    return produced


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_appends_its_formats_as_a_batch_to_every_replica(version: int) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            await cluster.elect(1)
            await cluster.produce(b"before")
            sent = formats_of(version)
            for number, records in enumerate(sent):
                produced = await produce(cluster, records, version)
                assert (produced.error_code, produced.base_offset) == (0, 1 + number)
            for node in cluster.nodes.values():
                assert node.log().values == [b"before", *[b"v"] * len(sent)]
                assert {each.timestamp for each in node.log().records[1:]} == {-1 if version < 2 else T0}
                codecs = [read_header(batch).codec for batch in node.log().batches[1:]]
                assert codecs == [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4][: len(sent)]

    story()


@pytest.mark.parametrize("version", VERSIONS)
def test_message_sets_are_refused_from_version_3_on(version: int) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            await cluster.elect(1)
            produced = await produce(cluster, message(), version)
            assert produced.error_code == (InvalidRecordError.code if version >= 3 else 0)
            assert len(cluster.leader.log().records) == (version < 3)

    story()


@pytest.mark.parametrize("version", range(3))
def test_old_versions_may_send_batches(version: int) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            await cluster.elect(1)
            assert (await produce(cluster, batch_of(b"v"), version)).error_code == 0
            assert cluster.leader.log().values == [b"v"]

    story()


@pytest.mark.parametrize("version", range(3))
def test_old_versions_may_send_batches_in_zstd(version: int) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            await cluster.elect(1)
            batch = encode_batch([(T0, b"k", b"v", ())], codec=Codec.ZSTD)
            assert (await produce(cluster, batch, version)).error_code == 0

    story()


@pytest.mark.parametrize("version", VERSIONS)
def test_message_set_without_messages_succeeds_without_an_offset(version: int) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            await cluster.elect(1)
            await cluster.produce(b"before")
            produced = await produce(cluster, b"", version)
            expected = 0 if version < 3 else InvalidRecordError.code
            assert (produced.error_code, produced.base_offset, produced.log_append_time_ms) == (expected, -1, -1)
            assert cluster.leader.log().values == [b"before"]
            await cluster.shrink(1)
            produced = await produce(cluster, b"", version)
            assert produced.error_code == NotEnoughReplicasError.code, "the partition is checked as for a batch"

    story()


@pytest.mark.parametrize("version", VERSIONS)
def test_null_records_are_refused_in_every_version(version: int) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            await cluster.elect(1)
            produced = await produce(cluster, None, version)
            assert (produced.error_code, produced.base_offset) == (InvalidRecordError.code, -1)

    story()


@on_virtual_time
async def test_topic_settings_hold_for_converted_records() -> None:
    cluster = MemoryCluster()
    cluster.configs.update({"max.message.bytes": "1000", "cleanup.policy": "compact"})
    async with cluster:
        await cluster.elect(1)
        large = await produce(cluster, message(bytes(600)) * 2, 2)
        assert large.error_code == MessageTooLargeError.code
        keyless = await produce(cluster, message() + message(key=None), 2)
        assert keyless.error_code == InvalidRecordError.code
        assert (await produce(cluster, message(bytes(600)), 2)).error_code == 0
