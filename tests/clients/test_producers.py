"""Idempotent producers, transactions, and what producers keep when the leader is killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

import confluent_kafka as ck
import kafka
import pytest

from tests.clients.adapters.foreign_client import ForeignClient, Record, RefusedError
from tests.clients.adapters.registry import NAMES, PROGRAMS, with_programs
from tests.clients.cluster_under_test import IS_CONTROL, ClusterUnderTest
from tests.clients.record_stream import RecordStream
from tests.processes.harness.waiting import wait_for
from tidelog import TopicPartition

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster

Client = Callable[[str], ForeignClient]

#: Each producer with another client that reads its records. The first row of each producer is in the normal selection.
READERS = {
    "confluent-kafka": "kafka-python",
    "kafka-python": "aiokafka",
    "aiokafka": "kcat",
    "kcat": "confluent-kafka",
    "java-3.9": "java-4.3",
    "java-4.3": "franz-go",
    "franz-go": "sarama",
    "sarama": "java-3.9",
}


@pytest.mark.parametrize("name", with_programs())
def test_idempotent_producer_writes_each_record_once(client: Client, topic: str, name: str) -> None:
    records = [Record(b"%d" % number) for number in range(500)]
    assert client(name).produce(topic, records, is_idempotent=True) == records
    assert [each.value for each in client(READERS[name]).consume(topic, 500)] == [each.value for each in records]
    assert client(name).offset_range(topic) == (0, 500)


@pytest.mark.skipif(IS_CONTROL, reason="Apache Kafka has transactions")
@pytest.mark.parametrize("name", with_programs())
def test_transactions_are_refused_at_once_with_a_clear_error(client: Client, name: str) -> None:
    began = time.monotonic()
    with pytest.raises(RefusedError, match=r"(?i)transaction"):
        client(name).begin_transactions()
    assert time.monotonic() - began < 8


def test_producer_without_acks_follows_a_leader_that_moves(
    cluster: ClusterUnderTest, client: Client, servers: str, topic: str
) -> None:
    """The broker closes the connection of a producer that gets no answers, so that the producer asks for the leader."""
    tp, ended = TopicPartition(topic, 0), threading.Event()
    producer = ck.Producer({"bootstrap.servers": servers, "acks": 0, "linger.ms": 0})

    def end() -> int:
        """Return the end of the log, or 0 while clients do not find the leader."""
        try:
            return client("confluent-kafka").offset_range(topic)[1]
        except ck.KafkaException:
            return 0

    def produce_until(is_reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not is_reached():
            assert time.monotonic() < deadline, "the records of the producer are lost"
            producer.produce(topic, b"unanswered", partition=0)
            producer.flush(10)
            ended.wait(0.05)

    produce_until(lambda: end() > 0)
    before = cluster.leader(tp)
    order = [*(each for each in cluster.broker_ids if each != before), before]
    with closing(kafka.KafkaAdminClient(bootstrap_servers=servers.split(","))) as admin:
        partition = kafka.TopicPartition(*tp)
        admin.alter_partition_reassignments({partition: order})
        wait_for("the new order", lambda: admin.list_partition_reassignments() == {})
        admin.elect_leaders(0, {topic: [0]})
    wait_for("another leader", lambda: cluster.leader(tp) == order[0])
    moved = wait_for("the log to end where it did", end)
    produce_until(lambda: end() > moved)


def survivors_of_a_kill(
    cluster: ClusterUnderTest, topic: str, producer: ForeignClient, reader: ForeignClient, *, is_idempotent: bool | None
) -> tuple[list[bytes], list[bytes]]:
    """Kill the leader while the client produces. Return the acknowledged values, and all values that are read back.

    The producer asks for acks=all. The default of aiokafka and sarama is acks=1, with which a killed leader may lose
    records.
    """
    tp, outcome = TopicPartition(topic, 0), []
    stream = RecordStream(lambda number: Record(b"%d" % number))
    thread = threading.Thread(
        target=lambda: outcome.append(producer.produce(topic, stream, acks="all", is_idempotent=is_idempotent))
    )
    thread.start()
    leader = cluster.leader(tp)
    try:
        stream.wait_for(300)
        cluster.kill(leader)
        stream.wait_for(500)
    finally:
        stream.end()
        thread.join(120)
        cluster.restart(leader)
    assert outcome, "the producer failed"
    cluster.wait_in_sync(tp)
    _, end = producer.offset_range(topic)
    read = [each.value or b"" for each in reader.consume(topic, end)]
    return [each.value or b"" for each in outcome[0]], read


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        pytest.param(name, reader, marks=[] if name in NAMES and READERS[name] == reader else pytest.mark.slow)
        for name in NAMES + PROGRAMS
        for reader in NAMES + PROGRAMS
        if name != reader and (READERS[name] == reader or {name, reader} <= set(NAMES))
    ],
)
def test_no_acknowledged_record_is_lost_with_a_killed_leader(
    cluster: ClusterUnderTest, client: Client, topic: str, name: str, reader: str
) -> None:
    producer = client(name)
    acknowledged, read = survivors_of_a_kill(cluster, topic, producer, client(reader), is_idempotent=None)
    assert len(acknowledged) > 500 and set(acknowledged) <= set(read)
    if producer.is_idempotent:
        assert read == sorted(set(read), key=int), "records are repeated or out of order"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("confluent-kafka", "aiokafka") else pytest.mark.slow)
        for name in NAMES + PROGRAMS
    ],
)
def test_idempotent_producer_repeats_nothing_with_a_killed_leader(
    cluster: ClusterUnderTest, client: Client, topic: str, name: str
) -> None:
    acknowledged, read = survivors_of_a_kill(cluster, topic, client(name), client(READERS[name]), is_idempotent=True)
    # sarama's idempotent producer may refuse everything after the kill, at Kafka's brokers as well.
    assert len(acknowledged) > (200 if name == "sarama" else 500) and set(acknowledged) <= set(read)
    assert read == sorted(set(read), key=int), "records are repeated or out of order"
