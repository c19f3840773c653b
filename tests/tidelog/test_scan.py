"""Test `tidelog.scan` against a reader that decides record by record, with brokers in memory."""

from __future__ import annotations

import gc
import subprocess
import sys
from datetime import datetime
from functools import partial
from typing import Any
from unittest.mock import patch

import duckdb
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelog
from tests.tidelog.arrow_topics import WrittenBatch, a_topic, batches, rows_of
from tests.tidelog.clients import in_memory, put
from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tests.tidelog.fetched_batches import unreadable_batch
from tests.tidelog.test_window_reading import selected_one_by_one, windows
from tidelog import Consumer, Scan
from tidelog.arrow import window_reading
from tidelog.arrow.arrow_rows import ArrowRows
from tidelog.arrow.offset_range import OffsetRange
from tidelog.arrow.range_reader import RangeReader
from tidelog.arrow.schema import SCHEMA
from tidelog.arrow.time_window import TimeWindow
from tidelog.client.consumer.fetching.fetch_buffer import FetchedBatches
from tidelog.clock import SystemClock
from tidelog.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    BrokerError,
    ClosedError,
    ConfigError,
    CorruptMessageError,
    DataLossError,
    InconsistentTopicIdError,
    MessageTooLargeError,
    TimeoutError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.messages import FetchPartition, FetchPartitionResponse
from tidelog.records import Codec, encode_batch

WHOLE = TimeWindow()


def a_scan(
    cluster: FakeCluster,
    window: TimeWindow = WHOLE,
    schema: pa.Schema = SCHEMA,
    partitions: list[int] | None = None,
    **options: Any,
) -> Scan:
    return Scan(
        partial(in_memory, Consumer, cluster, auto_offset_reset="none", **options), "t", window, schema, partitions
    )


def of_partition(rows: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["partition"] == number]


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows with timestamps in ms."""
    place = table.schema.get_field_index("timestamp")
    return table.set_column(place, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()


def put_hours(partition: FakePartition, hours: int, each: int) -> None:
    """Append `each` records for each hour, in batches of ten."""
    for first in range(0, hours * each, 10):
        put(partition, *(b"%d" % number for number in range(first, first + 10)), at_ms=first * 3_600_000 // each)


class CountingCluster(FakeCluster):
    """Counts the bytes of records in the answers to fetches."""

    sent_bytes = 0

    def _fetch_one(self, broker: int, code: int, asked: FetchPartition) -> FetchPartitionResponse:
        answer = super()._fetch_one(broker, code, asked)
        self.sent_bytes += len(answer.records or b"")
        return answer


# --- the twin ---------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(batches, max_size=6), min_size=1, max_size=2), windows, st.integers(1, 4), st.sampled_from([1, 4])
)
def test_scan_has_exactly_the_records_of_its_window(
    written: list[list[WrittenBatch]], window: TimeWindow, end_after: int, fetch_bytes: int
) -> None:
    cluster = a_topic(written)
    with patch.object(window_reading, "END_AFTER", end_after):
        # An answer has at least one batch, so that the smallest limit makes an answer of each batch.
        found = as_rows(a_scan(cluster, window, max_partition_fetch_bytes=fetch_bytes * 200).to_arrow())
    for partition in cluster.partitions["t"]:
        all_rows = rows_of(partition)
        stamps = [-1 if row["timestamp"] is None else row["timestamp"] for row in all_rows]
        begin = 0
        if window.since_ms is not None:  # the look-up by time skips only older records
            since = window.since_ms
            begin = next((place for place, stamp in enumerate(stamps) if stamp >= since), len(stamps))
        expected = [all_rows[begin + place] for place in selected_one_by_one(window, stamps[begin:], end_after)]
        assert of_partition(found, partition.number) == expected


def test_every_read_has_the_records_that_existed_at_the_call() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    put(partition, b"0", b"1")
    scan = a_scan(cluster)
    put(partition, b"later")
    for _ in range(2):
        assert scan.to_arrow()["value"].to_pylist() == [b"0", b"1"]
    assert [each.size for each in scan.ranges] == [2]


def test_only_chosen_partitions_and_columns_are_read() -> None:
    cluster = FakeCluster()
    for number, partition in enumerate(cluster.create("t", 3)):
        put(partition, b"%d" % number)
    schema = pa.schema([SCHEMA.field("value"), SCHEMA.field("partition")])
    assert a_scan(cluster, schema=schema, partitions=[2, 0]).to_arrow().sort_by("partition").to_pydict() == {
        "value": [b"0", b"2"],
        "partition": [0, 2],
    }


# --- faults -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed_at", [1, 3, 5])
def test_leader_that_dies_during_a_scan_loses_and_repeats_no_row(killed_at: int) -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 3):
        put_hours(partition, 24, 10)
    found: list[tuple[int, int]] = []
    for number, batch in enumerate(a_scan(cluster, max_partition_fetch_bytes=500)):
        if number == killed_at:
            cluster.kill(cluster.partitions["t"][0].leader)
        found += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    assert sorted(found) == [(number, offset) for number in range(3) for offset in range(240)]


def test_records_deleted_between_the_call_and_the_read_are_an_error() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    put_hours(partition, 2, 10)
    scan = a_scan(cluster)
    partition.batches, partition.first_offset = partition.batches[1:], 10
    with pytest.raises(DataLossError, match=r"t-0 \[0, 10\)"):
        scan.to_arrow()


@pytest.mark.parametrize("error", [InconsistentTopicIdError, UnknownTopicIdError])
def test_records_of_a_recreated_topic_are_not_read_in_place_of_the_old(error: type[BrokerError]) -> None:
    cluster = FakeCluster()
    cluster.wrong_topic = error
    put(cluster.create("t")[0], b"0", b"1")
    scan = a_scan(cluster)
    del cluster.partitions["t"]
    put(cluster.create("t")[0], b"a", b"b", b"c")
    with pytest.raises(DataLossError, match=r"t-0 \[0, 2\)"):
        scan.to_arrow()


def test_topic_recreated_during_a_scan_ends_it_with_an_error() -> None:
    cluster = FakeCluster()
    (old,) = cluster.create("t")
    put_hours(old, 24, 10)
    with pytest.raises(DataLossError, match=r"t-0 \[\d+, 240\)"):
        for number, batch in enumerate(a_scan(cluster, max_partition_fetch_bytes=500)):
            if not number:
                (new,) = cluster.create("t")
                new.leader = old.leader % 3 + 1
                put(new, *[b"other"] * 240)
            assert b"other" not in batch["value"].to_pylist()


def test_silent_cluster_ends_a_read_with_the_places_that_are_missing() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    put(partition, b"v")
    scan = a_scan(cluster, default_api_timeout_ms=50)
    cluster.kill(partition.leader, elect=False)
    with pytest.raises(TimeoutError, match=r"t-0 \[0, 1\): no record at offset 0 in 50 ms"):
        scan.to_arrow()


def test_unreadable_batch_is_an_error_with_its_partition_and_offsets() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    put(partition, b"v")
    partition.batches.append(bytes(unreadable_batch(1, epoch=0)))
    with pytest.raises(CorruptMessageError, match="t-0: offsets 1 to 1 cannot be read"):
        a_scan(cluster).to_arrow()


def test_batch_beyond_the_limit_names_the_setting() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    partition.append(encode_batch([(1, None, b"v" * 1000, ())], codec=Codec.GZIP))
    with pytest.raises(MessageTooLargeError, match=r"t-0: offsets 0 to 0 .*max_decompressed_batch_bytes"):
        a_scan(cluster, max_decompressed_batch_bytes=100).to_arrow()


def test_answer_that_ends_with_aborted_records_finishes_its_range() -> None:
    """With read_committed the consumer leaves these records out, and no batch shows that their offsets were read."""
    batch = memoryview(encode_batch([(1, None, b"v", ())], base_offset=0))

    class Committed(Consumer):
        def __init__(self) -> None:
            self.answers = [FetchedBatches(batch, 0, 5, 9, 0), FetchedBatches(batch[:0], 5, 9, 9, 0)]

        def __del__(self) -> None: ...

        def assign(self, partitions: object) -> None: ...

        def seek(self, partition: object, offset: int) -> None: ...

        def poll_batches(self, timeout_ms: int = 0) -> dict[TopicPartition, FetchedBatches]:
            return {TopicPartition("t", 0): self.answers.pop(0)}

    reader = RangeReader(
        Committed(),
        [ArrowRows(SCHEMA, OffsetRange(TopicPartition("t", 0), 0, 9))],
        on_loss=lambda lost: pytest.fail(f"{lost} is no loss"),
        timeout_ms=1,
        timeout_name="timeout",
        clock=SystemClock(),
        is_eager=True,
    )
    assert [batch["offset"].to_pylist() for batch in reader.read()] == [[0]]


def test_fetched_bytes_in_memory_do_not_grow_with_the_topic() -> None:
    cluster, limit, answer = CountingCluster(), 20_000, 4_000
    for partition in cluster.create("t", 2):
        for _ in range(200):
            put(partition, b"v" * 1_000)
    read, most = 0, 0
    for batch in a_scan(cluster, max_partition_fetch_bytes=answer, prefetch_max_bytes=limit):
        most = max(most, cluster.sent_bytes - read)
        read += batch.num_rows * 1_000
    assert read == 400_000
    # The limit, an answer of each partition that was requested before, and those that one poll has taken.
    assert most <= limit + 4 * answer + cluster.sent_bytes - read


# --- the interface ----------------------------------------------------------------------------------


def test_polars_and_duckdb_read_a_scan_in_one_line() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put_hours(partition, 3, 10)
    scan = a_scan(cluster, TimeWindow(3_600_000, 7_200_000))

    assert polars.DataFrame(scan).select("offset").sum().item() == 2 * sum(range(10, 20))
    assert duckdb.sql('SELECT sum("offset"), count(*) FROM scan').fetchall() == [(2 * sum(range(10, 20)), 20)]
    assert pa.table(scan).num_rows == 20
    assert pa.schema(scan) == SCHEMA


def test_pandas_reads_a_scan_in_one_line() -> None:
    """The packages for developers do not include pandas, which takes a scan by the same interface as Polars."""
    pandas = pytest.importorskip("pandas", "3")
    cluster = FakeCluster()
    put_hours(cluster.create("t")[0], 3, 10)
    assert pandas.DataFrame.from_arrow(a_scan(cluster))["offset"].tolist() == list(range(30))


def test_error_of_a_read_reaches_the_library_with_its_text() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    partition.batches.append(bytes(unreadable_batch(0, epoch=0)))
    with pytest.raises(Exception, match="t-0: offsets 0 to 0 cannot be read"):
        duckdb.from_arrow(pa.RecordBatchReader.from_stream(a_scan(cluster))).fetchall()


def test_read_that_is_left_early_closes_its_connections() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    put_hours(partition, 24, 10)
    reading = iter(a_scan(cluster, max_partition_fetch_bytes=500))
    next(reading)
    assert any(cluster.connections.values())
    reading.close()  # type: ignore[attr-defined]
    assert not any(not connection.closed for each in cluster.connections.values() for connection in each)


def test_query_with_a_limit_closes_its_connections_and_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    gc.collect()  # clients that earlier tests have dropped warn now
    recwarn.clear()
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    put_hours(partition, 24, 10)
    scan = a_scan(cluster, max_partition_fetch_bytes=500)
    assert len(duckdb.sql("SELECT * FROM scan LIMIT 1").fetchall()) == 1
    del scan
    gc.collect()
    assert all(connection.closed for each in cluster.connections.values() for connection in each)
    assert [str(each.message) for each in recwarn if each.category is ResourceWarning] == []


def test_closed_scan_ends_its_reads_and_begins_no_other() -> None:
    cluster = FakeCluster()
    [partition] = cluster.create("t")
    put_hours(partition, 24, 10)
    with a_scan(cluster, max_partition_fetch_bytes=500) as scan:
        reading = iter(scan)
        next(reading)
    for read in (lambda: list(reading), scan.to_arrow, lambda: polars.DataFrame(scan)):
        with pytest.raises(Exception, match="closed"):
            read()
    with pytest.raises(ClosedError):
        next(iter(scan))


def test_read_of_a_closed_scan_is_dropped_without_an_error() -> None:
    cluster = FakeCluster()
    put_hours(cluster.create("t")[0], 24, 10)
    with a_scan(cluster, max_partition_fetch_bytes=500) as scan:
        reading = iter(scan)
        next(reading)
    reading.close()  # type: ignore[attr-defined]


def test_close_ends_every_read_if_one_ends_meanwhile() -> None:
    class EndsMeanwhile(Consumer):
        def __init__(self) -> None: ...

        def __del__(self) -> None: ...

        def close(self, **options: Any) -> None:
            raise ClosedError("the client was closed meanwhile")

    cluster = FakeCluster()
    put_hours(cluster.create("t")[0], 24, 10)
    scan = a_scan(cluster, max_partition_fetch_bytes=500)
    reading = iter(scan)
    next(reading)
    (consumer,) = scan._reading
    scan._reading = {EndsMeanwhile(), consumer, EndsMeanwhile()}
    scan.close()
    assert consumer._io.stopped


def test_repr_says_what_a_read_covers() -> None:
    cluster = FakeCluster()
    put(cluster.create("t", 2)[0], b"v", b"w", at_ms=5)
    schema = pa.schema([SCHEMA.field("value")])
    assert repr(a_scan(cluster, TimeWindow(1), schema)) == (
        "<tidelog.Scan topic='t' since=1970-01-01T00:00:00.001Z partitions=2 offsets=2 columns=value>"
    )


def test_unknown_topic_or_partition_is_an_error_of_the_call() -> None:
    cluster = FakeCluster()
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic 't'"):
        a_scan(cluster, default_api_timeout_ms=10)
    cluster.create("t", 2)
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 't' has no partition 2: it has 2 partitions"):
        a_scan(cluster, partitions=[0, 2])


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ({"topic": "a/b"}, tidelog.TidelogError, "^topic='a/b'"),
        ({"columns": ["vlaue"]}, ArgumentValueError, "no column 'vlaue'; did you mean value"),
        ({"columns": []}, ArgumentValueError, "at least one"),
        ({"columns": ["key", "key"]}, ArgumentValueError, "'key' twice"),
        ({"columns": 5}, ArgumentTypeError, "^columns must be"),
        ({"partitions": 3}, ArgumentTypeError, "^partitions must be a list of int"),
        ({"partitions": ["0"]}, ArgumentTypeError, r"^partitions\[0\] must be a int, not '0'"),
        ({"allowed_lateness": 1.5}, ArgumentTypeError, "^allowed_lateness must be an integer"),
        ({"headers": 1}, ArgumentTypeError, "^headers must be True or False"),
        ({"since": datetime(2026, 1, 1)}, ArgumentValueError, "^since: .* no time zone"),
        ({"since": 2, "until": 1}, ArgumentValueError, "^since .* must not be after"),
        ({"group_id": "g"}, ConfigError, "^group_id: a scan does not take this setting"),
        ({"fetch_max_byte": 1}, ConfigError, "did you mean fetch_max_bytes"),
        ({"bootstrap_servers": "nonsense"}, ConfigError, "nonsense"),
    ],
)
def test_wrong_argument_is_an_error_of_the_call(
    arguments: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        tidelog.scan(**{"topic": "t", "bootstrap_servers": "localhost:1", **arguments})


def test_scan_without_pyarrow_names_the_extra_to_install() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import tidelog\n"
        "for use in (lambda: tidelog.scan('t'), lambda: tidelog.Consumer.poll_arrow(None)):\n"
        "    try: use()\n"
        "    except tidelog.errors.MissingExtraError as error: print(error)\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert shown.stdout.splitlines() == [
        "tidelog.scan needs pyarrow, which is not installed: pip install 'tidelog[arrow]'",
        "poll_arrow needs pyarrow, which is not installed: pip install 'tidelog[arrow]'",
    ]


def test_clients_and_the_name_scan_load_neither_pyarrow_nor_numpy() -> None:
    program = (
        "import sys, tidelog; tidelog.Consumer, tidelog.aio.Consumer, tidelog.scan, tidelog.Scan\n"
        "print({'numpy', 'pyarrow', 'pandas'} & sys.modules.keys())"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert shown.stdout.strip() == "set()"
