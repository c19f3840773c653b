"""`tidelog group`: list and delete; the other commands have files of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import open_admin, unknown_group
from tidelog.cli.commands import Group
from tidelog.cli.common_options import all_option, bootstrap_option, json_option, timeout_option
from tidelog.cli.groups.group_describe import describe
from tidelog.cli.groups.group_migrate import migrate
from tidelog.cli.groups.group_remove_member import remove_member
from tidelog.cli.groups.group_reset import reset
from tidelog.cli.name_types import GROUP, TOPIC_CHOICE, TopicChoice
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.cli.terminal.waiting import print_if_slow
from tidelog.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, NonEmptyGroupError, TidelogError
from tidelog.model import TopicPartition
from tidelog.quantities import MOST_NAMED, count_of, first_of, first_texts, plural

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.groups.descriptions import ConsumerGroupListings

#: Kafka's names, in the order in which a group passes the states; a group in state Dead does not exist.
_STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable")
_GROUPS = Kind(
    ("group", "state", "type", "members", "coordinator"),
    ("Unknown", "PreparingRebalance", "CompletingRebalance", "Dead", "Stable", "Empty"),
    noun="group",
    sums=("members",),
)


@click.group(cls=Group)
def group() -> None:
    """List, describe, reset, delete and migrate consumer groups, and remove members."""


group.add_command(describe)
group.add_command(reset)
group.add_command(migrate)
group.add_command(remove_member)


@group.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES, case_sensitive=False),
    metavar="STATE",
    multiple=True,
    help=f"Show only groups in this state: {', '.join(_STATES)}; may be repeated.",
)
@all_option
@json_option
@bootstrap_option
@timeout_option
def list_(
    states: tuple[str, ...], shows_all: bool, as_json: bool, bootstrap_servers: str | None, timeout: float
) -> None:
    """List the groups of all brokers.

    A group of type "consumer" shares its partitions among its members; a "simple" group only has committed offsets.
    Exit status 1 if a broker did not answer, or groups have no coordinator; all other groups are shown.
    """
    with open_admin(bootstrap_servers, timeout) as admin:
        from tidelog.groups.descriptions import ConsumerGroupDescription

        listings = admin.list_consumer_groups(states)
        names = [each.group_id for each in listings.valid]
        described = admin.describe_consumer_groups(names, partial=True)
    members = {
        name: len(each.members) for name, each in described.items() if isinstance(each, ConsumerGroupDescription)
    }
    rows = [
        (
            each.group_id,
            each.state.value,
            "simple" if each.is_simple_consumer_group else each.protocol_type,
            members.get(each.group_id),
            each.coordinator,
        )
        for each in listings.valid
    ]
    if as_json:
        groups = [dict(zip(_GROUPS.headings, row, strict=True)) for row in rows]
        errors = {str(broker): str(error) for broker, error in listings.errors.items()}
        fields = {"groups": groups, "errors": errors, "leaderless": list(map(str, listings.leaderless))}
        click.echo(json.dumps(fields))
    else:
        listed = [Row(row, row[1], members.get(row[0], 0)) for row in rows]
        show_rows(_GROUPS, listed, shows_all=shows_all)
        if not rows and not states:
            click.echo("there is no group yet: tidelog consume TOPIC --group GROUP creates one", err=True)
    _raise_if_incomplete(listings)


def _raise_if_incomplete(listings: ConsumerGroupListings) -> None:
    if listings.errors:
        broker, error = next(iter(listings.errors.items()))
        unanswered = first_of(list(map(str, listings.errors)), MOST_NAMED)
        noun, pronoun = plural(len(listings.errors), "broker"), plural(len(listings.errors), "its", "their")
        raise click.ClickException(
            f"{noun} {unanswered} did not list {pronoun} groups (broker {broker}: {error}): tidelog doctor shows more"
        )
    if listings.leaderless:
        first = listings.leaderless[0]
        raise click.ClickException(
            f"{count_of(len(listings.leaderless), 'partition has', 'partitions have')} no leader in {first.topic}, so "
            f"that their groups are missing: tidelog explain {first.topic}/{first.partition} shows why"
        )


@group.command()
@click.argument("names", metavar="GROUP…", nargs=-1, required=True, type=GROUP)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1]",
    type=TOPIC_CHOICE,
    multiple=True,
    help="Delete only the offsets committed for this topic, or for these partitions of it; may be repeated.",
)
@json_option
@bootstrap_option
@timeout_option
def delete(
    names: tuple[str, ...],
    topics: tuple[TopicChoice, ...],
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Delete groups that have no members, with all their committed offsets.

    With --topic, delete only the committed offsets of these topics or partitions, to which no member may be subscribed.
    Exit status 1 if a group cannot be changed; the others are.
    """
    coordinators = f"the {plural(len(names), 'coordinator')} of {first_of(names, MOST_NAMED)}"
    with open_admin(bootstrap_servers, timeout) as admin, print_if_slow(coordinators, timeout):
        outcomes: Mapping[str, TidelogError | None]
        if topics:
            outcomes = {name: _delete_offsets(admin, name, topics) for name in dict.fromkeys(names)}
        else:
            outcomes = admin.delete_consumer_groups(names)
    deleted = [name for name, error in outcomes.items() if error is None]
    if as_json:
        errors = {name: str(error) for name, error in outcomes.items() if error is not None}
        click.echo(json.dumps({"deleted": deleted, "errors": errors}))
    else:
        for name in deleted:
            click.echo(f"deleted the committed offsets of {name} for {_names(topics)}" if topics else f"deleted {name}")
    refusals = [_refused(name, error) for name, error in outcomes.items() if error is not None]
    if len(refusals) > 1:
        raise TidelogError(first_texts(list(map(str, refusals)), MOST_NAMED, "group"))
    for refusal in refusals:
        raise refusal


def _delete_offsets(admin: Admin, name: str, topics: tuple[TopicChoice, ...]) -> TidelogError | None:
    """Delete the group's committed offsets of these topics; return the first error, or None if all are deleted.

    Offsets of topics that do not exist any more are deleted as well. A topic without a committed offset is an error.
    """
    committed = admin.list_consumer_group_offsets(name)
    chosen = [tp for tp in committed if any(_covers(each, tp) for each in topics)]
    try:
        outcomes = admin.delete_consumer_group_offsets(name, chosen)
    except GroupIdNotFoundError as error:
        return error
    for each in topics:
        if not any(_covers(each, tp) for tp in committed):
            return TidelogError(f"group {name!r} has no committed offset for {_names([each])}")
    return next((error for error in outcomes.values() if error is not None), None)


def _covers(choice: TopicChoice, tp: TopicPartition) -> bool:
    return choice.topic == tp.topic and (choice.numbers is None or tp.partition in choice.numbers)


def _names(topics: tuple[TopicChoice, ...] | list[TopicChoice]) -> str:
    return ", ".join(
        each.topic if each.numbers is None else f"{each.topic}:{','.join(map(str, each.numbers))}" for each in topics
    )


def _refused(name: str, error: TidelogError) -> Exception:
    match error:
        case GroupIdNotFoundError():
            return unknown_group(name)
        case NonEmptyGroupError():
            return click.ClickException(
                f"group {name!r} has members: stop them first; tidelog group describe {name} --members shows them"
            )
        case GroupSubscribedToTopicError():
            return click.ClickException(
                f"members of group {name!r} are subscribed to that topic: stop them first; tidelog group describe "
                f"{name} --members shows them"
            )
    return error
