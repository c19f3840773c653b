"""Offsets of groups in ZooKeeper, on the real one and on its twin, which can withhold answers."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryStore, MemoryZooKeeper, NetworkConditions
from cluster.zookeeper.store import BadVersionError, OutcomeUnknownError
from cluster.zookeeper.znodes import MalformedZnodeError
from tests.cluster.stores import Server
from tests.cluster.test_zk_client import join, twin
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.errors import InvalidGroupIdError
from tidelog.groups.zookeeper_names import MAX_GROUP_ID_BYTES, group_in_path_or_raise
from tidelog.model import TopicPartition

TP = TopicPartition("t", 0)
PATH = "/consumers/g/offsets/t/0"


async def test_an_offset_lies_where_kafka_put_it_as_a_decimal_number(server: Server) -> None:
    one, other = await join(server), await join(server)
    assert await one.zookeeper_offsets.read("g", TP) is None
    await one.zookeeper_offsets.commit("g", TP, 42)
    assert (await other.store.get(PATH)).data == b"42"
    await other.zookeeper_offsets.commit("g", TP, 7)
    assert await one.zookeeper_offsets.read("g", TP) == 7, "the last commit counts, even if it goes back"
    await one.store.close()
    await other.store.close()


async def test_groups_and_partitions_are_listed_beside_foreign_znodes(
    server: Server,
) -> None:
    one = await join(server)
    offsets = one.zookeeper_offsets
    assert await offsets.groups() == [] == await offsets.partitions("g")
    for group_id, tp in (("g", TP), ("g", TopicPartition("t", 10)), ("g", TopicPartition("s", 2)), ("é", TP)):
        await offsets.commit(group_id, tp, 1)
    await one.store.create("/consumers/idle")
    await one.store.create("/consumers/idle/owners")
    await one.store.create("/consumers/g/offsets/t/stray")
    assert await offsets.groups() == ["g", "é"]
    assert await offsets.partitions("g") == [TopicPartition("s", 2), TopicPartition("t", 0), TopicPartition("t", 10)]
    await one.store.close()


async def test_concurrent_commits_share_their_parent_znodes(server: Server) -> None:
    one, other = await join(server), await join(server)
    tps = [TopicPartition("t", number) for number in range(20)]
    await asyncio.gather(
        *((one, other)[tp.partition % 2].zookeeper_offsets.commit("g", tp, tp.partition) for tp in tps)
    )
    assert await asyncio.gather(*(one.zookeeper_offsets.read("g", tp) for tp in tps)) == list(range(20))
    await one.store.close()
    await other.store.close()


@pytest.mark.parametrize("first", [None, 5])
async def test_commit_with_a_lost_answer_is_made(first: int | None) -> None:
    _, store, zk_client = await twin()
    if first is not None:
        await zk_client.zookeeper_offsets.commit("g", TP, first)
    store.lose_answers = 3
    await zk_client.zookeeper_offsets.commit("g", TP, 6)
    assert await zk_client.zookeeper_offsets.read("g", TP) == 6


class SlowStore(MemoryStore):
    """A client whose writes are slow or lost, and which cannot read meanwhile."""

    held: asyncio.Event | None = None
    loses = True

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        if self.held is not None:
            await self.held.wait()
            self.held = None
            if self.loses:
                raise OutcomeUnknownError("lost on the way")
        return await super().set(path, data, version)


@pytest.mark.parametrize("loses", [True, False])
async def test_a_commit_that_hung_does_not_take_back_a_later_one(loses: bool) -> None:
    server, _, zk_client = await twin()
    await zk_client.zookeeper_offsets.commit("g", TP, 5)
    slow = server.connect(SlowStore)
    stuck = ZkClient(slow, server.clock).zookeeper_offsets
    slow.held, slow.loses = asyncio.Event(), loses
    old = asyncio.ensure_future(stuck.commit("g", TP, 6))
    await asyncio.sleep(0.01)
    await zk_client.zookeeper_offsets.commit("g", TP, 7)
    slow.held.set()
    with pytest.raises(OutcomeUnknownError, match="another client"):
        await old
    assert await zk_client.zookeeper_offsets.read("g", TP) == 7


class LateStore(MemoryStore):
    """A client whose writes are under way until `arrive`, even if their caller no longer waits."""

    def begin(self) -> None:
        super().begin()
        self.under_way: asyncio.Future[tuple[str, bytes, int]] = asyncio.get_running_loop().create_future()

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        self.under_way.set_result((path, data, version))
        await asyncio.Event().wait()
        raise AssertionError

    async def arrive(self) -> None:
        await super().set(*self.under_way.result())


async def test_abandoned_commit_that_arrives_late_does_not_undo_a_later_one() -> None:
    server, _, zk_client = await twin()
    await zk_client.zookeeper_offsets.commit("g", TP, 5)
    late = server.connect(LateStore)
    given_up = asyncio.ensure_future(ZkClient(late, server.clock).zookeeper_offsets.commit("g", TP, 6))
    await late.under_way
    given_up.cancel()
    await zk_client.zookeeper_offsets.commit("g", TP, 7)
    with pytest.raises(BadVersionError):
        await late.arrive()
    assert await zk_client.zookeeper_offsets.read("g", TP) == 7


async def test_every_operation_fails_without_zookeeper() -> None:
    _, store, zk_client = await twin()
    store.network.refuse()
    offsets = zk_client.zookeeper_offsets
    calls = (offsets.commit("g", TP, 1), offsets.read("g", TP), offsets.partitions("g"), offsets.groups())
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknownError] * 4


@pytest.mark.parametrize("data", [b"", b"x", b"-1", b" 1", b"1_0", b"9" * 19, b"9" * 10_000, b'{"offset":1}'])
async def test_malformed_offset_is_reported_with_its_path(data: bytes) -> None:
    _, store, zk_client = await twin()
    await zk_client.zookeeper_offsets.commit("g", TP, 1)
    await store.set(PATH, data)
    with pytest.raises(MalformedZnodeError, match=f"^{PATH}: .* is not an offset"):
        await zk_client.zookeeper_offsets.read("g", TP)


@pytest.mark.parametrize(
    "group_id",
    [
        "",
        ".",
        "..",
        "a/b",
        "/",
        "../controller",
        "a\0b",
        "a\n",
        "\x7f",
        "\ud800",
        "\ufffe",
        "😀",
        "x" * 1001,
        "é" * 501,
    ],
)
def test_a_group_that_cannot_be_an_element_of_a_path_is_refused(group_id: str) -> None:
    with pytest.raises(InvalidGroupIdError):
        group_in_path_or_raise(group_id)


async def test_a_group_with_any_other_name_is_as_good_as_another(server: Server) -> None:
    one = await join(server)
    for group_id in ("...", "a b", "-", "日本", "x" * MAX_GROUP_ID_BYTES, "%2F"):
        await one.zookeeper_offsets.commit(group_in_path_or_raise(group_id), TP, 3)
        assert await one.zookeeper_offsets.read(group_id, TP) == 3
    await one.store.close()


@on_virtual_time
async def test_brokers_read_the_last_commit_even_from_a_server_that_is_behind() -> None:
    zookeeper = MemoryZooKeeper(
        VirtualClock(), servers=3, conditions=NetworkConditions(lag_ms=(100, 100)), rng=Random(2)
    )
    brokers = [ZkClient(zookeeper.connect(), VirtualClock()) for _ in range(6)]
    await brokers[0].ensure_paths()
    for offset in (1, 2):
        await brokers[0].zookeeper_offsets.commit("g", TP, offset)
        assert [await each.zookeeper_offsets.read("g", TP) for each in brokers] == [offset] * 6
    await brokers[0].zookeeper_offsets.commit("g", TopicPartition("t", 1), 0)
    assert [len(await each.zookeeper_offsets.partitions("g")) for each in brokers] == [2] * 6
    await brokers[0].zookeeper_offsets.commit("h", TP, 0)
    assert [await each.zookeeper_offsets.groups() for each in brokers] == [["g", "h"]] * 6
