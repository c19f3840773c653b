"""`tidelog group migrate`: what groups have in ZooKeeper is committed; it shows what, and does it with `--execute`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import open_admin
from tidelog.cli.commands import Command
from tidelog.cli.common_options import bootstrap_option, json_option, timeout_option
from tidelog.cli.consent import execute_option, note_dry_run
from tidelog.cli.name_types import ZOOKEEPER_GROUP
from tidelog.cli.terminal.table import format_table
from tidelog.cli.terminal.waiting import saying_if_slow
from tidelog.errors import GroupIdNotFoundError, InvalidGroupIdError, NonEmptyGroupError, TidelogError
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.groups.migration import OffsetMigration

    Plan = Mapping[TopicPartition, OffsetMigration]

_NOTES = {
    "move": ("would move", "moved"),
    "same": ("is there already", "is there already"),
    "keep": ("stays: the group went on there", "stays: the group went on there"),
}


@click.command(cls=Command)
@click.argument("names", metavar="GROUP…", nargs=-1, type=ZOOKEEPER_GROUP)
@click.option("--all", "all_groups", is_flag=True, help="Every group that has offsets in ZooKeeper.")
@click.option("--force", is_flag=True, help="Move a group back, too, where it is committed further on.")
@execute_option
@json_option
@bootstrap_option
@timeout_option
def migrate(
    names: tuple[str, ...],
    all_groups: bool,
    force: bool,
    execute: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Commit to the brokers what groups have committed in ZooKeeper.

    Stop the old consumers first, and start the new ones afterwards. Shows the offset in ZooKeeper and the committed one
    of each partition; nothing is changed without --execute. What is committed further on stays, unless --force is
    given. What stands in ZooKeeper is left there. Exit status 1 where something could not be moved.
    """
    if bool(names) == all_groups:
        raise click.UsageError("say which: GROUP…, or --all")
    with (
        open_admin(bootstrap_servers, timeout) as admin,
        saying_if_slow("ZooKeeper and the groups' coordinators", timeout),
    ):
        wanted = admin.list_zookeeper_groups() if all_groups else dict.fromkeys(names)
        told = {name: _migrate(admin, name, force=force, execute=execute) for name in wanted}
    plans = {name: plan for name, plan in told.items() if not isinstance(plan, TidelogError)}
    if as_json:
        groups = [
            {"group": name, "partitions": [_as_json(tp, each) for tp, each in plan.items()]}
            for name, plan in plans.items()
        ]
        refused = {name: str(error) for name, error in told.items() if isinstance(error, TidelogError)}
        click.echo(json.dumps({"executed": execute, "groups": groups, "errors": refused}))
    else:
        rows = [_row(name, tp, each, execute) for name, plan in plans.items() for tp, each in plan.items()]
        if rows:
            for line in format_table(("group", "topic", "partition", "in ZooKeeper", "committed", "note"), rows):
                click.echo(line)
        elif not told:
            click.echo("no group has offsets in ZooKeeper", err=True)
        if rows and not execute:
            note_dry_run()
    for problem in _problems(told):
        raise click.ClickException(problem)


def _migrate(admin: Admin, name: str, *, force: bool, execute: bool) -> Plan | TidelogError:
    try:
        return admin.migrate_zookeeper_group(name, force=force, execute=execute)
    except TidelogError as error:
        return error


def _problems(told: Mapping[str, Plan | TidelogError]) -> Iterator[str]:
    for name, plan in told.items():
        match plan:
            case InvalidGroupIdError():
                yield str(plan)
            case GroupIdNotFoundError():
                yield f"{plan}: tidelog group migrate --all shows those that have some"
            case NonEmptyGroupError():
                yield f"{plan}; tidelog group describe {name} --members shows them"
            case TidelogError():
                yield f"group {name!r}: {plan}"
            case _:
                errors = [each.error for each in plan.values() if each.error is not None]
                more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
                yield from (f"group {name!r}: {error}{more}" for error in errors[:1])


def _row(name: str, tp: TopicPartition, each: OffsetMigration, execute: bool) -> tuple[object, ...]:
    note = str(each.error) if each.error is not None else _NOTES[each.outcome][execute]
    return name, *tp, each.zookeeper_offset, each.committed_offset, note


def _as_json(tp: TopicPartition, each: OffsetMigration) -> dict[str, object]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "zookeeper_offset": each.zookeeper_offset,
        "committed_offset": each.committed_offset,
        "outcome": each.outcome,
        "error": str(each.error) if each.error else None,
    }
