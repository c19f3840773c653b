"""A cluster in one process. The test plays the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from cluster.state import PartitionState, VersionedState
from node.events.history_file import EventRecorder
from tests.node.client_requests import TP, fetch_request, produce_request
from tests.node.memory_log import MemoryLogs
from tests.node.memory_network import MemoryNetwork
from tests.node.memory_node import MemoryStates, Node
from tests.virtual_time import VirtualClock
from tidelog.history.broker_events import BrokerEvent
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import (
    BrokerInfo,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionStateMessage,
    TopicInfo,
)
from tidelog.protocol.messages import ProduceResponse

TOPIC_ID = "topic-id-1"


class MemoryCluster:
    """Brokers 1 to `size`. The test plays the controller: it elects leaders and chooses which brokers get the state.

    topic_id    the id of every topic
    histories   the recorded events of each broker, over all its restarts
    threads     flush logs on threads, for which virtual time does not wait
    """

    def __init__(
        self,
        size: int = 3,
        *,
        max_lag_ms: int = 1000,
        directory: Callable[[], Any] = MemoryLogs,
        threads: bool = False,
        group_settings: Mapping[str, Any] | None = None,
        topic_id: str = TOPIC_ID,
    ) -> None:
        self.max_lag_ms = max_lag_ms
        self.topic_id = topic_id
        self._threads = threads
        self.states = MemoryStates()
        self.nodes: dict[int, Node] = {}
        self.histories: dict[int, list[BrokerEvent]] = {}
        self.network = MemoryNetwork(self.nodes)
        self.network.group_settings = group_settings or {}
        self.configs: dict[str, str] = {"min.insync.replicas": "2"}
        self.replicas = tuple(range(1, size + 1))
        self.controller_epoch = 1
        self._epochs = 100
        for broker_id in self.replicas:
            self._begin(broker_id, directory())

    async def __aenter__(self) -> MemoryCluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if node.alive:
                await node.replicas.close()
                await node.stop()

    def _begin(self, broker_id: int, directory: Any) -> None:
        self._epochs += 1
        keep, clock = self.histories.setdefault(broker_id, []).append, VirtualClock()
        self.nodes[broker_id] = Node(
            broker_id,
            self._epochs,
            directory,
            self.network,
            self.states,
            self.max_lag_ms,
            threads=self._threads,
            events=EventRecorder(keep, lambda: clock.monotonic_ms() * 1_000_000),
        )

    # --- faults ---

    async def kill(self, broker_id: int) -> None:
        self.nodes[broker_id].alive = False
        self.network.disconnect(broker_id)
        await self.nodes[broker_id].stop()

    def restart(self, broker_id: int) -> None:
        """Start a new process over the directory that the old one left."""
        self._begin(broker_id, self.nodes[broker_id].directory)

    def cut(self, one: int, *others: int) -> None:
        self.network.cut(one, *others)

    def heal(self) -> None:
        self.network.heal()

    # --- the controller ---

    def live(self) -> tuple[BrokerInfo, ...]:
        return tuple(node.info for node in self.nodes.values() if node.alive)

    async def elect(
        self,
        leader: int,
        *,
        isr: Iterable[int] | None = None,
        send_to: Iterable[int] | None = None,
        tp: TopicPartition = TP,
    ) -> None:
        """Write a new leader epoch, and send it to the live brokers or to those of `send_to`."""
        before = self.states.states.get(tp)
        if before is None:
            members = tuple(isr or self.replicas)
            self.states.states[tp] = VersionedState(PartitionState(leader, 0, members, self.controller_epoch), 0)
        else:
            members = tuple(isr) if isr is not None else before.state.isr
            state = replace(before.state, leader=leader, leader_epoch=before.state.leader_epoch + 1, isr=members)
            self.states.states[tp] = VersionedState(state, before.partition_epoch + 1)
        await self.send_state(send_to, tp)

    async def shrink(self, *isr: int) -> None:
        """Write a smaller ISR, as the controller does if a follower fails. Leader and leader epoch stay."""
        before = self.states.states[TP]
        self.states.states[TP] = VersionedState(replace(before.state, isr=isr), before.partition_epoch + 1)
        await self.send_state()

    async def send_state(self, broker_ids: Iterable[int] | None = None, tp: TopicPartition = TP) -> None:
        """Send ZooKeeper's state to these brokers, or to all live ones."""
        for broker_id in (
            broker_ids if broker_ids is not None else [node.broker_id for node in self.nodes.values() if node.alive]
        ):
            response = await self.nodes[broker_id].ask(self.leader_and_isr(tp), sender_epoch=1)
            assert isinstance(response, LeaderAndIsrResponse)
            assert [each.error_code for each in response.partitions] == [0]

    def leader_and_isr(self, tp: TopicPartition = TP, *, topic_id: str | None = None) -> LeaderAndIsrRequest:
        versioned = self.states.states[tp]
        state = versioned.state
        message = PartitionStateMessage(
            tp.topic,
            tp.partition,
            state.controller_epoch,
            state.leader,
            state.leader_epoch,
            state.isr,
            versioned.partition_epoch,
            self.replicas,
        )
        topics = (TopicInfo(tp.topic, self.topic_id if topic_id is None else topic_id, self.configs, 1),)
        return LeaderAndIsrRequest(1, self.controller_epoch, (message,), topics, self.live())

    @property
    def leader(self) -> Node:
        return self.nodes[self.states.states[TP].state.leader]

    # --- clients ---

    async def produce(
        self, value: bytes, *, acks: int = -1, timeout_ms: int = 5000, to: int | None = None
    ) -> tuple[int, int]:
        """Append one record. Return (error code, base offset)."""
        node = self.leader if to is None else self.nodes[to]
        response = await node.ask(produce_request(value, acks=acks, timeout_ms=timeout_ms))
        assert isinstance(response, ProduceResponse)
        return response.partitions[0].error_code, response.partitions[0].base_offset

    async def consume(self, offset: int, *, to: int | None = None) -> tuple[int, list[bytes]]:
        """Fetch as a consumer from `offset` on, without waiting. Return (error code, values)."""
        node = self.leader if to is None else self.nodes[to]
        return (await node.fetch(fetch_request(offset)))[:2]
