"""Deletion of groups and of their committed offsets on request of a client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from node.groups.coordinator import GroupCoordinator
from node.groups.offset_commits import OffsetCommits
from tidelog.errors import BrokerError, GroupIdNotFoundError, NonEmptyGroupError
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
                self._coordinator.delete_if_empty(shard, hosted, lambda error: finish(group_id, error))

        self._offsets.write_tombstones(shard, hosted, list(hosted.offsets.all()), offsets_deleted)
