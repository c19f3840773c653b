"""Records that one foreign client writes and another reads: codecs, acks, headers, nulls, sizes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.clients.adapters.foreign_client import ACKS, CODECS, ForeignClient, ReadRecord, Record, RefusedError
from tests.clients.adapters.registry import NAMES, PROGRAMS, with_programs
from tests.clients.cluster_under_test import ClusterUnderTest
from tests.clients.pairwise import product_with_slow_rest
from tidelog import Consumer, Producer, TopicPartition

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster

Client = Callable[[str], ForeignClient]

HEADERS = (("trace", b"a1"), ("trace", b"a2"), ("source", b"till"))
#: Every client's default limit lies above this size, with the record's overhead.
LARGE = 999_000


def sample(count: int = 30) -> list[Record]:
    """Return records that compress well; some have no key, some no value, none has neither."""
    keys = (b"key", None, b"other")
    return [
        Record(None if number % 3 == 2 else b"value %d " % number * 20, keys[number % 3], HEADERS)
        for number in range(count)
    ]


def contents(records: list[ReadRecord]) -> list[Record]:
    return [Record(each.value, each.key, each.headers) for each in records]


def codecs_on_disk(cluster: ClusterUnderTest, topic: str) -> set[str]:
    """Return the codecs in the headers of the batches in the leader's log."""
    tp = TopicPartition(topic, 0)
    (segment,) = cluster.replica_dir(cluster.leader(tp), tp).glob("*.log")
    data, position, found = segment.read_bytes(), 0, set()
    while position + 61 <= len(data):
        found.add(CODECS[data[position + 22] & 7])
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


@pytest.mark.parametrize(
    ("writer", "codec", "acks", "reader"),
    product_with_slow_rest(NAMES + PROGRAMS, CODECS, ACKS, NAMES + PROGRAMS, slow=PROGRAMS),
)
def test_record_survives_every_codec_and_acks(
    cluster: ClusterUnderTest, client: Client, topic: str, writer: str, codec: str, acks: str, reader: str
) -> None:
    records = sample()
    assert client(writer).produce(topic, records, codec=codec, acks=acks) == records
    found = client(reader).consume(topic, len(records))
    assert contents(found) == records
    assert [each.offset for each in found] == list(range(len(records)))
    # librdkafka leaves a batch uncompressed that compression does not shorten, such as one of a single null value.
    assert codec in codecs_on_disk(cluster, topic) <= {codec, "none"}


@pytest.mark.parametrize("name", with_programs())
def test_record_near_the_size_limit_is_stored(client: Client, topic: str, name: str) -> None:
    large = Record(b"x" * LARGE, b"k")
    assert client(name).produce(topic, [large]) == [large]
    assert contents(client(name).consume(topic, 1)) == [large]


@pytest.mark.parametrize("name", with_programs())
def test_large_records_of_many_fetches_arrive_unchanged(client: Client, topic: str, name: str) -> None:
    large = [Record(Random(number).randbytes(150_000).hex().encode(), b"%d" % number) for number in range(30)]
    assert client(name).produce(topic, large) == large
    assert contents(client(name).consume(topic, len(large))) == large


@pytest.mark.parametrize("name", with_programs())
def test_record_above_the_topics_limit_is_refused(cluster: ClusterUnderTest, client: Client, name: str) -> None:
    cluster.create_topic(f"small-{name}", configs={"max.message.bytes": "1000"})
    with pytest.raises(RefusedError, match=r"(?i)MSG_SIZE_TOO_LARGE|(Message|Record).*too.?large|larger"):
        client(name).produce(f"small-{name}", [Record(Random(0).randbytes(5_000))])
    assert client(name).offset_range(f"small-{name}") == (0, 0)


@pytest.mark.parametrize("name", with_programs(("confluent-kafka", "kcat")))
def test_record_without_key_and_value_is_kept(client: Client, topic: str, name: str) -> None:
    nothing = Record(None, None)
    client(name).produce(topic, [nothing, Record(b"after")])
    assert contents(client("confluent-kafka").consume(topic, 2)) == [nothing, Record(b"after")]


@pytest.mark.parametrize("name", with_programs())
def test_foreign_and_own_clients_read_each_others_records(servers: str, client: Client, topic: str, name: str) -> None:
    client(name).produce(topic, [Record(b"theirs", b"k", (("h", b"1"),))])
    with Producer(servers) as producer:
        producer.send(topic, b"ours", key=b"k", headers=[("h", b"1")], partition=0).get(30)
    expected = [Record(b"theirs", b"k", (("h", b"1"),)), Record(b"ours", b"k", (("h", b"1"),))]
    assert contents(client(name).consume(topic, 2)) == expected
    with Consumer(bootstrap_servers=servers, consumer_timeout_ms=3_000) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        read = [Record(each.value, each.key, tuple(each.headers)) for _, each in zip(range(2), consumer, strict=False)]
    assert read == expected
