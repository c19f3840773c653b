"""`tidelog topic reassign`: moves partitions to other replicas."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import open_admin, unknown_topic
from tidelog.cli.commands import Command
from tidelog.cli.common_options import all_option, bootstrap_option, json_option, timeout_option
from tidelog.cli.consent import refuse_losses, yes_option
from tidelog.cli.name_types import BROKER_ID, TOPIC
from tidelog.cli.reassignments.changes import StartedChange, lost_replicas, target_replicas
from tidelog.cli.reassignments.draining import drain
from tidelog.cli.reassignments.following import follow
from tidelog.cli.reassignments.progress import IN_PROGRESS, NOT_KNOWN, Progress, least_ms, sizes_of, total_left
from tidelog.cli.reassignments.throttle import (
    ANSWER_MS,
    RATE,
    current_throttle,
    moves_of,
    remove_throttle,
    set_throttle,
)
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.cli.topics.partitions import require_partitions
from tidelog.clock import SystemClock
from tidelog.errors import (
    DisconnectedError,
    RequestTimedOutError,
    TidelogError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.quantities import format_duration, format_size, plural

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.admin_results import PartitionDescription, TopicDescription

Described = Mapping[TopicPartition, "PartitionDescription"]

#: The errors after which a requested reassignment may have begun.
_OUTCOME_UNKNOWN = (DisconnectedError, RequestTimedOutError, TimeoutError)
InProgress = Mapping[TopicPartition, Progress]

_MOVE = re.compile(r"[0-9]{1,9}:[0-9]{1,9}(,[0-9]{1,9})*", re.ASCII)
_CHANGES = Kind((), ("in progress", "cancelled", "done"), noun="change")


@click.command(cls=Command)
@click.argument("name", metavar="[TOPIC]", type=TOPIC, required=False)
@click.option(
    "--replicas",
    "moves",
    multiple=True,
    metavar="P:ID,ID…",
    help="The new replicas of partition P of TOPIC, the preferred leader first; may be repeated.",
)
@click.option(
    "--drain-broker",
    "drained",
    type=BROKER_ID,
    multiple=True,
    metavar="ID",
    help="Move all replicas away from this broker; may be repeated.",
)
@click.option("--cancel", is_flag=True, help="Cancel the reassignments in progress, and remove their throttle.")
@click.option("--status", is_flag=True, help="Only show the reassignments in progress.")
@click.option(
    "--throttle",
    type=RATE,
    metavar="RATE",
    help="Send and receive at most so much on each broker, such as 10MB/s. Implies --wait.",
)
@click.option("--wait", "waits", is_flag=True, help="Wait for the end of the reassignments, and remove their throttle.")
@yes_option
@all_option
@json_option
@bootstrap_option
@timeout_option
def reassign(
    name: str | None,
    moves: tuple[str, ...],
    drained: tuple[int, ...],
    cancel: bool,
    status: bool,
    throttle: int | None,
    waits: bool,
    yes: bool,
    shows_all: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Move partitions to other brokers: those of TOPIC, or of all topics.

    Shows the changes and the reassignments in progress. A new replica first copies the records. An old replica is
    removed when all new ones are in sync. A partition gets fewer replicas than it has only with --yes.

    --throttle limits the copying, not the replicas that are in sync. Ctrl-C ends only the command: the reassignments
    continue, and the throttle stays. To change the rate, repeat the command with another rate. To remove the throttle
    at the end, run it with --status --wait.
    """
    if sum((bool(moves), bool(drained), cancel, status)) != 1:
        raise click.UsageError("give exactly one of --replicas, --drain-broker, --cancel and --status")
    if moves and name is None:
        raise click.UsageError("--replicas needs a TOPIC")
    if throttle and (cancel or status):
        raise click.UsageError("--throttle needs --replicas or --drain-broker; repeat that command to change the rate")
    wanted = dict(map(_move, moves))
    if len(wanted) < len(moves):
        raise click.BadParameter("a partition is named twice", param_hint="'--replicas'")
    with open_admin(bootstrap_servers, timeout) as admin:
        described = _describe(admin, None if name is None else [name])
        topics = {tp.topic for tp in described}
        moving = {tp: each for tp, each in admin.list_partition_reassignments().items() if tp in described}
        assignment = {tp: target_replicas(each, moving.get(tp)) for tp, each in described.items()}
        cluster = admin.describe_cluster()
        changes: Mapping[TopicPartition, Sequence[int] | None] = {}
        replicas: Mapping[TopicPartition, Sequence[int]] = {}
        if cancel:
            changes = dict.fromkeys(moving)
        elif drained:
            try:
                changes = replicas = drain(assignment, drained, cluster.brokers, cluster.racks)
            except ValueError as error:
                raise click.ClickException(str(error)) from None
        elif name is not None and wanted:
            before = {tp.partition: each for tp, each in assignment.items()}
            require_partitions(name, before, wanted)
            _require_brokers(cluster.brokers, wanted)
            if not yes:
                refuse_losses(lost_replicas(name, before, wanted))
            changes = replicas = {TopicPartition(name, number): each for number, each in wanted.items()}
        with _throttle_removed_after_error(admin, topics if throttle else ()):
            if throttle:
                held = {tp: each.replicas for tp, each in described.items()}
                adding = {tp: set(each.adding_replicas) & set(assignment[tp]) for tp, each in moving.items()}
                set_throttle(admin, throttle, moves_of(held, replicas, adding))
        if changes:
            with _throttle_removed_after_error(admin, topics if throttle else (), unless=_OUTCOME_UNKNOWN):
                admin.alter_partition_reassignments(changes)
        progress = _progress(admin, name)
        started = [StartedChange(tp, assignment[tp], each) for tp, each in sorted(changes.items())]
        rate = throttle or current_throttle(admin, cluster.brokers)
        if not as_json:
            _show(name, drained, started, progress, rate, shows_all)
        if rate and not (progress or waits or throttle or cancel):
            text = f"a throttle of {format_size(rate)}/s is set: tidelog topic reassign --status --wait removes it"
            click.echo(text, err=True)
        if waits or throttle:
            progress = follow(progress, lambda: _progress(admin, name), SystemClock(), time.sleep)
        if (waits or throttle or cancel) and remove_throttle(admin, topics) and not as_json:
            click.echo("the throttle is removed")
    if as_json:
        reassignments = [each.as_json() for each in progress.values()]
        changed = [each.as_json(progress) for each in started]
        click.echo(json.dumps({"topic": name, "changes": changed, "reassignments": reassignments, "throttle": rate}))


def _describe(admin: Admin, topics: Collection[str] | None) -> Described:
    """Return the partitions of the topics, or of all. Raises ClickException if one of the topics does not exist."""
    try:
        return _partitions(admin.describe_topics(topics))
    except UnknownTopicOrPartitionError:
        raise unknown_topic(", ".join(topics or ())) from None


def _partitions(described: Iterable[TopicDescription]) -> Described:
    return {TopicPartition(topic.topic, each.partition): each for topic in described for each in topic.partitions}


def _progress(admin: Admin, name: str | None) -> InProgress:
    """Return the reassignments in progress of the topic, or of all topics.

    The controller's list decides which ones are in progress. The broker that describes the topics may not know one of
    them yet. Then all topics are shown without what this broker knows.
    """
    moving = {tp: each for tp, each in admin.list_partition_reassignments().items() if name in (None, tp.topic)}
    if not moving:
        return {}
    try:
        sizes = sizes_of(admin.describe_log_dirs(timeout_ms=ANSWER_MS))
    except TidelogError:  # one broker that does not answer must not end the command
        sizes = {}
    try:
        described = _partitions(admin.describe_topics({tp.topic for tp in moving} & set(admin.list_topics())))
    except UnknownTopicOrPartitionError:  # the topic was listed by another broker, or deleted since
        described = {}
    return {tp: Progress.of(tp, each, described.get(tp), sizes) for tp, each in sorted(moving.items())}


@contextmanager
def _throttle_removed_after_error(
    admin: Admin, topics: Collection[str], *, unless: tuple[type[TidelogError], ...] = ()
) -> Iterator[None]:
    """Remove the throttle of these topics after an error, except after those of `unless`."""
    try:
        yield
    except TidelogError as error:
        if topics and isinstance(error, unless):
            text = "the reassignments may have begun, so that the throttle stays"
            click.echo(f"{text}: tidelog topic reassign --status --wait removes it", err=True)
        elif topics:
            with suppress(TidelogError):
                remove_throttle(admin, topics)
        raise


def _require_brokers(live: Collection[int], wanted: Mapping[int, Sequence[int]]) -> None:
    """Raise ClickException if a partition is to have a replica on a broker that is not in the cluster now."""
    for number, replicas in sorted(wanted.items()):
        for broker in replicas:
            if broker not in live:
                known = ", ".join(map(str, sorted(live)))
                raise click.ClickException(
                    f"partition {number}: broker {broker} is not in the cluster now (there are: {known})"
                )


def _show(
    name: str | None,
    drained: Collection[int],
    started: Sequence[StartedChange],
    progress: InProgress,
    rate: int | None,
    shows_all: bool,
) -> None:
    changes = [
        Row((each.sentence(progress),), each.state(progress), 0, None if name is None else each.partition.partition)
        for each in started
    ]
    show_rows(_CHANGES, changes, shows_all=shows_all)
    if progress:
        rows = [each.as_row(names_topic=name is None) for each in progress.values()]
        show_rows(IN_PROGRESS, rows, shows_all=shows_all)
        click.echo(_rest(progress, rate))
    elif not started:
        click.echo(_nothing(name, drained))


def _rest(progress: InProgress, rate: int | None) -> str:
    """Return what is left to copy, and how long it takes at least with this throttle."""
    left = total_left(progress.values())
    if left is None:
        return f"still to copy: {NOT_KNOWN}"
    text = f"still to copy: {format_size(left)}"
    if rate is None:
        return text
    least = format_duration(least_ms(progress.values(), rate))
    return f"{text}; each broker sends and receives at most {format_size(rate)}/s, so at least {least} more"


def _nothing(name: str | None, drained: Collection[int]) -> str:
    if not drained:
        return f"no partition{f' of {name}' if name else ''} is being reassigned"
    ids = sorted(set(drained))
    have = plural(len(ids), "has", "have")
    return f"{plural(len(ids), 'broker')} {', '.join(map(str, ids))} {have} no replica{f' of {name}' if name else ''}"


def _move(text: str) -> tuple[int, tuple[int, ...]]:
    if not _MOVE.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not P:ID,ID… such as 0:1,2,3", param_hint="'--replicas'")
    number, _, ids = text.partition(":")
    replicas = tuple(map(int, ids.split(",")))
    if len(set(replicas)) < len(replicas):
        raise click.BadParameter(f"{text!r} names a broker twice", param_hint="'--replicas'")
    return int(number), replicas
