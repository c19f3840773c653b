"""`tidelog group migrate`: shows which offsets of groups move from ZooKeeper to the brokers; `--execute` moves them."""

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
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.cli.terminal.waiting import print_if_slow
from tidelog.errors import GroupIdNotFoundError, InvalidGroupIdError, NonEmptyGroupError, TidelogError
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.groups.migration import OffsetMigration

    Plan = Mapping[TopicPartition, OffsetMigration]

_FAILED = "that failed"
#: What a row counts as in the summary of a long table, the worst state first, by the outcome of a migration.
_STATES = {"move": "that move", "keep": "that stay", "same": "that are committed"}
_OFFSETS = Kind(
    ("group", "topic", "partition", "in ZooKeeper", "committed", "note"), (_FAILED, *_STATES.values()), noun="offset"
)
_NOTES = {
    "move": ("would move", "moved"),
    "same": ("is already committed", "is already committed"),
    "keep": ("stays: the committed offset is further", "stays: the committed offset is further"),
}


@click.command(cls=Command)
@click.argument("names", metavar="GROUP…", nargs=-1, type=ZOOKEEPER_GROUP)
@click.option("--all", "all_groups", is_flag=True, help="Migrate every group that has offsets in ZooKeeper.")
@click.option("--force", is_flag=True, help="Also replace committed offsets that are further than those in ZooKeeper.")
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
    """Commit to the brokers the offsets that groups have committed in ZooKeeper.

    Stop the old consumers first, and start the new ones afterwards. The command shows the offset in ZooKeeper and the
    committed offset of each partition, and changes nothing without --execute. A committed offset that is further than
    the one in ZooKeeper stays, unless --force is given. Offsets in ZooKeeper are never changed. Exit status 1 if an
    offset could not be moved.
    """
    if bool(names) == all_groups:
        raise click.UsageError("name at least one GROUP, or give --all")
    with (
        open_admin(bootstrap_servers, timeout) as admin,
        print_if_slow("ZooKeeper and the groups' coordinators", timeout),
    ):
        chosen = admin.list_zookeeper_groups() if all_groups else dict.fromkeys(names)
        plans_or_errors = {name: _migrate(admin, name, force=force, execute=execute) for name in chosen}
    plans = {name: plan for name, plan in plans_or_errors.items() if not isinstance(plan, TidelogError)}
    if as_json:
        groups = [
            {"group": name, "partitions": [_as_json(tp, each) for tp, each in plan.items()]}
            for name, plan in plans.items()
        ]
        errors = {name: str(error) for name, error in plans_or_errors.items() if isinstance(error, TidelogError)}
        click.echo(json.dumps({"executed": execute, "groups": groups, "errors": errors}))
    else:
        rows = [_row(name, tp, each, execute) for name, plan in plans.items() for tp, each in plan.items()]
        if rows:
            # `--all` chooses the groups here, so that only `--json` shows the rows of a long table.
            show_rows(_OFFSETS, rows, shows_all=False, whole="--json shows them")
        elif not plans_or_errors:
            click.echo("no group has offsets in ZooKeeper", err=True)
        if rows and not execute:
            note_dry_run()
    for problem in _problems(plans_or_errors):
        raise click.ClickException(problem)


def _migrate(admin: Admin, name: str, *, force: bool, execute: bool) -> Plan | TidelogError:
    try:
        return admin.migrate_zookeeper_group(name, force=force, execute=execute)
    except TidelogError as error:
        return error


def _problems(plans_or_errors: Mapping[str, Plan | TidelogError]) -> Iterator[str]:
    for name, plan in plans_or_errors.items():
        match plan:
            case InvalidGroupIdError():
                yield str(plan)
            case GroupIdNotFoundError():
                yield f"{plan}: tidelog group migrate --all shows the groups that have"
            case NonEmptyGroupError():
                yield f"{plan}; tidelog group describe {name} --members shows them"
            case TidelogError():
                yield f"group {name!r}: {plan}"
            case _:
                errors = [each.error for each in plan.values() if each.error is not None]
                more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
                yield from (f"group {name!r}: {error}{more}" for error in errors[:1])


def _row(name: str, tp: TopicPartition, each: OffsetMigration, execute: bool) -> Row:
    note = str(each.error) if each.error is not None else _NOTES[each.outcome][execute]
    state = _FAILED if each.error is not None else _STATES[each.outcome]
    return Row((name, *tp, each.zookeeper_offset, each.committed_offset, note), state)


def _as_json(tp: TopicPartition, each: OffsetMigration) -> dict[str, object]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "zookeeper_offset": each.zookeeper_offset,
        "committed_offset": each.committed_offset,
        "outcome": each.outcome,
        "error": str(each.error) if each.error else None,
    }
