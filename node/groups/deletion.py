"""Groups and offsets that go: because somebody wants it, because their topic is gone, or because nobody came back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from node.groups.coordinator import GroupCoordinator
from node.groups.offset_commits import OffsetCommits
from node.groups.shard import HostedGroup, Shard
from tidelog.errors import BrokerError, GroupIdNotFoundError, NonEmptyGroupError
from tidelog.groups.offsets_topic import GroupKey, encode_key
from tidelog.model import TopicPartition


class Deletion:
    """All of it by tombstones: what is deleted is gone when they are committed, and until then it is there."""

    def __init__(self, coordinator: GroupCoordinator, offsets: OffsetCommits) -> None:
        self._coordinator = coordinator
        self._offsets = offsets

    async def delete(self, group_ids: Iterable[str], done: Callable[[Mapping[str, int]], None]) -> None:
        """Groups without members, and what they have committed; `done` is told, by then or later, a code for each."""
        codes: dict[str, int] = {}
        waiting = set(group_ids)

        def settled(group_id: str, error: BrokerError | None) -> None:
            codes[group_id] = 0 if error is None else error.code
            waiting.discard(group_id)
            if not waiting:
                done(codes)

        if not waiting:
            done(codes)
        for group_id in list(waiting):
            await self._coordinator.loop_budget.yield_()
            try:
                self._delete(group_id, settled)
            except BrokerError as error:
                settled(group_id, error)

    def _delete(self, group_id: str, settled: Callable[[str, BrokerError | None], None]) -> None:
        shard, hosted = self._coordinator.find(group_id)
        if hosted is None:
            raise GroupIdNotFoundError(f"there is no group {group_id!r}")
        if not hosted.is_empty:
            raise NonEmptyGroupError(f"group {group_id!r} has members")

        def without_offsets(failed: Mapping[TopicPartition, BrokerError]) -> None:
            if failed:
                settled(group_id, next(iter(failed.values())))
            else:
                self.delete_if_empty(shard, hosted, lambda error: settled(group_id, error))

        self._offsets.write_tombstones(shard, hosted, list(hosted.offsets.all()), without_offsets)

    def delete_if_empty(
        self, shard: Shard, hosted: HostedGroup, done: Callable[[BrokerError | None], None] = lambda error: None
    ) -> None:
        """The group itself, if it has a record and is still empty."""
        if not hosted.recorded or not hosted.is_empty:
            self._coordinator.drop_if_nothing(shard, hosted)
            done(None)
            return
        hosted.recorded = False

        def written(_: int, error: BrokerError | None) -> None:
            # Somebody may have come meanwhile, whose record stands behind the tombstone.
            hosted.recorded |= error is not None
            self._coordinator.drop_if_nothing(shard, hosted)
            done(error)

        self._coordinator.writes.write(shard, [(encode_key(GroupKey(hosted.group_id)), None)], written)
