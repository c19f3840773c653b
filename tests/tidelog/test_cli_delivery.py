"""`tidelog produce` sends lines, sums up what was acknowledged, and names the line that was not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import pytest

from tests.tidelog.clients import in_memory
from tests.tidelog.fake_cluster import FakeCluster
from tidelog import Producer
from tidelog.cli.records.delivery import Delivery, InputLine, UndeliveredLine
from tidelog.cli.records.record_lines import OutgoingRecord, parse_json, parse_plain

FIRST = InputLine("standard input", 1)


@contextmanager
def a_delivery(cluster: FakeCluster, partition: int | None = None) -> Iterator[Delivery]:
    with in_memory(Producer, cluster) as producer:
        yield Delivery(producer, "t", partition)


def keyed(line: bytes) -> OutgoingRecord:
    return parse_plain(line, b":")


def test_summary_has_records_bytes_partitions_and_offsets() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    with a_delivery(cluster, partition=1) as delivery:
        delivery.send_values(FIRST, [b"ab", b"", b"cde"])
        delivery.finish()
        delivery.send_values(FIRST.after(3), [b"f"])
        delivery.finish()
    assert delivery.summary.as_text() == "wrote 4 records, 6 B, to 1 partition of t: t/1 offsets 0 to 3"
    assert delivery.summary.as_json() == {
        "topic": "t",
        "records": 4,
        "bytes": 6,
        "partitions": [{"partition": 1, "records": 4, "bytes": 6, "first_offset": 0, "last_offset": 3}],
    }


def test_keys_count_among_the_bytes_and_each_partition_has_its_own_offsets() -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 4)
    with a_delivery(cluster) as delivery:
        delivery.send_parsed(FIRST, [b"%d:v" % number for number in range(100)], keyed)
        delivery.finish()
    shown = delivery.summary.as_json()["partitions"]
    expected = [
        {
            "partition": each.number,
            "records": len(each.records()),
            "bytes": sum(len(record.key or b"") + 1 for record in each.records()),
            "first_offset": 0,
            "last_offset": len(each.records()) - 1,
        }
        for each in partitions
    ]
    assert shown == expected


def test_the_summary_names_eight_partitions_and_counts_the_rest() -> None:
    cluster = FakeCluster()
    cluster.create("t", 11)
    with a_delivery(cluster) as delivery:
        lines = [b'{"partition": %d}' % number for number in range(11)]
        delivery.send_parsed(FIRST, lines, parse_json)
        delivery.finish()
    assert delivery.summary.as_text().endswith("t/6 offset 0, t/7 offset 0 and 3 more")


def test_without_lines_the_summary_says_so() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    with a_delivery(cluster) as delivery:
        delivery.finish()
    assert delivery.summary.as_text() == "wrote no records to t: the input has no lines"


Send = Callable[[Delivery, InputLine, list[bytes]], None]


def as_values(delivery: Delivery, place: InputLine, lines: list[bytes]) -> None:
    delivery.send_values(place, lines)


def as_keyed_lines(delivery: Delivery, place: InputLine, lines: list[bytes]) -> None:
    delivery.send_parsed(place, [b"k:" + line for line in lines], keyed)


@pytest.mark.parametrize("send", [as_values, as_keyed_lines])
def test_error_names_the_line_of_a_refused_record_and_counts_the_others(send: Send) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.max_batch_bytes = 300
    with a_delivery(cluster) as delivery:
        send(delivery, InputLine("a.txt", 7), [b"fine", b"x" * 400, b"fine, too"])
        with pytest.raises(
            UndeliveredLine, match=r"^a.txt, line 8: .*max.message.bytes is 300.*tidelog topic create"
        ) as refused:
            delivery.finish()
        explained = delivery.explain(refused.value)
    assert isinstance(explained, click.ClickException)
    assert explained.message.endswith("; 2 of 3 records sent were acknowledged: t/0 offsets 0 to 1")


def test_line_for_a_missing_partition_is_named_after_delivery() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    with a_delivery(cluster) as delivery:
        with pytest.raises(UndeliveredLine, match=r"^standard input, line 2: .*its only partition is 0"):
            delivery.send_parsed(FIRST, [b'{"value": "a"}', b'{"partition": 9}', b"{}"], parse_json)
        explained = delivery.explain(UndeliveredLine(FIRST, "…"))
    assert str(explained).endswith("; 1 of 1 record sent was acknowledged: t/0 offset 0")
    assert partition.values() == [b"a"]


def test_an_error_before_the_first_record_says_that_none_was_sent() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    with a_delivery(cluster) as delivery:
        with pytest.raises(UndeliveredLine) as unsent:
            delivery.send_parsed(FIRST, [b"hello"], parse_json)
        explained = delivery.explain(unsent.value)
    assert str(explained).endswith("; no record was sent")


def test_interrupt_reports_the_acknowledged_records() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    with a_delivery(cluster) as delivery:
        delivery.send_values(FIRST, [b"one", b"two"])
        interrupted = delivery.explain(KeyboardInterrupt())
    assert str(interrupted) == "interrupted: 2 of 2 records sent were acknowledged: t/0 offsets 0 to 1"
