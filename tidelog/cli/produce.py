"""`tidelog produce`: lines in, acknowledged records out."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Literal

import click

from tidelog.cli.advice import next_step
from tidelog.cli.find import bootstrap_option, find_cluster, timeout_option
from tidelog.cli.names import TOPIC
from tidelog.cli.progress import Progress
from tidelog.cli.record_lines import OutgoingRecord, parse_json, parse_plain, read_lines
from tidelog.errors import MessageTooLargeError, TidelogError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from tidelog.producer import Producer
    from tidelog.record_future import RecordFuture

#: No record of any topic may be larger; a topic's own `max.message.bytes` is usually far below.
MOST_RECORD_BYTES = 32 << 20
_MOST_JSON_LINE_BYTES = 2 * MOST_RECORD_BYTES
_SETTLE_EVERY = 1_000
_LARGER = " (tidelog topic create --config max.message.bytes=BYTES makes a topic for larger ones)"


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument("files", nargs=-1, type=click.File("rb"), metavar="[FILE]…")
@bootstrap_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="Lines, or lossless JSON lines as tidelog consume writes them.",
)
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option("--key-separator", metavar="TEXT", help="Each line is a key, this, and a value.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Send everything to this partition.")
@click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True, help="What to wait for."
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="How each batch of records is compressed.",
)
@timeout_option
def produce(
    topic: str,
    files: tuple[BinaryIO, ...],
    bootstrap_servers: str | None,
    form: str,
    key_separator: str | None,
    partition: int | None,
    acks: Literal["all", "1", "0"],
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"],
    timeout: float,
) -> None:
    """Write each line of the FILEs, or of standard input, to TOPIC as one record.

    Succeeds once every record was acknowledged. A line keeps its bytes, except for the newline at its end.
    """
    if key_separator == "":
        raise click.BadParameter("must not be empty", param_hint="'--key-separator'")
    if form == "json" and key_separator is not None:
        raise click.UsageError("--key-separator is for lines: a JSON line has its own key", click.get_current_context())
    servers = find_cluster(bootstrap_servers)

    from tidelog.producer import Producer

    separator = None if key_separator is None else key_separator.encode(errors="surrogateescape")
    parse = parse_json if form == "json" else lambda line: parse_plain(line, separator)
    most_bytes = _MOST_JSON_LINE_BYTES if form == "json" else MOST_RECORD_BYTES
    timeout_ms = round(timeout * 1000)
    with Producer(
        servers,
        client_id="tidelog-produce",
        acks=acks,
        compression_type=compression,
        max_request_size=MOST_RECORD_BYTES,
        max_block_ms=timeout_ms,
        delivery_timeout_ms=timeout_ms,
        bootstrap_timeout_ms=min(timeout_ms, 5_000),
    ) as producer:
        _require_topic(producer, topic, partition)
        delivery = Delivery(producer, topic, partition)
        try:
            with Progress("sent", shown=_progress_wanted(files)) as progress:
                for file, number, line in _lines(files, most_bytes):
                    try:
                        delivery.send(parse(line))
                    except (ValueError, UnknownTopicOrPartitionError) as error:
                        raise _at(file, number, error) from None
                    progress.advance(1, len(line))
            delivery.finish()
        except (TidelogError, ValueError, Undelivered, KeyboardInterrupt) as error:
            raise delivery.explain(error) from None


class Undelivered(Exception):
    """What became of a record that was sent some lines ago."""


class Delivery:
    """Sends lines in order, stops at the first that cannot be delivered, and knows how many were acknowledged."""

    def __init__(self, producer: Producer, topic: str, partition: int | None) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._open: deque[RecordFuture] = deque()
        self._sent = 0
        self._acknowledged = 0

    def send(self, record: OutgoingRecord) -> None:
        """Buffers the record; raises what became of an earlier one, too."""
        future = self._producer.send(
            self._topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition if self._partition is None else self._partition,
            timestamp_ms=record.timestamp_ms,
        )
        self._open.append(future)
        self._sent += 1
        if not self._sent % _SETTLE_EVERY:
            self._settle()

    def finish(self) -> None:
        """Waits for every outcome."""
        self._producer.flush()
        self._settle()

    def explain(self, error: BaseException) -> BaseException:
        """The error with what was and was not delivered, after what is under way has had its chance."""
        if isinstance(error, KeyboardInterrupt):
            self._producer.close(2.0)
        else:
            self._producer.flush()
        while self._open:
            self._acknowledged += self._open.popleft().succeeded()
        tally = f"{self._acknowledged} of the {self._sent} records sent were acknowledged"
        if isinstance(error, KeyboardInterrupt):
            return KeyboardInterrupt(f"interrupted: {tally}")
        hint = next_step(error) if isinstance(error, TidelogError) else ""
        return click.ClickException(f"{str(error) or type(error).__name__}{hint}; {tally}")

    def _settle(self) -> None:
        while self._open and self._open[0].done():
            future = self._open.popleft()
            try:
                future.get()
            except TidelogError as error:
                hint = _LARGER if isinstance(error, MessageTooLargeError) else next_step(error)
                raise Undelivered(f"record {self._acknowledged + 1}: {error}{hint}") from None
            self._acknowledged += 1


def _require_topic(producer: Producer, topic: str, partition: int | None) -> None:
    try:
        partitions = producer.partitions_for(topic)
    except UnknownTopicOrPartitionError:
        raise click.ClickException(f"no topic {topic!r}: create it with tidelog topic create {topic}") from None
    if partition is not None and partition not in partitions:
        last = max(partitions)
        raise click.ClickException(f"topic {topic!r} has no partition {partition}: its partitions are 0 to {last}")


def _lines(files: tuple[BinaryIO, ...], most_bytes: int) -> Iterator[tuple[BinaryIO, int, bytes]]:
    """Each line with its file and number; ValueError and OSError name both."""
    for file in files or (_standard_input(),):
        number = 0
        try:
            for line in read_lines(file, most_bytes):
                number += 1
                yield file, number, line
        except (ValueError, OSError) as error:
            raise _at(file, number + 1, error) from None


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise click.ClickException("standard input is closed: pipe lines in, or name a file")
    return sys.stdin.buffer


def _at(file: BinaryIO, number: int, error: ValueError | OSError | UnknownTopicOrPartitionError) -> ValueError:
    name = getattr(file, "name", 0)
    reason = error.strerror if isinstance(error, OSError) else error
    named = isinstance(name, str) and name != "<stdin>"
    return ValueError(f"{name if named else 'standard input'}, line {number}: {reason}")


def _progress_wanted(files: tuple[BinaryIO, ...]) -> bool | None:
    """Not where somebody types the lines: the progress would be written into them."""
    typed = not files and sys.stdin is not None and sys.stdin.isatty()
    return False if typed else None
