from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from tidelog.arrow.arrow_rows import ROWS_PER_BATCH
from tidelog.arrow.offset_range import OffsetRange
from tidelog.errors import ConfigError
from tidelog.model import TopicPartition
from tidelog.records import Codec, MarkerKind, encode_batch, encode_control_batch, stamp_log_append_time
from tidelog.spark.columns import arrow_rows, check_schema, kafka_schema

WHOLE = kafka_schema(include_headers=True)


def batch_of(values: list[bytes | None], base_offset: int = 0, timestamp_ms: int = 1_700_000_000_123) -> bytes:
    return encode_batch([(timestamp_ms, None, value, ()) for value in values], base_offset=base_offset)


def read(schema: StructType, *batches: bytes, start: int = 0, until: int = 1 << 62) -> list[pa.RecordBatch]:
    rows = arrow_rows(schema, OffsetRange(TopicPartition("t", 3), start, until))
    return [*(arrow for batch in batches for arrow in rows.add(batch)), *rows.rest()]


def test_a_record_becomes_a_row_with_every_column_of_kafkas_schema() -> None:
    headers = (("h", b"\xff"), ("none", None))
    batch = encode_batch([(1_700_000_000_123, b"k", b"v", headers), (-1, None, None, ())], base_offset=40)
    [arrow] = read(WHOLE, batch)
    first, second = arrow.to_pylist()
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 3,
        "offset": 40,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"\xff"}, {"key": "none", "value": None}],
    }
    assert (second["key"], second["value"], second["offset"], second["headers"]) == (None, None, 41, None)


def test_log_append_time_batch_gives_every_row_the_brokers_time() -> None:
    stamped = bytearray(batch_of([b"a", b"b"], base_offset=1))
    stamp_log_append_time(stamped, 0, 5_000)
    [arrow] = read(WHOLE, batch_of([b"x"]), bytes(stamped))
    assert arrow.column("timestampType").to_pylist() == [0, 1, 1]
    assert arrow.column("timestamp").cast(pa.int64()).to_pylist()[1:] == [5_000_000, 5_000_000]


def test_arrow_batches_have_about_twenty_thousand_rows() -> None:
    batches = [batch_of([b"v"] * 700, base_offset=700 * number) for number in range(70)]
    sizes = [arrow.num_rows for arrow in read(WHOLE, *batches)]
    assert sum(sizes) == 49_000 and len(sizes) == 3
    assert all(ROWS_PER_BATCH <= size < ROWS_PER_BATCH + 700 for size in sizes[:-1])


def test_large_values_end_an_arrow_batch_earlier() -> None:
    batches = [batch_of([b"v" * (1 << 20)], base_offset=number) for number in range(12)]
    assert [arrow.num_rows for arrow in read(WHOLE, *batches)] == [4, 4, 4]


def test_range_starts_and_ends_inside_batches() -> None:
    batches = b"".join(batch_of([b"%d" % n for n in range(base, base + 10)], base) for base in (0, 10, 20))
    [arrow] = read(WHOLE, batches, start=7, until=22)
    assert arrow.column("offset").to_pylist() == list(range(7, 22))
    assert arrow.column("value").to_pylist() == [b"%d" % n for n in range(7, 22)]


@pytest.mark.parametrize(
    ("bases", "start", "until", "offsets"),
    [
        ((0, 20), 0, 30, [*range(10), *range(20, 30)]),
        ((10,), 5, 20, [*range(10, 20)]),
        ((0, 30), 0, 25, [*range(10)]),
        ((0, 20), 12, 25, [*range(20, 25)]),
    ],
)
def test_compacted_offsets_are_skipped(bases: tuple[int, ...], start: int, until: int, offsets: list[int]) -> None:
    rows = arrow_rows(WHOLE, OffsetRange(TopicPartition("t", 0), start, until))
    batches = b"".join(batch_of([b"v"] * 10, base) for base in bases)
    arrow = [*rows.add(batches), *rows.rest()]
    assert [offset for batch in arrow for offset in batch.column("offset").to_pylist()] == offsets
    assert rows.position == until


def test_transaction_marker_is_no_row_and_is_skipped() -> None:
    rows = arrow_rows(WHOLE, OffsetRange(TopicPartition("t", 0), 0, 3))
    marker = encode_control_batch(
        MarkerKind.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1000, base_offset=1
    )
    [arrow] = [*rows.add(batch_of([b"v"], 0) + marker + batch_of([b"w"], 2)), *rows.rest()]
    assert arrow.column("offset").to_pylist() == [0, 2]
    assert rows.position == 3


def test_records_fetched_twice_become_rows_once() -> None:
    arrow = read(WHOLE, batch_of([b"v"] * 10, 0), batch_of([b"v"] * 10, 5), batch_of([b"v"] * 10, 0))
    assert [offset for batch in arrow for offset in batch.column("offset").to_pylist()] == [*range(15)]


def test_compressed_batches_become_rows_like_others() -> None:
    batches = [
        encode_batch([(1000, b"k%d" % n, b"v" * n, ())], base_offset=n, codec=codec) for n, codec in enumerate(Codec)
    ]
    [arrow] = read(WHOLE, *batches)
    assert arrow.column("key").to_pylist() == [b"k%d" % n for n in range(len(Codec))]
    assert arrow.column("value").to_pylist() == [b"v" * n for n in range(len(Codec))]


def test_keys_and_values_are_copied_exactly_nulls_and_empty_ones_too() -> None:
    fields = [None, b"", b"a", b"bc" * 100, None, b"d"]
    pairs = [(key, value) for key in fields for value in fields]
    batch = encode_batch([(1000, key, value, ()) for key, value in pairs])
    for start in (0, 7):
        [arrow] = read(WHOLE, batch, start=start)
        arrow.validate(full=True)
        assert arrow.column("key").to_pylist() == [key for key, _ in pairs[start:]]
        assert arrow.column("value").to_pylist() == [value for _, value in pairs[start:]]


def test_a_users_schema_chooses_columns_and_their_order() -> None:
    schema = StructType([StructField("offset", LongType()), StructField("value", WHOLE["value"].dataType)])
    [arrow] = read(schema, batch_of([b"v"]))
    assert arrow.schema == to_arrow_schema(schema, timezone="UTC")
    assert arrow.to_pylist() == [{"offset": 0, "value": b"v"}]


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (StructField("ofset", LongType()), "no column 'ofset'"),
        (StructField("offset", IntegerType()), "bigint, not int"),
    ],
)
def test_user_schema_with_unknown_columns_is_refused(field: StructField, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_schema(StructType([field]))
