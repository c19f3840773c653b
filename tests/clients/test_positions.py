"""Foreign clients begin to read at an offset, a time or the beginning, and look offsets up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.adapters.foreign_client import ForeignClient, Record
from tests.clients.adapters.registry import with_programs
from tests.clients.cluster_under_test import ClusterUnderTest
from tidelog import TopicPartition

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster

Client = Callable[[str], ForeignClient]

START_MS = 1_790_000_000_000
COUNT = 100


@pytest.fixture(scope="module")
def timed(cluster: ClusterUnderTest, client: Client) -> str:
    """Return a topic with one record for each second from START_MS on."""
    cluster.create_topic("timed", configs={"retention.ms": "-1"})
    records = [Record(b"%d" % number, timestamp_ms=START_MS + number * 1_000) for number in range(COUNT)]
    client("confluent-kafka").produce("timed", records)
    return "timed"


@pytest.mark.parametrize("name", with_programs())
def test_consume_begins_at_beginning_offset_or_time(client: Client, timed: str, name: str) -> None:
    reader = client(name)
    assert [each.offset for each in reader.consume(timed, COUNT)] == list(range(COUNT))
    from_offset = reader.consume(timed, 5, offset=42)
    assert [(each.offset, each.value) for each in from_offset] == [(n, b"%d" % n) for n in range(42, 47)]
    from_time = reader.consume(timed, 5, timestamp_ms=START_MS + 59_001)
    assert [(each.offset, each.timestamp_ms) for each in from_time] == [
        (n, START_MS + n * 1_000) for n in range(60, 65)
    ]


@pytest.mark.parametrize("name", with_programs())
def test_look_up_by_time_returns_the_first_record_at_or_after_it(client: Client, timed: str, name: str) -> None:
    asked = client(name)
    for after_ms, offset in ((-1_000, 0), (0, 0), (1, 1), (50_000, 50), (98_001, 99), (99_000, 99)):
        assert asked.offset_for_time(timed, START_MS + after_ms) == offset
    assert asked.offset_for_time(timed, START_MS + 99_001) is None


@pytest.mark.parametrize("name", with_programs())
def test_offset_range_follows_deleted_records(cluster: ClusterUnderTest, client: Client, topic: str, name: str) -> None:
    assert client(name).offset_range(topic) == (0, 0)
    client(name).produce(topic, [Record(b"%d" % number) for number in range(10)], acks="all")
    cluster.delete_records(TopicPartition(topic, 0), 4)
    assert client(name).offset_range(topic) == (4, 10)
    assert [each.offset for each in client(name).consume(topic, 6)] == list(range(4, 10))


@pytest.mark.parametrize("name", with_programs())
def test_metadata_lists_all_partitions(cluster: ClusterUnderTest, client: Client, name: str) -> None:
    cluster.create_topic(f"wide-{name}", partitions=7)
    assert client(name).partitions(f"wide-{name}") == list(range(7))
