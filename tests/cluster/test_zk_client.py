"""The operations of `ZkClient`, on ZooKeeper and on its twin; unknown outcomes on the twin, which can withhold
answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cluster.state import (
    BrokerRegistration,
    ControllerLease,
    PartitionState,
    TopicAssignment,
    VersionedState,
    WriteState,
)
from cluster.uuids import random_uuid
from cluster.zookeeper import znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryStore, MemoryZooKeeper, NetworkConditions
from cluster.zookeeper.state_znodes import STATES_PER_MULTI
from cluster.zookeeper.store import Node, NodeChanged, Operation, OutcomeUnknownError, Result
from cluster.zookeeper.write_conflicts import AssignmentConflict, BrokerIdTaken, ControllerFenced, StateConflict
from tests.cluster.faulty_store import FaultyStore
from tests.cluster.stores import Server
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.clock import SystemClock
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.listeners import BROKERS, CLIENTS

TP = TopicPartition("t", 0)
TOPIC = TopicAssignment("t", "AAAAAAAAAAAAAAAAAAAAAQ", {0: (1, 2), 1: (2, 1)}, {"retention.ms": "-1"})
STATE = PartitionState(1, 0, (1, 2), 1)
LISTENERS = {CLIENTS: Endpoint("127.0.0.1", 9092), BROKERS: Endpoint("127.0.0.1", 9601)}
BROKER = BrokerRegistration(1, LISTENERS)


async def join(server: Server) -> ZkClient:
    zk_client = ZkClient(await server.connect(), SystemClock(), time_limit_ms=3000)
    await zk_client.ensure_paths()
    return zk_client


async def twin() -> tuple[MemoryZooKeeper, MemoryStore, ZkClient]:
    zookeeper = MemoryZooKeeper(session_timeout_ms=300)
    store = zookeeper.connect()
    zk_client = ZkClient(store, SystemClock(), time_limit_ms=500)
    await zk_client.ensure_paths()
    return zookeeper, store, zk_client


async def begin_term(zk_client: ZkClient, broker_id: int = 1) -> ControllerLease:
    lease = await zk_client.try_become_controller(broker_id, await zk_client.read_controller())
    assert lease is not None
    return lease


async def test_paths_are_made_once_and_the_cluster_keeps_its_id(server: Server) -> None:
    first, second = await join(server), await join(server)
    assert await first.cluster_id() == await second.cluster_id()
    assert len(await first.cluster_id()) == 22
    assert await first.read_controller() == ControllerLease(-1, 0, 0)
    await first.store.close()
    await second.store.close()


async def test_blocks_of_producer_ids_never_overlap(server: Server) -> None:
    first, second = await join(server), await join(server)
    blocks = await asyncio.gather(*(c.next_producer_id_block(1) for c in (first, second) * 3))
    assert sorted((b.start, b.stop) for b in blocks) == [(n * 1000, (n + 1) * 1000) for n in range(6)]
    await first.store.close()
    await second.store.close()


async def test_one_of_two_candidates_is_elected_and_the_epoch_rises(server: Server) -> None:
    first, second = await join(server), await join(server)
    unclaimed = await first.read_controller()
    leases = await asyncio.gather(first.try_become_controller(1, unclaimed), second.try_become_controller(2, unclaimed))
    (won,) = [lease for lease in leases if lease is not None]
    assert (won.epoch, won.epoch_version) == (1, 1)
    assert await first.read_controller() == won
    assert await second.try_become_controller(2, unclaimed, replace_controller=True) is None, "a stale suspicion loses"
    ousted = await second.try_become_controller(2, won, replace_controller=True)
    assert ousted is not None
    assert (ousted.controller_id, ousted.epoch) == (2, 2)
    await second.resign_controller(won)
    assert await first.read_controller() == ousted, "a replaced controller cannot remove the lease of its successor"
    await second.resign_controller(ousted)
    assert (await first.read_controller()).unclaimed
    await first.store.close()
    await second.store.close()


async def test_candidate_with_a_stale_lease_is_not_elected() -> None:
    zookeeper, _, zk_client = await twin()
    dead = await begin_term(zk_client)
    rival = ZkClient(zookeeper.connect(), SystemClock(), time_limit_ms=500)

    class Interrupted(MemoryStore):
        """A client between two of whose requests the rival is elected."""

        async def get(self, path: str, *, watch: bool = False) -> Node:
            node = await super().get(path, watch=watch)
            if (await rival.read_controller()) == dead:
                assert await rival.try_become_controller(2, dead, replace_controller=True)
            return node

    slow = ZkClient(zookeeper.connect(Interrupted), SystemClock(), time_limit_ms=500)
    seen = await slow.read_controller()
    assert await slow.try_become_controller(3, seen, replace_controller=True) is None
    assert (await zk_client.read_controller()).controller_id == 2


async def test_a_fenced_controller_writes_nothing(server: Server) -> None:
    old, new = await join(server), await join(server)
    lease = await begin_term(old)
    await old.create_topic(TOPIC, lease.epoch_version)
    assert await old.write_state(WriteState(TP, STATE, -1), lease.epoch_version) == 0
    later = await new.try_become_controller(2, lease, replace_controller=True)
    assert later is not None
    with pytest.raises(ControllerFenced):
        await old.write_state(WriteState(TP, replace(STATE, leader=2), 0), lease.epoch_version)
    with pytest.raises(ControllerFenced):
        await old.create_topic(replace(TOPIC, topic="u"), lease.epoch_version)
    with pytest.raises(ControllerFenced):
        await old.remove_some("t", lease.epoch_version)
    epoch = await new.register_broker(BROKER)
    with pytest.raises(ControllerFenced):
        await old.fence_broker(1, epoch, lease.epoch_version)
    assert await new.read_state(TP) == VersionedState(STATE, 0)
    assert await new.is_registered(1, epoch)
    await old.store.close()
    await new.store.close()


async def test_leader_and_controller_change_a_state_only_on_the_version_they_saw(server: Server) -> None:
    zk_client = await join(server)
    lease = await begin_term(zk_client)
    await zk_client.create_topic(TOPIC, lease.epoch_version)
    await zk_client.write_state(WriteState(TP, STATE, -1), lease.epoch_version)
    shrunk = replace(STATE, isr=(1,))
    assert await zk_client.change_isr(TP, shrunk, 0) == 1
    elected = PartitionState(2, 1, (2,), 1)
    with pytest.raises(StateConflict) as conflict:
        await zk_client.write_state(WriteState(TP, elected, 0), lease.epoch_version)
    assert conflict.value.actual == VersionedState(shrunk, 1)
    with pytest.raises(StateConflict):
        await zk_client.write_state(WriteState(TP, STATE, -1), lease.epoch_version)
    assert await zk_client.write_state(WriteState(TP, elected, 1), lease.epoch_version) == 2
    with pytest.raises(StateConflict) as late:
        await zk_client.change_isr(TP, STATE, 1)
    assert late.value.actual == VersionedState(elected, 2)
    with pytest.raises(StateConflict) as nowhere:
        await zk_client.change_isr(TopicPartition("t", 9), STATE, 0)
    assert nowhere.value.actual is None
    await zk_client.store.close()


async def test_states_are_written_in_multis_of_fifty() -> None:
    zk_client = ZkClient(MemoryZooKeeper(VirtualClock()).connect(), VirtualClock())
    await zk_client.ensure_paths()
    lease = await begin_term(zk_client)
    tps = [TopicPartition("t", number) for number in range(2 * STATES_PER_MULTI + 1)]
    await zk_client.create_topic(replace(TOPIC, partitions={tp.partition: (1, 2) for tp in tps}), lease.epoch_version)
    multi, sizes = zk_client.store.multi, list[int]()

    async def counted(operations: Sequence[Operation]) -> list[Result]:
        sizes.append(len(operations))
        return await multi(operations)

    zk_client.store.multi = counted  # type: ignore[method-assign]
    assert await zk_client.write_states([WriteState(tp, STATE, -1) for tp in tps], lease.epoch_version) == [0] * len(
        tps
    )
    assert sizes == [101, 101, 3], "the check of the epoch, and two znodes for each partition"
    sizes.clear()
    assert await zk_client.write_states([WriteState(tp, STATE, 0) for tp in tps], lease.epoch_version) == [1] * len(tps)
    assert sizes == [51, 51, 2]


async def test_refused_state_does_not_stop_the_others(server: Server) -> None:
    zk_client = await join(server)
    lease = await begin_term(zk_client)
    tps = [TopicPartition("t", number) for number in range(2 * STATES_PER_MULTI + 1)]
    await zk_client.create_topic(replace(TOPIC, partitions={tp.partition: (1, 2) for tp in tps}), lease.epoch_version)
    shrunk = replace(STATE, isr=(1,))
    await zk_client.write_state(WriteState(tps[3], shrunk, -1), lease.epoch_version)
    found = await zk_client.write_states([WriteState(tp, STATE, -1) for tp in tps], lease.epoch_version)
    refused = found.pop(3)
    assert isinstance(refused, StateConflict) and refused.actual == VersionedState(shrunk, 0)
    assert found == [0] * (len(tps) - 1)
    await zk_client.change_isr(tps[-1], shrunk, 0)
    elected = PartitionState(2, 1, (2,), 1)
    found = await zk_client.write_states([WriteState(tp, elected, 0) for tp in tps], lease.epoch_version)
    refused = found.pop()
    assert isinstance(refused, StateConflict) and refused.actual == VersionedState(shrunk, 1)
    assert found == [1] * (len(tps) - 1)
    states, _ = await zk_client.read_states(tps)
    assert list(states.values()) == [VersionedState(elected, 1)] * (len(tps) - 1) + [VersionedState(shrunk, 1)]
    await zk_client.store.close()


async def test_states_of_a_deposed_controller_are_not_written(server: Server) -> None:
    zk_client = await join(server)
    lease = await begin_term(zk_client)
    await zk_client.create_topic(TOPIC, lease.epoch_version)
    await zk_client.try_become_controller(2, lease, replace_controller=True)
    with pytest.raises(ControllerFenced):
        await zk_client.write_states([WriteState(TP, STATE, -1)], lease.epoch_version)
    assert await zk_client.read_state(TP) is None
    await zk_client.store.close()


async def test_an_answer_that_was_lost_is_found_by_reading_again() -> None:
    _, store, zk_client = await twin()
    lease = await begin_term(zk_client)
    await zk_client.create_topic(TOPIC, lease.epoch_version)
    store.lose_answers = 1
    assert await zk_client.write_state(WriteState(TP, STATE, -1), lease.epoch_version) == 0
    store.lose_answers = 1
    assert await zk_client.change_isr(TP, replace(STATE, isr=(1,)), 0) == 1
    assert await zk_client.read_state(TP) == VersionedState(replace(STATE, isr=(1,)), 1)
    store.lose_answers = 1
    second = await zk_client.try_become_controller(1, lease, replace_controller=True)
    assert second is not None
    assert second.epoch == 2
    store.lose_answers = 1
    assert await zk_client.create_topic(replace(TOPIC, topic="u", topic_id=random_uuid()), 2)
    store.lose_answers = 1
    await zk_client.request_deletion("u", 2)
    assert await zk_client.topics_to_delete() == ["u"]
    store.lose_answers = 1
    assert await zk_client.register_broker(BROKER) == (await zk_client.read_brokers())[1].epoch


async def test_late_deletion_request_of_an_old_controller_spares_a_new_topic() -> None:
    zookeeper, store, old = await twin()
    lease = await begin_term(old)
    await old.create_topic(TOPIC, lease.epoch_version)
    store.network.refuse()
    request = asyncio.create_task(old.request_deletion("t", lease.epoch_version))
    new = ZkClient(zookeeper.connect(), SystemClock(), time_limit_ms=500)
    later = await new.try_become_controller(2, lease, replace_controller=True)
    assert later is not None
    await new.request_deletion("t", later.epoch_version)
    await new.remove_some("t", later.epoch_version)
    anew = replace(TOPIC, topic_id=random_uuid())
    assert await new.create_topic(anew, later.epoch_version)
    store.network.heal()
    with pytest.raises(ControllerFenced):
        await request
    assert await new.topics_to_delete() == []
    assert await new.read_topics(["t"]) == {"t": anew}


async def test_lost_write_is_repeated_until_the_deadline() -> None:
    _, store, zk_client = await twin()
    lease = await begin_term(zk_client)
    await zk_client.create_topic(TOPIC, lease.epoch_version)
    await zk_client.write_state(WriteState(TP, STATE, -1), lease.epoch_version)
    store.network.refuse()
    change = asyncio.create_task(
        zk_client.write_state(WriteState(TP, replace(STATE, isr=(1,)), 0), lease.epoch_version)
    )
    await asyncio.sleep(0)
    store.network.heal()
    assert await change == 1
    store.network.refuse()
    with pytest.raises(OutcomeUnknownError):
        await zk_client.write_state(WriteState(TP, STATE, 1), lease.epoch_version)


async def test_isr_change_with_unknown_outcome_is_repeated_only_by_its_leader() -> None:
    _, store, zk_client = await twin()
    lease = await begin_term(zk_client)
    await zk_client.create_topic(TOPIC, lease.epoch_version)
    await zk_client.write_state(WriteState(TP, STATE, -1), lease.epoch_version)
    store.network.refuse()
    change = asyncio.create_task(zk_client.change_isr(TP, replace(STATE, isr=(1,)), 0))
    await asyncio.sleep(0)
    store.network.heal()
    with pytest.raises(OutcomeUnknownError):
        await change
    assert await zk_client.read_state(TP) == VersionedState(STATE, 0)


async def test_topic_with_an_unreadable_state_is_left_out() -> None:
    _, store, zk_client = await twin()
    lease = await begin_term(zk_client)
    other, odd = replace(TOPIC, topic="u"), TopicPartition("t", 1)
    for topic in (TOPIC, other):
        await zk_client.create_topic(topic, lease.epoch_version)
        for tp in topic.topic_partitions():
            await zk_client.write_state(WriteState(tp, STATE, -1), lease.epoch_version)
    await store.set(znodes.state_path(odd), b"{", 0)
    topics, states = await zk_client.read_topics_with_states(["t", "u", "never"])
    assert topics == {"u": other} and list(states) == other.topic_partitions()
    assert await zk_client.read_states([TP, odd]) == ({TP: VersionedState(STATE, 0)}, {odd})


async def test_a_topic_is_created_once_and_removed_whole(server: Server) -> None:
    zk_client = await join(server)
    lease = await begin_term(zk_client)
    assert await zk_client.create_topic(TOPIC, lease.epoch_version)
    assert not await zk_client.create_topic(replace(TOPIC, topic_id="other"), lease.epoch_version)
    assert await zk_client.read_topics(["t", "never"]) == {"t": TOPIC}
    for tp in TOPIC.topic_partitions():
        await zk_client.write_state(WriteState(tp, STATE, -1), lease.epoch_version)
    assert await zk_client.existing_topics() == {"t"}
    _, states = await zk_client.read_topics_with_states(["t", "never"])
    assert list(states) == TOPIC.topic_partitions()
    await zk_client.request_deletion("t", lease.epoch_version)
    await zk_client.request_deletion("t", lease.epoch_version)
    assert await zk_client.topics_to_delete() == ["t"]
    assert (await zk_client.topic_names(), await zk_client.existing_topics()) == (["t"], set())
    await zk_client.remove_some("t", lease.epoch_version)
    await zk_client.remove_some("t", lease.epoch_version)
    assert await zk_client.topic_names() == []
    assert await zk_client.topics_to_delete() == []
    assert await zk_client.store.exists(znodes.topic_config_path("t")) is None
    assert await zk_client.create_topic(TOPIC, lease.epoch_version)
    await zk_client.store.close()


@pytest.mark.parametrize("partitions", [499, 500, 501, 1000, 1001])
@on_virtual_time
async def test_topic_is_removed_in_pieces_whatever_number_of_partitions_is_left(partitions: int) -> None:
    """One multi of the removal takes 500 partitions, and the last one removes the topic with them."""
    zk_client = ZkClient(MemoryZooKeeper(VirtualClock()).connect(), VirtualClock(), time_limit_ms=500)
    await zk_client.ensure_paths()
    lease = await begin_term(zk_client)
    many = replace(TOPIC, partitions=dict.fromkeys(range(partitions), (1, 2)))
    await zk_client.create_topic(many, lease.epoch_version)
    for tp in many.topic_partitions():
        await zk_client.write_state(WriteState(tp, STATE, -1), lease.epoch_version)
    await zk_client.request_deletion("t", lease.epoch_version)
    pieces = 1
    while await zk_client.remove_some("t", lease.epoch_version):
        pieces += 1
    assert pieces == -(-partitions // 500)
    assert (await zk_client.topic_names(), await zk_client.topics_to_delete()) == ([], [])


@on_virtual_time
async def test_a_topic_of_many_partitions_is_removed_however_far_zookeeper_is() -> None:
    zookeeper = MemoryZooKeeper(VirtualClock())
    store = zookeeper.connect()
    zk_client = ZkClient(store, VirtualClock(), time_limit_ms=500)
    await zk_client.ensure_paths()
    lease = await begin_term(zk_client)
    many = replace(TOPIC, partitions=dict.fromkeys(range(1000), (1, 2)))
    await zk_client.create_topic(many, lease.epoch_version)
    for tp in many.topic_partitions():
        await zk_client.write_state(WriteState(tp, STATE, -1), lease.epoch_version)
    await zk_client.request_deletion("t", lease.epoch_version)
    store.network.conditions = NetworkConditions(request_ms=(30, 30), answer_ms=(30, 30))
    while await zk_client.remove_some("t", lease.epoch_version):
        assert await zk_client.topic_names() == ["t"], "until the last piece"
    assert await zk_client.topic_names() == await zk_client.topics_to_delete() == []


async def test_a_topic_of_another_tool_gets_its_states_all_the_same(server: Server) -> None:
    zk_client = await join(server)
    lease = await begin_term(zk_client)
    await zk_client.store.create(znodes.topic_path("t"), znodes.encode_topic(TOPIC))
    assert await zk_client.write_state(WriteState(TP, STATE, -1), lease.epoch_version) == 0
    await zk_client.store.close()


async def test_a_malformed_znode_is_taken_for_absent(server: Server) -> None:
    zk_client = await join(server)
    await zk_client.store.create(znodes.broker_path(7), b"not json")
    await zk_client.store.create(znodes.topic_path("t"), b"{}")
    assert await zk_client.read_brokers() == {}
    assert await zk_client.read_topics(["t"]) == {}
    await zk_client.store.close()


async def test_failed_log_directories_are_announced_read_and_dropped(server: Server) -> None:
    zk_client = await join(server)
    lease = await begin_term(zk_client)
    await zk_client.notify_log_dir_failure(3)
    await zk_client.store.create(f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_", b"?", sequence=True)
    failures = await zk_client.read_log_dir_failures()
    assert list(failures.values()) == [3, None]
    await zk_client.drop_notifications(failures, lease.epoch_version)
    assert await zk_client.read_log_dir_failures() == {}
    await zk_client.store.close()


async def test_isr_changes_are_announced_read_and_dropped(server: Server) -> None:
    zk_client = await join(server)
    lease = await begin_term(zk_client)
    await zk_client.notify_isr_change([TP])
    await zk_client.notify_isr_change([TopicPartition("t", 1), TP])
    changes = await zk_client.read_isr_changes()
    assert sorted(changes.values()) == [[TP], [TopicPartition("t", 1), TP]]
    await zk_client.drop_notifications(changes, lease.epoch_version)
    await zk_client.drop_notifications(changes, lease.epoch_version)
    assert await zk_client.read_isr_changes() == {}
    await zk_client.store.close()


async def test_a_broker_epoch_is_the_czxid_and_rises(server: Server) -> None:
    zk_client = await join(server)
    first = await zk_client.register_broker(BROKER)
    assert await zk_client.read_brokers() == {1: replace(BROKER, epoch=first)}
    assert await zk_client.is_registered(1, first)
    lease = await begin_term(zk_client)
    await zk_client.create_topic(TOPIC, lease.epoch_version)
    await zk_client.write_state(WriteState(TP, STATE, -1), lease.epoch_version)
    written = await zk_client.read_state(TP)
    assert written is not None
    assert written.mzxid > first, "broker epochs and writes of states are on one scale"
    await zk_client.unregister_broker(1, first - 1)
    assert await zk_client.is_registered(1, first), "another registration is left alone"
    await zk_client.unregister_broker(1, first)
    assert await zk_client.read_brokers() == {}
    assert await zk_client.register_broker(BROKER) > written.mzxid
    await zk_client.store.close()


async def test_a_restart_removes_its_own_old_registration_at_once(server: Server) -> None:
    before, after = await join(server), await join(server)
    old = await before.register_broker(BROKER)
    # Less than the ten seconds after which the old session would have ended by itself.
    async with asyncio.timeout(8):
        assert await after.register_broker(BROKER, previous_session=before.store.session_id) > old
    await before.store.close()
    assert (await after.read_brokers()).keys() == {1}, "the end of the old session takes nothing of the new one"
    await after.store.close()


async def test_registration_that_the_controller_changes_at_once_is_kept() -> None:
    """The controller clears the mark before the broker has read its own registration."""
    zookeeper, _, controller = await twin()
    lease = await begin_term(controller)
    store = FaultyStore(zookeeper.connect())

    async def clear_mark() -> None:
        registered = await controller.read_broker(1)
        assert registered is not None
        await controller.clear_possibly_short(1, registered.epoch, lease.epoch_version)

    store.rivals = {1: clear_mark}
    epoch = await ZkClient(store, SystemClock()).register_broker(replace(BROKER, possibly_short=True))
    assert await controller.read_broker(1) == replace(BROKER, epoch=epoch)
    assert len(store.applied) == 1


async def test_registration_of_another_process_is_waited_for_and_kept() -> None:
    zookeeper, store, zk_client = await twin()
    epoch = await zk_client.register_broker(BROKER)
    second = ZkClient(zookeeper.connect(), SystemClock())
    with pytest.raises(BrokerIdTaken, match="another live process"):
        await second.register_broker(BROKER, previous_session=99)
    assert await zk_client.is_registered(1, epoch)
    waiting = asyncio.create_task(second.register_broker(BROKER, previous_session=99))
    await asyncio.sleep(0)
    zookeeper.expire(store.session_id)
    assert await waiting > epoch


async def test_a_fence_removes_only_the_registration_that_was_meant(server: Server) -> None:
    zk_client = await join(server)
    lease = await begin_term(zk_client)
    epoch = await zk_client.register_broker(BROKER)
    assert not await zk_client.fence_broker(1, epoch - 1, lease.epoch_version)
    assert not await zk_client.fence_broker(2, epoch, lease.epoch_version)
    assert await zk_client.is_registered(1, epoch)
    assert await zk_client.fence_broker(1, epoch, lease.epoch_version)
    assert not await zk_client.is_registered(1, epoch)
    await zk_client.store.close()


async def test_broker_that_has_moved_is_not_fenced_for_its_old_address(server: Server) -> None:
    zk_client = await join(server)
    lease = await begin_term(zk_client)
    epoch = await zk_client.register_broker(BROKER)
    moved = {**BROKER.listeners, BROKERS: Endpoint("elsewhere", 2)}
    await zk_client.change_addresses(1, epoch, moved)
    assert not await zk_client.fence_broker(1, epoch, lease.epoch_version, found_dead_at=BROKER.replication_endpoint)
    assert await zk_client.is_registered(1, epoch)
    assert await zk_client.fence_broker(1, epoch, lease.epoch_version, found_dead_at=moved[BROKERS])
    await zk_client.store.close()


async def test_changed_addresses_keep_the_epoch_and_the_mark_of_a_registration(server: Server) -> None:
    zk_client = await join(server)
    epoch = await zk_client.register_broker(replace(BROKER, possibly_short=True))
    fired: asyncio.Queue[object] = asyncio.Queue()
    zk_client.store.subscribe(fired.put_nowait)
    await zk_client.read_brokers(watch=True)
    moved = {**BROKER.listeners, BROKERS: Endpoint("elsewhere", 2)}
    await zk_client.change_addresses(1, epoch - 1, moved)
    assert (await zk_client.read_broker(1)) == replace(BROKER, epoch=epoch, possibly_short=True)
    await zk_client.change_addresses(1, epoch, moved)
    assert (await zk_client.read_broker(1)) == BrokerRegistration(1, moved, epoch, possibly_short=True)
    async with asyncio.timeout(20):
        assert await fired.get() == NodeChanged(znodes.broker_path(1))
    assert fired.empty()
    await zk_client.store.close()


async def test_an_assignment_is_changed_on_its_own_version_and_under_the_fence(server: Server) -> None:
    zk_client = await join(server)
    lease = await begin_term(zk_client)
    await zk_client.create_topic(TOPIC, lease.epoch_version)
    before = await zk_client.read_topic("t")
    assert before is not None and before.version == 0
    moving = before.reassigned({0: before.assigned(0).toward((2, 3))})
    written = await zk_client.write_assignment(moving, lease.epoch_version)
    assert written == await zk_client.read_topic("t") and written.version == 1
    with pytest.raises(AssignmentConflict) as conflict:
        await zk_client.write_assignment(before, lease.epoch_version)
    assert conflict.value.actual == written
    with pytest.raises(ControllerFenced):
        await zk_client.write_assignment(written, lease.epoch_version + 1)
    await zk_client.store.close()


async def test_assignment_with_a_lost_answer_is_found_written() -> None:
    _, store, zk_client = await twin()
    lease = await begin_term(zk_client)
    await zk_client.create_topic(TOPIC, lease.epoch_version)
    before = await zk_client.read_topic("t")
    assert before is not None
    store.lose_answers = 1
    written = await zk_client.write_assignment(before.reassigned({0: before.assigned(0)}), lease.epoch_version)
    assert written.version == 1
