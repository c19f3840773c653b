"""Assign each followed partition to the fetcher of its leader (the counterpart of Kafka's ReplicaFetcherManager)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from node.replication.fetching.partition_fetch_state import PartitionFetchState
from node.replication.fetching.replica_fetcher import FetchSettings, Opener, ReplicaFetcher
from node.replication.replica import Replica
from node.runtime.loop_budget import LoopBudget
from node.runtime.rate_limit import RateLimit
from storage.configs.parsers import INT64_MAX
from tidelog.clock import Clock
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import BrokerInfo

#: How long a failed connection is remembered. A broker whose process has ended is removed within this time.
_LOST_FOR_MS = 5_000


class ReplicaFetchers:
    """The fetchers of one broker, one for each leader."""

    def __init__(
        self,
        settings: FetchSettings,
        opener: Opener,
        clock: Clock,
        loop_budget: LoopBudget | None = None,
        throttle: RateLimit | None = None,
    ) -> None:
        """`throttle` limits what throttled replicas that are not in sync fetch from all leaders together (KIP-73)."""
        self._throttle = throttle or RateLimit(lambda: INT64_MAX)
        self._settings = settings
        self._opener = opener
        self._clock = clock
        self.loop_budget = loop_budget or LoopBudget()
        self._brokers: Mapping[int, BrokerInfo] = {}
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._lost_ms: dict[int, int] = {}
        self._leaders: dict[TopicPartition, int] = {}

    def follow(self, replica: Replica) -> None:
        """Begin to fetch this replica from its partition's leader, in the partition's leader epoch; return at once.

        An earlier fetch state of the partition is dropped, so that the log is aligned again.
        """
        tp, leader = replica.topic_partition, replica.partition.leader
        if self._leaders.get(tp) != leader:
            self.drop(tp)
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(
                leader, self._settings, self._opener, self._clock, self.loop_budget, self._lost_ms, self._throttle
            )
            fetcher.set_broker(self._brokers.get(leader))
        self._leaders[tp] = leader
        fetcher.put(PartitionFetchState(replica))

    def has_lost(self, leader: int) -> bool:
        """Return whether the connection to this broker, or an attempt to connect, has failed in the last seconds.

        False after a successful attempt.
        """
        at_ms = self._lost_ms.get(leader)
        return at_ms is not None and self._clock.monotonic_ms() - at_ms < _LOST_FOR_MS

    def drop(self, tp: TopicPartition) -> None:
        """Stop fetching the partition, if it is fetched. An answer that arrives later is not applied.

        If no other partition of this leader is fetched, the connection to the leader is closed.
        """
        leader = self._leaders.pop(tp, None)
        if leader is None:
            return
        fetcher = self._fetchers[leader]
        fetcher.remove(tp)
        if not fetcher.partitions:
            fetcher.close()
            del self._fetchers[leader]

    def flushed(self, tp: TopicPartition) -> None:
        """Continue to fetch the partition after a flush of its log, or after a change of its settings.

        Do nothing if the partition is not fetched.
        """
        leader = self._leaders.get(tp)
        if leader is not None:
            self._fetchers[leader].flushed(tp)

    def log_start_rose(self, tp: TopicPartition) -> None:
        """Report the partition's new log start offset to its leader. Do nothing if the partition is not fetched."""
        leader = self._leaders.get(tp)
        if leader is not None:
            self._fetchers[leader].log_start_rose(tp)

    def brokers_changed(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Take over the live brokers. Connect to leaders that are live now, and disconnect from those that are not."""
        self._brokers = brokers
        for leader, fetcher in self._fetchers.items():
            fetcher.set_broker(brokers.get(leader))

    def reconnect(self) -> None:
        """Reconnect to all leaders, because a connection carries this broker's registration."""
        for fetcher in self._fetchers.values():
            fetcher.reconnect()

    async def close(self) -> None:
        """Stop all fetch loops and wait for their end."""
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._leaders.clear()
        for fetcher in fetchers:
            fetcher.close()
        await asyncio.gather(*(fetcher.task for fetcher in fetchers), return_exceptions=True)
