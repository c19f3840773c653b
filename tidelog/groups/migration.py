"""The rule by which offsets of version 0 move from ZooKeeper to the coordinator, for one partition. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidelog.errors import TidelogError
from tidelog.groups.zookeeper_requests import ZooKeeperOffset


class Migration(StrEnum):
    """The outcome for one partition's offset."""

    MOVE = "move"
    """The coordinator has no offset or an earlier one, or a later one that `force` replaces."""
    SAME = "same"
    """The coordinator already has this offset."""
    KEEP = "keep"
    """The coordinator has a later offset, which stays, because the group has continued there."""
    REFUSE = "refuse"
    """The partition does not exist, ZooKeeper's value is not an offset, or the coordinator refused the commit."""


@dataclass(frozen=True, slots=True)
class OffsetMigration:
    """The migration of one partition's offset.

    zookeeper_offset    the offset in ZooKeeper; None if it cannot be read
    committed_offset    the coordinator's offset before the migration; None if it has none
    error               why the offset was refused
    """

    zookeeper_offset: int | None
    committed_offset: int | None
    outcome: Migration
    error: TidelogError | None = None


def migrate(found: ZooKeeperOffset, committed: int | None, *, force: bool) -> OffsetMigration:
    """Decide the outcome for one offset, given the coordinator's offset (None: none); send nothing.

    With `force` the offset also moves back to an earlier one.
    """
    if found.error is not None:
        return OffsetMigration(found.offset if found.offset >= 0 else None, committed, Migration.REFUSE, found.error)
    if committed is None or found.offset > committed:
        outcome = Migration.MOVE
    elif found.offset == committed:
        outcome = Migration.SAME
    else:
        outcome = Migration.MOVE if force else Migration.KEEP
    return OffsetMigration(found.offset, committed, outcome)
