"""`tidelog produce`: reads lines and sends each as a record."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

import click

from tidelog.cli.admin_factory import unknown_partition
from tidelog.cli.commands import Command
from tidelog.cli.common_options import bootstrap_option, find_cluster, timeout_option
from tidelog.cli.name_types import TOPIC
from tidelog.cli.records.delivery import Delivery, InputLine, UndeliveredLine
from tidelog.cli.records.record_lines import LineSource, OutgoingRecord, parse_json, parse_plain, read_lines
from tidelog.cli.terminal.progress import Progress
from tidelog.cli.terminal.waiting import Waiting
from tidelog.errors import TidelogError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from tidelog.client.producer.producer import Producer

#: The limit for a record of any topic; a topic's own `max.message.bytes` is usually far below.
MOST_RECORD_BYTES = 32 << 20
_MOST_JSON_LINE_BYTES = 2 * MOST_RECORD_BYTES


@click.command(cls=Command)
@click.argument("topic", type=TOPIC)
@click.argument("files", nargs=-1, type=click.File("rb"), metavar="[FILE]…")
@bootstrap_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json"]),
    help="Plain lines, or lossless JSON lines as tidelog consume writes them [default: lines; json if --json is given]",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Write the summary to standard output as one JSON object, and read JSON lines unless --format lines is given.",
)
@click.option("--quiet", is_flag=True, help="Write no summary to standard error.")
@click.option("--key-separator", metavar="TEXT", help="Split each line into key and value at the first TEXT.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Send all records to this partition.")
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Which replicas must acknowledge: all in sync, only the leader (1), or none (0).",
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
    form: str | None,
    as_json: bool,
    quiet: bool,
    key_separator: str | None,
    partition: int | None,
    acks: Literal["all", "1", "0"],
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"],
    timeout: float,
) -> None:
    """Write each line of the FILEs, or of standard input, to TOPIC as one record.

    The command succeeds when every record is acknowledged, and prints a summary on standard error: records, bytes and
    offsets. A line keeps its bytes, except for the newline at its end.
    """
    form = form or ("json" if as_json else "lines")
    if key_separator == "":
        raise click.BadParameter("must not be empty", param_hint="'--key-separator'")
    if form == "json" and key_separator is not None:
        raise click.UsageError("--key-separator is for lines: a JSON line has its own key", click.get_current_context())
    servers = find_cluster(bootstrap_servers)

    from tidelog.client.producer.producer import Producer

    parse = _parser(form, key_separator)
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
                for place, lines in _read(files, most_bytes):
                    if parse is None:
                        delivery.send_values(place, lines)
                    else:
                        delivery.send_parsed(place, lines, parse)
                    progress.advance(len(lines), sum(map(len, lines)))
            with Waiting("waiting for the records to be acknowledged"):
                delivery.finish()
        except (TidelogError, ValueError, UndeliveredLine, KeyboardInterrupt) as error:
            explained = delivery.explain(error)
            if as_json:
                click.echo(json.dumps(delivery.summary.as_json()))
            raise explained from None
    if as_json:
        click.echo(json.dumps(delivery.summary.as_json()))
    elif not quiet:
        click.echo(delivery.summary.as_text(acknowledged=acks != "0"), err=True)


def _parser(form: str, key_separator: str | None) -> Callable[[bytes], OutgoingRecord] | None:
    """Return the function that makes a record of a line, and raises ValueError; None if each line is a value."""
    if form == "json":
        return parse_json
    if key_separator is None:
        return None
    separator = key_separator.encode(errors="surrogateescape")
    return lambda line: parse_plain(line, separator)


def _require_topic(producer: Producer, topic: str, partition: int | None) -> None:
    try:
        with Waiting():
            partitions = producer.partitions_for(topic)
    except UnknownTopicOrPartitionError:
        raise click.ClickException(f"no topic {topic!r}: create it with tidelog topic create {topic}") from None
    if partition is not None and partition not in partitions:
        raise unknown_partition(topic, partition, partitions)


def _read(files: tuple[BinaryIO, ...], most_bytes: int) -> Iterator[tuple[InputLine, list[bytes]]]:
    """Yield the lines of each read, with the place of the first line; no files means standard input.

    Raises UndeliveredLine if a line cannot be read, or is longer than `most_bytes`.
    """
    for file in files or (_standard_input(),):
        place = InputLine(_name(file), 1)
        try:
            for lines in read_lines(cast(LineSource, file), most_bytes):
                yield place, lines
                place = place.after(len(lines))
        except ValueError as error:
            raise UndeliveredLine(place, str(error)) from None
        except OSError as error:
            raise UndeliveredLine(place, error.strerror or str(error)) from None


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise click.ClickException("standard input is closed: pipe lines to the command, or name a file")
    return sys.stdin.buffer


def _name(file: BinaryIO) -> str:
    name = getattr(file, "name", 0)
    return name if isinstance(name, str) and name != "<stdin>" else "standard input"


def _progress_wanted(files: tuple[BinaryIO, ...]) -> bool | None:
    """Return False if the user types the lines on a terminal, because the progress would be written between them.

    Return None otherwise, so that Progress decides.
    """
    typed = not files and sys.stdin is not None and sys.stdin.isatty()
    return False if typed else None
