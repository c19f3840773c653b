"""`tidelog topic reassign`: moves partitions to other replicas."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import open_admin
from tidelog.cli.commands import Command
from tidelog.cli.common_options import all_option, bootstrap_option, json_option, timeout_option
from tidelog.cli.consent import refuse_losses, yes_option
from tidelog.cli.name_types import BROKER_ID, TOPIC
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.cli.topics.draining import drain
from tidelog.cli.topics.partitions import describe_partitions, require_partitions
from tidelog.model import TopicPartition
from tidelog.quantities import MOST_NAMED, count_of, plural, ranges_of

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.admin_results import PartitionDescription
    from tidelog.protocol.partition_messages import PartitionReassignment

_MOVE = re.compile(r"[0-9]{1,9}:[0-9]{1,9}(,[0-9]{1,9})*", re.ASCII)
_CHANGES = Kind((), ("in progress", "cancelled", "done"), noun="change")
_COPYING, _COPIED = "with records to copy", "that only wait for the controller"
_IN_PROGRESS = Kind(("partition", "isr", "adding", "removing", "still to copy"), (_COPYING, _COPIED))


@click.command(cls=Command)
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--replicas",
    "moves",
    multiple=True,
    metavar="P:ID,ID…",
    help="The new replicas of partition P, the preferred leader first; may be repeated.",
)
@click.option(
    "--drain-broker",
    "drained",
    type=BROKER_ID,
    multiple=True,
    metavar="ID",
    help="Move all replicas away from this broker; may be repeated.",
)
@click.option("--cancel", is_flag=True, help="Cancel the reassignments in progress.")
@click.option("--status", is_flag=True, help="Only show the reassignments in progress.")
@yes_option
@all_option
@json_option
@bootstrap_option
@timeout_option
def reassign(
    name: str,
    moves: tuple[str, ...],
    drained: tuple[int, ...],
    cancel: bool,
    status: bool,
    yes: bool,
    shows_all: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Move partitions to other brokers.

    Shows the changes and the reassignments in progress. A new replica first copies the records. An old replica is
    removed when all new ones are in sync. A partition gets fewer replicas than it has only with --yes.
    """
    if sum((bool(moves), bool(drained), cancel, status)) != 1:
        raise click.UsageError("give exactly one of --replicas, --drain-broker, --cancel and --status")
    wanted = dict(map(_move, moves))
    if len(wanted) < len(moves):
        raise click.BadParameter("a partition is named twice", param_hint="'--replicas'")
    with open_admin(bootstrap_servers, timeout) as admin:
        described = describe_partitions(admin, name)
        tps = {each.partition: TopicPartition(name, each.partition) for each in described}
        moving = {tp.partition: each for tp, each in admin.list_partition_reassignments(tps.values()).items()}
        assignment = {each.partition: target_replicas(each, moving.get(each.partition)) for each in described}
        changes: Mapping[int, Sequence[int] | None] = {}
        if cancel:
            changes = dict.fromkeys(moving)
        elif drained:
            changes = _drained(admin, assignment, drained)
        elif wanted:
            require_partitions(name, assignment, wanted)
            _require_brokers(admin.describe_cluster().brokers, wanted)
            if not yes:
                refuse_losses(lost_replicas(name, assignment, wanted))
            changes = wanted
        if changes:
            admin.alter_partition_reassignments({tps[number]: replicas for number, replicas in changes.items()})
        in_progress = admin.list_partition_reassignments(tps.values())
        now = {each.partition: each for each in describe_partitions(admin, name)}
    progress = {tp.partition: Progress.of(each, now[tp.partition]) for tp, each in sorted(in_progress.items())}
    started = [StartedChange(number, assignment[number], replicas) for number, replicas in sorted(changes.items())]
    if as_json:
        reassignments = [each.as_json() for each in progress.values()]
        changed = [each.as_json(progress) for each in started]
        click.echo(json.dumps({"topic": name, "changes": changed, "reassignments": reassignments}))
    elif started or progress:
        _show(name, started, progress, shows_all)
    else:
        click.echo(_nothing(name, drained))


def _require_brokers(live: Collection[int], wanted: Mapping[int, Sequence[int]]) -> None:
    """Raise ClickException if a partition is to have a replica on a broker that is not in the cluster now."""
    for number, replicas in sorted(wanted.items()):
        for broker in replicas:
            if broker not in live:
                known = ", ".join(map(str, sorted(live)))
                raise click.ClickException(
                    f"partition {number}: broker {broker} is not in the cluster now (there are: {known})"
                )


def _drained(
    admin: Admin, assignment: Mapping[int, Sequence[int]], drained: Collection[int]
) -> Mapping[int, Sequence[int]]:
    """Return, by partition, the new replicas of the partitions that have replicas on drained brokers.

    Raises ClickException if too few other brokers are alive, or if a drained broker is unknown.
    """
    try:
        cluster = admin.describe_cluster()
        return drain(assignment, drained, cluster.brokers, cluster.racks)
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def _show(name: str, started: Sequence[StartedChange], progress: Mapping[int, Progress], shows_all: bool) -> None:
    changes = [
        Row((f"{name}/{each.partition}: {each.sentence(progress)}",), each.state(progress), 0, each.partition)
        for each in started
    ]
    show_rows(_CHANGES, changes, shows_all=shows_all)
    if progress:
        show_rows(_IN_PROGRESS, [each.as_row() for each in progress.values()], shows_all=shows_all)


def target_replicas(described: PartitionDescription, moving: PartitionReassignment | None) -> tuple[int, ...]:
    """Return the replicas that the partition will have after its reassignment; its current ones if there is none."""
    removing = moving.removing_replicas if moving else ()
    return tuple(replica for replica in described.replicas if replica not in removing)


def lost_replicas(name: str, before: Mapping[int, Sequence[int]], wanted: Mapping[int, Sequence[int]]) -> list[str]:
    """Return a clause for each group of partitions whose number of replicas would fall alike; empty if none falls.

    `before` has the current and `wanted` the new replicas by partition.
    """
    fewer: dict[tuple[int, int], list[int]] = {}
    for number, replicas in sorted(wanted.items()):
        if len(replicas) < len(before[number]):
            fewer.setdefault((len(before[number]), len(replicas)), []).append(number)
    return [
        f"{plural(len(numbers), 'partition')} {ranges_of(numbers, MOST_NAMED)} of {name} would have "
        f"{count_of(new, 'replica')} instead of {old}"
        for (old, new), numbers in fewer.items()
    ]


def _nothing(name: str, drained: Collection[int]) -> str:
    if not drained:
        return f"no partition of {name} is being reassigned"
    ids = sorted(set(drained))
    have = plural(len(ids), "has", "have")
    return f"{plural(len(ids), 'broker')} {', '.join(map(str, ids))} {have} no replica of {name}"


def _move(text: str) -> tuple[int, tuple[int, ...]]:
    if not _MOVE.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not P:ID,ID… such as 0:1,2,3", param_hint="'--replicas'")
    number, _, ids = text.partition(":")
    replicas = tuple(map(int, ids.split(",")))
    if len(set(replicas)) < len(replicas):
        raise click.BadParameter(f"{text!r} names a broker twice", param_hint="'--replicas'")
    return int(number), replicas


@dataclass(frozen=True, slots=True)
class StartedChange:
    """A change that this command has started for one partition.

    before     the replicas before the change, or at the end of a reassignment that was in progress
    replicas   the new replicas; None if the change cancels a reassignment
    """

    partition: int
    before: Sequence[int]
    replicas: Sequence[int] | None

    def state(self, progress: Mapping[int, Progress]) -> str:
        """Return `cancelled`, `in progress`, or `done` if the partition has its replicas already."""
        if self.replicas is None:
            return "cancelled"
        return "in progress" if self.partition in progress else "done"

    def sentence(self, progress: Mapping[int, Progress]) -> str:
        """Return the change as a clause; `progress` has the reassignments in progress by partition."""
        if self.replicas is None:
            return "its reassignment is cancelled"
        if tuple(self.replicas) == tuple(self.before):
            return f"has the replicas {_ids(self.replicas)} already"
        return f"replicas {_ids(self.before)} → {_ids(self.replicas)}, {self.state(progress)}"

    def as_json(self, progress: Mapping[int, Progress]) -> dict[str, object]:
        """Return the change as a JSON object; `new_replicas` is null if the change cancels a reassignment."""
        return {
            "partition": self.partition,
            "old_replicas": list(self.before),
            "new_replicas": None if self.replicas is None else list(self.replicas),
            "state": self.state(progress),
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """The reassignment in progress of one partition.

    lag   the number of records that each new replica still has to copy; None: not known
    """

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    lag: Mapping[int, int | None]

    @classmethod
    def of(cls, moving: PartitionReassignment, described: PartitionDescription) -> Progress:
        adding = tuple(replica for replica in moving.adding_replicas if replica not in moving.removing_replicas)
        lag = described.lag or {}
        return cls(
            moving.partition,
            moving.replicas,
            described.isr,
            adding,
            moving.removing_replicas,
            {replica: lag.get(replica) for replica in adding},
        )

    def as_json(self) -> dict[str, object]:
        return {
            "partition": self.partition,
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "adding": list(self.adding),
            "removing": list(self.removing),
            "lag": {str(replica): lag for replica, lag in self.lag.items()},
        }

    def as_row(self) -> Row:
        lags = " ".join(f"{replica}:{'?' if lag is None else lag}" for replica, lag in self.lag.items())
        ids = (_ids(replicas) or None for replicas in (self.isr, self.adding, self.removing))
        left = sum(math.inf if lag is None else lag for lag in self.lag.values())
        return Row((self.partition, *ids, lags or None), _COPYING if left else _COPIED, left, self.partition)


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
