"""The bounds of a read: planning reports a mistaken option, and no task takes it for lost records."""

from __future__ import annotations

import logging

import pytest
from file_cluster import FileCluster, FileConsumer, OneConsumer, shaped

from tidelog.errors import ConfigError, DataLossError
from tidelog.model import TopicPartition
from tidelog.spark.batch_reader import TidelogBatchReader
from tidelog.spark.columns import kafka_schema
from tidelog.spark.options import Use, parse_read
from tidelog.spark.range_reader import RangePartition
from tidelog.spark.stream_reader import TidelogStreamReader

SERVERS = {"tidelog.bootstrap.servers": "a:1"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(autouse=True)
def topic(cluster: FileCluster) -> None:
    """t-0 holds the offsets 4 to 14, with the times 1000 (to offset 9) and 2000; t-1 holds the offsets 0 to 6."""
    cluster.create_topic("t", 2)
    cluster.append_values(T0, map(str, range(10)), timestamp_ms=1000)
    cluster.append_values(T0, map(str, range(5)), timestamp_ms=2000)
    cluster.set_start(T0, 4)
    cluster.append_values(T1, map(str, range(7)), timestamp_ms=1000)


def ranges(cluster: FileCluster, **options: str) -> dict[TopicPartition, tuple[int, int]]:
    """Plan a batch read and return what its tasks read of each partition."""
    given = parse_read(SERVERS | {"subscribe": "t"} | options, Use.BATCH_READ)
    reader = TidelogBatchReader(given, OneConsumer(only=FileConsumer(cluster)), kafka_schema(include_headers=False))
    spans = [each.span for each in reader.partitions() if isinstance(each, RangePartition)]
    return {span.topic_partition: (span.start, span.until) for span in spans}


def offsets(first: int, second: int) -> str:
    return shaped({"t": {0: first, 1: second}})


def test_bounds_at_the_ends_of_the_logs_are_read(cluster: FileCluster) -> None:
    whole = ranges(cluster, startingOffsets=offsets(4, 0), endingOffsets=offsets(15, 7))
    assert whole == {T0: (4, 15), T1: (0, 7)}
    assert ranges(cluster, startingOffsets=offsets(15, 7)) == {}


def test_an_ending_offset_past_the_end_names_option_offset_and_log(cluster: FileCluster) -> None:
    wrong = r"endingOffsets: t-0: 3000 lies past the end of the log, which holds the offsets 4 to 14$"
    with pytest.raises(ConfigError, match=wrong):
        ranges(cluster, endingOffsets=offsets(3000, 7))


def test_a_starting_offset_past_the_end_names_option_offset_and_log(cluster: FileCluster) -> None:
    wrong = r"startingOffsets: t-0: 16 lies past .* 4 to 14; t-1: 8 lies past .* 0 to 6$"
    with pytest.raises(ConfigError, match=wrong):
        ranges(cluster, startingOffsets=offsets(16, 8))


def test_offsets_past_the_end_are_refused_even_if_loss_is_allowed(cluster: FileCluster) -> None:
    with pytest.raises(ConfigError, match="endingOffsets: t-1: 8"):
        ranges(cluster, endingOffsets=offsets(15, 8), failOnDataLoss="false")


def test_empty_log_is_described_by_its_first_offset(cluster: FileCluster) -> None:
    cluster.create_topic("empty", 1)
    with pytest.raises(ConfigError, match="empty-0: 1 lies past the end of the log, which is empty and begins at 0"):
        ranges(cluster, subscribe="empty", endingOffsets=shaped({"empty": {0: 1}}))


def test_an_error_about_many_partitions_names_five_and_counts_the_rest(cluster: FileCluster) -> None:
    cluster.create_topic("wide", 8)
    ends = shaped({"wide": dict.fromkeys(range(8), 1)})
    with pytest.raises(ConfigError) as caught:
        ranges(cluster, subscribe="wide", endingOffsets=ends)
    assert str(caught.value).count("lies past the end") == 5
    assert "and 3 more partitions" in str(caught.value)


def test_a_stream_that_starts_past_the_end_is_refused(cluster: FileCluster) -> None:
    given = parse_read(SERVERS | {"subscribe": "t", "startingOffsets": offsets(15, 8)}, Use.STREAM_READ)
    reader = TidelogStreamReader(given, OneConsumer(only=FileConsumer(cluster)), kafka_schema(include_headers=False))
    with pytest.raises(ConfigError, match=r"startingOffsets: t-1: 8 lies past the end of the log.* 0 to 6"):
        reader.initialOffset()


def test_an_ending_offset_before_the_log_is_refused(cluster: FileCluster) -> None:
    wrong = "endingOffsets: t-0: 3 lies before the log, which holds the offsets 4 to 14"
    with pytest.raises(ConfigError, match=wrong):
        ranges(cluster, endingOffsets=offsets(3, 7))


def test_end_before_the_log_reads_the_other_partitions_if_loss_is_allowed(
    cluster: FileCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert ranges(cluster, endingOffsets=offsets(3, 7), failOnDataLoss="false") == {T1: (0, 7)}
    assert "t-0: no record is read: startingOffsets is at offset 4, after endingOffsets at 3" in caplog.text


def test_deleted_records_between_two_offsets_are_data_loss(cluster: FileCluster) -> None:
    with pytest.raises(DataLossError, match=r"t-0 \[0, 3\)"):
        ranges(cluster, startingOffsets=offsets(0, 0), endingOffsets=offsets(3, 7))
    with pytest.raises(DataLossError, match=r"t-0 \[0, 4\)"):
        ranges(cluster, startingOffsets=offsets(0, 0), endingOffsets=offsets(9, 7))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"startingOffsets": offsets(9, 2), "endingOffsets": offsets(8, 2)},
            "startingOffsets comes after endingOffsets, so that no record would be read: t-0 from 9 to 8$",
        ),
        (
            {"startingTimestamp": "2000", "endingTimestamp": "1999"},
            "startingTimestamp comes after endingTimestamp, .*2000 is later than 1999",
        ),
        (
            {"startingTimestamp": "2000", "endingOffsetsByTimestamp": shaped({"t": {0: 1999, 1: 2000}})},
            "startingTimestamp comes after endingOffsetsByTimestamp, .*: t-0 from 2000 to 1999$",
        ),
        (
            {"startingOffsetsByTimestamp": shaped({"t": {0: 2000, 1: 2001}}), "endingTimestamp": "2000"},
            "startingOffsetsByTimestamp comes after endingTimestamp, .*: t-1 from 2001 to 2000$",
        ),
        (
            {
                "startingOffsetsByTimestamp": shaped({"t": {0: 2000, 1: 5}}),
                "endingOffsetsByTimestamp": shaped({"t": {0: 1999, 1: 5}}),
            },
            "startingOffsetsByTimestamp comes after endingOffsetsByTimestamp, .*: t-0 from 2000 to 1999$",
        ),
    ],
)
def test_start_after_the_end_is_refused_without_a_request(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_read(SERVERS | {"subscribe": "t"} | options, Use.BATCH_READ)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": offsets(9, -2), "endingOffsets": offsets(9, -1)},
        {"startingOffsets": offsets(9, 0), "endingOffsets": offsets(-1, 0)},
        {"startingTimestamp": "2000", "endingTimestamp": "2000"},
    ],
)
def test_start_equal_to_the_end_is_valid(options: dict[str, str]) -> None:
    parse_read(SERVERS | {"subscribe": "t"} | options, Use.BATCH_READ)


def test_start_time_after_the_ending_offset_reads_nothing_with_a_warning(
    cluster: FileCluster, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"startingTimestamp": "2000", "startingOffsetsByTimestampStrategy": "latest"}
    with caplog.at_level(logging.WARNING):
        assert ranges(cluster, **options, endingOffsets=offsets(8, 7)) == {}
    assert "t-0: no record is read: startingTimestamp is at offset 10, after endingOffsets at 8" in caplog.text
    assert "t-1" not in caplog.text  # the start and the end are both the log's end: nothing contradicts


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsets": offsets(2**63, 0)}, "startingOffsets .*t-0 has 9223372036854775808"),
        ({"startingOffsets": '{"t": {"2147483648": 0}}'}, "the partition '2147483648'"),
        ({"startingOffsets": '{"t": {"07": 0}}'}, "the partition '07'"),
        ({"startingOffsets": '{"t": {"0": 1, "0": 2}}'}, "an object has the name '0' twice"),
        ({"startingTimestamp": str(2**63)}, "startingTimestamp: .* must be at most 9223372036854775807"),
        ({"startingOffsetsByTimestamp": offsets(2**63, 0)}, "startingOffsetsByTimestamp.*t-0 has 9223372036854775808"),
        ({"minPartitions": str(2**63)}, "minPartitions: .* must be at most"),
        ({"pollTimeoutMs": str(2**63)}, "pollTimeoutMs: .* must be at most"),
    ],
)
def test_number_beyond_the_wire_format_is_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_read(SERVERS | {"subscribe": "t"} | options, Use.BATCH_READ)


def test_an_assignment_names_each_topic_once_and_numbers_of_32_bits() -> None:
    for text, complaint in (
        ('{"t": [0], "t": [1]}', "an object has the name 't' twice"),
        ('{"t": [2147483648]}', "must be"),
    ):
        with pytest.raises(ConfigError, match=f"assign.*{complaint}"):
            parse_read(SERVERS | {"assign": text}, Use.BATCH_READ)


def test_delay_beyond_the_clock_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"maxTriggerDelay: .* must be at most 9223372036854775807 ms"):
        parse_read(SERVERS | {"subscribe": "t", "maxTriggerDelay": "9" * 20 + "d"}, Use.STREAM_READ)
