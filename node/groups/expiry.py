"""Expiry of committed offsets, and of groups without offsets (KIP-211); removal of offsets of deleted topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from functools import partial

from cluster.zookeeper.store import StoreError
from node.groups.coordinator import GroupCoordinator
from node.groups.offset_commits import OffsetCommits
from node.groups.offsets_topic import Assignments
from node.groups.shard import HostedGroup, Shard
from tidelog.errors import BrokerError
from tidelog.model import TopicPartition

log = logging.getLogger(__name__)

_MINUTE_MS = 60_000
#: Groups that are read before other work runs on the loop.
_GROUPS_AT_ONCE = 64


class Expiry:
    """Writes tombstones for expired offsets. `expired` counts the expired offsets whose tombstones are committed."""

    def __init__(self, coordinator: GroupCoordinator, offsets: OffsetCommits, assignments: Assignments) -> None:
        self._assignments = assignments
        self._coordinator = coordinator
        self._offsets = offsets
        self.expired = 0

    async def run(self) -> None:
        """Run `expire` after each `offsets_retention_check_interval_ms`, until the task is cancelled; log errors."""
        pause_s = self._coordinator.settings.offsets_retention_check_interval_ms / 1000
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self.expire()
            except Exception:
                log.exception("the expiry of committed offsets failed")

    async def expire(self) -> None:
        """Write tombstones for the expired offsets of all groups, and for the records of empty groups without offsets.

        Then delete the offsets of deleted topics (`find_deleted_topics`). Other work runs on the loop in between.
        """
        for count, (shard, hosted) in enumerate(self._coordinator.groups(), 1):
            await self._coordinator.loop_budget.yield_()
            if shard.leads:
                due = self._due(hosted)
                self._offsets.write_tombstones(shard, hosted, due, partial(self._on_deleted, shard, hosted, len(due)))
            if count % _GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
        for shard in self._coordinator.shards:
            await self.find_deleted_topics(shard)

    def _on_deleted(
        self, shard: Shard, hosted: HostedGroup, due: int, failed: Mapping[TopicPartition, BrokerError]
    ) -> None:
        self.expired += due - len(failed)
        if hosted.is_empty and not hosted.offsets:
            self._coordinator.delete_if_empty(shard, hosted)

    def _due(self, hosted: HostedGroup) -> list[TopicPartition]:
        return hosted.offsets.expired(
            self._coordinator.clock.now_ms(),
            self._coordinator.settings.offsets_retention_minutes * _MINUTE_MS,
            empty_since_ms=hosted.emptied_ms,
            subscribed=hosted.subscribed,
        )

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Mark the commits to these topics as void, so that they do not apply to new topics of the same names.

        Each shard notes its log's end: `forget_deleted` writes tombstones for the commits whose records are below that
        offset. Offsets are compared, because clocks of two brokers cannot be compared. The tombstone of a commit whose
        write is pending is appended before this method returns, because a later commit may be for a new topic.
        """
        for shard in self._coordinator.shards:
            shard.deleted.update(dict.fromkeys(topics, shard.replica.log.log_end_offset))
        for shard, hosted in self._coordinator.groups():
            self._offsets.write_tombstones(shard, hosted, hosted.offsets.pending_partitions(topics))

    async def find_deleted_topics(self, shard: Shard) -> None:
        """Delete the offsets of topics that were deleted without this coordinator's knowledge.

        A topic may have been deleted while the shard had no leader, or before its leader received the deletion. If
        this broker does not know a topic, the topic may also be new, so that ZooKeeper decides. Only records that are
        in the log now are deleted, because a later commit may be for a topic that is created during the read from
        ZooKeeper.
        """
        end = shard.replica.log.log_end_offset
        unknown: set[str] = set()
        for count, hosted in enumerate(list(shard.groups.values()), 1):
            unknown |= {topic for topic in hosted.offsets.topics if self._coordinator.metadata.topic(topic) is None}
            if count % _GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
        if unknown:
            try:
                gone = unknown - await self._assignments.existing_topics()
            except StoreError as error:
                log.info(
                    "%s: cannot read from ZooKeeper which topics were deleted; trying again later: %s",
                    shard.topic_partition, error,
                )  # fmt: skip
            else:
                shard.deleted |= {topic: max(end, shard.deleted.get(topic, 0)) for topic in gone}
        await self.forget_deleted(shard)

    async def forget_all_deleted(self) -> None:
        """Run `forget_deleted` for all shards, one after the other."""
        for shard in self._coordinator.shards:
            await self.forget_deleted(shard)

    async def forget_deleted(self, shard: Shard) -> None:
        """Write tombstones for the offsets of deleted topics.

        The topic stays in `shard.deleted` until a run finds no such offset, because a tombstone that fails to commit
        deletes nothing. A shard that is not loaded yet is skipped, because its offsets are not known.
        """
        if not (shard.deleted and shard.loaded and shard.leads):
            return
        deleted, found = dict(shard.deleted), False
        for count, hosted in enumerate(list(shard.groups.values()), 1):
            await self._coordinator.loop_budget.yield_()
            under_way = hosted.offsets.pending_partitions(deleted)
            below = hosted.offsets.committed_below(deleted)
            found |= bool(under_way or below)
            self._offsets.write_tombstones(shard, hosted, [tp for tp in below if tp not in under_way])
            if count % _GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
        if not found:
            shard.deleted = {topic: end for topic, end in shard.deleted.items() if deleted.get(topic) != end}
