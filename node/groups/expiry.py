"""Offsets that nobody will ask for any more, and groups that have none left (KIP-211)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from functools import partial

from cluster.zookeeper.store import StoreError
from node.groups.coordinator import GroupCoordinator
from node.groups.deletion import Deletion
from node.groups.offset_commits import OffsetCommits
from node.groups.offsets_topic import Assignments
from node.groups.shard import HostedGroup, Shard
from tidelog.errors import BrokerError
from tidelog.model import TopicPartition

log = logging.getLogger(__name__)

_MINUTE_MS = 60_000
#: Groups that are looked at before other work gets a turn of the loop.
_TURN = 64


class Expiry:
    """`run` it all the time; `expired` counts the offsets that had their time."""

    def __init__(
        self, coordinator: GroupCoordinator, offsets: OffsetCommits, deletion: Deletion, assignments: Assignments
    ) -> None:
        self._assignments = assignments
        self._coordinator = coordinator
        self._offsets = offsets
        self._deletion = deletion
        self.expired = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        pause_s = self._coordinator.settings.offsets_retention_check_interval_ms / 1000
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self.expire()
            except Exception:
                log.exception("the expiry of committed offsets failed")

    async def expire(self) -> None:
        """Look through all groups; other work gets its turns meanwhile."""
        for count, (shard, hosted) in enumerate(self._coordinator.groups(), 1):
            await self._coordinator.loop_budget.yield_()
            if shard.leads:
                due = self._due(hosted)
                self._offsets.write_tombstones(shard, hosted, due, partial(self._forgotten, shard, hosted, len(due)))
            if count % _TURN == 0:
                await asyncio.sleep(0)
        for shard in self._coordinator.shards:
            await self.look_for_deleted(shard)

    def _forgotten(
        self, shard: Shard, hosted: HostedGroup, due: int, failed: Mapping[TopicPartition, BrokerError]
    ) -> None:
        self.expired += due - len(failed)
        if hosted.is_empty and not hosted.offsets:
            self._deletion.delete_if_empty(shard, hosted)

    def _due(self, hosted: HostedGroup) -> list[TopicPartition]:
        return hosted.offsets.expired(
            self._coordinator.clock.now_ms(),
            self._coordinator.settings.offsets_retention_minutes * _MINUTE_MS,
            empty_since_ms=hosted.emptied_ms,
            subscribed=hosted.subscribed,
        )

    def topics_deleted(self, topics: Collection[str]) -> None:
        """What is written of them by now means nothing any more, least of all to new topics of their names.

        What is under way is undone before this returns, since a commit that comes later may be of such a topic.
        `forget_deleted` sees to the rest, by their records: two brokers' clocks say nothing of what came first.
        """
        for shard in self._coordinator.shards:
            shard.deleted.update(dict.fromkeys(topics, shard.replica.log.log_end_offset))
        for shard, hosted in self._coordinator.groups():
            self._offsets.write_tombstones(shard, hosted, hosted.offsets.pending_partitions(topics))

    async def look_for_deleted(self, shard: Shard) -> None:
        """Forget also what was committed to topics that went while nobody led the shard, or its leader was not told.

        Of a topic that it does not know this broker may only not have heard yet: ZooKeeper says which are gone. What
        stands in the log by now was committed to topics that were there before; what comes later may be of one that is
        made while ZooKeeper is asked.
        """
        end = shard.replica.log.log_end_offset
        unknown: set[str] = set()
        for count, hosted in enumerate(list(shard.groups.values()), 1):
            unknown |= {topic for topic in hosted.offsets.topics if self._coordinator.metadata.topic(topic) is None}
            if count % _TURN == 0:
                await asyncio.sleep(0)
        if unknown:
            try:
                gone = unknown - await self._assignments.existing_topics()
            except StoreError as error:
                log.info("%s: which topics are gone is asked again later: %s", shard.topic_partition, error)
            else:
                shard.deleted |= {topic: max(end, shard.deleted.get(topic, 0)) for topic in gone}
        await self.forget_deleted(shard)

    async def forget_all_deleted(self) -> None:
        """`forget_deleted` for one shard after the other."""
        for shard in self._coordinator.shards:
            await self.forget_deleted(shard)

    async def forget_deleted(self, shard: Shard) -> None:
        """Forget what groups have committed to topics that were deleted: again and again, until nothing is found.

        While the shard is loaded that is not known yet, and a tombstone that is not committed deletes nothing.
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
            if count % _TURN == 0:
                await asyncio.sleep(0)
        if not found:
            shard.deleted = {topic: end for topic, end in shard.deleted.items() if deleted.get(topic) != end}
