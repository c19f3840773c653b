"""`tidelog offsets --before`: shows where segments begin that were last written by a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

import click

from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.cli.terminal.times import time_or_usage_error
from tidelog.cli.terminal.waiting import Waiting
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from tidelog.client.consumer.consumer import Consumer

_NONE, _FOUND = "without such a segment", "with an offset"
_PARTITIONS = Kind(("partition", "offsets", "note"), (_NONE, _FOUND))
_ENDS = {"latest": LATEST_TIMESTAMP, "earliest": EARLIEST_TIMESTAMP}


def target_of(before: str, zone: tzinfo | None) -> int:
    """Return the time (ms) that --before names, or −1 for `latest`, −2 for `earliest`.

    BadParameter for another text.
    """
    return _ENDS[before] if before in _ENDS else time_or_usage_error(before, "--before", zone)


def show_offsets_before(
    consumer: Consumer,
    topic: str,
    partitions: Sequence[TopicPartition],
    target: int,
    most: int,
    *,
    shows_all: bool,
    as_json: bool,
) -> None:
    """Look up and print, for each partition, at most `most` first offsets of segments last written by `target`.

    `target` is a result of `target_of`. The offsets are in descending order; with `as_json`, print one JSON object.
    """
    with Waiting():
        offsets = consumer.offsets_before(dict.fromkeys(partitions, target), most)
    if as_json:
        answers = [{"partition": tp.partition, "offsets": offsets[tp]} for tp in partitions]
        click.echo(json.dumps({"topic": topic, "before": target, "partitions": answers}))
        return
    rows = []
    for tp in partitions:
        note = None if offsets[tp] else "every segment was written later: start at the earliest offset"
        cells = (tp.partition, ", ".join(map(str, offsets[tp])) or None, note)
        rows.append(Row(cells, _FOUND if offsets[tp] else _NONE, 0, tp.partition))
    show_rows(_PARTITIONS, rows, shows_all=shows_all)
