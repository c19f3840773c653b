"""Settings of brokers that take effect while the brokers run, on ZooKeeper and on its twin."""

from __future__ import annotations

import asyncio
import json

import pytest

from cluster.zookeeper import znodes
from cluster.zookeeper.broker_configs import ALL_BROKERS
from cluster.zookeeper.store import NodeChanged, StoreEvent
from tests.cluster.stores import Server
from tests.cluster.test_zk_client import join


async def test_settings_are_written_as_kafka_does(server: Server) -> None:
    client = await join(server)
    assert await client.broker_configs.read("1") == {}
    for name in ("1", ALL_BROKERS):
        assert await client.broker_configs.change(name, lambda before: {**before, "a.b": "2"}) == {"a.b": "2"}
        stored = await client.store.get(f"/config/brokers/{name}")
        assert json.loads(stored.data) == {"version": 1, "config": {"a.b": "2"}}
        assert await client.broker_configs.read(name) == {"a.b": "2"}
    await client.broker_configs.change("1", lambda before: before)
    assert (await client.store.get("/config/brokers/1")).stat.version == 0, "unchanged settings are not written"
    await client.store.close()


async def test_changes_at_the_same_time_are_all_kept(server: Server) -> None:
    one, other = await join(server), await join(server)
    names = [f"setting.{number}" for number in range(6)]
    await asyncio.gather(
        *(
            (one if number % 2 else other).broker_configs.change("1", lambda before, name=name: {**before, name: "1"})
            for number, name in enumerate(names)
        )
    )
    assert await one.broker_configs.read("1") == dict.fromkeys(names, "1")
    await one.store.close()
    await other.store.close()


async def test_watch_fires_for_the_first_setting_and_for_each_later_one(server: Server) -> None:
    one, other = await join(server), await join(server)
    events: asyncio.Queue[StoreEvent] = asyncio.Queue()
    one.store.subscribe(events.put_nowait)
    for value in ("1", "2"):
        await one.broker_configs.read("7", watch=True)
        await other.broker_configs.change("7", lambda _, value=value: {"a": value})
        async with asyncio.timeout(20):
            assert await events.get() == NodeChanged("/config/brokers/7")
    await one.store.close()
    await other.store.close()


async def test_unreadable_settings_are_an_error(server: Server) -> None:
    client = await join(server)
    await client.store.create("/config/brokers/1", b"{}")
    with pytest.raises(znodes.MalformedZnodeError):
        await client.broker_configs.read("1")
    with pytest.raises(znodes.MalformedZnodeError):
        await client.broker_configs.change("1", lambda before: before)
    await client.store.close()
