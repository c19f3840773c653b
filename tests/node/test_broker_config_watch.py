"""A broker's settings follow ZooKeeper while the broker runs."""

from __future__ import annotations

import pytest

from cluster.zookeeper.broker_configs import ALL_BROKERS
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryZooKeeper
from node.settings.broker_config_watch import BrokerConfigWatch
from node.settings.dynamic_settings import DynamicSettings
from tests.node.topic_settings import broker_settings
from tests.virtual_time import VirtualClock, on_virtual_time, until


class Stage:
    """Broker 1 with its watch, and another client of the same ZooKeeper."""

    def __init__(self) -> None:
        self.server = MemoryZooKeeper(VirtualClock(), session_timeout_ms=300)
        self.store = self.server.connect()
        zk_client = ZkClient(self.store, VirtualClock(), time_limit_ms=1000)
        self.ensure_paths = zk_client.ensure_paths
        self.settings = DynamicSettings(broker_settings(1))
        self.watch = BrokerConfigWatch(self.settings, zk_client.broker_configs, self.store)
        self.other = self.server.connect()
        self.others = ZkClient(self.other, VirtualClock()).broker_configs
        self.changes = 0
        self.settings.subscribe(self._count)

    def _count(self) -> None:
        self.changes += 1

    async def change(self, name: str, **configs: str) -> None:
        """Replace the settings under a name, as another broker does."""
        await self.others.change(name, lambda before: {key.replace("_", "."): text for key, text in configs.items()})

    async def until(self, max_connections: int) -> None:
        await until(lambda: self.settings.current.max_connections == max_connections)


async def staged() -> Stage:
    stage = Stage()
    await stage.ensure_paths()
    return stage


@on_virtual_time
async def test_settings_apply_from_the_start_and_after_each_change() -> None:
    stage = await staged()
    await stage.change(ALL_BROKERS, max_connections="5")
    await stage.watch.start()
    assert stage.settings.current.max_connections == 5
    await stage.change(ALL_BROKERS, max_connections="6")
    await stage.until(6)
    await stage.change("1", max_connections="7")
    await stage.until(7)
    await stage.change("1")
    await stage.until(6)
    assert stage.changes == 4
    await stage.change("2", max_connections="8")
    await stage.watch.stop()
    await stage.change("1", max_connections="9")
    await stage.store.sync("/")
    assert stage.settings.current.max_connections == 6


@on_virtual_time
async def test_change_through_this_broker_has_been_applied_when_it_is_answered() -> None:
    stage = await staged()
    await stage.watch.start()
    assert await stage.watch.change("1", lambda _: {"max.connections": "5"}) == {"max.connections": "5"}
    assert stage.settings.current.max_connections == 5
    assert await stage.watch.read("1") == {"max.connections": "5"}
    await stage.watch.stop()


@on_virtual_time
async def test_change_during_an_expired_session_is_applied_after_it() -> None:
    stage = await staged()
    await stage.watch.start()
    stage.server.expire(stage.store.session_id)
    await stage.change("1", max_connections="5")
    await stage.until(5)
    await stage.change("1", max_connections="6")
    await stage.until(6)
    await stage.watch.stop()


@on_virtual_time
async def test_unreadable_settings_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    stage = await staged()
    await stage.change("1", max_connections="5")
    await stage.watch.start()
    await stage.other.set("/config/brokers/1", b"{}")
    await until(lambda: "are ignored" in caplog.text)
    assert stage.settings.current.max_connections == 5
    await stage.change(ALL_BROKERS, max_connections="4")
    await stage.other.set("/config/brokers/1", b'{"version": 1, "config": {}}')
    await stage.until(4)
    await stage.watch.stop()
