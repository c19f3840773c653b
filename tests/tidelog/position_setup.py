"""Connect a client to the fake cluster, and collect what is reported to the readers of partitions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import VirtualClock
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.failures import Failures
from tidelog.client.consumer.fetching.fetch_plan import RequestedPartition
from tidelog.client.consumer.fetching.subscription_positions import SubscriptionPositions
from tidelog.client.metadata import Leader
from tidelog.client.settings import ConsumerSettings, make_settings
from tidelog.errors import TidelogError
from tidelog.model import EARLIEST_TIMESTAMP, OffsetAndMetadata, TopicPartition

P0 = TopicPartition("t", 0)


class Committed:
    """The committed offsets of a group, without a coordinator; `error` is raised instead of an answer."""

    def __init__(self, offsets: dict[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        self.offsets = offsets or {}
        self.error: TidelogError | None = None
        self.asked: list[list[TopicPartition]] = []

    async def fetch(
        self, partitions: Collection[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        self.asked.append(list(partitions))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return {tp: self.offsets.get(tp) for tp in partitions}


class PositionSetup:
    def __init__(self, cluster: FakeCluster, committed: Committed, options: dict[str, Any]) -> None:
        self.settings = make_settings(ConsumerSettings, cluster.bootstrap, {"auto_offset_reset": "earliest"} | options)
        self.client = ClusterClient(self.settings, clock=VirtualClock(), opener=cluster.open, rng=random.Random(7))
        self.committed = committed
        self.failures = Failures(self.client, asyncio.Event())
        self.positions = SubscriptionPositions(
            self.client,
            self.settings,
            self.failures,
            committed,  # type: ignore[arg-type]
        )

    async def leader(self) -> Leader:
        """Return the present leader of the partition, as the newest metadata shows it."""
        await self.client.try_refresh(self.client.clock.monotonic_ms() + 1000)
        leader = self.client.view.leader_of(*P0)
        assert leader is not None
        return leader

    async def request(self, partition: AssignedPartition, leader: Leader | None = None) -> list[RequestedPartition]:
        """Return the partition as in a request to its leader, or to this one."""
        asked = leader or await self.leader()
        partition.on_leader(asked)
        return [RequestedPartition(partition, partition.generation, asked)]

    async def fetching(self, offset: int, epoch: int = -1) -> AssignedPartition:
        """Return a partition with this position that the present leader has confirmed."""
        partition = AssignedPartition(P0, EARLIEST_TIMESTAMP)
        partition.on_offset_found(offset, epoch)
        partition.on_validated((await self.leader()).epoch)
        return partition


@asynccontextmanager
async def position_setup(
    cluster: FakeCluster, committed: Committed | None = None, **options: Any
) -> AsyncIterator[PositionSetup]:
    setup = PositionSetup(cluster, committed or Committed(), options)
    setup.client.track(P0.topic)
    setup.client.start()
    try:
        await setup.client.wait_for_metadata(setup.client.clock.monotonic_ms() + 1000)
        yield setup
    finally:
        await setup.client.close()
