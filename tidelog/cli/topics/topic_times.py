"""`tidelog topic describe --times`: shows the records, time span and timestamp skew of each partition."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import raise_if_unanswered
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.cli.terminal.table import Quantity
from tidelog.cli.topics.partition_notes import show_partitions
from tidelog.clock import SystemClock
from tidelog.model import TopicPartition
from tidelog.quantities import format_size
from tidelog.timestamps import format_time

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.topic_time_spans import PartitionTimes
    from tidelog.records import RecordTime

_SILENT, _SKEWED, _FILLED, _EMPTY = "that did not answer", "with a warning", "with records", "empty"
_PARTITIONS = Kind(
    ("partition", "records", "size", "first offset", "end offset", "oldest", "newest"),
    (_SILENT, _SKEWED, _FILLED, _EMPTY),
    ranges=("first offset", "end offset"),
    sums=("records",),
)
_SEVERAL, _ONE = "about several partitions", "about one partition"
_WARNINGS = Kind((), (_SEVERAL, _ONE), noun="warning")


def show_times(admin: Admin, topic: str, *, shows_all: bool, as_json: bool) -> None:
    """Look up and print the records, size, offsets, oldest and newest time of each partition, then timestamp skew.

    With `as_json`, print one JSON object. Raises UnknownTopicOrPartitionError, and ClickException if a leader did not
    answer, after all others are printed.
    """
    from tidelog.client.admin.timestamp_skew import find_skew

    partitions, kind = admin.describe_times(topic), admin.describe_cluster().kind
    skews = find_skew(partitions, SystemClock().now_ms())
    if as_json:
        warnings = [{"kind": each.kind, "partitions": each.partitions, "text": each.text} for each in skews]
        shown = {"topic": topic, "cluster": kind, "partitions": list(map(_as_json, partitions)), "warnings": warnings}
        click.echo(json.dumps(shown))
    else:
        skewed = {number for each in skews for number in each.partitions}
        rows = {each.partition: _row(each, each.partition in skewed) for each in partitions}
        empty = [each.partition for each in partitions if each.error is None and not each.records]
        show_partitions(_PARTITIONS, rows, empty, shows_all=shows_all)
        click.echo(f"cluster: {kind}")
        warned = [Row((f"tidelog: {each.text}",), _SEVERAL if len(each.partitions) > 1 else _ONE) for each in skews]
        show_rows(_WARNINGS, warned, shows_all=shows_all, err=True)
    raise_if_unanswered({TopicPartition(topic, each.partition): each.error for each in partitions}, len(partitions))


def _row(each: PartitionTimes, is_skewed: bool) -> Row:
    oldest, newest = (
        None if record is None else format_time(record.timestamp) for record in (each.oldest, each.newest)
    )
    offsets = each.log_start_offset, each.end_offset
    size = None if each.size_bytes is None else Quantity(format_size(each.size_bytes))
    cells = (each.partition, each.records, size, *offsets, oldest, newest)
    state = _SILENT if each.error else _SKEWED if is_skewed else _FILLED if each.records else _EMPTY
    return Row(cells, state, each.records or 0, each.partition)


def _as_json(each: PartitionTimes) -> dict[str, object]:
    return {
        "partition": each.partition,
        "records": each.records,
        "bytes": each.size_bytes,
        "log_start_offset": each.log_start_offset,
        "end_offset": each.end_offset,
        "oldest": _record(each.oldest),
        "newest": _record(each.newest),
        "error": str(each.error) if each.error else None,
    }


def _record(record: RecordTime | None) -> dict[str, int] | None:
    return None if record is None else {"offset": record.offset, "timestamp": record.timestamp}
