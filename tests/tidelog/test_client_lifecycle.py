"""Test that a client belongs to one event loop, and frees its resources when it is garbage-collected unclosed."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

import tidelog
from tests.tidelog.clients import in_memory, put
from tests.tidelog.fake_cluster import FakeCluster
from tidelog import aio
from tidelog.client.admin.config_requests import ConfigResource
from tidelog.errors import ClosedError
from tidelog.groups.descriptions import MemberToRemove
from tidelog.groups.membership.rebalance_listener import ConsumerRebalanceListener
from tidelog.groups.reset import ToEarliest
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.protocol.group_messages import HeartbeatRequest
from tidelog.protocol.messages import NewTopic, ProduceRequest
from tidelog.protocol.partition_messages import ElectionType, NewPartitions
from tidelog.records import encode_batch

KINDS: list[type[Any]] = [aio.Producer, aio.Consumer, aio.Admin]
SYNC_KINDS: list[type[Any]] = [tidelog.Producer, tidelog.Consumer, tidelog.Admin]
T0 = TopicPartition("t", 0)
#: Valid arguments of the public methods that need some.
ARGUMENTS: Mapping[str, tuple[Any, ...]] = {
    "send": ("t", b"v"),
    "send_values": ("t", [b"v"]),
    "send_and_wait": ("t", b"v"),
    "partitions_for": ("t",),
    "queues_of": ("t", None, 0),
    "assign": ([T0],),
    "subscribe": (["t"],),
    "committed": (T0,),
    "seek": (T0, 0),
    "seek_to_time": (1, T0),
    "position": (T0,),
    "highwater": (T0,),
    "give_back": ({},),
    "offsets_for_times": ({T0: 1},),
    "offsets_before": ({T0: 1},),
    "beginning_offsets": ([T0],),
    "end_offsets": ([T0],),
    "partitions_for_topic": ("t",),
    "alter_configs": ({ConfigResource.topic("t"): {"retention.ms": "1"}},),
    "alter_consumer_group_offsets": ("g", {T0: OffsetAndMetadata(0)}),
    "alter_partition_reassignments": ({T0: [1]},),
    "alter_replica_log_dirs": (1, {T0: "/d"}),
    "alter_zookeeper_group_offsets": ("g", {T0: 1}),
    "consumer_group_lag": ("g",),
    "create_partitions": ([NewPartitions("t", 2)],),
    "create_topics": ([NewTopic("u", 1, 1)],),
    "delete_consumer_group_offsets": ("g", [T0]),
    "delete_consumer_groups": (["g"],),
    "delete_records": ({T0: 1},),
    "delete_topics": (["t"],),
    "describe_configs": ([ConfigResource.topic("t")],),
    "describe_consumer_groups": (["g"],),
    "describe_times": ("t",),
    "elect_leaders": (ElectionType.PREFERRED,),
    "list_consumer_group_offsets": ("g",),
    "list_zookeeper_group_offsets": ("g",),
    "migrate_zookeeper_group": ("g",),
    "partition_facts": (T0,),
    "remove_group_members": ("g", [MemberToRemove("m")]),
    "reset_consumer_group_offsets": ("g", ToEarliest()),
    "__aexit__": (None, None, None),
}
NAMED: Mapping[str, Mapping[str, Any]] = {
    "send_batch": {"topic": "t", "batch": encode_batch([(1, None, b"v", ())]), "partition": 0},
}
#: For the synchronous client that owns the asyncio one; and the call that any thread may make.
LEFT_OUT = {"_leave_to_owner", "metrics"}


def public_methods(kind: type[Any]) -> list[str]:
    special = {"__aenter__", "__aexit__", "__anext__"}
    found = {name for name, _ in inspect.getmembers(kind, inspect.isfunction)}
    return sorted({name for name in found if not name.startswith("_") or name in special} - LEFT_OUT)


EVERY_CALL = [(kind, name) for kind in KINDS for name in public_methods(kind)]


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0", b"1")
    return cluster


async def begin(client: Any) -> None:
    """Make the first calls, after which the client has tasks and connections."""
    match client:
        case aio.Producer():
            await client.send_and_wait("t", b"v")
        case aio.Consumer():
            client.subscribe(["t"])
            while not await client.poll(100):
                pass
        case _:
            await client.list_topics()


def begin_sync(client: Any) -> None:
    match client:
        case tidelog.Producer():
            client.send("t", b"v").get(5)
        case tidelog.Consumer():
            client.subscribe(["t"])
            while not client.poll(100):
                pass
        case _:
            client.list_topics()


def options_of(kind: type[Any]) -> dict[str, Any]:
    is_consumer = "Consumer" in kind.__name__
    return {"group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 20} if is_consumer else {}


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, and collect garbage, because another thread may still refer to the client."""
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
        gc.collect()
    raise AssertionError("it never came true")


@contextmanager
def resource_warnings() -> Iterator[list[str]]:
    gc.collect()  # clients that earlier tests have dropped warn now
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        warned: list[str] = []
        yield warned
        gc.collect()
        warned += [str(each.message) for each in caught if "tidelog" in str(each.message)]


# --- one event loop -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), EVERY_CALL, ids=lambda value: getattr(value, "__name__", value))
def test_each_call_of_an_asyncio_client_refuses_a_second_loop(kind: type[Any], name: str, cluster: FakeCluster) -> None:
    client = in_memory(kind, cluster, **options_of(kind))
    client._leave_to_owner()  # no warning when the test drops the client
    asyncio.run(begin(client))

    async def call() -> None:
        result = getattr(client, name)(*ARGUMENTS.get(name, ()), **NAMED.get(name, {}))
        if inspect.isawaitable(result):
            await asyncio.wait_for(result, 5)

    with pytest.raises(RuntimeError, match=rf"<tidelog.aio.{kind.__name__} .*belongs to the event loop of its first"):
        asyncio.run(call())


@pytest.mark.parametrize("kind", KINDS)
def test_closed_client_raises_closed_error_in_another_loop(kind: type[Any], cluster: FakeCluster) -> None:
    client = in_memory(kind, cluster)

    async def use_and_close() -> None:
        await begin_without_group(client)
        await client.close()

    async def begin_without_group(client: Any) -> None:
        if isinstance(client, aio.Consumer):
            client.assign([T0])
            await client.poll(100)
        else:
            await begin(client)

    asyncio.run(use_and_close())
    asyncio.run(client.close())  # idempotent in any loop
    with pytest.raises(ClosedError):
        asyncio.run(begin_without_group(client))


def test_client_made_outside_of_a_loop_belongs_to_that_of_its_first_call(cluster: FakeCluster) -> None:
    producer = in_memory(aio.Producer, cluster)

    async def story() -> None:
        async with producer:
            await producer.send_and_wait("t", b"v")

    asyncio.run(story())


# --- dropped --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SYNC_KINDS, ids=lambda kind: kind.__name__)
def test_a_dropped_client_warns_and_frees_its_thread_and_connections(kind: type[Any], cluster: FakeCluster) -> None:
    before = set(threading.enumerate())
    with resource_warnings() as warned:
        for _ in range(10):
            client = in_memory(kind, cluster, **options_of(kind))
            begin_sync(client)
            del client
        gc.collect()
        eventually(lambda: set(threading.enumerate()) <= before)
    assert len(warned) == 10
    assert all(f"<tidelog.{kind.__name__} bootstrap_servers=" in each and "not closed" in each for each in warned)
    assert not any(cluster.connections.values())


def test_dropped_member_of_a_group_leaves_and_sends_no_more_heartbeats(cluster: FakeCluster) -> None:
    with resource_warnings():
        consumer = in_memory(tidelog.Consumer, cluster, **options_of(tidelog.Consumer))
        begin_sync(consumer)
        eventually(lambda: bool(cluster.sent(HeartbeatRequest)))
        del consumer
        gc.collect()
        eventually(lambda: not any(cluster.connections.values()))
        beats = len(cluster.sent(HeartbeatRequest))
        time.sleep(0.1)  # five intervals
        assert len(cluster.sent(HeartbeatRequest)) == beats


def test_dropped_subscriber_without_a_group_frees_its_resources(cluster: FakeCluster) -> None:
    before = set(threading.enumerate())
    with resource_warnings() as warned:
        consumer = in_memory(tidelog.Consumer, cluster, auto_offset_reset="earliest")
        begin_sync(consumer)
        del consumer
        gc.collect()
        eventually(lambda: set(threading.enumerate()) <= before)
    assert len(warned) == 1 and not any(cluster.connections.values())


@pytest.mark.parametrize("group_id", ["g", None])
def test_dropped_consumer_is_freed_though_its_listener_refers_to_it(group_id: str | None, cluster: FakeCluster) -> None:
    class Committing(ConsumerRebalanceListener):
        def __init__(self, consumer: tidelog.Consumer) -> None:
            self.consumer = consumer

    before = set(threading.enumerate())
    with resource_warnings() as warned:
        consumer = in_memory(tidelog.Consumer, cluster, group_id=group_id, auto_offset_reset="earliest")
        consumer.subscribe(["t"], listener=Committing(consumer))
        while not consumer.poll(100):
            pass
        del consumer
        gc.collect()
        eventually(lambda: set(threading.enumerate()) <= before)
    assert len(warned) == 1 and not any(cluster.connections.values())


def test_records_that_a_dropped_producer_has_not_sent_fail_and_say_why(cluster: FakeCluster) -> None:
    cluster.partitions["t"][0].leader = -1
    with resource_warnings():
        producer = in_memory(tidelog.Producer, cluster)
        future = producer.send("t", b"v")
        del producer
        gc.collect()
        assert isinstance(future.exception(5), ClosedError)
    assert not cluster.sent(ProduceRequest)


@pytest.mark.parametrize("kind", SYNC_KINDS, ids=lambda kind: kind.__name__)
def test_closed_client_is_dropped_without_a_warning(kind: type[Any], cluster: FakeCluster) -> None:
    with resource_warnings() as warned:
        with in_memory(kind, cluster, **options_of(kind)) as client:
            begin_sync(client)
        del client
    assert warned == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_dropped_asyncio_client_warns_and_frees_its_tasks_and_connections(
    kind: type[Any], cluster: FakeCluster
) -> None:
    async def story() -> None:
        for _ in range(10):
            client = in_memory(kind, cluster, **options_of(kind))
            await begin(client)
            del client
        gc.collect()
        for _ in range(500):
            freed = asyncio.all_tasks() == {asyncio.current_task()} and not any(cluster.connections.values())
            if freed:
                break
            await asyncio.sleep(0.01)
            gc.collect()
        assert freed

    with resource_warnings() as warned:
        asyncio.run(story())
    assert len(warned) == 10
    assert all(f"<tidelog.aio.{kind.__name__} bootstrap_servers=" in each for each in warned)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_asyncio_client_dropped_after_its_loop_frees_its_connections(kind: type[Any], cluster: FakeCluster) -> None:
    client = in_memory(kind, cluster, **options_of(kind))
    asyncio.run(begin(client))
    assert any(cluster.connections.values())
    with resource_warnings() as warned:
        del client
    assert len(warned) == 1
    assert not any(cluster.connections.values())
