"""`tidelog topic delete-records`: shows which records would be deleted; `--execute` deletes them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import open_admin
from tidelog.cli.commands import Command
from tidelog.cli.common_options import all_option, bootstrap_option, json_option, timeout_option
from tidelog.cli.consent import execute_option, note_dry_run
from tidelog.cli.name_types import TOPIC
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.cli.topics.partitions import describe_partitions, require_partitions
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.admin_results import PartitionDescription

_BEFORE = re.compile(r"([0-9]{1,10}):([0-9]{1,18}|end)\Z", re.ASCII)
_HIGH_WATERMARK = -1
_LOSES, _UNCHANGED = "that lose records", "that keep all records"
_PLANNED = Kind(
    ("partition", "begins at", "will begin at", "records to delete"), (_LOSES, _UNCHANGED), sums=("records to delete",)
)
_DONE = Kind(("partition", "began at", "begins at", "records deleted"), (_LOSES, _UNCHANGED), sums=("records deleted",))


@click.command("delete-records", cls=Command)
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--before",
    "bounds",
    multiple=True,
    required=True,
    metavar="PARTITION:OFFSET",
    help="All records of the partition below this offset; `end` means all committed records. May be repeated.",
)
@execute_option
@all_option
@json_option
@bootstrap_option
@timeout_option
def delete_records(
    name: str,
    bounds: tuple[str, ...],
    execute: bool,
    shows_all: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Show which of a topic's oldest records would be deleted, or delete them.

    Shows where each partition begins now, where it would begin, and how many offsets lie between. A compacted topic may
    have fewer records there. The command deletes the records only with --execute, and then returns when every live
    replica begins at the new offset.
    """
    before: dict[int, int] = {}
    for text in bounds:
        partition, offset = _bound(text)
        if partition in before:
            raise click.BadParameter(f"partition {partition} is named twice", param_hint="'--before'")
        before[partition] = offset
    with open_admin(bootstrap_servers, timeout) as admin:
        described = {each.partition: each for each in describe_partitions(admin, name)}
        require_partitions(name, described, before)
        _require_deletable(admin, name)
        plan = [Deletion.of(name, described[number], offset) for number, offset in sorted(before.items())]
        if execute:
            starts = admin.delete_records({TopicPartition(name, number): offset for number, offset in before.items()})
            plan = [replace(each, new_start=starts[TopicPartition(name, each.partition)]) for each in plan]
    if as_json:
        fields = {"topic": name, "executed": execute, "partitions": [each.as_json() for each in plan]}
        click.echo(json.dumps(fields))
        return
    show_rows(_DONE if execute else _PLANNED, [each.as_row() for each in plan], shows_all=shows_all)
    if not execute:
        note_dry_run()


def _require_deletable(admin: Admin, name: str) -> None:
    """Raise ClickException if the topic is only compacted, because brokers refuse to delete its records."""
    from tidelog.client.admin.config_requests import ConfigResource

    resource = ConfigResource.topic(name)
    policy = admin.describe_configs([resource])[resource]["cleanup.policy"].value or ""
    if "delete" not in policy:
        raise click.ClickException(
            f"cannot delete records of {name!r}, because it is only compacted (cleanup.policy={policy}): send a "
            "tombstone to delete the records of a key"
        )


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of the records of one partition from `old_start` up to but not including `new_start`.

    `old_start` is the partition's log start offset before, `new_start` that afterwards.
    """

    partition: int
    old_start: int
    new_start: int

    @classmethod
    def of(cls, topic: str, described: PartitionDescription, before: int) -> Deletion:
        """Return the planned deletion of the records below the offset `before`; −1 means the high watermark.

        An offset below the log start deletes nothing. Raises ClickException if the leader does not answer, or if
        `before` is past the end.
        """
        start, end = described.log_start_offset, described.high_watermark
        where = f"{topic}/{described.partition}"
        if start is None or end is None:
            raise click.ClickException(f"the leader of {where} does not answer: tidelog explain {where} shows why")
        if before > end:
            raise click.ClickException(
                f"cannot delete records of {where} before offset {before}: its committed records end at {end}"
            )
        return cls(described.partition, start, max(start, end if before == _HIGH_WATERMARK else before))

    @property
    def records(self) -> int:
        """The number of offsets that are deleted; some of them may have no record."""
        return max(0, self.new_start - self.old_start)

    def as_row(self) -> Row:
        """Return the table row; the worst one has the most records to delete."""
        cells = (self.partition, self.old_start, self.new_start, self.records)
        return Row(cells, _LOSES if self.records else _UNCHANGED, self.records, self.partition)

    def as_json(self) -> dict[str, int]:
        """Return the deletion as a JSON object; `log_start_offset` is the first offset afterwards."""
        return {
            "partition": self.partition,
            "old_log_start_offset": self.old_start,
            "log_start_offset": self.new_start,
            "records": self.records,
        }


def _bound(text: str) -> tuple[int, int]:
    found = _BEFORE.match(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not PARTITION:OFFSET, such as 0:1500 or 0:end", param_hint="'--before'")
    return int(found[1]), _HIGH_WATERMARK if found[2] == "end" else int(found[2])
