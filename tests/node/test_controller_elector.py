"""Election of the controller, and its reactions to failures, with brokers that only record its requests."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from cluster.state import PartitionState
from cluster.zookeeper import znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryZooKeeper, NetworkConditions
from cluster.zookeeper.store import NoNodeError, OutcomeUnknownError
from cluster.zookeeper.write_conflicts import StateConflict
from node.controller import controller_term
from node.controller.controller_channel import MOST_BACKOFF_MS
from node.controller.controller_elector import ControllerElector
from node.net.identity import Identity
from node.settings.broker_settings import BrokerSettings
from tests.node.controller_cluster import SESSION_TIMEOUT_MS, TP, Broker, Cluster, run
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.clock import SystemClock
from tidelog.errors import (
    IneligibleReplicaError,
    NotControllerError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    TopicAlreadyExistsError,
)
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.control_messages import (
    ControlledShutdownRequest,
    EpochBegin,
    LeaderAndIsrRequest,
    LogEndAnswer,
    UpdateMetadataRequest,
)
from tidelog.protocol.messages import CreateTopicsRequest, DeleteTopicsRequest, NewTopic


def test_one_broker_is_elected_controller_and_all_know_it() -> None:
    async def story(cluster: Cluster) -> None:
        electors = [broker.elector for broker in cluster.brokers.values()]
        await cluster.until(lambda: {elector.controller_id for elector in electors} == {1})
        assert [elector.is_controller for elector in electors] == [True, False, False]
        await cluster.until(lambda: all(broker.live == (1, 2, 3) for broker in cluster.brokers.values()))

    run(story)


def test_broker_that_is_not_controller_refuses_with_not_controller() -> None:
    async def story(cluster: Cluster) -> None:
        elector = cluster.brokers[2].elector
        created = await elector.topics.create_topics(CreateTopicsRequest((NewTopic("t", 1, 1),), 1000))
        deleted = await elector.topics.delete_topics(DeleteTopicsRequest(("t",), 1000))
        left = await elector.controlled_shutdown(ControlledShutdownRequest(2, 1))
        codes = [created.topics[0].error_code, deleted.topics[0].error_code, left.error_code]
        assert codes == [NotControllerError.code] * 3

    run(story)


def test_killed_leader_is_replaced_before_its_session_expires() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        start_ms = SystemClock().monotonic_ms()
        await cluster.brokers[2].kill()
        await cluster.until(lambda: cluster.brokers[3].hosted[TP].leader == 3)
        assert SystemClock().monotonic_ms() - start_ms < SESSION_TIMEOUT_MS / 2
        assert await cluster.state() == PartitionState(3, 1, (3, 1), 1)
        await cluster.until(lambda: cluster.brokers[1].metadata[TP].leader == 3)
        await cluster.until(lambda: cluster.brokers[1].live == (1, 3))

    run(story)


def test_killed_controller_is_replaced_before_its_session_expires() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2, 3)})
        start_ms = SystemClock().monotonic_ms()
        await cluster.brokers[1].kill()
        await cluster.until(lambda: cluster.brokers[2].hosted[TP].leader == 2)
        assert SystemClock().monotonic_ms() - start_ms < SESSION_TIMEOUT_MS / 2
        state = await cluster.state()
        assert (state.leader, state.isr, state.controller_epoch) == (2, (2, 3), 2)
        assert cluster.controller in (cluster.brokers[2].elector, cluster.brokers[3].elector)

    run(story)


def test_broker_that_accepts_connections_is_not_fenced() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        cluster.brokers[2].deaf = True
        cluster.brokers[2].store.network.cut()
        await cluster.create(
            "other", assignment={0: (3, 1)}, timeout_ms=5000
        )  # half of the time waits for the deaf broker
        assert (await cluster.state()).leader == 2
        cluster.zookeeper.expire(cluster.brokers[2].store.session_id)
        await cluster.until(lambda: cluster.brokers[3].hosted[TP].leader == 3)
        assert (await cluster.state()).leader_epoch == 1

    run(story)


def test_restarted_broker_gets_its_partitions_under_its_new_epoch() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        old = cluster.brokers[2]
        await old.kill()
        await cluster.until(lambda: cluster.brokers[3].hosted[TP].leader == 3)
        again = cluster.brokers[2] = Broker(cluster.zookeeper, 2)
        await again.start(previous_session=old.store.session_id)
        await cluster.until(lambda: again.hosted[TP].leader == 3 and again.metadata[TP].isr == (3, 1))
        assert again.identity.broker_epoch > old.identity.broker_epoch
        assert again.hosted[TP].replicas == (2, 3, 1)
        await cluster.until(lambda: cluster.brokers[1].live == (1, 2, 3))

    run(story)


def test_broker_with_an_expired_session_registers_again_without_leading() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        cluster.zookeeper.expire(cluster.brokers[2].store.session_id)
        await cluster.until(lambda: cluster.brokers[2].hosted[TP].leader == 3)
        assert await cluster.state() == PartitionState(3, 1, (3, 1), 1)

    run(story)


def test_replaced_controller_is_live_in_no_metadata_of_its_successor() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
        victim = next(broker for broker in cluster.brokers.values() if broker.elector.is_controller)
        others = [broker for broker in cluster.brokers.values() if broker is not victim]
        await victim.kill()
        await cluster.until(lambda: all(victim.broker_id not in broker.live for broker in others))
        sent = [
            request
            for broker in others
            for request in broker.requests
            if isinstance(request, LeaderAndIsrRequest | UpdateMetadataRequest) and request.controller_epoch == 2
        ]
        assert sent
        assert not any(live.broker_id == victim.broker_id for request in sent for live in request.live_brokers)

    run(story)


def test_last_isr_member_leads_again_after_its_restart() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2,)})
        old = cluster.brokers[2]
        await old.kill()
        await cluster.until(lambda: cluster.brokers[1].metadata[TP].leader == NO_LEADER)
        assert (await cluster.state()).isr == (2,)
        again = cluster.brokers[2] = Broker(cluster.zookeeper, 2)
        await again.start(previous_session=old.store.session_id)
        await cluster.until(lambda: again.hosted[TP].leader == 2)
        assert await cluster.state() == PartitionState(2, 2, (2,), 1)

    run(story)


def test_isr_change_of_a_leader_reaches_the_metadata_of_all_brokers() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        leader = cluster.brokers[2].zk_client
        state = await cluster.state()
        assert await leader.change_isr(TP, replace(state, isr=(2, 3)), 0) == 1
        await leader.notify_isr_change([TP])
        await cluster.until(lambda: all(b.metadata[TP].isr == (2, 3) for b in cluster.brokers.values()))
        assert await leader.read_isr_changes() == {}
        assert (await cluster.state()).leader_epoch == 0

    run(story)


def test_partitions_on_a_failed_disk_get_other_leaders_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1), 1: (2, 1, 3)})
        owner = cluster.brokers[2]
        owner.offline = {TP}
        await owner.zk_client.notify_log_dir_failure(2)
        await cluster.until(lambda: all(b.metadata[TP].leader == 3 for b in cluster.brokers.values()))
        assert (await cluster.state()).isr == (3, 1)
        assert (await cluster.state(TopicPartition("t", 1))).leader == 2
        assert await owner.zk_client.read_log_dir_failures() == {}

    run(story)


def test_partition_whose_leader_lacks_committed_records_gets_another() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        owner = cluster.brokers[2]
        owner.with_loss = {TP}
        # The controller then sends LeaderAndIsr for all replicas of broker 2.
        await owner.zk_client.notify_log_dir_failure(2)
        await cluster.until(lambda: all(b.metadata[TP].leader == 3 for b in cluster.brokers.values()))
        assert (await cluster.state()).isr == (3, 1)

    run(story)


@pytest.mark.parametrize("lacks", [2, 3])
def test_unclean_election_learns_which_replicas_lack_committed_records(lacks: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (4, 2, 3)}, configs={"unclean.leader.election.enable": "true"})
        for broker_id in (2, 3):
            code = IneligibleReplicaError.code if broker_id == lacks else 0
            cluster.brokers[broker_id].log_ends[TP] = LogEndAnswer("t", 0, code, 0, 5, (EpochBegin(0, 0),))
        state = await cluster.state()
        await cluster.brokers[4].zk_client.change_isr(TP, replace(state, isr=(4,)), 0)
        await cluster.brokers[4].kill()
        await cluster.until(lambda: cluster.brokers[1].metadata[TP].leader in (2, 3))
        assert (await cluster.state()).leader == 5 - lacks

    run(story, brokers=4)


def test_election_uses_the_isr_in_zookeeper_not_the_cached_one() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        # The leader removes broker 3 from the ISR and dies before another broker learns of it.
        state = await cluster.state()
        await cluster.brokers[2].zk_client.change_isr(TP, replace(state, isr=(2, 1)), 0)
        await cluster.brokers[2].kill()
        await cluster.until(lambda: cluster.brokers[1].hosted[TP].leader == 1)
        assert await cluster.state() == PartitionState(1, 1, (1,), 1)

    run(story)


def test_controlled_shutdown_is_answered_after_leadership_has_moved() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1), 1: (3, 2, 1)})
        await cluster.create("alone", assignment={0: (2,)})
        broker = cluster.brokers[2]
        request = ControlledShutdownRequest(2, broker.identity.broker_epoch)
        answer = await cluster.controller.controlled_shutdown(request)
        assert answer.error_code == 0
        assert [(left.topic, left.partition) for left in answer.remaining] == [("alone", 0)]
        assert cluster.brokers[3].hosted[TP].leader == 3
        assert await cluster.state() == PartitionState(3, 1, (3, 1), 1)
        assert await cluster.state(TopicPartition("t", 1)) == PartitionState(3, 0, (3, 1), 1)
        stale = await cluster.controller.controlled_shutdown(ControlledShutdownRequest(2, 0))
        assert stale.error_code == StaleBrokerEpochError.code

    run(story)


def test_controller_that_stops_is_replaced_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.brokers[1].elector.stop()
        await cluster.until(lambda: cluster.controller is not cluster.brokers[1].elector)
        assert cluster.controller.controller_epoch == 2

    run(story)


def test_request_that_a_broker_does_not_answer_is_sent_again() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.brokers[2].deaf = True
        request = CreateTopicsRequest((NewTopic("t", assignment={0: (2, 3)}),), timeout_ms=200)
        (created,) = (await cluster.controller.topics.create_topics(request)).topics
        assert created.error_code == RequestTimedOutError.code
        cluster.brokers[2].deaf = False
        await cluster.brokers[2].reopen()
        await cluster.until(lambda: cluster.brokers[2].hosted[TP].leader in (2, 3))

    run(story)


def test_thousand_partitions_of_a_killed_broker_fail_over() -> None:
    async def story(cluster: Cluster) -> None:
        assignment = {partition: (2, 3, 1) for partition in range(1000)}
        request = CreateTopicsRequest((NewTopic("t", assignment=assignment),), timeout_ms=60_000)
        assert (await cluster.controller.topics.create_topics(request)).topics[0].error_code == 0
        await cluster.brokers[2].kill()
        await cluster.until(lambda: all(message.leader == 3 for message in cluster.brokers[3].hosted.values()))

    run(story)


def test_controller_reads_missed_changes_after_an_interruption() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        controller = cluster.controller
        cluster.brokers[1].store.network.refuse()
        expired = cluster.brokers[2]
        epoch = expired.identity.broker_epoch
        cluster.zookeeper.expire(expired.store.session_id)
        await cluster.until(lambda: expired.identity.broker_epoch > epoch)
        assert (await cluster.state()).leader == 2, "no broker can act meanwhile"
        cluster.brokers[1].store.network.heal()
        await cluster.until(lambda: cluster.brokers[3].hosted[TP].leader == 3)
        assert cluster.controller is controller
        assert controller.controller_epoch == 1

    run(story)


@pytest.mark.parametrize("written", [False, True], ids=["the request is lost", "the answer is lost"])
def test_write_of_unknown_outcome_starts_a_new_term(written: bool) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        zk_client = cluster.brokers[1].zk_client
        write_states = zk_client.write_states

        async def lose(*arguments: Any) -> list[int | StateConflict]:
            zk_client.write_states = write_states  # type: ignore[method-assign]
            if written:
                await write_states(*arguments)
            raise OutcomeUnknownError("ZooKeeper does not answer")

        zk_client.write_states = lose  # type: ignore[method-assign]
        await cluster.brokers[2].kill()
        await cluster.until(lambda: cluster.brokers[3].hosted[TP].leader == 3)
        await cluster.until(lambda: cluster.controller.controller_epoch == 2)
        state = await cluster.state()
        assert (state.leader, state.isr, state.leader_epoch) == (3, (3, 1), 1)

    run(story)


def test_controller_with_an_expired_session_is_replaced() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2, 3)})
        cluster.zookeeper.expire(cluster.brokers[1].store.session_id)
        await cluster.until(lambda: cluster.brokers[1].hosted[TP].leader_epoch > 0)
        state = await cluster.state()
        assert (state.leader, state.leader_epoch, state.controller_epoch) in ((1, 1, 2), (2, 1, 2))
        assert cluster.controller.controller_epoch == 2
        controllers = [broker.elector.is_controller for broker in cluster.brokers.values()]
        assert controllers.count(True) == 1

    run(story)


def test_unreadable_state_ends_neither_the_term_nor_the_topics_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No watch fires when the state is repaired, so that the controller reads it periodically."""
    monkeypatch.setattr(controller_term, "_UNREADABLE_TOPICS_CHECK_S", 0.2)

    async def story(cluster: Cluster) -> None:
        await cluster.create("t", assignment={0: (2, 3)})
        await cluster.create("odd", assignment={0: (2, 3), 1: (3, 2)})
        path = znodes.state_path(TopicPartition("odd", 1))
        right = (await cluster.brokers[3].store.get(path)).data
        await cluster.brokers[3].store.set(path, b"unreadable")
        await cluster.brokers[1].kill()
        await cluster.until(lambda: cluster.controller.controller_epoch == 2)
        await cluster.until(lambda: sent_topics(cluster.brokers[3]).keys() == {"t", "odd"})
        assert sent_topics(cluster.brokers[3])["odd"] == "", "the topic is known, so that its logs are not stray"
        new = NewTopic("odd", 1, 1)
        (refused,) = (await cluster.controller.topics.create_topics(CreateTopicsRequest((new,), 1000))).topics
        assert refused.error_code == TopicAlreadyExistsError.code
        cluster.brokers[3].hosted.clear()
        await cluster.brokers[3].store.set(path, right)
        await cluster.until(lambda: {each.topic for each in cluster.brokers[3].hosted} >= {"odd"})
        assert cluster.controller.controller_epoch == 2

    run(story)


@on_virtual_time
async def test_terms_that_fail_at_once_follow_with_growing_pauses() -> None:
    class Odd(ZkClient):
        async def topics_to_delete(self, *, watch: bool = False) -> list[str]:
            raise LookupError("unexpected")

    zk_client = Odd(MemoryZooKeeper().connect(), VirtualClock())
    await zk_client.ensure_paths()
    settings = BrokerSettings(broker_id=1, log_dirs=("unused",), zookeeper="127.0.0.1:1")
    elector = ControllerElector(settings, zk_client, VirtualClock(), Identity("", 1, broker_epoch=1))
    await elector.start()
    await asyncio.sleep(60)
    epoch = (await zk_client.read_controller()).epoch
    assert 100 < epoch < 60_000 / MOST_BACKOFF_MS + 10, "each term uses up an epoch"
    await elector.stop()


class Alone:
    """A broker that runs for controller, with a slow ZooKeeper."""

    def __init__(self) -> None:
        conditions = NetworkConditions(request_ms=(20, 20), answer_ms=(20, 20))
        self.zookeeper = MemoryZooKeeper(VirtualClock(), SESSION_TIMEOUT_MS, conditions=conditions)
        self.store = self.zookeeper.connect()
        self.zk_client = ZkClient(self.store, VirtualClock())
        settings = BrokerSettings(broker_id=1, log_dirs=("unused",), zookeeper="127.0.0.1:1")
        self.elector = ControllerElector(settings, self.zk_client, VirtualClock(), Identity("", 1, broker_epoch=1))

    async def run_for_controller(self) -> None:
        """Start the elector, and return when it has sent its election to ZooKeeper."""
        asked = asyncio.Event()
        await self.zk_client.ensure_paths()
        self.store.network.on_write = lambda write: asked.set()
        await self.elector.start()
        await asked.wait()

    def controller_session(self) -> int:
        """Return the session that owns `/controller`; 0 if there is none."""
        try:
            return self.zookeeper.node(znodes.CONTROLLER).owner
        except NoNodeError:
            return 0


@on_virtual_time
async def test_controller_elected_while_stopping_resigns() -> None:
    for in_flight_s in (0.001, 0.03):
        broker = Alone()
        await broker.run_for_controller()
        await asyncio.sleep(in_flight_s)
        assert broker.controller_session() == (0 if in_flight_s < 0.02 else broker.store.session_id)
        await broker.elector.stop()
        assert (await broker.zk_client.read_controller()).epoch == 1, "the election was won"
        assert broker.controller_session() == 0


@on_virtual_time
async def test_controller_that_stops_without_zookeeper_leaves_its_znode(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "node.controller.controller_elector")
    broker = Alone()
    await broker.run_for_controller()
    await asyncio.sleep(0.03)
    broker.store.network.cut()
    await broker.elector.stop()
    assert broker.controller_session() == broker.store.session_id
    assert [message for message in caplog.messages if "could not resign as controller" in message]


def test_stopping_broker_keeps_the_znode_of_another_controller() -> None:
    async def story(cluster: Cluster) -> None:
        controller_czxid = cluster.zookeeper.node(znodes.CONTROLLER).czxid
        await cluster.brokers[2].elector.stop()
        assert cluster.zookeeper.node(znodes.CONTROLLER).czxid == controller_czxid

    run(story)


def sent_topics(broker: Broker) -> dict[str, str]:
    """Return the latest names of all topics that the controller sent to the broker, with their ids."""
    sent = (each.every_topic for each in broker.requests if isinstance(each, UpdateMetadataRequest))
    return [each for each in sent if each is not None][-1]


def sent_settings(broker: Broker) -> dict[str, str]:
    """Return the latest settings of the topic that the controller sent to the broker."""
    sent = [t for r in broker.requests if isinstance(r, UpdateMetadataRequest) for t in r.topics if t.name == "t"]
    return sent[-1].configs


def test_changed_topic_settings_reach_every_broker_and_are_consumed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(num_partitions=2)
        settings = cluster.brokers[3].zk_client.topic_configs
        await settings.change("t", lambda before: {**before, "retention.ms": "5"})
        brokers = cluster.brokers.values()
        await cluster.until(lambda: all(sent_settings(broker) == {"retention.ms": "5"} for broker in brokers))
        await cluster.until(lambda: not cluster.zookeeper.node("/config/changes").children)

    run(story)


def test_settings_changed_during_an_interruption_are_sent_after_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(num_partitions=1)
        cluster.brokers[1].store.network.refuse()
        settings = cluster.brokers[3].zk_client.topic_configs
        await settings.change("t", lambda before: {**before, "retention.ms": "5"})
        assert all(sent_settings(broker) == {} for broker in cluster.brokers.values())
        cluster.brokers[1].store.network.heal()
        brokers = cluster.brokers.values()
        await cluster.until(lambda: all(sent_settings(broker) == {"retention.ms": "5"} for broker in brokers))

    run(story)
