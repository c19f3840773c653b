"""How a client finds a group's coordinator, and what it makes of each refusal (the two steps of the old wiki page)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.tidelog.clients import seconds
from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.settings import ClientSettings, make_settings
from tidelog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    NoBrokersError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    TimeoutError,
)
from tidelog.groups.coordinator_requests import ask_coordinator
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    CommittedPartition,
    FindCoordinatorRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tidelog.protocol.messages import Request, Response

P0 = TopicPartition("t", 0)
FETCH = OffsetFetchRequest("g")


def a_commit(offset: int = 7, metadata: str = "") -> OffsetCommitRequest:
    return OffsetCommitRequest("g", (OffsetCommitPartition("t", 0, offset, -1, metadata),))


@asynccontextmanager
async def a_client(cluster: FakeCluster, **options: int) -> AsyncIterator[ClusterClient]:
    settings = make_settings(ClientSettings, cluster.bootstrap, options)
    client = ClusterClient(settings, clock=VirtualClock(), opener=cluster.open, rng=random.Random(7))
    try:
        yield client
    finally:
        await client.close()


async def commit(client: ClusterClient, request: Request, timeout_ms: int = 30_000) -> list[int]:
    answer = await ask_coordinator(client, "g", request, client.clock.monotonic_ms() + timeout_ms)
    assert isinstance(answer, OffsetCommitResponse)
    return [each.error_code for each in answer.partitions]


async def fetch(client: ClusterClient, timeout_ms: int = 30_000) -> OffsetFetchResponse:
    answer = await ask_coordinator(client, "g", FETCH, client.clock.monotonic_ms() + timeout_ms)
    assert isinstance(answer, OffsetFetchResponse)
    return answer


def searches(cluster: FakeCluster) -> int:
    return len(cluster.sent(FindCoordinatorRequest))


@on_virtual_time
async def test_the_coordinator_is_found_once_and_remembered() -> None:
    cluster = FakeCluster()
    async with a_client(cluster) as client:
        assert await commit(client, a_commit(7)) == [0]
        assert (await fetch(client)).partitions[0].committed_offset == 7
    assert searches(cluster) == 1
    asked = {broker for broker, request in cluster.requests if isinstance(request, OffsetCommitRequest)}
    assert asked == {cluster.coordinator.broker_of("g")}


@on_virtual_time
async def test_not_coordinator_makes_the_client_find_the_new_coordinator() -> None:
    cluster = FakeCluster()
    async with a_client(cluster) as client:
        await commit(client, a_commit(7))
        cluster.coordinator.move("g")
        began = seconds()
        # A commit bears its errors with each partition, a fetch at its top.
        assert await commit(client, a_commit(8)) == [0]
        cluster.coordinator.move("g")
        assert (await fetch(client)).partitions[0].committed_offset == 8
        assert seconds() - began < 0.02
    assert searches(cluster) == 3


@on_virtual_time
async def test_retriable_error_is_found_behind_a_final_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    answers = [
        OffsetCommitResponse(
            (
                CommittedPartition("t", 0, OffsetMetadataTooLargeError.code),
                CommittedPartition("t", 1, NotCoordinatorError.code),
            )
        )
    ]
    handle = cluster.coordinator.handle

    async def deposed_in_between(broker: int, code: int, request: Request) -> Response:
        return (
            answers.pop()
            if answers and isinstance(request, OffsetCommitRequest)
            else await handle(broker, code, request)
        )

    monkeypatch.setattr(cluster.coordinator, "handle", deposed_in_between)
    request = OffsetCommitRequest(
        "g", (OffsetCommitPartition("t", 0, 7, -1, "x" * 5000), OffsetCommitPartition("t", 1, 7))
    )
    async with a_client(cluster) as client:
        assert await commit(client, request) == [OffsetMetadataTooLargeError.code, 0]
    assert searches(cluster) == 2


@on_virtual_time
async def test_missing_coordinator_is_looked_up_again_after_pauses() -> None:
    cluster = FakeCluster()
    cluster.coordinator.missing.add("g")
    async with a_client(cluster) as client:
        asking = asyncio.create_task(commit(client, a_commit()))
        await asyncio.sleep(2)
        assert 5 < searches(cluster) < 50
        cluster.coordinator.missing.clear()
        assert await asking == [0]
        cluster.refusals[OffsetCommitRequest].append(CoordinatorNotAvailableError.code)
        before = searches(cluster)
        assert await commit(client, a_commit()) == [0]
        assert searches(cluster) == before + 1


@on_virtual_time
async def test_a_coordinator_that_still_loads_is_asked_again_and_not_another() -> None:
    cluster = FakeCluster()
    cluster.coordinator.loading.add("g")
    async with a_client(cluster) as client:
        asking = asyncio.create_task(fetch(client))
        await asyncio.sleep(1)
        assert not asking.done()
        cluster.coordinator.loading.clear()
        assert (await asking).error_code == 0
    assert searches(cluster) == 1
    assert 4 < len(cluster.sent(OffsetFetchRequest)) < 25


@on_virtual_time
async def test_too_large_commit_metadata_fails_at_once() -> None:
    cluster = FakeCluster()
    async with a_client(cluster) as client:
        assert await commit(client, a_commit(7, "x" * 5000)) == [OffsetMetadataTooLargeError.code]
    assert len(cluster.sent(OffsetCommitRequest)) == 1


@on_virtual_time
async def test_broken_connection_makes_the_client_find_the_coordinator_again() -> None:
    cluster = FakeCluster()
    async with a_client(cluster) as client:
        await commit(client, a_commit(7))
        faults = [Fault.LOSE_REQUEST]
        cluster.fault_of = lambda _, request: (
            faults.pop() if isinstance(request, OffsetCommitRequest) and faults else None
        )
        began = seconds()
        assert await commit(client, a_commit(8)) == [0]
        assert 0.04 < seconds() - began < 0.5
    assert searches(cluster) == 2


@on_virtual_time
async def test_dead_coordinator_is_replaced_during_a_commit() -> None:
    cluster = FakeCluster()
    async with a_client(cluster) as client:
        await commit(client, a_commit(7))
        cluster.fault_of = lambda _, request: Fault.SWALLOW if isinstance(request, OffsetCommitRequest) else None
        committing = asyncio.create_task(commit(client, a_commit(8)))
        await asyncio.sleep(0.1)
        cluster.fault_of = lambda *_: None
        cluster.kill(cluster.coordinator.broker_of("g"))
        assert await committing == [0]
        assert (await fetch(client)).partitions[0].committed_offset == 8


@on_virtual_time
async def test_hanging_coordinator_is_left_once_another_broker_leads() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create(OFFSETS_TOPIC)
    async with a_client(cluster) as client:
        await commit(client, a_commit(7))
        hung = cluster.coordinator.broker_of("g")
        assert partition.leader == hung
        cluster.hung.add(hung)
        began = seconds()
        committing = asyncio.create_task(commit(client, a_commit(8)))
        await asyncio.sleep(0.5)
        partition.elect(cluster.coordinator.move("g"))
        assert await committing == [0]
        assert seconds() - began < 5


@on_virtual_time
async def test_deadline_error_names_the_last_reason() -> None:
    cluster = FakeCluster()
    async with a_client(cluster) as client:
        for cause, reason in (
            (cluster.coordinator.missing, CoordinatorNotAvailableError.__doc__),
            (cluster.coordinator.loading, CoordinatorLoadInProgressError.__doc__),
        ):
            cause.add("g")
            began = seconds()
            with pytest.raises(TimeoutError, match=f"group 'g': no coordinator answered in 2 s .last: {reason}"):
                await commit(client, a_commit(), timeout_ms=2000)
            assert seconds() - began < 2.1
            cause.clear()
        cluster.hung.update(cluster.live)
        began = seconds()
        with pytest.raises(TimeoutError, match="group 'g': no coordinator answered"):
            await commit(client, a_commit(), timeout_ms=2000)
        assert seconds() - began < 2.1


@on_virtual_time
async def test_brokers_that_redirect_to_each_other_are_asked_with_pauses() -> None:
    cluster = FakeCluster()
    async with a_client(cluster) as client:
        cluster.refusals[OffsetCommitRequest].extend([NotCoordinatorError.code] * 10_000)
        with pytest.raises(TimeoutError, match=NotCoordinatorError.__doc__ or ""):
            await commit(client, a_commit(), timeout_ms=2000)
    assert len(cluster.sent(OffsetCommitRequest)) < 50


@on_virtual_time
async def test_final_error_of_the_discovery_is_raised() -> None:
    cluster = FakeCluster()
    cluster.refusals[FindCoordinatorRequest].append(InvalidGroupIdError.code)
    async with a_client(cluster) as client:
        with pytest.raises(InvalidGroupIdError):
            await commit(client, a_commit())


@on_virtual_time
async def test_unreachable_cluster_raises_no_brokers_error() -> None:
    cluster = FakeCluster()
    for broker in cluster.live:
        cluster.live[broker] = False
    async with a_client(cluster) as client:
        with pytest.raises(NoBrokersError, match="fake:1001"):
            await commit(client, a_commit())


@on_virtual_time
async def test_timeout_names_the_reason_why_the_coordinator_could_not_write(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    why = "in-sync replicas: 1 of 3; acks=all needs 2"
    refused = OffsetCommitResponse((CommittedPartition("t", 0, CoordinatorNotAvailableError.code, why),))
    handle = cluster.coordinator.handle

    async def too_few_in_sync(broker: int, code: int, request: Request) -> Response:
        return refused if isinstance(request, OffsetCommitRequest) else await handle(broker, code, request)

    monkeypatch.setattr(cluster.coordinator, "handle", too_few_in_sync)
    async with a_client(cluster) as client:
        with pytest.raises(TimeoutError, match=f"last: {why}"):
            await commit(client, a_commit(), timeout_ms=2000)
