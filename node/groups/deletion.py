"""Deletion of groups and of their committed offsets, on request of a client or because they have expired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from node.groups.coordinator import GroupCoordinator
from node.groups.offset_commits import OffsetCommits
from node.groups.shard import HostedGroup, Shard
from tidelog.errors import BrokerError, GroupIdNotFoundError, NonEmptyGroupError
from tidelog.groups.offsets_topic import GroupKey, encode_key
from tidelog.model import TopicPartition


class Deletion:
    """Deletes groups by writing tombstones. A group exists until its tombstone is committed."""

    def __init__(self, coordinator: GroupCoordinator, offsets: OffsetCommits) -> None:
        self._coordinator = coordinator
        self._offsets = offsets

    async def delete(self, group_ids: Iterable[str], done: Callable[[Mapping[str, int]], None]) -> None:
        """Delete groups without members and their committed offsets.

        A group with members, and one that does not exist, is refused. `done` is called once with an error code (0:
        deleted) for each group, before this method returns or later.
        """
        codes: dict[str, int] = {}
        waiting = set(group_ids)

        def finish(group_id: str, error: BrokerError | None) -> None:
            codes[group_id] = 0 if error is None else error.code
            waiting.discard(group_id)
            if not waiting:
                done(codes)

        if not waiting:
            done(codes)
        for group_id in list(waiting):
            await self._coordinator.loop_budget.yield_()
            try:
                self._delete(group_id, finish)
            except BrokerError as error:
                finish(group_id, error)

    def _delete(self, group_id: str, finish: Callable[[str, BrokerError | None], None]) -> None:
        shard, hosted = self._coordinator.find(group_id)
        if hosted is None:
            raise GroupIdNotFoundError(f"group {group_id!r} does not exist")
        if not hosted.is_empty:
            raise NonEmptyGroupError(f"group {group_id!r} has members; stop its consumers first")

        def offsets_deleted(failed: Mapping[TopicPartition, BrokerError]) -> None:
            if failed:
                finish(group_id, next(iter(failed.values())))
            else:
                self.delete_if_empty(shard, hosted, lambda error: finish(group_id, error))

        self._offsets.write_tombstones(shard, hosted, list(hosted.offsets.all()), offsets_deleted)

    def delete_if_empty(
        self, shard: Shard, hosted: HostedGroup, done: Callable[[BrokerError | None], None] = lambda error: None
    ) -> None:
        """Write a tombstone for the group's record, if the group has one and is still empty.

        `done` is called once, with the error of the write or None, before this method returns or later. An unused group
        is removed from memory.
        """
        if not hosted.recorded or not hosted.is_empty:
            self._coordinator.drop_if_unused(shard, hosted)
            done(None)
            return
        hosted.recorded = False

        def written(_: int, error: BrokerError | None) -> None:
            # A member may have joined meanwhile, and its record comes after the tombstone. Therefore `recorded` is
            # only set here, and not cleared.
            hosted.recorded |= error is not None
            self._coordinator.drop_if_unused(shard, hosted)
            done(error)

        self._coordinator.writes.write(shard, [(encode_key(GroupKey(hosted.group_id)), None)], written)
