"""The traps of Spark's Python Data Source API: each is asked of the reader itself, on a clock moved by hand.

`test_streams.py` asks real Spark the same.
"""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import threading
from collections import Counter

import pyarrow as pa
import pytest
from file_cluster import FileCluster, FileConsumer, HandClock, OneConsumer, shaped
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from tidelog.errors import (
    DataLossError,
    DisconnectedError,
    LeaderNotAvailableError,
    NoBrokersError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.spark.columns import kafka_schema
from tidelog.spark.options import Use, parse_read
from tidelog.spark.range_reader import RangePartition
from tidelog.spark.source import TidelogSource
from tidelog.spark.stream_reader import IDLE_WAIT_MS, TidelogStreamReader

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Query:
    """Calls a stream reader as Spark does: plan a batch, read it, and continue from its end."""

    def __init__(self, cluster: FileCluster, **options: str) -> None:
        self.consumer, self.clock = FileConsumer(cluster), HandClock()
        self.consumer._wait = self.clock.pause
        raw = {"tidelog.bootstrap.servers": "a:1", "startingOffsets": "earliest"} | options
        if "subscribePattern" not in raw:
            raw.setdefault("subscribe", "t")
        self.reader = TidelogStreamReader(
            parse_read(raw, Use.STREAM_READ),
            OneConsumer(only=self.consumer),
            kafka_schema(include_headers=False),
            clock=self.clock,
            pause=self.clock.pause,
        )
        self.limit = self.reader.getDefaultReadLimit()

    def latest(self, start: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        return self.reader.latestOffset(start, self.limit)

    def values(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[str]:
        batches = [batch for part in self.reader.partitions(start, end) for batch in self.reader.read(part)]
        return [value.decode() for batch in batches for value in batch["value"].to_pylist()]


@pytest.fixture(autouse=True)
def topic(cluster: FileCluster) -> FileCluster:
    cluster.create_topic("t", 2)
    return cluster


def test_trap_1_initial_offset_returns_the_same_offsets_twice(cluster: FileCluster) -> None:
    query = Query(cluster, startingOffsets="latest")
    first = query.reader.initialOffset()
    cluster.append_values(T0, ["arrived in between"])
    assert query.reader.initialOffset() == first == {"t": {"0": 0, "1": 0}}


def test_trap_2_the_first_batch_reads_nothing(cluster: FileCluster) -> None:
    cluster.append_values(T0, ["a", "b"])
    query = Query(cluster)
    initial = query.reader.initialOffset()
    anchor = query.latest(initial)
    assert anchor == initial
    assert query.reader.partitions(initial, anchor) == []
    end = query.latest(anchor)
    assert query.values(anchor, end) == ["a", "b"]


def test_trap_2_restart_with_batch_0_uncommitted_loses_nothing(cluster: FileCluster) -> None:
    cluster.append_values(T0, ["before the query"])
    crashed = Query(cluster, startingOffsets="latest")
    anchor = crashed.latest(crashed.reader.initialOffset())
    cluster.append_values(T0, ["while it was down"])

    restarted = Query(cluster, startingOffsets="latest")
    later = restarted.reader.initialOffset()  # Spark has no committed offset, so that it calls again
    assert later != anchor
    assert restarted.values(later, anchor) == []
    assert restarted.values(anchor, restarted.latest(anchor)) == ["while it was down"]


def test_trap_2_a_trigger_once_reads_in_its_only_batch(cluster: FileCluster) -> None:
    cluster.append_values(T0, ["a", "b"])
    query = Query(cluster, maxOffsetsPerTrigger="1")
    initial = query.reader.initialOffset()
    end = query.reader.latestOffset(initial, ReadAllAvailable())
    assert query.values(initial, end) == ["a", "b"]


def test_trap_3_default_limit_differs_from_trigger_once(cluster: FileCluster) -> None:
    assert isinstance(Query(cluster).limit, ReadMaxRows)
    assert Query(cluster, maxOffsetsPerTrigger="7").limit == ReadMaxRows(7)


def test_trap_3_batch_respects_max_offsets_and_starves_no_partition(cluster: FileCluster) -> None:
    cluster.append_values(T0, map(str, range(1000)))
    cluster.append_values(T1, ["small"])
    query = Query(cluster, maxOffsetsPerTrigger="10")
    anchor = query.latest(query.reader.initialOffset())
    assert query.latest(anchor) == {"t": {"0": 9, "1": 1}}


def test_trap_3_available_now_fixes_its_target_and_ends(cluster: FileCluster) -> None:
    cluster.append_values(T0, map(str, range(5)))
    query = Query(cluster, maxOffsetsPerTrigger="3")
    assert isinstance(query.reader, SupportsTriggerAvailableNow)
    query.reader.prepareForTriggerAvailableNow()
    at = query.latest(query.reader.initialOffset())
    cluster.append_values(T0, ["too late"])
    seen: list[str] = []
    while (end := query.latest(at)) != at:
        seen += query.values(at, end)
        at = end
        cluster.append_values(T0, ["too late as well"])
    assert seen == ["0", "1", "2", "3", "4"]
    assert query.clock.pauses == []


def test_trap_3_min_offsets_wait_for_enough_records_or_the_delay(cluster: FileCluster) -> None:
    query = Query(cluster, minOffsetsPerTrigger="5", maxTriggerDelay="1m")
    anchor = query.latest(query.reader.initialOffset())
    cluster.append_values(T0, ["1", "2"])
    assert query.latest(anchor) == anchor
    query.clock.ms += 60_000
    after_delay = query.latest(anchor)
    assert query.values(anchor, after_delay) == ["1", "2"]
    cluster.append_values(T1, map(str, range(5)))
    assert len(query.values(after_delay, query.latest(after_delay))) == 5


def test_trap_5_an_idle_query_waits_inside_latest_offset(cluster: FileCluster) -> None:
    query = Query(cluster)
    anchor = query.latest(query.reader.initialOffset())
    before_ms, query.consumer.calls = query.clock.ms, []
    assert query.latest(anchor) == anchor
    assert IDLE_WAIT_MS <= query.clock.ms - before_ms <= IDLE_WAIT_MS + 50
    assert query.consumer.calls.count("end_offsets") < 20


def test_trap_5_data_ends_the_wait(cluster: FileCluster) -> None:
    query = Query(cluster)
    anchor = query.latest(query.reader.initialOffset())
    before_ms = query.clock.ms

    def arrive(seconds: float) -> None:
        if not cluster.end(T0):
            cluster.append_values(T0, ["at last"])
        HandClock.pause(query.clock, seconds)

    query.reader._pause = arrive
    assert query.values(anchor, query.latest(anchor)) == ["at last"]
    assert query.clock.ms - before_ms < 50


FAULTS = [
    NotLeaderOrFollowerError("moved"),
    LeaderNotAvailableError("electing"),
    OffsetNotAvailableError("a new leader"),
    DisconnectedError("killed"),
    TimeoutError("slow"),
    NoBrokersError("all restarting"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_trap_6_driver_side_call_retries_after_a_leader_move(cluster: FileCluster, fault: Exception) -> None:
    query = Query(cluster, startingTimestamp="1000")
    cluster.append_values(T0, ["a"], timestamp_ms=2000)
    cluster.append_values(T1, ["b"], timestamp_ms=2000)
    query.consumer.faults = [fault] * 8
    anchor = query.latest(query.reader.initialOffset())
    query.consumer.faults = [fault] * 8
    end = query.latest(anchor)
    query.consumer.faults = [fault] * 8
    assert sorted(query.values(anchor, end)) == ["a", "b"]


def test_trap_6_unreachable_cluster_ends_the_query_with_the_reason(cluster: FileCluster) -> None:
    query = Query(cluster)
    query.consumer.faults = [NoBrokersError("none of a:1 answers")] * 1000
    with pytest.raises(TimeoutError, match=r"no answer within 12\d{4} ms: none of a:1 answers"):
        query.reader.initialOffset()


def test_trap_7_first_arrow_batch_has_the_schema_that_spark_expects(cluster: FileCluster) -> None:
    cluster.append(T0, [(1, b"k", b"v", [("h", None)])])
    options = {"tidelog.bootstrap.servers": "a:1", "subscribe": "t", "includeheaders": "true"}
    schema = TidelogSource(options).schema()
    reader = TidelogStreamReader(parse_read(options, Use.STREAM_READ), OneConsumer(only=FileConsumer(cluster)), schema)
    [part] = reader.partitions({"t": {"0": 0}}, {"t": {"0": 1}})
    [batch] = reader.read(part)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    assert schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )


def test_trap_8_readers_and_writers_are_made_and_pickled_without_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a constructor opened a socket or started a thread")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    servers = {"tidelog.bootstrap.servers": "localhost:1"}
    source = TidelogSource(servers | {"subscribe": "t"})
    reader, stream_reader = source.reader(source.schema()), source.streamReader(source.schema())
    sink = TidelogSource(servers | {"topic": "t"})
    rows = kafka_schema(include_headers=False)["value"]
    columns = type(source.schema())([rows])
    for made in (reader, stream_reader, sink.writer(columns, False), sink.streamWriter(columns, False), source):
        assert pickle.loads(pickle.dumps(made)) is not None


def test_trap_8_planning_loads_none_of_the_heavy_libraries() -> None:
    program = (
        "import sys, pyspark_tidelog;"
        "s = pyspark_tidelog.DefaultSource({'tidelog.bootstrap.servers': 'localhost:1', 'subscribe': 't'});"
        "s.reader(s.schema()); s.streamReader(s.schema());"
        # Not numpy: pyarrow, which Spark itself loads to plan, imports it wherever it is installed.
        "print([m for m in ('pandas', 'kazoo') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_trap_9_leader_without_a_known_end_is_asked_again(cluster: FileCluster) -> None:
    cluster.append_values(T0, map(str, range(10)))
    query = Query(cluster)
    end = {"t": {"0": 10, "1": 0}}
    assert query.latest(end) == end
    query.consumer.faults = [OffsetNotAvailableError("a new leader")] * 3
    cluster.append_values(T0, ["next"])
    assert query.values(end, query.latest(end)) == ["next"]


def cut_and_grow_again(query: Query, cluster: FileCluster) -> None:
    """All records go, four new ones come, and whenever the query waits, eight more."""
    cluster.lose(T0)
    cluster.append_values(T0, map(str, range(4)))

    def grow(seconds: float) -> None:
        cluster.append_values(T0, map(str, range(4, 12)))
        HandClock.pause(query.clock, seconds)

    query.reader._pause = grow


def test_truncated_log_that_grew_past_the_read_offset_is_loss(cluster: FileCluster) -> None:
    cluster.append_values(T0, map(str, range(10)))
    query = Query(cluster)
    end = {"t": {"0": 10, "1": 0}}
    assert query.latest(end) == end
    cut_and_grow_again(query, cluster)
    with pytest.raises(DataLossError, match=r"t-0 \[4, 10\)"):
        query.latest(end)


def test_truncated_log_is_read_from_its_end_if_loss_is_allowed(
    cluster: FileCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.append_values(T0, map(str, range(10)))
    query = Query(cluster, failOnDataLoss="false")
    end = {"t": {"0": 10, "1": 0}}
    assert query.latest(end) == end
    cut_and_grow_again(query, cluster)
    lower = query.latest(end)
    assert query.values(end, lower) == []
    assert "t-0 [4, 10)" in caplog.text
    cluster.append_values(T0, map(str, range(4, 12)))
    assert query.values(lower, query.latest(lower)) == [str(each) for each in range(4, 12)]


def test_available_now_continues_after_a_truncation_if_loss_is_allowed(cluster: FileCluster) -> None:
    cluster.append_values(T0, map(str, range(4)))
    query = Query(cluster, failOnDataLoss="false")
    query.reader.prepareForTriggerAvailableNow()
    lower = query.latest({"t": {"0": 10, "1": 0}})
    assert lower == query.latest(lower) == {"t": {"0": 4, "1": 0}}


def test_reported_records_deleted_before_the_read_are_loss(cluster: FileCluster) -> None:
    cluster.append_values(T0, map(str, range(10)))
    query = Query(cluster, maxOffsetsPerTrigger="3")
    first = query.latest(query.latest(query.reader.initialOffset()))
    assert first == {"t": {"0": 3, "1": 0}}
    cluster.pretend_end(T0, 5)
    with pytest.raises(DataLossError, match=r"t-0 \[5, 10\)"):
        query.latest(first)


def test_partitions_added_later_are_read_from_their_start(cluster: FileCluster) -> None:
    query = Query(cluster, startingOffsets="latest")
    anchor = query.latest(query.reader.initialOffset())
    cluster.create_topic("t", 3)
    cluster.append_values(TopicPartition("t", 2), ["in a new partition"])
    query.clock.ms += 5_000
    assert query.values(anchor, query.latest(anchor)) == ["in a new partition"]


def test_deleted_partition_is_loss(cluster: FileCluster) -> None:
    with pytest.raises(DataLossError, match="t-7"):
        Query(cluster).latest({"t": {"0": 0, "1": 0, "7": 5}})
    lenient = Query(cluster, failOnDataLoss="false")
    cluster.append_values(T0, ["a"])
    assert lenient.latest({"t": {"0": 0, "1": 0, "7": 5}}) == {"t": {"0": 1, "1": 0}}


def test_topic_missing_in_one_brokers_list_is_not_deleted(
    cluster: FileCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("u", 1)
    query = Query(cluster, subscribePattern="[tu]")
    begun = {"t": {"0": 0, "1": 0}, "u": {"0": 0}}
    monkeypatch.setattr(query.consumer, "topics", lambda: {"t"})
    cluster.append_values(TopicPartition("u", 0), ["a"])
    assert query.latest(begun) == {"t": {"0": 0, "1": 0}, "u": {"0": 1}}
    cluster.delete_topic("u")
    query.clock.ms += 5_000
    with pytest.raises(DataLossError, match="u-0"):
        query.latest(begun)


def test_deleted_topic_is_confirmed_once(cluster: FileCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("u", 1)
    query = Query(cluster, subscribePattern="[tu]", failOnDataLoss="false")
    begun = {"t": {"0": 0, "1": 0}, "u": {"0": 0}}
    ask, asked = query.consumer.partitions_for_topic, Counter[str]()

    def count(topic: str) -> set[int] | None:
        asked[topic] += 1
        return ask(topic)

    monkeypatch.setattr(query.consumer, "partitions_for_topic", count)
    cluster.delete_topic("u")
    for _ in range(3):
        assert query.latest(begun) == begun
        query.clock.ms += 5_000
    assert asked["t"] == 3 and asked["u"] == 1


def test_topic_deleted_between_two_calls_is_loss(
    cluster: FileCluster,
) -> None:
    cluster.create_topic("u", 1)
    begun = {"t": {"0": 0, "1": 0}, "u": {"0": 0}}
    strict = Query(cluster, subscribePattern="[tu]")
    lenient = Query(cluster, subscribePattern="[tu]", failOnDataLoss="false")
    assert strict.latest(begun) == lenient.latest(begun) == begun
    cluster.delete_topic("u")
    cluster.append_values(T0, ["a"])
    with pytest.raises(DataLossError, match="u-0"):
        strict.latest(begun)
    assert lenient.latest(begun) == {"t": {"0": 1, "1": 0}}


def test_topic_deleted_before_its_first_batch_is_loss(
    cluster: FileCluster,
) -> None:
    cluster.append_values(T0, ["a"])
    start, end = {"t": {"0": 0, "1": 0}}, {"t": {"0": 1, "1": 0}, "u": {"0": 5}}
    with pytest.raises(DataLossError, match=r"u-0 \[0, 5\)"):
        Query(cluster, subscribePattern="[tu]").reader.partitions(start, end)
    assert Query(cluster, subscribePattern="[tu]", failOnDataLoss="false").values(start, end) == ["a"]


def test_topic_listed_again_at_the_second_call_is_no_loss(
    cluster: FileCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.append_values(T1, ["a"])
    query = Query(cluster)
    ask = query.consumer.beginning_offsets

    def answer_once_looked_for(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        if "partitions_for_topic" not in query.consumer.calls:
            raise UnknownTopicOrPartitionError("this broker has not been told of it yet")
        return ask(partitions)

    monkeypatch.setattr(query.consumer, "beginning_offsets", answer_once_looked_for)
    assert query.values({"t": {"0": 0}}, {"t": {"0": 0, "1": 1}}) == ["a"]


def test_starting_time_without_a_later_record_is_an_error_or_the_end(cluster: FileCluster) -> None:
    cluster.append_values(T0, ["old"], timestamp_ms=1000)
    cluster.append_values(T1, ["old", "new"], timestamp_ms=1000)
    with pytest.raises(Exception, match="no record at or after the starting time in t-0, t-1"):
        Query(cluster, startingTimestamp="1001").reader.initialOffset()
    lenient = Query(cluster, startingTimestamp="1001", startingOffsetsByTimestampStrategy="latest")
    assert lenient.reader.initialOffset() == {"t": {"0": 1, "1": 2}}


def test_record_appended_during_the_look_up_is_not_skipped(
    cluster: FileCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.append_values(T0, ["old"], timestamp_ms=1000)
    query = Query(cluster, startingTimestamp="1001", startingOffsetsByTimestampStrategy="latest")
    look_up = query.consumer.offsets_for_times

    def and_then_one_comes(times: dict[TopicPartition, int]) -> object:
        answers = look_up(times)
        cluster.append_values(T0, ["new"], timestamp_ms=1001)
        return answers

    monkeypatch.setattr(query.consumer, "offsets_for_times", and_then_one_comes)
    assert query.reader.initialOffset() == {"t": {"0": 1, "1": 0}}


def test_starting_offsets_name_every_partition(cluster: FileCluster) -> None:
    cluster.append_values(T0, map(str, range(5)))
    whole = Query(cluster, startingOffsets=shaped({"t": {0: -1, 1: -2}}))
    assert whole.reader.initialOffset() == {"t": {"0": 5, "1": 0}}
    with pytest.raises(Exception, match="t-1 missing"):
        Query(cluster, startingOffsets=shaped({"t": {0: 5}})).reader.initialOffset()


def test_unknown_topic_ends_the_query_after_a_short_wait(cluster: FileCluster) -> None:
    query = Query(cluster, subscribe="nowhere")
    with pytest.raises(Exception, match="nowhere"):
        query.reader.initialOffset()
    assert sum(query.clock.pauses) < 15


def test_empty_partition_object_of_spark_reads_nothing(cluster: FileCluster) -> None:
    assert list(Query(cluster).reader.read(InputPartition(None))) == []
    assert pickle.loads(pickle.dumps(RangePartition)) is RangePartition
