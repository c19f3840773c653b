"""`tidelog consume`: writes a topic's records as lines or JSON lines."""

from __future__ import annotations

import os
import signal
import sys
from datetime import tzinfo
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import unknown_partition, unknown_topic
from tidelog.cli.commands import Command
from tidelog.cli.common_options import bootstrap_option, find_cluster, timeout_option
from tidelog.cli.name_types import GROUP, TOPIC
from tidelog.cli.records.consume_loop import SpanReading, write_records
from tidelog.cli.records.consume_range import refuse_reversed, resolve_ends, resolve_span
from tidelog.cli.records.group_share import SESSION_TIMEOUT_MS, GroupReading, offset_reset_of
from tidelog.cli.records.output import RecordWriter
from tidelog.cli.terminal.interrupts import interrupted_by
from tidelog.cli.terminal.progress import Progress
from tidelog.cli.terminal.times import TIME_HELP, position_or_usage_error, timezone_option
from tidelog.cli.terminal.waiting import Waiting
from tidelog.clock import SystemClock
from tidelog.model import TopicPartition
from tidelog.records import MAX_DECOMPRESSED_BYTES, MOST_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from tidelog.client.consumer.consumer import Consumer


@click.command(cls=Command)
@click.argument("topic", type=TOPIC)
@bootstrap_option
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    default="beginning",
    show_default=True,
    help=f"beginning, end, an offset, or a time: {TIME_HELP}.",
)
@click.option(
    "--until", "end", metavar="WHERE", help="Stop before this position, in the same form [default: the current end]"
)
@timezone_option
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option("--follow", is_flag=True, help="Keep reading new records until Ctrl-C.")
@click.option(
    "--partition",
    "only",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Read only this partition; may be repeated.",
)
@click.option(
    "--group",
    type=GROUP,
    metavar="GROUP",
    help="Join this group: start at its committed offsets, and commit the offsets of written records.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="lines: each value and a newline. json: lossless JSON lines, which tidelog produce reads.",
)
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option(
    "--max-decompressed-batch-bytes",
    type=click.IntRange(1, MOST_DECOMPRESSED_BYTES),
    default=MAX_DECOMPRESSED_BYTES,
    metavar="N",
    help="Fail at a batch whose decompressed records have more bytes than this [default: 128 MiB, at most 1 GiB]",
)
@timeout_option
def consume(
    topic: str,
    bootstrap_servers: str | None,
    start: str,
    end: str | None,
    zone: tzinfo | None,
    count: int | None,
    follow: bool,
    only: tuple[int, ...],
    group: str | None,
    form: str,
    max_decompressed_batch_bytes: int,
    timeout: float,
) -> None:
    """Write the records that TOPIC holds now to standard output.

    Records of one partition come in order; partitions take turns. A time stands for the first record with this
    timestamp or a later one. Notes on standard error name the partitions that start at their oldest record or at their
    end instead, and say why there is nothing to read. Exit status 1 if a partition has deleted the offset of --from, or
    if the offset is past the end of all partitions (with --partition or --follow: of one).

    With --group, the members of GROUP share the partitions, and each member starts at the committed offsets. --from
    applies to partitions without a committed offset. Offsets are committed after the records were written, also on
    Ctrl-C.
    """
    first = position_or_usage_error(start, "--from", zone)
    last = None if end is None else position_or_usage_error(end, "--until", zone)
    refuse_reversed(first, last)
    if follow and last is not None:
        raise click.UsageError("--follow has no end: leave out --until", click.get_current_context())
    if group is not None and only:
        raise click.UsageError("--group shares the partitions among its members: leave out --partition")
    servers = find_cluster(bootstrap_servers)

    from tidelog.client.consumer.consumer import Consumer

    timeout_ms = round(timeout * 1000)
    # A member that is killed keeps its partitions until its session times out, so that it must leave the group first.
    handled_signals = () if group is None else (signal.SIGTERM, signal.SIGHUP)
    with (
        interrupted_by(*handled_signals),
        Consumer(
            bootstrap_servers=servers,
            client_id="tidelog-consume",
            group_id=group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            enable_auto_commit=False,
            auto_offset_reset="none" if group is None else offset_reset_of(first),
            max_decompressed_batch_bytes=max_decompressed_batch_bytes,
            default_api_timeout_ms=timeout_ms,
            bootstrap_timeout_ms=min(timeout_ms, 5_000),
        ) as consumer,
        Progress("read", shown=_progress_wanted()) as progress,
    ):
        partitions = _partitions(consumer, topic, only)
        writer = RecordWriter(sys.stdout.buffer, form, progress)
        if group is not None:
            with Waiting():
                ends, notes = (None, ()) if follow else resolve_ends(consumer, partitions, last)
            for note in notes:
                click.echo(f"tidelog: {note}", err=True)
            with GroupReading(consumer, topic, ends) as share:
                write_records(consumer, share, writer, count, timeout_ms, max_decompressed_batch_bytes)
            if ends is not None and not progress.records:
                click.echo(
                    "tidelog: nothing to read: the group has already read every record of the partitions assigned here",
                    err=True,
                )
            return
        with Waiting():
            span = resolve_span(
                consumer, partitions, first, last, follow=follow, exact=bool(only), now_ms=SystemClock().now_ms()
            )
        for note in span.notes:
            click.echo(f"tidelog: {note}", err=True)
        write_records(consumer, SpanReading(consumer, span), writer, count, timeout_ms, max_decompressed_batch_bytes)


def _partitions(consumer: Consumer, topic: str, only: tuple[int, ...]) -> list[TopicPartition]:
    with Waiting():
        known = consumer.partitions_for_topic(topic)
    if known is None:
        raise unknown_topic(topic)
    for number in only:
        if number not in known:
            raise unknown_partition(topic, number, known)
    return [TopicPartition(topic, number) for number in sorted(set(only) or known)]


def _progress_wanted() -> bool | None:
    """Return False if the records themselves go to a terminal; else None, so that Progress decides."""
    return False if os.isatty(sys.stdout.fileno()) else None
