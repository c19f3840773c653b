"""Offsets that nobody will ask for any more, and groups that have none left (KIP-211)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping
from functools import partial

from node.coordinator.coordinator import GroupCoordinator
from node.coordinator.deletion import Deletion
from node.coordinator.offsets import OffsetManager
from node.coordinator.shard import HostedGroup, Shard
from tidelog.errors import BrokerError
from tidelog.model import TopicPartition

log = logging.getLogger(__name__)

_MINUTE_MS = 60_000
#: Groups that are looked at before other work gets a turn of the loop.
_TURN = 64


class Expiry:
    """`run` it all the time; `expired` counts the offsets that had their time."""

    def __init__(self, coordinator: GroupCoordinator, offsets: OffsetManager, deletion: Deletion) -> None:
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
            if shard.leads:
                due = self._due(hosted)
                self._offsets.write_tombstones(shard, hosted, due, partial(self._forgotten, shard, hosted, len(due)))
            if count % _TURN == 0:
                await asyncio.sleep(0)

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

    def topics_deleted(self, topics: Collection[str]) -> Coroutine[None, None, None]:
        """What is written of them by now means nothing any more, least of all to new topics of their names.

        What is under way is undone before this returns, since a commit that comes later may be of such a topic. The
        coroutine sees to the rest, by their records: two brokers' clocks say nothing of what came first.
        """
        ends = {shard: shard.replica.log.log_end_offset for shard in self._coordinator.shards}
        for shard, hosted in self._coordinator.groups():
            self._offsets.write_tombstones(shard, hosted, hosted.offsets.under_way(topics))
        return self._forget(topics, ends)

    async def _forget(self, topics: Collection[str], ends: Mapping[Shard, int]) -> None:
        for count, (shard, hosted) in enumerate(self._coordinator.groups(), 1):
            gone = hosted.offsets.committed_below(ends.get(shard, 0), topics)
            self._offsets.write_tombstones(shard, hosted, gone)
            if count % _TURN == 0:
                await asyncio.sleep(0)
