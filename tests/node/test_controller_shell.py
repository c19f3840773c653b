"""Controllers in action: real sockets between brokers that only take notes, and ZooKeeper's twin in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from cluster.coordination import Coordination
from cluster.memory import MemoryStore, MemoryZooKeeper
from cluster.state import BrokerRegistration, PartitionState
from cluster.store import NoNodeError
from node.controller_shell import ControllerShell
from node.identity import Identity
from node.registration import Registration
from node.server import RequestContext, Server
from node.settings import BrokerSettings
from tidelog.clock import SystemClock
from tidelog.control_messages import (
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionOutcome,
    PartitionStateMessage,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tidelog.errors import (
    InvalidConfigError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    NotControllerError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    StorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tidelog.listeners import BROKERS, CLIENTS
from tidelog.messages import CreateTopicsRequest, DeleteTopicsRequest, NewTopic, Request, Response
from tidelog.model import NO_LEADER, Endpoint, TopicPartition

SESSION_TIMEOUT_MS = 5000
CLUSTER_ID = "a-cluster"
TP = TopicPartition("t", 0)


class Broker:
    """A whole broker but for the replicas: of these it only notes what the controller says."""

    def __init__(self, zookeeper: MemoryZooKeeper, broker_id: int, port: int = 0) -> None:
        self.broker_id = broker_id
        self.store: MemoryStore = zookeeper.connect()
        self.clock = SystemClock()
        self.coordination = Coordination(self.store, self.clock, patience_ms=2000)
        self.identity = Identity(CLUSTER_ID, broker_id)
        self.server = Server(Endpoint("127.0.0.1", port), self.identity, self._answer, self.clock, between_brokers=True)
        self.hosted: dict[TopicPartition, PartitionStateMessage] = {}
        self.metadata: dict[TopicPartition, PartitionStateMessage] = {}
        self.live: tuple[int, ...] = ()
        self.requests: list[Request] = []
        self.deaf = False
        self.offline: set[TopicPartition] = set()
        self.settings = BrokerSettings(
            broker_id=broker_id,
            log_dirs=("unused",),
            zookeeper="127.0.0.1:1",
            zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
            default_replication_factor=3,
        )

    async def start(self, previous_session: int = 0) -> None:
        self.server.start()
        await self.coordination.ensure_paths()
        endpoint = self.server.endpoint
        self.registration = Registration(
            self.coordination,
            BrokerRegistration(self.broker_id, {CLIENTS: Endpoint("127.0.0.1", 1), BROKERS: endpoint}),
            previous_session=previous_session,
            on_lost=lambda: setattr(self.identity, "broker_epoch", -1),
            on_registered=lambda epoch: setattr(self.identity, "broker_epoch", epoch),
        )
        self.identity.broker_epoch = await self.registration.start()
        self.shell = ControllerShell(
            self.settings,
            self.coordination,
            self.clock,
            self.identity,
            source=random.Random(1),
        )
        await self.shell.start()

    async def stop(self) -> None:
        """As on SIGTERM, once leadership is handed over."""
        await self.shell.stop()
        await self.registration.stop()
        self.server.stop()
        await self.store.close()

    async def kill(self) -> None:
        """As on SIGKILL: the door closes at once, and ZooKeeper knows nothing of it."""
        self.server.stop()
        self.store.cut_off = True
        await self.shell.stop()
        await self.registration.stop()

    async def reopen(self) -> None:
        """All connections break, and the same door opens again (as soon as the library has let go of the port)."""
        endpoint = self.server.endpoint
        self.server.stop()
        while True:
            self.server = Server(endpoint, self.identity, self._answer, self.clock, between_brokers=True)
            try:
                return self.server.start()
            except OSError:
                await asyncio.sleep(0.01)

    def _answer(self, request: Request, context: RequestContext) -> Response | None:
        self.requests.append(request)
        if self.deaf:
            return None
        match request:
            case LeaderAndIsrRequest(_, _, partitions):
                for message in partitions:
                    self.hosted[TopicPartition(message.topic, message.partition)] = message
                return LeaderAndIsrResponse(0, tuple(self._outcome(p) for p in partitions))
            case StopReplicaRequest(_, _, stops):
                for stop in stops:
                    self.hosted.pop(TopicPartition(stop.topic, stop.partition), None)
                return StopReplicaResponse(0, tuple(PartitionOutcome(p.topic, p.partition, 0) for p in stops))
            case UpdateMetadataRequest(_, _, live, partitions, _, deleted):
                self.live = tuple(broker.broker_id for broker in live)
                for message in partitions:
                    self.metadata[TopicPartition(message.topic, message.partition)] = message
                self.metadata = {tp: message for tp, message in self.metadata.items() if tp.topic not in deleted}
                return UpdateMetadataResponse(0)
        raise AssertionError(request)

    def _outcome(self, message: PartitionStateMessage) -> PartitionOutcome:
        lost = TopicPartition(message.topic, message.partition) in self.offline
        return PartitionOutcome(message.topic, message.partition, StorageError.code if lost else 0)


class Cluster:
    """Brokers 1 to n and the ZooKeeper between them."""

    def __init__(self, brokers: int = 3) -> None:
        self.zookeeper = MemoryZooKeeper(session_timeout_ms=SESSION_TIMEOUT_MS)
        self.brokers = {broker_id: Broker(self.zookeeper, broker_id) for broker_id in range(1, brokers + 1)}

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()
        await self.until(lambda: all(len(broker.live) == len(self.brokers) for broker in self.brokers.values()))

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.stop()

    @property
    def controller(self) -> ControllerShell:
        return next(b.shell for b in self.brokers.values() if b.shell.is_controller)

    async def state(self, tp: TopicPartition = TP) -> PartitionState:
        store = next(broker for broker in self.brokers.values() if broker.store.connected)
        found = await store.coordination.read_state(tp)
        assert found is not None
        return found.state

    def exists(self, path: str) -> bool:
        try:
            self.zookeeper.node(path)
        except NoNodeError:
            return False
        return True

    async def create(self, name: str = "t", **options: Any) -> None:
        request = CreateTopicsRequest((NewTopic(name, **options),), timeout_ms=5000)
        (created,) = (await self.controller.create_topics(request)).topics
        assert created.error_code == 0, created

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not _holds(condition):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (StopIteration, KeyError, AttributeError):
        return False


def run(story: Callable[[Cluster], Coroutine[Any, Any, None]], brokers: int = 3) -> None:
    async def whole() -> None:
        cluster = Cluster(brokers)
        await cluster.start()
        try:
            await story(cluster)
        finally:
            await cluster.stop()

    asyncio.run(asyncio.wait_for(whole(), 30))


def test_one_broker_is_elected_and_all_know_which() -> None:
    async def story(cluster: Cluster) -> None:
        shells = [broker.shell for broker in cluster.brokers.values()]
        await cluster.until(lambda: {shell.controller_id for shell in shells} == {1})
        assert [shell.is_controller for shell in shells] == [True, False, False]
        await cluster.until(lambda: all(broker.live == (1, 2, 3) for broker in cluster.brokers.values()))

    run(story)


def test_a_created_topic_is_led_before_the_answer_comes() -> None:
    async def story(cluster: Cluster) -> None:
        request = CreateTopicsRequest((NewTopic("t", 6, 3, None, {"retention.ms": "-1"}),), timeout_ms=5000)
        (created,) = (await cluster.controller.create_topics(request)).topics
        assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 6, 3)
        assert len(created.topic_id) == 22
        leaders = []
        for partition in range(6):
            tp = TopicPartition("t", partition)
            message = cluster.brokers[1].hosted[tp]
            assert cluster.brokers[message.leader].hosted[tp] == message
            assert all(broker.metadata[tp] == message for broker in cluster.brokers.values())
            assert (message.leader_epoch, set(message.isr), message.leader) == (0, {1, 2, 3}, message.replicas[0])
            leaders.append(message.leader)
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
        told = next(r for r in cluster.brokers[2].requests if isinstance(r, LeaderAndIsrRequest))
        assert told.topics[0].configs == {"retention.ms": "-1"}
        assert told.topics[0].topic_id == created.topic_id

    run(story)


def test_each_topic_that_cannot_be_is_refused_with_its_own_error() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("a.b")
        request = CreateTopicsRequest(
            (
                NewTopic("fine", 1, 1),
                NewTopic("a.b", 1, 1),
                NewTopic("a_b", 1, 1),
                NewTopic("../x", 1, 1),
                NewTopic("four", 1, 4),
                NewTopic("odd", 1, 1, None, {"nonsense": "1"}),
            ),
            timeout_ms=5000,
        )
        answer = await cluster.controller.create_topics(request)
        assert [topic.error_code for topic in answer.topics] == [
            0,
            TopicAlreadyExistsError.code,
            InvalidTopicError.code,
            InvalidTopicError.code,
            InvalidReplicationFactorError.code,
            InvalidConfigError.code,
        ]
        dry = await cluster.controller.create_topics(CreateTopicsRequest((NewTopic("dry", 1, 1),), 1000, True))
        assert dry.topics[0].error_code == 0
        assert sorted(await cluster.brokers[1].coordination.topic_names()) == ["a.b", "fine"]

    run(story)


def test_a_broker_that_is_not_the_controller_says_so() -> None:
    async def story(cluster: Cluster) -> None:
        shell = cluster.brokers[2].shell
        created = await shell.create_topics(CreateTopicsRequest((NewTopic("t", 1, 1),), 1000))
        deleted = await shell.delete_topics(DeleteTopicsRequest(("t",), 1000))
        left = await shell.controlled_shutdown(ControlledShutdownRequest(2, 1))
        codes = [created.topics[0].error_code, deleted.topics[0].error_code, left.error_code]
        assert codes == [NotControllerError.code] * 3

    run(story)


def test_a_killed_leader_is_replaced_long_before_its_session_ends() -> None:
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


def test_a_killed_controller_is_replaced_long_before_its_session_ends() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2, 3)})
        start_ms = SystemClock().monotonic_ms()
        await cluster.brokers[1].kill()
        await cluster.until(lambda: cluster.brokers[2].hosted[TP].leader == 2)
        assert SystemClock().monotonic_ms() - start_ms < SESSION_TIMEOUT_MS / 2
        state = await cluster.state()
        assert (state.leader, state.isr, state.controller_epoch) == (2, (2, 3), 2)
        assert cluster.controller in (cluster.brokers[2].shell, cluster.brokers[3].shell)

    run(story)


def test_a_silent_broker_is_left_to_its_session() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        cluster.brokers[2].deaf = True
        cluster.brokers[2].store.cut_off = True
        await cluster.create("other", assignment={0: (3, 1)})
        assert (await cluster.state()).leader == 2
        cluster.zookeeper.expire(cluster.brokers[2].store.session_id)
        await cluster.until(lambda: cluster.brokers[3].hosted[TP].leader == 3)
        assert (await cluster.state()).leader_epoch == 1

    run(story)


def test_a_broker_that_comes_back_gets_all_it_hosts_under_its_new_epoch() -> None:
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


def test_a_healthy_broker_whose_session_expires_registers_anew_and_has_lost_its_leadership() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        cluster.zookeeper.expire(cluster.brokers[2].store.session_id)
        await cluster.until(lambda: cluster.brokers[2].hosted[TP].leader == 3)
        assert await cluster.state() == PartitionState(3, 1, (3, 1), 1)

    run(story)


def test_the_last_replica_comes_back_as_leader() -> None:
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


def test_an_isr_change_of_a_leader_reaches_everybodys_metadata() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        leader = cluster.brokers[2].coordination
        state = await cluster.state()
        assert await leader.change_isr(TP, replace(state, isr=(2, 3)), 0) == 1
        await leader.notify_isr_change([TP])
        await cluster.until(lambda: all(b.metadata[TP].isr == (2, 3) for b in cluster.brokers.values()))
        assert await leader.read_isr_changes() == {}
        assert (await cluster.state()).leader_epoch == 0

    run(story)


def test_partitions_on_a_failed_disk_find_other_leaders_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1), 1: (2, 1, 3)})
        owner = cluster.brokers[2]
        owner.offline = {TP}
        await owner.coordination.notify_log_dir_failure(2)
        await cluster.until(lambda: all(b.metadata[TP].leader == 3 for b in cluster.brokers.values()))
        assert (await cluster.state()).isr == (3, 1)
        assert (await cluster.state(TopicPartition("t", 1))).leader == 2
        assert await owner.coordination.read_log_dir_failures() == {}

    run(story)


def test_an_election_starts_from_the_isr_in_zookeeper_not_from_the_one_remembered() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        # The leader removes broker 3 and dies before anybody hears of it.
        state = await cluster.state()
        await cluster.brokers[2].coordination.change_isr(TP, replace(state, isr=(2, 1)), 0)
        await cluster.brokers[2].kill()
        await cluster.until(lambda: cluster.brokers[1].hosted[TP].leader == 1)
        assert await cluster.state() == PartitionState(1, 1, (1,), 1)

    run(story)


def test_a_leaving_broker_hands_over_before_it_is_answered() -> None:
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
        assert await cluster.state(TopicPartition("t", 1)) == PartitionState(3, 1, (3, 1), 1)
        stale = await cluster.controller.controlled_shutdown(ControlledShutdownRequest(2, 0))
        assert stale.error_code == StaleBrokerEpochError.code

    run(story)


def test_a_controller_that_stops_politely_is_replaced_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.brokers[1].shell.stop()
        await cluster.until(lambda: cluster.controller is not cluster.brokers[1].shell)
        assert cluster.controller.controller_epoch == 2

    run(story)


def test_a_deleted_topic_is_gone_from_brokers_and_zookeeper_before_the_answer_comes() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(num_partitions=3)
        request = DeleteTopicsRequest(("t", "never-was"), timeout_ms=5000)
        answer = await cluster.controller.delete_topics(request)
        assert [topic.error_code for topic in answer.topics] == [0, UnknownTopicOrPartitionError.code]
        for broker in cluster.brokers.values():
            assert (broker.hosted, broker.metadata) == ({}, {})
        assert await cluster.brokers[1].coordination.topic_names() == []
        assert await cluster.brokers[1].coordination.topics_to_delete() == []
        await cluster.create(num_partitions=1)

    run(story)


def test_a_deletion_waits_for_a_silent_broker_no_longer_than_it_may() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create()
        cluster.brokers[3].deaf = True
        answer = await cluster.controller.delete_topics(DeleteTopicsRequest(("t",), timeout_ms=300))
        assert answer.topics[0].error_code == RequestTimedOutError.code
        # The wish outlives the broker that did not answer, and the controller too.
        await cluster.brokers[1].kill()
        cluster.zookeeper.expire(cluster.brokers[3].store.session_id)
        cluster.brokers[3].deaf = False
        await cluster.until(lambda: not cluster.exists("/brokers/topics/t"))
        assert not cluster.exists("/admin/delete_topics/t")

    run(story)


def test_topics_that_are_busy_are_waited_for_no_longer_than_the_request_may_take() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create()
        reign = cluster.controller._reign
        assert reign is not None
        async with reign.topics_lock:
            (created,) = (await cluster.controller.create_topics(CreateTopicsRequest((NewTopic("u"),), 100))).topics
            (deleted,) = (await cluster.controller.delete_topics(DeleteTopicsRequest(("t",), timeout_ms=100))).topics
        assert (created.error_code, deleted.error_code) == (RequestTimedOutError.code, RequestTimedOutError.code)
        assert (await cluster.brokers[1].coordination.topic_names()) == ["t"]

    run(story)


def test_what_a_broker_does_not_answer_is_said_again() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.brokers[2].deaf = True
        request = CreateTopicsRequest((NewTopic("t", assignment={0: (2, 3)}),), timeout_ms=200)
        (created,) = (await cluster.controller.create_topics(request)).topics
        assert created.error_code == RequestTimedOutError.code
        cluster.brokers[2].deaf = False
        await cluster.brokers[2].reopen()
        await cluster.until(lambda: cluster.brokers[2].hosted[TP].leader in (2, 3))

    run(story)


def test_a_thousand_partitions_fail_over_in_about_a_second() -> None:
    async def story(cluster: Cluster) -> None:
        assignment = {partition: (2, 3, 1) for partition in range(1000)}
        request = CreateTopicsRequest((NewTopic("t", assignment=assignment),), timeout_ms=20_000)
        assert (await cluster.controller.create_topics(request)).topics[0].error_code == 0
        start_ms = SystemClock().monotonic_ms()
        await cluster.brokers[2].kill()
        await cluster.until(lambda: all(message.leader == 3 for message in cluster.brokers[3].hosted.values()))
        assert SystemClock().monotonic_ms() - start_ms < 3000

    run(story)


def test_a_controller_that_was_cut_off_for_a_while_sees_what_it_missed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3, 1)})
        controller = cluster.controller
        cluster.brokers[1].store.suspend()
        cluster.zookeeper.expire(cluster.brokers[2].store.session_id)
        await asyncio.sleep(0.1)
        assert (await cluster.state()).leader == 2, "nobody can act meanwhile"
        cluster.brokers[1].store.resume()
        await cluster.until(lambda: cluster.brokers[3].hosted[TP].leader == 3)
        assert cluster.controller is controller
        assert controller.controller_epoch == 1

    run(story)


def test_a_controller_whose_session_expires_resigns_and_somebody_reigns_on() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2, 3)})
        cluster.zookeeper.expire(cluster.brokers[1].store.session_id)
        await cluster.until(lambda: cluster.brokers[1].hosted[TP].leader_epoch > 0)
        state = await cluster.state()
        assert (state.leader, state.leader_epoch, state.controller_epoch) in ((1, 1, 2), (2, 1, 2))
        assert cluster.controller.controller_epoch == 2
        reigning = [broker.shell.is_controller for broker in cluster.brokers.values()]
        assert reigning.count(True) == 1

    run(story)


def told_settings(broker: Broker) -> dict[str, str]:
    """What the broker was told last of the topic's settings."""
    told = [t for r in broker.requests if isinstance(r, UpdateMetadataRequest) for t in r.topics if t.name == "t"]
    return told[-1].configs


def test_settings_that_somebody_changes_reach_every_broker_and_the_notification_goes() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(num_partitions=2)
        settings = cluster.brokers[3].coordination.topic_configs
        await settings.change("t", lambda before: {**before, "retention.ms": "5"})
        everybody = cluster.brokers.values()
        await cluster.until(lambda: all(told_settings(broker) == {"retention.ms": "5"} for broker in everybody))
        await cluster.until(lambda: not cluster.zookeeper.node("/config/changes").children)

    run(story)


def test_settings_that_change_while_the_controller_cannot_hear_it_are_told_when_it_can() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(num_partitions=1)
        cluster.brokers[1].store.suspend()
        settings = cluster.brokers[3].coordination.topic_configs
        await settings.change("t", lambda before: {**before, "retention.ms": "5"})
        assert all(told_settings(broker) == {} for broker in cluster.brokers.values())
        cluster.brokers[1].store.resume()
        everybody = cluster.brokers.values()
        await cluster.until(lambda: all(told_settings(broker) == {"retention.ms": "5"} for broker in everybody))

    run(story)
