"""A broker's registration on the in-memory ZooKeeper: lost, created again, taken by another process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest

from cluster.state import BrokerRegistration
from cluster.zookeeper import znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryStore, MemoryZooKeeper
from cluster.zookeeper.store import NoNodeError
from cluster.zookeeper.write_conflicts import BrokerIdTaken
from node.process.registration import Registration
from tests.virtual_time import VirtualClock, on_virtual_time, until
from tidelog.model import Endpoint
from tidelog.protocol.listeners import BROKERS, CLIENTS

LISTENERS = {CLIENTS: Endpoint("127.0.0.1", 9092), BROKERS: Endpoint("127.0.0.1", 9601)}
BROKER = BrokerRegistration(1, LISTENERS)


class Node:
    """A broker reduced to its registration, which records the callbacks."""

    def __init__(
        self, zookeeper: MemoryZooKeeper, previous_session: int = 0, registration: BrokerRegistration = BROKER
    ) -> None:
        self.store: MemoryStore = zookeeper.connect()
        self.zk_client = ZkClient(self.store, VirtualClock(), time_limit_ms=1000)
        self.events: list[str] = []
        self.sessions: list[int] = []
        self.was_registered_when_saved: list[bool] = []
        self._zookeeper = zookeeper
        self.registration = Registration(
            self.zk_client,
            registration,
            previous_session=previous_session,
            save_session=self._save_session,
            on_lost=lambda: self.events.append("lost"),
            on_registered=lambda epoch: self.events.append("registered"),
            on_taken=lambda error: self.events.append(type(error).__name__),
            on_possibly_short_cleared=lambda: self.events.append("cleared"),
        )

    async def start(self) -> int:
        await self.zk_client.ensure_paths()
        return await self.registration.start()

    def _save_session(self, session_id: int) -> None:
        self.sessions.append(session_id)
        try:
            owner = self._zookeeper.node(znodes.broker_path(1)).stat().owner
        except NoNodeError:
            owner = 0
        self.was_registered_when_saved.append(owner == session_id)

    async def until(self, *events: str) -> None:
        await until(lambda: self.events == list(events))


@pytest.fixture
def zookeeper() -> MemoryZooKeeper:
    return MemoryZooKeeper(VirtualClock(), session_timeout_ms=300)


@on_virtual_time
async def test_deleted_registration_is_created_again_with_a_greater_epoch(
    zookeeper: MemoryZooKeeper,
) -> None:
    node = Node(zookeeper)
    first = await node.start()
    assert node.registration.broker_epoch == first
    await zookeeper.connect().delete(znodes.broker_path(1))
    await node.until("lost", "registered")
    assert node.registration.broker_epoch > first
    await node.registration.stop()


@on_virtual_time
async def test_expired_session_ends_leading_and_registers_again(zookeeper: MemoryZooKeeper) -> None:
    node = Node(zookeeper)
    await node.start()
    zookeeper.expire(node.store.session_id)
    await node.until("lost", "registered")
    assert node.sessions == [1, 2]
    assert node.was_registered_when_saved == [False, False], (
        "a restart may delete only a registration of a saved session"
    )
    zookeeper.expire(node.store.session_id)
    await node.until("lost", "registered", "lost", "registered")
    await node.registration.stop()


@on_virtual_time
async def test_expired_session_is_reported_at_once_during_a_pending_read(
    zookeeper: MemoryZooKeeper,
) -> None:
    node = Node(zookeeper)
    await node.start()
    node.store.network.refuse()
    await asyncio.sleep(0.01)  # the registration is read again, but ZooKeeper cannot be reached
    assert node.events == []
    node.store.network.heal()
    zookeeper.expire(node.store.session_id)
    await asyncio.sleep(0.01)  # long enough to connect, and shorter than the pause until the next read
    assert node.events == ["lost"], "a new session may be confirmed long before the pending read ends"
    await node.until("lost", "registered")
    await node.registration.stop()


@on_virtual_time
async def test_short_interruption_keeps_the_registration(zookeeper: MemoryZooKeeper) -> None:
    node = Node(zookeeper)
    epoch = await node.start()
    node.store.network.refuse()
    await asyncio.sleep(0.05)
    node.store.network.heal()
    await asyncio.sleep(0.05)
    assert (node.events, node.registration.broker_epoch) == ([], epoch)
    await zookeeper.connect().delete(znodes.broker_path(1))
    await node.until("lost", "registered")
    await node.registration.stop()


@on_virtual_time
async def test_registration_deleted_during_an_interruption_is_noticed(zookeeper: MemoryZooKeeper) -> None:
    node = Node(zookeeper)
    await node.start()
    node.store.network.refuse()
    await zookeeper.connect().delete(znodes.broker_path(1))
    node.store.network.heal()
    await node.until("lost", "registered")
    await node.registration.stop()


@on_virtual_time
async def test_unexpected_failure_does_not_end_the_watching(
    zookeeper: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(zookeeper)
    await node.start()
    look = node.zk_client.is_registered
    failures = [ValueError("unforeseen")]

    async def fail_once(broker_id: int, epoch: int, *, watch: bool) -> bool:
        if failures:
            raise failures.pop()
        return await look(broker_id, epoch, watch=watch)

    monkeypatch.setattr(node.zk_client, "is_registered", fail_once)
    await zookeeper.connect().delete(znodes.broker_path(1))
    await node.until("lost", "registered")
    assert not failures
    await node.registration.stop()


@on_virtual_time
async def test_stop_removes_the_registration(zookeeper: MemoryZooKeeper) -> None:
    node = Node(zookeeper)
    await node.start()
    await node.registration.stop()
    assert await node.zk_client.read_brokers() == {}
    assert node.events == ["lost"]


@on_virtual_time
async def test_stopping_broker_stops_leading_without_waiting_for_a_watch(
    zookeeper: MemoryZooKeeper,
) -> None:
    """Other brokers lead as soon as the registration is gone, and this broker must not answer fetches (seed 16271)."""
    node = Node(zookeeper)
    epoch = await node.start()
    others = ZkClient(zookeeper.connect(), VirtualClock(), time_limit_ms=1000)
    gone = asyncio.Event()
    others.store.subscribe(lambda event: gone.set())
    assert await others.is_registered(1, epoch, watch=True)
    node.store.network.cut(requests=False)
    stopping = asyncio.create_task(node.registration.stop())
    await gone.wait()
    assert (node.events, stopping.done()) == (["lost"], False)
    node.store.network.heal()
    await stopping


@on_virtual_time
async def test_broker_that_stops_without_zookeeper_stops_leading_too(zookeeper: MemoryZooKeeper) -> None:
    """The next session would soon be confirmed, although the registration of the old one may be gone."""
    node = Node(zookeeper)
    await node.start()
    node.store.network.refuse()
    await node.registration.stop()
    assert node.events == ["lost"]


@on_virtual_time
async def test_second_process_of_an_id_is_refused_and_the_first_stays(zookeeper: MemoryZooKeeper) -> None:
    first, second = Node(zookeeper), Node(zookeeper, previous_session=77)
    epoch = await first.start()
    with pytest.raises(BrokerIdTaken):
        await second.start()
    assert await first.zk_client.is_registered(1, epoch)
    assert first.events == []
    await first.registration.stop()


@on_virtual_time
async def test_broker_that_loses_its_id_is_notified(zookeeper: MemoryZooKeeper) -> None:
    first, second = Node(zookeeper), Node(zookeeper)
    await first.start()
    first.store.network.refuse()
    zookeeper.expire(first.store.session_id)
    await second.start()
    first.store.network.heal()
    await first.until("lost", "BrokerIdTaken")
    await second.registration.stop()


# --- other addresses -------------------------------------------------------------------------------------------

MOVED = {**LISTENERS, BROKERS: Endpoint("elsewhere", 9601)}


@on_virtual_time
async def test_changed_addresses_are_written_without_a_new_epoch(zookeeper: MemoryZooKeeper) -> None:
    node = Node(zookeeper)
    epoch = await node.start()
    node.registration.change_addresses(MOVED)
    await asyncio.sleep(0.1)
    assert await node.zk_client.read_broker(1) == BrokerRegistration(1, MOVED, epoch)
    node.registration.change_addresses(LISTENERS)
    await asyncio.sleep(0.1)
    assert await node.zk_client.read_broker(1) == replace(BROKER, epoch=epoch)
    assert node.events == []
    await node.registration.stop()


@on_virtual_time
async def test_addresses_changed_without_zookeeper_are_written_later(zookeeper: MemoryZooKeeper) -> None:
    node = Node(zookeeper)
    epoch = await node.start()
    node.store.network.refuse()
    node.registration.change_addresses(MOVED)
    await asyncio.sleep(0.1)
    node.store.network.heal()
    await asyncio.sleep(0.5)
    assert await node.zk_client.read_broker(1) == BrokerRegistration(1, MOVED, epoch)
    await node.registration.stop()


@on_virtual_time
async def test_each_later_registration_has_the_changed_addresses(zookeeper: MemoryZooKeeper) -> None:
    node = Node(zookeeper)
    first = await node.start()
    zookeeper.expire(node.store.session_id)
    node.registration.change_addresses(MOVED)
    await node.until("lost", "registered")
    await asyncio.sleep(0.1)
    found = await node.zk_client.read_broker(1)
    assert found is not None and found.listeners == MOVED and found.epoch > first
    await node.registration.stop()


@on_virtual_time
async def test_addresses_changed_during_the_registration_are_written_after_it(
    zookeeper: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(zookeeper)
    register = node.zk_client.register_broker

    async def register_slowly(registration: BrokerRegistration, previous_session: int = 0) -> int:
        epoch = await register(registration, previous_session)
        node.registration.change_addresses(MOVED)
        return epoch

    monkeypatch.setattr(node.zk_client, "register_broker", register_slowly)
    epoch = await node.start()
    await asyncio.sleep(0.1)
    assert await node.zk_client.read_broker(1) == BrokerRegistration(1, MOVED, epoch)
    await node.registration.stop()


def lines_of(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


@on_virtual_time
async def test_unreadable_registration_gets_new_addresses_once_it_is_repaired(
    zookeeper: MemoryZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node, other = Node(zookeeper), zookeeper.connect()
    epoch = await node.start()
    written = (await other.get(znodes.broker_path(1))).data
    await other.set(znodes.broker_path(1), b"{}", -1)
    await asyncio.sleep(0.1)
    node.registration.change_addresses(MOVED)
    await asyncio.sleep(5)
    assert lines_of(caplog, "its registration is unreadable") == 1 and "Traceback" not in caplog.text
    assert not lines_of(caplog, "advertises")
    await other.set(znodes.broker_path(1), written, -1)
    await asyncio.sleep(0.1)
    assert await node.zk_client.read_broker(1) == BrokerRegistration(1, MOVED, epoch)
    assert lines_of(caplog, "advertises") == 1 and node.events == []
    await node.registration.stop()


@on_virtual_time
async def test_addresses_that_were_not_written_are_not_called_advertised(
    zookeeper: MemoryZooKeeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    node = Node(zookeeper)
    await node.start()
    change = node.zk_client.change_addresses

    async def change_too_late(broker_id: int, broker_epoch: int, listeners: Mapping[str, Endpoint]) -> object:
        await zookeeper.connect().delete(znodes.broker_path(1))
        return await change(broker_id, broker_epoch, listeners)

    monkeypatch.setattr(node.zk_client, "change_addresses", change_too_late)
    node.registration.change_addresses(MOVED)
    await node.until("lost", "registered")
    found = await node.zk_client.read_broker(1)
    assert found is not None and found.listeners == MOVED
    assert not lines_of(caplog, "advertises")
    await node.registration.stop()


# --- the mark of a possibly short log --------------------------------------------------------------------------


async def possibly_short(zookeeper: MemoryZooKeeper) -> tuple[Node, int]:
    node = Node(zookeeper, registration=replace(BROKER, possibly_short=True))
    return node, await node.start()


async def controller(zookeeper: MemoryZooKeeper) -> tuple[ZkClient, int]:
    zk_client = ZkClient(zookeeper.connect(), VirtualClock())
    lease = await zk_client.try_become_controller(2, await zk_client.read_controller())
    assert lease is not None
    return zk_client, lease.epoch_version


@on_virtual_time
async def test_broker_is_notified_once_that_its_mark_is_cleared(zookeeper: MemoryZooKeeper) -> None:
    node, epoch = await possibly_short(zookeeper)
    others, fence = await controller(zookeeper)
    await others.clear_possibly_short(1, epoch, fence)
    await node.until("cleared")
    await zookeeper.connect().set(znodes.broker_path(1), zookeeper.node(znodes.broker_path(1)).data)
    await asyncio.sleep(1)
    assert node.events == ["cleared"]
    await node.registration.stop()


@on_virtual_time
async def test_mark_stays_on_each_registration_until_it_is_cleared(zookeeper: MemoryZooKeeper) -> None:
    node, first = await possibly_short(zookeeper)
    others, fence = await controller(zookeeper)
    zookeeper.expire(node.store.session_id)
    await node.until("lost", "registered")
    second = await others.read_broker(1)
    assert second is not None and second.epoch > first and second.possibly_short
    await others.clear_possibly_short(1, second.epoch, fence)
    await node.until("lost", "registered", "cleared")
    zookeeper.expire(node.store.session_id)
    await node.until("lost", "registered", "cleared", "lost", "registered")
    third = await others.read_broker(1)
    assert third is not None and third.epoch > second.epoch and not third.possibly_short
    await node.registration.stop()


@on_virtual_time
async def test_mark_that_a_later_registration_lacks_stays_on_the_earlier_one(
    zookeeper: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _ = await possibly_short(zookeeper)
    await asyncio.sleep(0.01)
    rival = ZkClient(zookeeper.connect(), VirtualClock())
    look = node.zk_client.read_broker

    async def look_late(broker_id: int) -> BrokerRegistration | None:
        """Replace the marked registration by another one between the two reads."""
        monkeypatch.setattr(node.zk_client, "read_broker", look)
        await rival.store.delete(znodes.broker_path(1))
        await rival.register_broker(BROKER)
        return await look(broker_id)

    monkeypatch.setattr(node.zk_client, "read_broker", look_late)
    await rival.store.set(znodes.broker_path(1), zookeeper.node(znodes.broker_path(1)).data)
    await until(lambda: len(node.events) > 0)
    assert node.events[0] == "lost"
    await rival.store.close()
    await node.registration.stop()
