"""Commands of clients on topics, at a real controller with brokers that only record its requests."""

from __future__ import annotations

import asyncio
import random

import pytest

from cluster.state import TopicAssignment
from cluster.zookeeper import topic_znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.store import OutcomeUnknownError
from cluster.zookeeper.topic_znodes import TopicZnodes
from node.controller.topic_commands import TopicCommands
from tests.node.controller_cluster import Cluster, SkippingClock, run
from tidelog.errors import (
    InvalidConfigError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import LeaderAndIsrRequest
from tidelog.protocol.messages import CreateTopicsRequest, DeleteTopicsRequest, NewTopic
from tidelog.protocol.partition_messages import CreatePartitionsRequest, NewPartitions


def test_created_topic_is_led_before_the_answer() -> None:
    async def story(cluster: Cluster) -> None:
        request = CreateTopicsRequest((NewTopic("t", 6, 3, None, {"retention.ms": "-1"}),), timeout_ms=5000)
        (created,) = (await cluster.controller.topics.create_topics(request)).topics
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
        sent = next(r for r in cluster.brokers[2].requests if isinstance(r, LeaderAndIsrRequest))
        assert sent.topics[0].configs == {"retention.ms": "-1"}
        assert sent.topics[0].topic_id == created.topic_id

    run(story)


def test_each_invalid_topic_is_refused_with_its_own_error() -> None:
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
        answer = await cluster.controller.topics.create_topics(request)
        assert [topic.error_code for topic in answer.topics] == [
            0,
            TopicAlreadyExistsError.code,
            InvalidTopicError.code,
            InvalidTopicError.code,
            InvalidReplicationFactorError.code,
            InvalidConfigError.code,
        ]
        dry = await cluster.controller.topics.create_topics(CreateTopicsRequest((NewTopic("dry", 1, 1),), 1000, True))
        assert dry.topics[0].error_code == 0
        assert sorted(await cluster.brokers[1].zk_client.topic_names()) == ["a.b", "fine"]

    run(story)


def test_deleted_topic_is_gone_everywhere_before_the_answer() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(num_partitions=3)
        request = DeleteTopicsRequest(("t", "never-was"), timeout_ms=5000)
        answer = await cluster.controller.topics.delete_topics(request)
        assert [topic.error_code for topic in answer.topics] == [0, UnknownTopicOrPartitionError.code]
        for broker in cluster.brokers.values():
            assert (broker.hosted, broker.metadata) == ({}, {})
        assert await cluster.brokers[1].zk_client.topic_names() == []
        assert await cluster.brokers[1].zk_client.topics_to_delete() == []
        await cluster.create(num_partitions=1)

    run(story)


def test_broker_that_missed_a_deletion_gets_the_names_of_all_topics() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        await cluster.create("u")
        await cluster.brokers[1].store.create("/brokers/topics/odd", b"unreadable")
        sleeper = cluster.brokers[3]
        sleeper.store.network.cut()
        cluster.zookeeper.expire(sleeper.store.session_id)
        await cluster.until(lambda: cluster.brokers[1].live == (1, 2))
        answer = await cluster.controller.topics.delete_topics(DeleteTopicsRequest(("t",), timeout_ms=5000))
        assert answer.topics[0].error_code == 0
        assert TopicPartition("t", 0) in sleeper.hosted, "the broker does not know of the deletion yet"
        sleeper.requests.clear()
        sleeper.store.network.heal()
        await cluster.until(lambda: any(getattr(each, "every_topic", None) for each in sleeper.requests))
        (sent,) = [each.every_topic for each in sleeper.requests if getattr(each, "every_topic", None)]
        assert sent.keys() == {"u", "odd"}
        assert (bool(sent["u"]), sent["odd"]) == (True, "")

    run(story)


def test_deletion_waits_for_a_silent_broker_until_its_deadline() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create()
        cluster.brokers[3].deaf = True
        answer = await cluster.controller.topics.delete_topics(DeleteTopicsRequest(("t",), timeout_ms=300))
        assert answer.topics[0].error_code == RequestTimedOutError.code
        # The deletion request outlives the broker that did not answer, and the controller too.
        await cluster.brokers[1].kill()
        cluster.zookeeper.expire(cluster.brokers[3].store.session_id)
        cluster.brokers[3].deaf = False
        await cluster.until(lambda: not cluster.exists("/brokers/topics/t"))
        assert not cluster.exists("/admin/delete_topics/t")

    run(story)


def test_items_not_started_by_the_deadline_are_not_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        for name in ("c", "d"):
            await cluster.create(name)
        clock, term, begun = SkippingClock(), cluster.controller._term, list[str]()
        assert term is not None

        async def no_answer(_: ZkClient, what: TopicAssignment | str, *__: int) -> bool:
            begun.append(what if isinstance(what, str) else what.topic)
            clock.skipped_ms += 3000
            raise OutcomeUnknownError("no answer")

        monkeypatch.setattr(ZkClient, "create_topic", no_answer)
        monkeypatch.setattr(ZkClient, "request_deletion", no_answer)
        commands = TopicCommands(lambda: term, cluster.brokers[1].settings, clock, random.Random(1), lambda: 100)
        new = CreateTopicsRequest((NewTopic("a", 1, 1), NewTopic("b", 1, 1)), timeout_ms=3000)
        created = await commands.create_topics(new)
        assert [each.error_code for each in created.topics] == [RequestTimedOutError.code] * 2
        gone = await commands.delete_topics(DeleteTopicsRequest(("c", "d"), timeout_ms=60_000))
        assert [each.error_code for each in gone.topics] == [RequestTimedOutError.code] * 2
        assert begun == ["a", "c", "d"], "the second request had time for both"

    run(story)


def test_deletion_of_a_large_topic_delays_no_other_command(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment=dict.fromkeys(range(8), (1,)))
        term = cluster.controller._term
        assert term is not None
        lock, topics, remove = term.topics_lock, term.controller.context.topics, TopicZnodes.remove_some
        turns: list[asyncio.Task[bool]] = []

        async def run_while_locked() -> bool:
            async with lock:
                return "t" in topics

        async def remove_with_a_waiter(nodes: TopicZnodes, topic: str, epoch_version: int) -> bool:
            if not turns:
                turns.append(asyncio.create_task(run_while_locked()))
            return await remove(nodes, topic, epoch_version)

        monkeypatch.setattr(topic_znodes, "_REMOVAL_BATCH", 2)
        monkeypatch.setattr(TopicZnodes, "remove_some", remove_with_a_waiter)
        answer = await cluster.controller.topics.delete_topics(DeleteTopicsRequest(("t",), timeout_ms=5000))
        assert answer.topics[0].error_code == 0 and "t" not in topics
        assert [await each for each in turns] == [True], "the waiter ran before the topic was removed"

    run(story)


@pytest.mark.parametrize("timeout_ms", [100, 0, -(1 << 31)])
def test_command_waits_for_the_topics_lock_until_its_deadline(timeout_ms: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create()
        controller = cluster.controller
        assert controller._term is not None
        async with controller._term.topics_lock:
            (created,) = (
                await controller.topics.create_topics(CreateTopicsRequest((NewTopic("u"),), timeout_ms))
            ).topics
            (deleted,) = (await controller.topics.delete_topics(DeleteTopicsRequest(("t",), timeout_ms))).topics
            more = CreatePartitionsRequest((NewPartitions("t", 2),), timeout_ms)
            (extended,) = (await controller.partitions.create_partitions(more)).topics
        assert {each.error_code for each in (created, deleted, extended)} == {RequestTimedOutError.code}
        assert (await cluster.brokers[1].zk_client.topic_names()) == ["t"]

    run(story)
