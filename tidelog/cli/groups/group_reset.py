"""`tidelog group reset`: shows where a group would continue to read; `--execute` commits these offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import tzinfo
from itertools import groupby
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import (
    describe_group_with_notice,
    open_admin,
    unknown_group,
    unknown_partition,
    unknown_topic,
)
from tidelog.cli.commands import Command
from tidelog.cli.common_options import all_option, bootstrap_option, json_option, timeout_option
from tidelog.cli.consent import execute_option, note_dry_run
from tidelog.cli.name_types import GROUP, TOPIC_CHOICE, TopicChoice
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.cli.terminal.times import TIME_HELP, time_or_usage_error, timezone_option
from tidelog.cli.topics.partition_notes import SUMMED_UP_FROM, empty_text
from tidelog.clock import SystemClock
from tidelog.errors import GroupIdNotFoundError, NonEmptyGroupError, UnknownTopicOrPartitionError
from tidelog.model import TopicPartition
from tidelog.time_parsing import parse_time
from tidelog.timestamps import LARGEST_TIMESTAMP_MS, format_time

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.groups.reset import OffsetReset, ResetTarget

    Plan = Mapping[TopicPartition, OffsetReset]

_FAILED, _ADJUSTED, _MOVED, _STAYS = "that failed", "with an adjusted offset", "that move", "that stay"
_PARTITIONS = Kind(
    ("topic", "partition", "old", "new", "change", "time there", "note"),
    (_FAILED, _ADJUSTED, _MOVED, _STAYS),
    sums=("change",),
)
_WAYS = "--to-time, --by-duration, --to-offset, --shift-by, --to-earliest, --to-latest and --to-current"


@click.command(cls=Command)
@click.argument("name", metavar="GROUP", type=GROUP)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1]",
    type=TOPIC_CHOICE,
    multiple=True,
    help="Reset this topic, or these partitions of it; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="Reset every partition that has a committed offset of the group.")
@click.option(
    "--to-time", "--to-datetime", "to_time", metavar="TIME", help=f"To the first record at or after TIME: {TIME_HELP}."
)
@timezone_option
@click.option(
    "--by-duration", metavar="TIME", help="To the first record of this long ago or later: 90s, 30m, 1h, 7d, or PT1H30M."
)
@click.option("--to-offset", type=click.IntRange(0, 2**63 - 1), metavar="N", help="To this offset.")
@click.option(
    "--shift-by",
    type=click.IntRange(-(2**63), 2**63 - 1),
    metavar="N",
    help="By N records forward, or back if N is negative.",
)
@click.option("--to-earliest", is_flag=True, help="To the first record in the log.")
@click.option("--to-latest", is_flag=True, help="To the end of the log.")
@click.option("--to-current", is_flag=True, help="To the committed offset itself, if it is still in the log.")
@execute_option
@all_option
@json_option
@bootstrap_option
@timeout_option
def reset(
    name: str,
    topics: tuple[TopicChoice, ...],
    all_topics: bool,
    to_time: str | None,
    zone: tzinfo | None,
    by_duration: str | None,
    to_offset: int | None,
    shift_by: int | None,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    execute: bool,
    shows_all: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Move GROUP to other offsets. The members of GROUP must be stopped.

    Name the topics, and one of the --to, --by and --shift options. The command shows the old and the new offset of each
    partition, and the time of the record there, and changes nothing without --execute. An offset outside of a log
    becomes the start or the end of the log, and a note says so. A group that does not exist is created if a topic is
    named.
    """
    target = _target(to_time, zone, by_duration, to_offset, shift_by, to_earliest, to_latest, to_current)
    if bool(topics) == all_topics:
        raise click.UsageError("give --topic TOPIC[:0,1] or --all-topics")
    with open_admin(bootstrap_servers, timeout) as admin:
        partitions = None if all_topics else _partitions(admin, topics)
        describe_group_with_notice(admin, name, timeout)  # prints that it waits, which the reset itself does not
        try:
            plan = admin.reset_consumer_group_offsets(name, target, partitions, execute=execute)
        except GroupIdNotFoundError:
            raise unknown_group(name) from None
        except NonEmptyGroupError as error:
            raise click.ClickException(f"{error}; tidelog group describe {name} --members shows them") from None
    if as_json:
        partitions_json = [_as_json(tp, each) for tp, each in sorted(plan.items())]
        click.echo(json.dumps({"group": name, "executed": execute, "partitions": partitions_json}))
    else:
        _show(plan, shows_all)
    _refuse_errors(plan)
    if not execute and not as_json:
        note_dry_run()


def _target(
    to_time: str | None,
    zone: tzinfo | None,
    by_duration: str | None,
    to_offset: int | None,
    shift_by: int | None,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
) -> ResetTarget:
    from tidelog.groups.reset import ShiftBy, ToCurrent, ToEarliest, ToLatest, ToOffset, ToTime

    ways: list[ResetTarget] = []
    if to_time is not None:
        ways.append(ToTime(time_or_usage_error(to_time, "--to-time", zone)))
    if by_duration is not None:
        ways.append(ToTime(_ago(by_duration)))
    if to_offset is not None:
        ways.append(ToOffset(to_offset))
    if shift_by is not None:
        ways.append(ShiftBy(shift_by))
    ways += [
        way
        for chosen, way in ((to_earliest, ToEarliest()), (to_latest, ToLatest()), (to_current, ToCurrent()))
        if chosen
    ]
    if len(ways) != 1:
        raise click.UsageError(f"give exactly one of {_WAYS}" + (f", not {len(ways)} of them" if ways else ""))
    return ways[0]


def _ago(text: str) -> int:
    from tidelog.client.consumer.reset_strategy import BY_DURATION, parse_strategy

    now_ms = SystemClock().now_ms()
    try:
        if text[:1] in ("P", "p"):
            return parse_strategy(f"{BY_DURATION}{text}", now_ms).target_ms(now_ms) or 0
        return max(0, now_ms - (LARGEST_TIMESTAMP_MS - parse_time(f"-{text.removeprefix('-')}", LARGEST_TIMESTAMP_MS)))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a duration, such as 90s, 30m, 1h, 7d or PT1H30M", param_hint="'--by-duration'"
        ) from None


def _partitions(admin: Admin, topics: tuple[TopicChoice, ...]) -> list[TopicPartition]:
    found: dict[TopicPartition, None] = {}
    for choice in topics:
        try:
            known = [each.partition for each in admin.describe_topics([choice.topic])[0].partitions]
        except UnknownTopicOrPartitionError:
            raise unknown_topic(choice.topic) from None
        for number in known if choice.numbers is None else choice.numbers:
            if number not in known:
                raise unknown_partition(choice.topic, number, known)
            found[TopicPartition(choice.topic, number)] = None
    return list(found)


def _show(plan: Plan, shows_all: bool) -> None:
    """Print a row for each partition, sorted; a topic's empty partitions whose offset stays share one line below the
    table.

    A single such partition has a row as the others, and with `shows_all` each has one.
    """
    rows, lines = [], []
    for topic, resets in groupby(sorted(plan.items()), key=lambda each: each[0].topic):
        in_topic = list(resets)
        unchanged = [tp.partition for tp, each in in_topic if _stays_in_an_empty_log(each)]
        if shows_all or len(unchanged) < SUMMED_UP_FROM:
            unchanged = []
        else:
            lines.append(f"{topic}: {empty_text(unchanged, len(in_topic))}, and the group stays at their end")
        rows += [_row(tp, each) for tp, each in in_topic if tp.partition not in unchanged]
    if rows:
        show_rows(_PARTITIONS, rows, shows_all=shows_all)
    for line in lines:
        click.echo(line)


def _stays_in_an_empty_log(reset: OffsetReset) -> bool:
    from tidelog.groups.reset import Adjustment

    return reset.adjustment is Adjustment.EMPTY and reset.new_offset == (reset.old_offset or 0)


def _refuse_errors(plan: Plan) -> None:
    errors = {tp: each.error for tp, each in plan.items() if each.error is not None}
    if errors:
        tp, error = next(iter(errors.items()))
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        where = "" if str(tp) in str(error) else f"{tp}: "
        raise click.ClickException(f"{where}{error}{more}")


def _note(reset: OffsetReset) -> str | None:
    from tidelog.groups.reset import Adjustment

    if reset.error is not None:
        return str(reset.error)
    return {
        None: None,
        Adjustment.LOG_START: "the log starts there",
        Adjustment.LOG_END: "the log ends there",
        Adjustment.BEFORE_LOG_START: "every record is newer: the first record",
        Adjustment.PAST_END: "every record is older: the log's end",
        Adjustment.EMPTY: "there is no record: the log's end",
        Adjustment.NOTHING_COMMITTED: "nothing was committed: the log's end",
    }[reset.adjustment]


def _row(tp: TopicPartition, reset: OffsetReset) -> Row:
    old, new = reset.old_offset, reset.new_offset
    change = None if old is None or new is None else new - old
    time = None if reset.new_time is None else format_time(reset.new_time)
    state = _FAILED if reset.error else _ADJUSTED if reset.adjustment else _MOVED if change else _STAYS
    return Row((*tp, old, new, change, time, _note(reset)), state, abs(change or 0))


def _as_json(tp: TopicPartition, reset: OffsetReset) -> dict[str, object]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "old_offset": reset.old_offset,
        "new_offset": reset.new_offset,
        "old_timestamp": reset.old_time,
        "new_timestamp": reset.new_time,
        "adjustment": reset.adjustment,
        "error": str(reset.error) if reset.error else None,
    }
