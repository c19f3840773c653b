"""Test that our clients write records to any Kafka and read them back, by position and by time."""

from __future__ import annotations

import pytest

import tidelog
from tests.any_kafka.clusters import AnyCluster
from tests.processes.harness.waiting import wait_for
from tidelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
T0 = 1_700_000_000_000


def read_all(cluster: AnyCluster, tps: list[TopicPartition], count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Return key and value of so many records from the start, in the order of each partition."""
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    ) as consumer:
        consumer.assign(tps)
        found = []
        for record in consumer:
            found.append((record.key, record.value))
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_survive_each_codec_and_acks(cluster: AnyCluster, codec: str, acks: int | str) -> None:
    (tp,) = cluster.create_topic()
    sent = [(b"key-%d" % number if number % 3 else None, b"value-%d" % number * 20) for number in range(300)]
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers, acks=acks, compression_type=codec, enable_idempotence=acks == "all"
    ) as producer:
        for key, value in sent:
            producer.send(tp.topic, value, key=key, headers=[("h", b"1"), ("h", None)])
    assert read_all(cluster, [tp], len(sent)) == sent


def test_record_keeps_its_headers_and_timestamp(cluster: AnyCluster) -> None:
    (tp,) = cluster.create_topic()
    headers = [("a", b"1"), ("b", None), ("a", b"")]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        metadata = producer.send(tp.topic, b"v", timestamp_ms=T0, headers=headers).get(30)
    assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == (*tp, 0, T0)
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    ) as consumer:
        consumer.assign([tp])
        record = next(iter(consumer))
    assert (record.timestamp, list(record.headers), record.leader_epoch) == (T0, headers, 0)


def test_time_window_is_scanned_as_columns(cluster: AnyCluster) -> None:
    tps = cluster.create_topic(2, **{"retention.ms": "-1"})
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(100):
            producer.send(tps[0].topic, b"%d" % number, partition=number % 2, timestamp_ms=T0 + 10 * number)
    columns = ["value", "timestamp"]
    scan = tidelog.scan(tps[0].topic, T0 + 200, T0 + 300, columns=columns, bootstrap_servers=cluster.bootstrap_servers)
    assert sorted(scan.to_arrow()["value"].to_pylist()) == [b"%d" % number for number in range(20, 30)]


def test_offsets_are_found_by_time(cluster: AnyCluster) -> None:
    tps = cluster.create_topic(2)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(100):
            producer.send(tps[0].topic, b"v", partition=0, timestamp_ms=T0 + 10 * number)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        found = consumer.offsets_for_times({tps[0]: T0 + 495, tps[1]: T0})
        assert (found[tps[0]].offset, found[tps[0]].timestamp, found[tps[0]].leader_epoch) == (50, T0 + 500, 0)
        assert found[tps[1]] is None
        assert consumer.offsets_for_times({tps[0]: T0 + 991})[tps[0]] is None
        assert consumer.beginning_offsets(tps) == dict.fromkeys(tps, 0)
        assert consumer.end_offsets(tps) == {tps[0]: 100, tps[1]: 0}


def test_reader_seeks_and_waits_for_new_records(cluster: AnyCluster) -> None:
    (tp,) = cluster.create_topic()
    with (
        Producer(cluster.bootstrap_servers) as producer,
        Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer,
    ):
        for number in range(10):
            producer.send(tp.topic, b"%d" % number)
        producer.flush()
        consumer.assign([tp])
        consumer.seek(tp, 7)
        values = [record.value for record in consumer.poll(30_000)[tp]]
        assert values == [b"7", b"8", b"9"]
        producer.send(tp.topic, b"new").get(30)
        assert [record.value for record in consumer.poll(30_000)[tp]] == [b"new"]


def test_topic_that_does_not_exist_is_reported(cluster: AnyCluster) -> None:
    expected = pytest.raises(UnknownTopicOrPartitionError, match="nowhere")
    with Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=10_000) as producer, expected:
        producer.send("nowhere", b"v").get(30)


def test_reader_begins_again_in_a_topic_that_was_created_again(cluster: AnyCluster) -> None:
    (tp,) = cluster.create_topic()
    with (
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers) as producer,
        Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([tp])
        producer.send(tp.topic, b"old").get(30)
        assert [record.value for record in consumer.poll(30_000)[tp]] == [b"old"]
        admin.delete_topics([tp.topic])

        def is_created() -> bool:
            try:
                admin.create_topics([NewTopic(tp.topic, 1, 3)])
            except TopicAlreadyExistsError:  # a broker has not deleted it yet
                return False
            return True

        wait_for("the topic to be created again", is_created, 60)

        def is_written() -> bool:
            try:
                producer.send(tp.topic, b"new").get(30)
            except UnknownTopicOrPartitionError:
                return False
            return True

        wait_for("a record to be written", is_written, 60)
        found: list[bytes | None] = []

        def is_read() -> bool:
            found.extend(record.value for record in consumer.poll(1_000).get(tp, ()))
            return bool(found)

        wait_for("the new record to be read", is_read, 60)
        assert found[0] == b"new"
