"""Following: one conversation with each broker that leads something we replicate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from node.replication.fetching.partition_fetch_state import PartitionFetchState
from node.replication.fetching.replica_fetcher import FetchSettings, Opener, ReplicaFetcher
from node.replication.replica import Replica
from node.runtime.loop_budget import LoopBudget
from tidelog.clock import Clock
from tidelog.errors import StorageError
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import BrokerInfo


class ReplicaFetchers:
    """All conversations of one broker.

    on_storage_error   told when an append or a truncation fails on the disk; to be set before anything is followed
    """

    def __init__(
        self,
        settings: FetchSettings,
        opener: Opener,
        clock: Clock,
        loop_budget: LoopBudget | None = None,
    ) -> None:
        self.on_storage_error: Callable[[StorageError, TopicPartition], None] = lambda error, tp: None
        self._settings = settings
        self._opener = opener
        self._clock = clock
        self.loop_budget = loop_budget or LoopBudget()
        self._brokers: Mapping[int, BrokerInfo] = {}
        self._conversations: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[TopicPartition, int] = {}

    def follow(self, replica: Replica) -> None:
        """Fetch this replica from the leader that its partition names, in its leader epoch."""
        tp, leader = replica.topic_partition, replica.partition.leader
        if self._leaders.get(tp) != leader:
            self.drop(tp)
        conversation = self._conversations.get(leader)
        if conversation is None:
            conversation = self._conversations[leader] = ReplicaFetcher(
                leader, self._settings, self._opener, self._clock, self.loop_budget, self.on_storage_error
            )
            conversation.set_broker(self._brokers.get(leader))
        self._leaders[tp] = leader
        conversation.put(PartitionFetchState(replica))

    def drop(self, tp: TopicPartition) -> None:
        """Fetch it no more; an answer that is on its way will not be applied."""
        leader = self._leaders.pop(tp, None)
        if leader is None:
            return
        conversation = self._conversations[leader]
        conversation.remove(tp)
        if not conversation.partitions:
            conversation.close()
            del self._conversations[leader]

    def synced(self, tp: TopicPartition) -> None:
        """More of its log is on the disk: it may be fetched on."""
        leader = self._leaders.get(tp)
        if leader is not None:
            self._conversations[leader].synced(tp)

    def log_start_rose(self, tp: TopicPartition) -> None:
        """Its log begins later, by retention: its leader is to know."""
        leader = self._leaders.get(tp)
        if leader is not None:
            self._conversations[leader].log_start_rose(tp)

    def brokers_changed(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Other brokers are live, or live elsewhere."""
        self._brokers = brokers
        for leader, conversation in self._conversations.items():
            conversation.set_broker(brokers.get(leader))

    def reconnect(self) -> None:
        """This broker has a new registration, under which it must introduce itself anew."""
        for conversation in self._conversations.values():
            conversation.reconnect()

    async def close(self) -> None:
        """Stop all fetching."""
        conversations = list(self._conversations.values())
        self._conversations.clear()
        self._leaders.clear()
        for conversation in conversations:
            conversation.close()
        await asyncio.gather(*(conversation.task for conversation in conversations), return_exceptions=True)
