"""`tidelog topic elect` and `reassign`: other leaders, other replicas."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.cli.admins import open_admin, unknown_partition, unknown_topic
from tidelog.cli.find import bootstrap_option, json_option, timeout_option
from tidelog.cli.names import BROKER_ID, TOPIC
from tidelog.cli.table import format_table
from tidelog.errors import ElectionNotNeededError, UnknownTopicOrPartitionError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.quantities import count_of

if TYPE_CHECKING:
    from tidelog.admin import Admin
    from tidelog.descriptions import PartitionDescription
    from tidelog.errors import TidelogError
    from tidelog.partition_messages import PartitionReassignment

_MOVE = re.compile(r"[0-9]{1,9}:[0-9]{1,9}(,[0-9]{1,9})*", re.ASCII)


@click.command()
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option("--partition", "numbers", type=click.IntRange(0), multiple=True, metavar="P", help="Only this one.")
@click.option(
    "--unclean", is_flag=True, help="Where nobody leads, elect whoever lives: records that it does not have are LOST."
)
@json_option
@bootstrap_option
@timeout_option
def elect(
    name: str, numbers: tuple[int, ...], unclean: bool, as_json: bool, bootstrap_servers: str | None, timeout: float
) -> None:
    """Give partitions back to their preferred leaders, the first of their replicas."""
    with open_admin(bootstrap_servers, timeout) as admin:
        from tidelog.partition_messages import ElectionType

        described = {each.partition for each in _describe(admin, name)}
        _require(name, described, numbers)
        tps = [TopicPartition(name, number) for number in sorted(set(numbers) or described)]
        results = admin.elect_leaders(ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED, tps)
        leaders = {each.partition: each.leader for each in _describe(admin, name)}
    failed = [error for error in results.values() if error and not isinstance(error, ElectionNotNeededError)]
    if as_json:
        partitions = [
            {"partition": tp.partition, "leader": leaders[tp.partition], "result": _outcome(error)}
            for tp, error in results.items()
        ]
        click.echo(json.dumps({"topic": name, "partitions": partitions}))
    else:
        rows = [(tp.partition, _leader(leaders[tp.partition]), _outcome(error)) for tp, error in results.items()]
        for line in format_table(("partition", "leader", "election"), rows):
            click.echo(line)
    if failed:
        raise click.ClickException(f"{len(failed)} of {count_of(len(results), 'election')} had no effect: {failed[0]}")


@click.command()
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--replicas",
    "moves",
    multiple=True,
    metavar="P:ID,ID…",
    help="Who is to have partition P, the preferred leader first; may be repeated.",
)
@click.option("--drain-broker", type=BROKER_ID, metavar="ID", help="Move everything away from this broker.")
@click.option("--cancel", is_flag=True, help="Turn back what is in progress.")
@click.option("--status", is_flag=True, help="Only show what is in progress.")
@json_option
@bootstrap_option
@timeout_option
def reassign(
    name: str,
    moves: tuple[str, ...],
    drain_broker: int | None,
    cancel: bool,
    status: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Move partitions to other brokers: begins it, and shows what is in progress.

    Who comes copies the records first; who goes is removed when all that come are in sync.
    """
    if sum((bool(moves), drain_broker is not None, cancel, status)) != 1:
        raise click.UsageError("say one of --replicas, --drain-broker, --cancel and --status")
    wanted = dict(map(_move, moves))
    if len(wanted) < len(moves):
        raise click.BadParameter("a partition is named twice", param_hint="'--replicas'")
    with open_admin(bootstrap_servers, timeout) as admin:
        before = {TopicPartition(name, each.partition): each for each in _describe(admin, name)}
        changes: dict[TopicPartition, Sequence[int] | None] = {}
        if cancel:
            changes.update(dict.fromkeys(admin.list_partition_reassignments(before)))
        elif drain_broker is not None:
            changes.update(_drained(before, drain_broker, sorted(admin.describe_cluster().brokers)))
        else:
            _require(name, {tp.partition for tp in before}, wanted)
            changes.update({TopicPartition(name, number): replicas for number, replicas in wanted.items()})
        if changes:
            admin.alter_partition_reassignments(changes)
        going_on = admin.list_partition_reassignments(before)
        now = {TopicPartition(name, each.partition): each for each in _describe(admin, name)}
    progress = [_Progress.of(each, now[tp]) for tp, each in sorted(going_on.items())]
    if as_json:
        click.echo(json.dumps({"topic": name, "reassignments": [each.as_json() for each in progress]}))
    elif progress:
        for line in format_table(_Progress.HEADINGS, [each.as_row() for each in progress]):
            click.echo(line)
    else:
        click.echo(f"nothing of {name} is being reassigned")


def _describe(admin: Admin, name: str) -> tuple[PartitionDescription, ...]:
    try:
        return admin.describe_topics([name])[0].partitions
    except UnknownTopicOrPartitionError:
        raise unknown_topic(name) from None


def _require(name: str, described: Collection[int], numbers: Iterable[int]) -> None:
    if unknown := sorted(set(numbers) - set(described)):
        raise unknown_partition(name, unknown[0], described)


def _outcome(error: TidelogError | None) -> str:
    if error is None:
        return "elected"
    return "not needed" if isinstance(error, ElectionNotNeededError) else str(error)


def _leader(leader: int) -> object:
    return "none" if leader == NO_LEADER else leader


def _move(text: str) -> tuple[int, tuple[int, ...]]:
    if not _MOVE.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not P:ID,ID… such as 0:1,2,3", param_hint="'--replicas'")
    number, _, ids = text.partition(":")
    return int(number), tuple(map(int, ids.split(",")))


def _drained(
    described: Mapping[TopicPartition, PartitionDescription], leaving: int, alive: Sequence[int]
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas without that broker; in its place stands whoever has the fewest of this topic."""
    if leaving not in alive and not any(leaving in each.replicas for each in described.values()):
        there = ", ".join(map(str, alive))
        raise click.ClickException(
            f"broker {leaving} is not in the cluster now (there are: {there}), and has no replica"
        )
    load = Counter({broker: 0 for broker in alive if broker != leaving})
    load.update(replica for each in described.values() for replica in each.replicas if replica in load)
    drained: dict[TopicPartition, tuple[int, ...]] = {}
    for tp, each in described.items():
        if leaving not in each.replicas:
            continue
        free = [broker for broker in load if broker not in each.replicas]
        if not free:
            raise click.ClickException(
                f"partition {tp.partition} has {count_of(len(each.replicas), 'replica')}, and no other broker is alive "
                f"to take that of broker {leaving}: start one more, or say --replicas with fewer"
            )
        heir = min(free, key=lambda broker: (load[broker], broker))
        load[heir] += 1
        drained[tp] = tuple(heir if replica == leaving else replica for replica in each.replicas)
    return drained


@dataclass(frozen=True, slots=True)
class _Progress:
    """One partition on its way; `lag` is what each that comes has still to copy, in records."""

    HEADINGS = ("partition", "isr", "adding", "removing", "still to copy")

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    lag: Mapping[int, int | None]

    @classmethod
    def of(cls, moving: PartitionReassignment, described: PartitionDescription) -> _Progress:
        coming = tuple(replica for replica in moving.adding_replicas if replica not in moving.removing_replicas)
        lag = described.lag or {}
        return cls(
            moving.partition,
            moving.replicas,
            described.isr,
            coming,
            moving.removing_replicas,
            {replica: lag.get(replica) for replica in coming},
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

    def as_row(self) -> tuple[object, ...]:
        still = " ".join(f"{replica}:{'?' if lag is None else lag}" for replica, lag in self.lag.items())
        ids = (",".join(map(str, replicas)) or None for replicas in (self.isr, self.adding, self.removing))
        return (self.partition, *ids, still or None)
