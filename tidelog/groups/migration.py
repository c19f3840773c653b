"""From ZooKeeper, where commits of version 0 lie, to the coordinator: the rule, one partition at a time. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidelog.errors import TidelogError
from tidelog.groups.zookeeper_requests import ZooKeeperOffset


class Migration(StrEnum):
    """What becomes of one partition's offset."""

    MOVE = "move"
    """The coordinator has none, or an earlier one."""
    SAME = "same"
    """The coordinator has it already."""
    KEEP = "keep"
    """The coordinator has a later one: the group went on there, and does not go back."""
    REFUSE = "refuse"
    """The partition is gone, what stands in ZooKeeper is no offset, or the coordinator did not take it."""


@dataclass(frozen=True, slots=True)
class OffsetMigration:
    """What a migration makes of one partition.

    zookeeper_offset    None where it cannot be read
    committed_offset    what the coordinator had before; None: nothing
    error               why it is refused
    """

    zookeeper_offset: int | None
    committed_offset: int | None
    outcome: Migration
    error: TidelogError | None = None


def migrate(found: ZooKeeperOffset, committed: int | None, *, force: bool) -> OffsetMigration:
    """`force`: also back to an earlier offset."""
    if found.error is not None:
        return OffsetMigration(found.offset if found.offset >= 0 else None, committed, Migration.REFUSE, found.error)
    if committed is None or found.offset > committed:
        outcome = Migration.MOVE
    elif found.offset == committed:
        outcome = Migration.SAME
    else:
        outcome = Migration.MOVE if force else Migration.KEEP
    return OffsetMigration(found.offset, committed, outcome)
