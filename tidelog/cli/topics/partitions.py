"""`tidelog topic elect`: elects other leaders."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import open_admin, unknown_partition, unknown_topic
from tidelog.cli.commands import Command
from tidelog.cli.common_options import all_option, bootstrap_option, json_option, timeout_option
from tidelog.cli.name_types import TOPIC
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.errors import ElectionNotNeededError, UnknownTopicOrPartitionError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.quantities import count_of

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.admin_results import PartitionDescription
    from tidelog.errors import TidelogError

_FAILED, _ELECTED, _NOT_NEEDED = "failed", "elected", "not needed"
_ELECTIONS = Kind(("partition", "leader", "election"), (_FAILED, _ELECTED, _NOT_NEEDED), noun="election")


@click.command(cls=Command)
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--partition",
    "numbers",
    type=click.IntRange(0),
    multiple=True,
    metavar="P",
    help="Only this partition; may be repeated.",
)
@click.option(
    "--unclean",
    is_flag=True,
    help="If a partition has no leader, elect any live replica: acknowledged records that it lacks are LOST.",
)
@all_option
@json_option
@bootstrap_option
@timeout_option
def elect(
    name: str,
    numbers: tuple[int, ...],
    unclean: bool,
    shows_all: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Elect the preferred leader of each partition, which is the first of its replicas.

    With --unclean, elect a live replica for each partition without a leader instead. Exit status 1 if an election
    fails; an election that is not needed is no failure.
    """
    with open_admin(bootstrap_servers, timeout) as admin:
        from tidelog.protocol.partition_messages import ElectionType

        described = {each.partition for each in describe_partitions(admin, name)}
        require_partitions(name, described, numbers)
        tps = [TopicPartition(name, number) for number in sorted(set(numbers) or described)]
        results = admin.elect_leaders(ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED, tps)
        leaders = {each.partition: each.leader for each in describe_partitions(admin, name)}
    failed = [error for error in results.values() if error and not isinstance(error, ElectionNotNeededError)]
    if as_json:
        partitions = [
            {"partition": tp.partition, "leader": leaders[tp.partition], "result": _outcome(error)}
            for tp, error in results.items()
        ]
        click.echo(json.dumps({"topic": name, "partitions": partitions}))
    else:
        rows = [_row(tp.partition, leaders[tp.partition], error) for tp, error in results.items()]
        show_rows(_ELECTIONS, rows, shows_all=shows_all)
    if failed:
        raise click.ClickException(f"{len(failed)} of {count_of(len(results), 'election')} had no effect: {failed[0]}")


def describe_partitions(admin: Admin, name: str) -> tuple[PartitionDescription, ...]:
    """Return the descriptions of the topic's partitions, as the cluster knows them now.

    Raises ClickException if there is no such topic.
    """
    try:
        return admin.describe_topics([name])[0].partitions
    except UnknownTopicOrPartitionError:
        raise unknown_topic(name) from None


def require_partitions(name: str, described: Collection[int], numbers: Iterable[int]) -> None:
    """Raise ClickException if one of the numbers is not a partition of the topic."""
    if unknown := sorted(set(numbers) - set(described)):
        raise unknown_partition(name, unknown[0], described)


def _outcome(error: TidelogError | None) -> str:
    if error is None:
        return _ELECTED
    return _NOT_NEEDED if isinstance(error, ElectionNotNeededError) else str(error)


def _row(partition: int, leader: int, error: TidelogError | None) -> Row:
    outcome = _outcome(error)
    state = outcome if outcome in (_ELECTED, _NOT_NEEDED) else _FAILED
    return Row((partition, "none" if leader == NO_LEADER else leader, outcome), state, 0, partition)
