"""`tidelog group describe`: shows a group's committed offsets, its lag and its members."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import describe_group_with_notice, open_admin, raise_if_unanswered, unknown_group
from tidelog.cli.commands import Command
from tidelog.cli.common_options import Seconds, all_option, bootstrap_option, json_option, timeout_option
from tidelog.cli.name_types import GROUP
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.cli.terminal.table import format_table
from tidelog.cli.terminal.waiting import Waiting
from tidelog.clock import SystemClock
from tidelog.model import TopicPartition
from tidelog.quantities import count_of, first_of, ranges_of

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.groups.descriptions import ConsumerGroupDescription, MemberDescription
    from tidelog.groups.lag import PartitionLag

    Lags = Mapping[TopicPartition, PartitionLag]

_LONGEST_RATE_S = 3600.0
_STATE_HEADINGS = ("group", "state", "coordinator", "assignor", "members")
#: What a row counts as in the summary of a long table, the worst state first.
_SILENT, _UNREAD, _PAST_END = "that did not answer", "with records deleted unread", "past the log's end"
_UNCOMMITTED, _BEHIND, _CAUGHT_UP = "with nothing committed", "behind", "caught up"
_IDLE, _BUSY = "of members without partitions", "of members with partitions"
_HEADINGS = ("topic", "partition", "committed", "log end", "lag", "seconds")
_RATE_HEADINGS = ("committed/s", "written/s")
_OWNER_HEADINGS = ("member", "host", "note")
_STATES = (_SILENT, _UNREAD, _PAST_END, _IDLE, _UNCOMMITTED, _BEHIND, _CAUGHT_UP)
_PARTITIONS = Kind((*_HEADINGS, *_OWNER_HEADINGS), _STATES, "row", ("seconds",), ("lag",))
_PARTITIONS_WITH_RATES = Kind(
    (*_HEADINGS, *_RATE_HEADINGS, *_OWNER_HEADINGS), _STATES, "row", ("seconds",), ("lag", *_RATE_HEADINGS)
)
_MEMBERS = Kind(
    ("member", "instance", "client", "host", "partitions", "assignment", "note"),
    (_IDLE, _BUSY),
    noun="row",
    sums=("partitions",),
)
#: A cell names at most this many topics, and as many numbers and ranges of partitions of each.
_MOST_NAMED = 20
_NEVER_JOINED = "has never joined: the coordinator gave out this id, and no consumer has joined with it yet"


@click.command(cls=Command)
@click.argument("name", metavar="GROUP", type=GROUP)
@click.option("--members", is_flag=True, help="Show the group's members instead.")
@click.option("--state", is_flag=True, help="Show the group's state and coordinator instead.")
@click.option(
    "--rate",
    "rate_s",
    type=Seconds(0.1, _LONGEST_RATE_S),
    metavar="SECONDS",
    help="Measure for this long, and show how many records per second are committed and written.",
)
@all_option
@json_option
@bootstrap_option
@timeout_option
def describe(
    name: str,
    members: bool,
    state: bool,
    rate_s: float | None,
    shows_all: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Show the committed offsets and the lag of GROUP.

    The lag is the number of records from the committed offset to the end. SECONDS is the age of the first of these
    records, and 0 if there is none. Exit status 1 if a partition did not answer; the other partitions are shown.
    """
    if sum((members, state, rate_s is not None)) > 1:
        raise click.UsageError("give at most one of --members, --state and --rate")
    with open_admin(bootstrap_servers, timeout) as admin:
        from tidelog.groups.descriptions import ConsumerGroupState

        described = describe_group_with_notice(admin, name, timeout)
        if described.state is ConsumerGroupState.DEAD:
            raise unknown_group(name)
        if members:
            _show_members(described, as_json, shows_all=shows_all)
        elif state:
            _show_state(described, str(admin.describe_cluster().brokers.get(described.coordinator)), as_json)
        else:
            rates = None if rate_s is None else _rates(admin, name, rate_s)
            _show_partitions(described, admin.consumer_group_lag(name), rates, as_json, shows_all=shows_all)


# --- partitions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rate:
    """The records per second by which the committed and the log end offset of a partition rose.

    None if the offset was unknown before or after.
    """

    committed: float | None
    written: float | None


def _rates(admin: Admin, name: str, wait_s: float) -> dict[TopicPartition, _Rate]:
    clock = SystemClock()
    began_ms, before = clock.monotonic_ms(), admin.consumer_group_lag(name)
    with Waiting("watching the group"):
        time.sleep(wait_s)
    ended_ms, after = clock.monotonic_ms(), admin.consumer_group_lag(name)
    seconds = (ended_ms - began_ms) / 1000

    def rate(old: int | None, new: int | None) -> float | None:
        return None if old is None or new is None else round((new - old) / seconds, 1)

    return {
        tp: _Rate(
            rate(before[tp].committed_offset, each.committed_offset),
            rate(before[tp].log_end_offset, each.log_end_offset),
        )
        for tp, each in after.items()
        if tp in before
    }


def _show_partitions(
    described: ConsumerGroupDescription,
    lags: Lags,
    rates: Mapping[TopicPartition, _Rate] | None,
    as_json: bool,
    *,
    shows_all: bool = False,
) -> None:
    owners = {tp: member for member in described.members for tp in member.assignment or ()}
    idle = [member for member in described.members if not member.assignment]
    if as_json:
        known = [each.lag for each in lags.values() if each.lag is not None]
        late = [each.lag_ms / 1000 for each in lags.values() if each.lag_ms is not None]
        fields = {
            "group": described.group_id,
            "state": described.state.value,
            "lag": sum(known),
            "lag_seconds": max(late, default=None),
            "partitions": [_as_json(tp, each, owners.get(tp), rates) for tp, each in lags.items()],
            "members_without_partitions": [_member_as_json(each, described) for each in idle],
            "never_joined": list(described.pending_member_ids),
        }
        click.echo(json.dumps(fields))
    else:
        for line in format_table(_STATE_HEADINGS, [_state_row(described)]):
            click.echo(line)
        click.echo()
        kind = _PARTITIONS if rates is None else _PARTITIONS_WITH_RATES
        rows = [_row(tp, each, owners.get(tp), rates) for tp, each in lags.items()]
        no_partition = (None,) * (len(kind.headings) - len(_OWNER_HEADINGS))
        without: list[tuple[object, ...]] = [
            (each.member_id, each.host, _why_without_partitions(each, described)) for each in idle
        ]
        without += [(member_id, None, _NEVER_JOINED) for member_id in described.pending_member_ids]
        rows += [Row((*no_partition, *cells), _IDLE) for cells in without]
        show_rows(kind, rows, shows_all=shows_all)
    raise_if_unanswered({tp: each.error for tp, each in lags.items()}, len(lags))


def _row(
    tp: TopicPartition,
    lag: PartitionLag,
    owner: MemberDescription | None,
    rates: Mapping[TopicPartition, _Rate] | None,
) -> Row:
    seconds = None if lag.lag_ms is None else lag.lag_ms // 1000
    at = (tp.topic, tp.partition, lag.committed_offset, lag.log_end_offset, lag.lag, seconds)
    rate = (rates or {}).get(tp, _Rate(None, None))
    speeds = () if rates is None else (rate.committed, rate.written)
    cells = (*at, *speeds, owner and owner.member_id, owner and owner.host, _note(lag))
    return Row(cells, _state(lag), math.inf if lag.lag is None else lag.lag)


def _state(lag: PartitionLag) -> str:
    from tidelog.groups.lag import Standing

    if lag.error is not None:
        return _SILENT
    match lag.standing:
        case Standing.NOTHING_COMMITTED:
            return _UNCOMMITTED
        case Standing.BELOW_LOG_START:
            return _UNREAD
        case Standing.PAST_LOG_END:
            return _PAST_END
    return _BEHIND if lag.lag else _CAUGHT_UP


def _note(lag: PartitionLag) -> str | None:
    from tidelog.groups.lag import Standing

    if lag.error is not None:
        return str(lag.error)
    match lag.standing:
        case Standing.NOTHING_COMMITTED:
            return "nothing committed"
        case Standing.BELOW_LOG_START:
            assert lag.committed_offset is not None and lag.log_start_offset is not None
            gone = count_of(lag.log_start_offset - lag.committed_offset, "record")
            return f"the log starts at {lag.log_start_offset}: {gone} deleted unread"
        case Standing.PAST_LOG_END:
            return "past the log's end"
    return None


def _as_json(
    tp: TopicPartition,
    lag: PartitionLag,
    owner: MemberDescription | None,
    rates: Mapping[TopicPartition, _Rate] | None,
) -> dict[str, object]:
    fields: dict[str, object] = {
        "topic": tp.topic,
        "partition": tp.partition,
        "committed_offset": lag.committed_offset,
        "log_start_offset": lag.log_start_offset,
        "log_end_offset": lag.log_end_offset,
        "lag": lag.lag,
        "lag_seconds": None if lag.lag_ms is None else lag.lag_ms / 1000,
        "standing": lag.standing,
        "member_id": owner.member_id if owner else None,
        "client_id": owner.client_id if owner else None,
        "host": owner.host if owner else None,
        "error": str(lag.error) if lag.error else None,
    }
    if rates is not None:
        rate = rates.get(tp, _Rate(None, None))
        fields |= {"committed_per_second": rate.committed, "written_per_second": rate.written}
    return fields


# --- members and state -------------------------------------------------------------------------------


def _show_members(described: ConsumerGroupDescription, as_json: bool, *, shows_all: bool = False) -> None:
    if as_json:
        fields = {
            "group": described.group_id,
            "state": described.state.value,
            "members": [_member_as_json(each, described) for each in described.members],
            "never_joined": list(described.pending_member_ids),
        }
        click.echo(json.dumps(fields))
        return
    rows = [_member_row(each, described, shows_all) for each in described.members]
    never = [(member_id, None, None, None, None, None, _NEVER_JOINED) for member_id in described.pending_member_ids]
    show_rows(_MEMBERS, [*rows, *(Row(cells, _IDLE) for cells in never)], shows_all=shows_all)


def _member_row(member: MemberDescription, group: ConsumerGroupDescription, shows_all: bool) -> Row:
    assigned = member.assignment
    cells = (
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.host,
        None if assigned is None else len(assigned),
        _by_topic(assigned or (), shows_all) or None,
        None if assigned else _why_without_partitions(member, group),
    )
    return Row(cells, _BUSY if assigned else _IDLE, len(assigned or ()))


def _member_as_json(member: MemberDescription, group: ConsumerGroupDescription) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "topics": None if member.topics is None else list(member.topics),
        "assignment": None if member.assignment is None else [tp._asdict() for tp in member.assignment],
        "stage": member.stage,
        "note": None if member.assignment else _why_without_partitions(member, group),
    }


def _why_without_partitions(member: MemberDescription, group: ConsumerGroupDescription) -> str:
    """Return why a member has no partitions as a clause for the column of notes, as far as its coordinator knows."""
    from tidelog.groups.descriptions import ConsumerGroupState
    from tidelog.protocol.group_messages import MemberStage

    preparing = group.state is ConsumerGroupState.PREPARING_REBALANCE
    match member.stage:
        case MemberStage.AWAITED if preparing:
            return "has not rejoined since the rebalance began: it does so in its next poll"
        case MemberStage.AWAITED:
            return "has not asked for its partitions yet: it does so in its next poll"
        case MemberStage.WAITING if preparing:
            return "waits until every member has rejoined"
        case MemberStage.WAITING:
            return "waits for its partitions"
    if member.assignment is None:
        return "its assignment is unknown"
    topics = first_of(member.topics or (), _MOST_NAMED) or "nothing"
    return f"has no partitions; subscribed to {topics}"


def _by_topic(partitions: tuple[TopicPartition, ...], shows_all: bool) -> str:
    """Return the partitions in one line; of many, ranges of the numbers, and some of the topics."""
    most = len(partitions) if shows_all else _MOST_NAMED
    numbers: dict[str, list[int]] = {}
    for tp in partitions:
        numbers.setdefault(tp.topic, []).append(tp.partition)
    texts = [f"{topic}:{ranges_of(each, most).replace(', ', ',')}" for topic, each in numbers.items()]
    left = len(texts) - most
    return " ".join(texts[:most]) + (f" and {count_of(left, 'more topic')}" if left > 0 else "")


def _show_state(described: ConsumerGroupDescription, address: str, as_json: bool) -> None:
    if as_json:
        fields = {
            "group": described.group_id,
            "state": described.state.value,
            "type": "simple" if described.is_simple_consumer_group else described.protocol_type,
            "assignor": described.partition_assignor or None,
            "coordinator": described.coordinator,
            "coordinator_address": address,
            "members": len(described.members),
        }
        click.echo(json.dumps(fields))
        return
    for line in format_table(_STATE_HEADINGS, [_state_row(described, f" ({address})")]):
        click.echo(line)


def _state_row(described: ConsumerGroupDescription, address: str = "") -> tuple[object, ...]:
    return (
        described.group_id,
        described.state.value,
        f"{described.coordinator}{address}",
        described.partition_assignor or None,
        len(described.members),
    )
