"""Step 1: find the offset manager of a group; step 2: commit or fetch. It is killed between the two."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.coordinators import coordinator, reported_coordinator, wait_moved, wait_offsets_topic
from tests.processes.harness.waiting import require_bite, wait_for
from tidelog import Consumer, OffsetAndMetadata, TopicPartition
from tidelog.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    DisconnectedError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    TidelogError,
    TimeoutError,
    error_for,
    raise_first,
)
from tidelog.protocol.group_messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tidelog.protocol.messages import DescribePartition
from verify.chaos.clients.support.lines import Lines

pytestmark = pytest.mark.slow

MY_GROUP = "demoGroup"
TOPIC = "demoTopic"
BACKOFF_S = 0.1
TIME_LIMIT_S = 60

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass
class Channel:
    """The two steps without a client; `met` has the retriable errors in order."""

    lines: Lines
    manager: str = ""
    met: list[str] = field(default_factory=list)

    async def discover(self) -> str:
        """Step 1: ask any broker, and repeat after a pause until one answers."""
        deadline = time.monotonic() + TIME_LIMIT_S
        while not self.manager:
            try:
                self.manager = await self.lines.find_somewhere(MY_GROUP)
            except TidelogError as error:
                assert time.monotonic() < deadline, error
                await self._back_off(error)
        return self.manager

    async def commit(self, offsets: Offsets) -> None:
        """Step 2, and step 1 before it as often as it takes. OffsetMetadataTooLargeError is the caller's."""
        entries = tuple(OffsetCommitPartition(*tp, each.offset, -1, each.metadata) for tp, each in offsets.items())
        while True:
            try:
                answer = await self.lines.to(await self.discover()).ask(OffsetCommitRequest(MY_GROUP, entries))
                assert isinstance(answer, OffsetCommitResponse)
                raise_first(error_for(each.error_code) for each in answer.partitions)
                return
            except TidelogError as error:
                await self._react(error)

    async def fetch(self, *tps: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        """The same for what is committed."""
        wanted = tuple(DescribePartition(*tp) for tp in tps)
        while True:
            try:
                answer = await self.lines.to(await self.discover()).ask(OffsetFetchRequest(MY_GROUP, wanted))
                assert isinstance(answer, OffsetFetchResponse)
                raise_first(map(error_for, [answer.error_code, *(each.error_code for each in answer.partitions)]))
                return {
                    TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.committed_offset, each.metadata)
                    for each in answer.partitions
                }
            except TidelogError as error:
                await self._react(error)

    async def _react(self, error: TidelogError) -> None:
        if isinstance(error, OffsetMetadataTooLargeError):
            raise error
        moved = isinstance(error, (NotCoordinatorError, CoordinatorNotAvailableError))
        if moved or not isinstance(error, BrokerError):
            if self.manager:
                self.lines.to(self.manager).close()
            self.manager = ""
        await self._back_off(error)

    async def _back_off(self, error: TidelogError) -> None:
        self.met.append(type(error).__name__)
        await asyncio.sleep(BACKOFF_S)


def test_offset_manager_killed_after_discovery_is_replaced(cluster: RunningCluster) -> None:
    first, second = cluster.create_topic(TOPIC, partitions=2)
    wait_offsets_topic(cluster, MY_GROUP)
    offsets = {
        first: OffsetAndMetadata(100, "associated metadata"),
        second: OffsetAndMetadata(200, "more metadata"),
    }

    async def two_steps() -> list[str]:
        async with Lines([cluster.address(each) for each in cluster.broker_ids]) as lines:
            channel = Channel(lines)
            found = await channel.discover()
            victim = coordinator_at(cluster, found)
            await channel.fetch(first)  # the channel is connected
            await asyncio.to_thread(cluster.kill, victim)
            await channel.commit(offsets)
            assert await channel.fetch(first, second) == offsets
            assert channel.manager != found
            await asyncio.to_thread(come_back, cluster, victim)

            found = await channel.discover()
            victim = coordinator_at(cluster, found)
            await asyncio.to_thread(cluster.kill, victim)
            assert await channel.fetch(first, second) == offsets
            assert channel.manager != found
            await asyncio.to_thread(come_back, cluster, victim)
            return channel.met

    met = asyncio.run(two_steps())
    require_bite("no step met a broken channel", met.count("DisconnectedError") >= 2 and met)
    known = {DisconnectedError, TimeoutError, NotCoordinatorError, CoordinatorNotAvailableError}
    assert set(met) <= {each.__name__ for each in (*known, CoordinatorLoadInProgressError)}


def come_back(cluster: RunningCluster, broker_id: int) -> None:
    """Until it may take the group over again."""
    cluster.restart(broker_id)
    wait_offsets_topic(cluster, MY_GROUP)


def coordinator_at(cluster: RunningCluster, address: str) -> int:
    """The broker that has this address."""
    return next(each for each in cluster.broker_ids if cluster.address(each) == address)


def test_broker_that_is_not_the_offset_manager_redirects_clients(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic(TOPIC)
    wait_offsets_topic(cluster, MY_GROUP)
    manager = coordinator(cluster, MY_GROUP)
    other = next(each for each in cluster.broker_ids if each != manager)
    for each in cluster.broker_ids:
        wait_for("all to know who is", lambda by=each: reported_coordinator(cluster, MY_GROUP, by=by) == manager)  # type: ignore[misc]

    async def go() -> None:
        async with Lines([cluster.address(each) for each in cluster.broker_ids]) as lines:
            channel = Channel(lines, manager=cluster.address(other))
            await channel.commit({tp: OffsetAndMetadata(100, "associated metadata")})
            channel.manager = cluster.address(other)
            assert await channel.fetch(tp) == {tp: OffsetAndMetadata(100, "associated metadata")}
            assert channel.met == ["NotCoordinatorError"] * 2
            with pytest.raises(OffsetMetadataTooLargeError):
                await channel.commit({tp: OffsetAndMetadata(101, "x" * 5000)})
            assert await channel.fetch(tp) == {tp: OffsetAndMetadata(100, "associated metadata")}

    asyncio.run(go())


def test_client_repeats_discovery_by_itself(cluster: RunningCluster) -> None:
    first, second = cluster.create_topic(TOPIC, partitions=2)
    wait_offsets_topic(cluster, MY_GROUP)
    with (
        Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=MY_GROUP, enable_auto_commit=False) as committer,
        Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=MY_GROUP, enable_auto_commit=False) as reader,
    ):
        assert reader.committed([first]) == {first: None}
        for offset in (100, 200):
            victim = coordinator(cluster, MY_GROUP)
            committer.commit({first: OffsetAndMetadata(offset, "associated metadata")}, timeout_ms=60_000)
            cluster.kill(victim)
            committer.commit({second: OffsetAndMetadata(offset, "more metadata")}, timeout_ms=60_000)
            assert reader.committed([first, second], timeout_ms=60_000) == {
                first: OffsetAndMetadata(offset, "associated metadata"),
                second: OffsetAndMetadata(offset, "more metadata"),
            }
            wait_moved(cluster, MY_GROUP, away_from=victim)
            come_back(cluster, victim)
        with pytest.raises(OffsetMetadataTooLargeError):
            committer.commit({first: OffsetAndMetadata(300, "x" * 5000)})
        assert reader.committed([first])[first] == OffsetAndMetadata(200, "associated metadata")
