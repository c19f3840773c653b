"""`tidelog offsets`: shows the first offset at or after a time in each partition, or why there is none."""

from __future__ import annotations

import json
from datetime import tzinfo

import click

from tidelog.cli.admin_factory import raise_if_unanswered, unknown_topic
from tidelog.cli.commands import Command
from tidelog.cli.common_options import all_option, bootstrap_option, find_cluster, json_option, timeout_option
from tidelog.cli.name_types import TOPIC
from tidelog.cli.terminal.long_tables import Kind, Row
from tidelog.cli.terminal.times import TIME_HELP, time_or_usage_error, timezone_option
from tidelog.cli.terminal.waiting import Waiting
from tidelog.cli.topics.offsets_before import show_offsets_before, target_of
from tidelog.cli.topics.partition_notes import show_partitions
from tidelog.model import NoOffset, OffsetAndTimestamp, OffsetOutcome, TopicPartition
from tidelog.timestamps import format_time

#: The reasons why a look-up found no offset, as users read them.
_REASONS = {
    NoOffset.EMPTY: "the partition holds no record",
    NoOffset.PAST_END: "every record is older",
    NoOffset.ABOVE_HIGH_WATERMARK: "only records above the high watermark are that late",
}
#: The note of an answer whose record is newer than the requested time because it is the first record of the log.
_BEFORE_LOG_START = "before_log_start"
_FIRST_OFFSET = 0
_FOUND = "found"
#: What a partition counts as in the summary of a long table, the worst state first.
_STATES: dict[str, str] = {
    NoOffset.REFUSED: "that refused",
    NoOffset.RETRY: "that did not answer",
    NoOffset.ABOVE_HIGH_WATERMARK: "above the high watermark",
    _BEFORE_LOG_START: "that begin later",
    NoOffset.PAST_END: "that end earlier",
    _FOUND: "with an offset",
    NoOffset.EMPTY: "empty",
}
_PARTITIONS = Kind(("partition", "offset", "time of its record", "note"), tuple(_STATES.values()), ranges=("offset",))


@click.command(cls=Command)
@click.argument("topic", type=TOPIC)
@click.option("--at", metavar="TIME", help=f"{TIME_HELP}.")
@click.option(
    "--before",
    metavar="TIME",
    help="Instead of --at: show where segments begin that were last written by TIME; also `latest` or `earliest`.",
)
@click.option(
    "--max",
    "most",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    default=1,
    show_default=True,
    help="With --before: show at most N offsets of each partition, the newest first.",
)
@timezone_option
@all_option
@json_option
@bootstrap_option
@timeout_option
def offsets(
    topic: str,
    at: str | None,
    before: str | None,
    most: int,
    zone: tzinfo | None,
    shows_all: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """For each partition of TOPIC, show the first offset whose record has this timestamp or a later one.

    A partition without such a record shows the reason instead. Exit status 1 if a partition's leader did not answer;
    the other partitions are shown.

    With --before, show the first offsets of segments, as tools did before records had timestamps. All records before
    the first of these offsets were written by the time.
    """
    if (at is None) == (before is None):
        raise click.UsageError("give exactly one of --at TIME and --before TIME")
    timestamp_ms = target_of(before, zone) if before is not None else time_or_usage_error(at or "", "--at", zone)
    servers = find_cluster(bootstrap_servers)

    from tidelog.client.consumer.consumer import Consumer

    timeout_ms = round(timeout * 1000)
    with Consumer(
        bootstrap_servers=servers,
        client_id="tidelog-offsets",
        default_api_timeout_ms=timeout_ms,
        bootstrap_timeout_ms=min(timeout_ms, 5_000),
    ) as consumer:
        with Waiting():
            numbers = consumer.partitions_for_topic(topic)
        if numbers is None:
            raise unknown_topic(topic)
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        if before is not None:
            show_offsets_before(consumer, topic, partitions, timestamp_ms, most, shows_all=shows_all, as_json=as_json)
            return
        with Waiting():
            outcomes = consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms), partial=True)
            found = [tp for tp in partitions if outcomes[tp].found]
            oldest = consumer.offsets_for_times(dict.fromkeys(found, 0), partial=True)
    first = {tp for tp in found if outcomes[tp].found == oldest[tp].found}
    too_new = {tp for tp in first if (answer := outcomes[tp].found) and answer.timestamp > timestamp_ms}
    if as_json:
        answers = [_as_json(tp, outcomes[tp], tp in too_new) for tp in partitions]
        click.echo(json.dumps({"topic": topic, "timestamp": timestamp_ms, "partitions": answers}))
    else:
        empty = [tp.partition for tp in partitions if outcomes[tp].reason is NoOffset.EMPTY]
        rows = {tp.partition: _row(tp, outcomes[tp], tp in too_new) for tp in partitions}
        show_partitions(_PARTITIONS, rows, empty, shows_all=shows_all)
    raise_if_unanswered({tp: each.error for tp, each in outcomes.items()}, len(outcomes))


def _row(tp: TopicPartition, outcome: OffsetOutcome, before_log_start: bool) -> Row:
    answer = outcome.found
    if answer is not None:
        note = f"{_BEFORE_LOG_START}: {_older_records_text(answer)}" if before_log_start else None
        state = _STATES[_BEFORE_LOG_START if before_log_start else _FOUND]
        return Row((tp.partition, answer.offset, format_time(answer.timestamp), note), state, 0, tp.partition)
    assert outcome.reason is not None
    reason = _REASONS.get(outcome.reason) or str(outcome.error)
    note = f"{outcome.reason}: {reason}"
    return Row((tp.partition, None, None, note), _STATES[outcome.reason], 0, tp.partition)


def _older_records_text(oldest: OffsetAndTimestamp) -> str:
    return "older records were deleted" if oldest.offset > _FIRST_OFFSET else "there was never an older record"


def _as_json(tp: TopicPartition, outcome: OffsetOutcome, before_log_start: bool) -> dict[str, object]:
    answer = outcome.found
    return {
        "partition": tp.partition,
        "offset": answer.offset if answer else None,
        "timestamp": answer.timestamp if answer else None,
        "leader_epoch": answer.leader_epoch if answer else None,
        "before_log_start": before_log_start,
        "reason": outcome.reason,
        "error": str(outcome.error) if outcome.error else None,
    }
