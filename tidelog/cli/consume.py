"""`tidelog consume`: a topic's records out, as lines or JSON lines."""

from __future__ import annotations

import os
import sys
from datetime import tzinfo
from typing import TYPE_CHECKING, BinaryIO

import click

from tidelog.cli.admins import unknown_partition, unknown_topic
from tidelog.cli.find import bootstrap_option, find_cluster, timeout_option
from tidelog.cli.names import TOPIC
from tidelog.cli.progress import Progress
from tidelog.cli.reader import stop_if_nobody_reads
from tidelog.cli.record_lines import format_json, format_plain
from tidelog.cli.span import Span, resolve_span
from tidelog.cli.times import TIME_HELP, position_or_misused, timezone_option
from tidelog.clock import SystemClock
from tidelog.model import TopicPartition
from tidelog.records import MAX_DECOMPRESSED_BYTES, MOST_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from tidelog.consumer import Consumer
    from tidelog.fetch_buffer import ConsumerRecord

_POLL_MS = 500
_POLL_RECORDS = 10_000
#: While nothing comes, how often to make sure that the cluster is still there.
_ASSURE_EVERY_MS = 5_000


@click.command()
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
@click.option("--until", "end", metavar="WHERE", help="Stop before this, said as in --from [default: the present end]")
@timezone_option
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option("--follow", is_flag=True, help="Go on with what is still to come, until Ctrl-C.")
@click.option(
    "--partition",
    "only",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this one; may be repeated.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="Values, a newline behind each; or lossless JSON lines, which tidelog produce takes back.",
)
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option(
    "--max-decompressed-batch-bytes",
    type=click.IntRange(1, MOST_DECOMPRESSED_BYTES),
    default=MAX_DECOMPRESSED_BYTES,
    metavar="N",
    help="Refuse a batch whose records have more bytes than that when decompressed [default: 128 MiB, at most 1 GiB]",
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
    form: str,
    max_decompressed_batch_bytes: int,
    timeout: float,
) -> None:
    """Write TOPIC's records to standard output: those that are there now, and then stop.

    Records of one partition come in order; partitions take turns. Of a time, the first record counts that has it or
    a later one; where a partition then starts at its oldest record or at its end, a line on standard error says so.
    """
    first = position_or_misused(start, "--from", zone)
    last = None if end is None else position_or_misused(end, "--until", zone)
    if follow and last is not None:
        raise click.UsageError("--follow has no end: leave out --until", click.get_current_context())
    servers = find_cluster(bootstrap_servers)

    from tidelog.consumer import Consumer

    timeout_ms = round(timeout * 1000)
    with Consumer(
        servers,
        client_id="tidelog-consume",
        auto_offset_reset="none",
        max_decompressed_batch_bytes=max_decompressed_batch_bytes,
        default_api_timeout_ms=timeout_ms,
        bootstrap_timeout_ms=min(timeout_ms, 5_000),
    ) as consumer:
        partitions = _partitions(consumer, topic, only)
        span = resolve_span(consumer, partitions, first, last, follow=follow, exact=bool(only))
        for note in span.notes:
            click.echo(f"tidelog: {note}", err=True)
        with Progress("read", shown=_progress_wanted()) as progress:
            sink = _Sink(sys.stdout.buffer, form, progress)
            _copy(consumer, span, sink, count, timeout_ms)


def _copy(consumer: Consumer, span: Span, sink: _Sink, count: int | None, timeout_ms: int) -> None:
    clock = SystemClock()
    unread = span.unread
    consumer.assign(unread)
    for tp, offset in unread.items():
        consumer.seek(tp, offset)
    left = sys.maxsize if count is None else count
    last_progress_ms = clock.monotonic_ms()
    while unread and left:
        arrived = consumer.poll(_POLL_MS, min(left, _POLL_RECORDS))
        now_ms = clock.monotonic_ms()
        if not arrived:
            stop_if_nobody_reads()
            if span.ends is None and now_ms - last_progress_ms > min(_ASSURE_EVERY_MS, timeout_ms):
                consumer.end_offsets(unread)
                last_progress_ms = now_ms
            elif now_ms - last_progress_ms > timeout_ms:
                missing = ", ".join(map(str, unread))
                raise click.ClickException(
                    f"nothing came from {missing} for {timeout_ms / 1000:g} s: see tidelog status"
                )
            continue
        last_progress_ms = now_ms
        for tp, records in arrived.items():
            if span.ends is not None and records[-1].offset >= span.ends[tp]:
                records = [record for record in records if record.offset < span.ends[tp]]
            sink.write(records)
            left -= len(records)
        sink.flush()
        if span.ends is not None:
            done = [tp for tp in arrived if consumer.position(tp) >= span.ends[tp]]
            if done:
                unread = {tp: offset for tp, offset in unread.items() if tp not in done}
                consumer.assign(unread)


class _Sink:
    def __init__(self, stream: BinaryIO, form: str, progress: Progress) -> None:
        self._stream = stream
        self._json = form == "json"
        self._progress = progress

    def write(self, records: list[ConsumerRecord]) -> None:
        lines = b"".join(
            [_json(each) for each in records] if self._json else [format_plain(each.value) for each in records]
        )
        self._stream.write(lines)
        self._progress.advance(len(records), len(lines))

    def flush(self) -> None:
        self._stream.flush()


def _json(record: ConsumerRecord) -> bytes:
    return format_json(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        timestamp_type=record.timestamp_type,
        leader_epoch=record.leader_epoch,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )


def _partitions(consumer: Consumer, topic: str, only: tuple[int, ...]) -> list[TopicPartition]:
    known = consumer.partitions_for_topic(topic)
    if known is None:
        raise unknown_topic(topic)
    for number in only:
        if number not in known:
            raise unknown_partition(topic, number, known)
    return [TopicPartition(topic, number) for number in sorted(set(only) or known)]


def _progress_wanted() -> bool | None:
    """Not where the records themselves go to the terminal."""
    return False if os.isatty(sys.stdout.fileno()) else None
