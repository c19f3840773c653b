"""`tidelog topic describe --times`: shows the records, time span and timestamp skew of each partition."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import raise_if_unanswered
from tidelog.cli.terminal.table import Quantity
from tidelog.cli.topics.partition_notes import format_partitions
from tidelog.clock import SystemClock
from tidelog.model import TopicPartition
from tidelog.quantities import format_size
from tidelog.timestamps import format_time

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.topic_time_spans import PartitionTimes
    from tidelog.records import RecordTime


def show_times(admin: Admin, topic: str, *, as_json: bool) -> None:
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
        headings = ("partition", "records", "size", "first offset", "end offset", "oldest", "newest")
        rows = {each.partition: _row(each) for each in partitions}
        empty = [each.partition for each in partitions if each.error is None and not each.records]
        for line in format_partitions(headings, rows, empty):
            click.echo(line)
        click.echo(f"cluster: {kind}")
        for each in skews:
            click.echo(f"tidelog: {each.text}", err=True)
    raise_if_unanswered({TopicPartition(topic, each.partition): each.error for each in partitions}, len(partitions))


def _row(each: PartitionTimes) -> tuple[object, ...]:
    oldest, newest = (
        None if record is None else format_time(record.timestamp) for record in (each.oldest, each.newest)
    )
    offsets = each.log_start_offset, each.end_offset
    size = None if each.size_bytes is None else Quantity(format_size(each.size_bytes))
    return each.partition, each.records, size, *offsets, oldest, newest


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
