"""`tidelog group remove-member`: removes members at once, instead of after their session timeout."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import open_admin
from tidelog.cli.commands import Command
from tidelog.cli.common_options import bootstrap_option, json_option, timeout_option
from tidelog.cli.name_types import GROUP
from tidelog.cli.terminal.waiting import print_if_slow
from tidelog.errors import TidelogError, UnknownMemberIdError
from tidelog.quantities import MOST_NAMED, first_texts

if TYPE_CHECKING:
    from tidelog.groups.descriptions import MemberToRemove


@click.command("remove-member", cls=Command)
@click.argument("name", metavar="GROUP", type=GROUP)
@click.option(
    "--instance-id",
    "instance_ids",
    metavar="ID",
    multiple=True,
    help="Remove the static member with this group_instance_id; may be repeated.",
)
@click.option(
    "--member-id", "member_ids", metavar="ID", multiple=True, help="Remove the member with this id; may be repeated."
)
@json_option
@bootstrap_option
@timeout_option
def remove_member(
    name: str,
    instance_ids: tuple[str, ...],
    member_ids: tuple[str, ...],
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Remove members from GROUP, so that the others get their partitions at once.

    A static member that was stopped keeps its partitions until its session timeout, and this command ends the wait.
    Stop the consumer first, because a consumer that still runs joins again. The exit status is 1 if
    a member cannot be removed; the other members are removed nevertheless.
    """
    if not instance_ids and not member_ids:
        raise click.UsageError("name at least one member with --instance-id or --member-id")
    if "" in (*instance_ids, *member_ids):
        raise click.UsageError("the id of a member must not be empty")
    with open_admin(bootstrap_servers, timeout) as admin, print_if_slow(f"the coordinator of {name}", timeout):
        from tidelog.groups.descriptions import MemberToRemove

        members = [MemberToRemove(group_instance_id=each) for each in instance_ids]
        members += [MemberToRemove(each) for each in member_ids]
        outcomes = admin.remove_group_members(name, members)
    if as_json:
        click.echo(json.dumps({"group": name, "members": [_as_json(each, error) for each, error in outcomes.items()]}))
    else:
        for each, error in outcomes.items():
            if error is None:
                click.echo(f"removed the member of {name} with {each}")
    refusals = [error for error in outcomes.values() if error is not None]
    if refusals:
        hint = ""
        if any(isinstance(error, UnknownMemberIdError) for error in refusals):
            hint = f": tidelog group describe {name} --members shows its members"
        raise click.ClickException(first_texts(list(map(str, refusals)), MOST_NAMED, "member") + hint)


def _as_json(member: MemberToRemove, error: TidelogError | None) -> dict[str, object]:
    return {
        "member_id": member.member_id or None,
        "group_instance_id": member.group_instance_id,
        "error": None if error is None else str(error),
    }
