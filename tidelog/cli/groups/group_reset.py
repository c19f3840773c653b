"""`tidelog group reset`: where a group is to go on; it shows what would change, and does it with `--execute`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import tzinfo
from itertools import groupby
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import (
    describe_group_patiently,
    open_admin,
    unknown_group,
    unknown_partition,
    unknown_topic,
)
from tidelog.cli.commands import Command
from tidelog.cli.common_options import bootstrap_option, json_option, timeout_option
from tidelog.cli.consent import execute_option, note_dry_run
from tidelog.cli.name_types import GROUP, TOPIC_CHOICE, TopicChoice
from tidelog.cli.terminal.table import format_table
from tidelog.cli.terminal.times import TIME_HELP, time_or_misused, timezone_option
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

_WAYS = "--to-time, --by-duration, --to-offset, --shift-by, --to-earliest, --to-latest and --to-current"


@click.command(cls=Command)
@click.argument("name", metavar="GROUP", type=GROUP)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1]",
    type=TOPIC_CHOICE,
    multiple=True,
    help="In this topic, or these partitions of it; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="In every partition that the group has committed something for.")
@click.option("--to-time", "--to-datetime", "to_time", metavar="TIME", help=f"The first record since: {TIME_HELP}.")
@timezone_option
@click.option("--by-duration", metavar="TIME", help="The same, so long ago: 90s, 30m, 1h, 7d, or as PT1H30M.")
@click.option("--to-offset", type=click.IntRange(0, 2**63 - 1), metavar="N", help="This offset.")
@click.option("--shift-by", type=click.IntRange(-(2**63), 2**63 - 1), metavar="N", help="N records further, or back.")
@click.option("--to-earliest", is_flag=True, help="The first record that is still there.")
@click.option("--to-latest", is_flag=True, help="What comes after the last record.")
@click.option("--to-current", is_flag=True, help="Where it is, as far as that is still in the log.")
@execute_option
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
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Move GROUP to other offsets: say where, and one way to say whereto. Its members must be stopped.

    Shows the old and the new offset of each partition, and the time of the record there; nothing is changed without
    --execute. What lies outside of a log becomes its start or its end, and that is said. A group that does not exist
    is made, where a topic is named.
    """
    target = _target(to_time, zone, by_duration, to_offset, shift_by, to_earliest, to_latest, to_current)
    if bool(topics) == all_topics:
        raise click.UsageError("say where: --topic TOPIC[:0,1], or --all-topics")
    with open_admin(bootstrap_servers, timeout) as admin:
        partitions = None if all_topics else _partitions(admin, topics)
        describe_group_patiently(admin, name, timeout)  # prints what it waits for; the reset itself prints nothing
        try:
            plan = admin.reset_consumer_group_offsets(name, target, partitions, execute=execute)
        except GroupIdNotFoundError:
            raise unknown_group(name) from None
        except NonEmptyGroupError as error:
            raise click.ClickException(f"{error}; tidelog group describe {name} --members shows them") from None
    if as_json:
        told = [_as_json(tp, each) for tp, each in sorted(plan.items())]
        click.echo(json.dumps({"group": name, "executed": execute, "partitions": told}))
    else:
        _show(plan)
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
        ways.append(ToTime(time_or_misused(to_time, "--to-time", zone)))
    if by_duration is not None:
        ways.append(ToTime(_ago(by_duration)))
    if to_offset is not None:
        ways.append(ToOffset(to_offset))
    if shift_by is not None:
        ways.append(ShiftBy(shift_by))
    ways += [
        way for said, way in ((to_earliest, ToEarliest()), (to_latest, ToLatest()), (to_current, ToCurrent())) if said
    ]
    if len(ways) != 1:
        raise click.UsageError(f"say one of {_WAYS}" + (f", not {len(ways)} of them" if ways else ""))
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


def _show(plan: Plan) -> None:
    """Print a row for each partition, but one line for all empty partitions of a topic whose offset stays the same."""
    rows, lines = [], []
    for topic, resets in groupby(sorted(plan.items()), key=lambda each: each[0].topic):
        in_topic = list(resets)
        still = [tp.partition for tp, each in in_topic if _stays_in_an_empty_log(each)]
        if len(still) < SUMMED_UP_FROM:
            still = []
        else:
            lines.append(f"{topic}: {empty_text(still, len(in_topic))}, and the group stays at their end")
        rows += [_row(tp, each) for tp, each in in_topic if tp.partition not in still]
    for line in (
        format_table(("topic", "partition", "old", "new", "change", "time there", "note"), rows) if rows else ()
    ):
        click.echo(line)
    for line in lines:
        click.echo(line)


def _stays_in_an_empty_log(reset: OffsetReset) -> bool:
    from tidelog.groups.reset import Adjustment

    return reset.adjustment is Adjustment.EMPTY and reset.new_offset == (reset.old_offset or 0)


def _refuse_errors(plan: Plan) -> None:
    refused = {tp: each.error for tp, each in plan.items() if each.error is not None}
    if refused:
        tp, error = next(iter(refused.items()))
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
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
        Adjustment.BEFORE_LOG_START: "every record is younger: the log's start",
        Adjustment.PAST_END: "every record is older: the log's end",
        Adjustment.EMPTY: "there is no record: the log's end",
        Adjustment.NOTHING_COMMITTED: "nothing was committed: the log's end",
    }[reset.adjustment]


def _row(tp: TopicPartition, reset: OffsetReset) -> tuple[object, ...]:
    old, new = reset.old_offset, reset.new_offset
    change = None if old is None or new is None else new - old
    there = None if reset.new_time is None else format_time(reset.new_time)
    return (*tp, old, new, change, there, _note(reset))


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
