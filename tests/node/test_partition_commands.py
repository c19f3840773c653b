"""Commands of clients on partitions, at a real controller with brokers that only record its requests."""

from __future__ import annotations

import asyncio

import pytest

from cluster.state import TopicAssignment
from cluster.zookeeper import znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.store import OutcomeUnknownError
from cluster.zookeeper.topic_znodes import TopicZnodes
from node.controller.partition_commands import PartitionCommands
from node.metadata.internal_topics import InternalTopicRules
from tests.node.controller_cluster import TP, Cluster, SkippingClock, run
from tidelog.errors import (
    ElectionNotNeededError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    NotControllerError,
    PreferredLeaderNotAvailableError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.messages import DescribePartition
from tidelog.protocol.partition_messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    ElectionType,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    NewPartitions,
    WantedReplicas,
)


def test_added_partitions_are_led_before_the_answer() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2)})
        request = CreatePartitionsRequest((NewPartitions("t", 3),), timeout_ms=5000)
        (answer,) = (await cluster.controller.partitions.create_partitions(request)).topics
        assert answer.error_code == 0
        for number in (1, 2):
            message = cluster.brokers[3].metadata[TopicPartition("t", number)]
            assert message.leader in message.isr and len(message.replicas) == 2
        topic = await cluster.brokers[1].zk_client.read_topic("t")
        assert topic is not None and sorted(topic.partitions) == [0, 1, 2] and topic.version == 1

    run(story)


def test_partitions_are_added_though_the_answer_of_the_write_is_lost() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2)})
        cluster.brokers[1].store.lose_answers = 1
        request = CreatePartitionsRequest((NewPartitions("t", 2),), timeout_ms=5000)
        (answer,) = (await cluster.controller.partitions.create_partitions(request)).topics
        assert (answer.error_code, answer.error_message) == (0, None)

    run(story)


def test_unreadable_assignment_ends_the_command_with_an_error() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2)})
        await cluster.create("u", assignment={0: (2, 3)})
        await cluster.brokers[3].store.set(znodes.topic_path("t"), b"{}")
        request = CreatePartitionsRequest((NewPartitions("t", 2),), timeout_ms=5000)
        (answer,) = (await cluster.controller.partitions.create_partitions(request)).topics
        assert answer.error_code == NotControllerError.code
        await cluster.brokers[2].kill()
        await cluster.until(lambda: cluster.brokers[3].hosted[TopicPartition("u", 0)].leader == 3)

    run(story)


def test_items_not_started_by_the_deadline_are_not_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        for name in ("t", "u"):
            await cluster.create(name, assignment={0: (1, 2)})
        clock, term = SkippingClock(), cluster.controller._term
        assert term is not None
        commands, zk_client = (
            PartitionCommands(lambda: term, InternalTopicRules.of(cluster.brokers[1].settings), clock, lambda: 100),
            cluster.brokers[1].zk_client,
        )
        write = TopicZnodes.write_assignment

        async def slow(nodes: TopicZnodes, assignment: TopicAssignment, epoch_version: int) -> TopicAssignment:
            clock.skipped_ms += 60_000
            return await write(nodes, assignment, epoch_version)

        monkeypatch.setattr(TopicZnodes, "write_assignment", slow)
        new = CreatePartitionsRequest((NewPartitions("t", 2), NewPartitions("u", 2)), timeout_ms=5000)
        late = (await commands.create_partitions(new)).topics
        assert [each.error_code for each in late] == [0, RequestTimedOutError.code]
        wanted = (WantedReplicas("t", 0, (1, 3)), WantedReplicas("u", 0, (1, 3)))
        moved = await commands.alter_reassignments(AlterPartitionReassignmentsRequest(wanted, timeout_ms=5000))
        assert [each.error_code for each in moved.partitions] == [0, RequestTimedOutError.code]
        first, second = await zk_client.read_topic("t"), await zk_client.read_topic("u")
        assert first is not None and sorted(first.partitions) == [0, 1] and 3 in first.partitions[0]
        assert second is not None and second.partitions == {0: (1, 2)}

    run(story)


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewPartitions("t", 1), InvalidPartitionsError.code),
        (NewPartitions("t", 10_001), InvalidPartitionsError.code),
        (NewPartitions("ghost", 3), UnknownTopicOrPartitionError.code),
        (NewPartitions("t", 2, {1: (1, 9)}), InvalidReplicaAssignmentError.code),
        (NewPartitions("t", 3, {1: (1, 2)}), InvalidReplicaAssignmentError.code),
    ],
)
def test_invalid_new_partitions_are_refused(new: NewPartitions, code: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2)})
        answer = await cluster.controller.partitions.create_partitions(CreatePartitionsRequest((new,), 5000))
        assert answer.topics[0].error_code == code and answer.topics[0].error_message

    run(story)


def test_only_the_controller_carries_out_partition_commands() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2)})
        with pytest.raises(NotControllerError):
            await cluster.brokers[2].elector.partitions.list_reassignments(ListPartitionReassignmentsRequest())

    run(story)


def test_each_election_is_answered_with_its_result() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 1), 1: (3, 1)})
        await cluster.brokers[2].kill()
        await cluster.until(lambda: cluster.brokers[1].hosted[TP].leader == 1)
        commands = cluster.controller.partitions
        named = tuple(DescribePartition("t", number) for number in (0, 1, 7))
        answer = await commands.elect_leaders(ElectLeadersRequest(ElectionType.PREFERRED, named, 5000))
        assert [each.error_code for each in answer.partitions] == [
            PreferredLeaderNotAvailableError.code,
            ElectionNotNeededError.code,
            UnknownTopicOrPartitionError.code,
        ]
        everything = await commands.elect_leaders(ElectLeadersRequest(ElectionType.PREFERRED, None, 5000))
        assert [each.partition for each in everything.partitions] == [0], (
            "partitions that need no election are left out"
        )
        with pytest.raises(InvalidRequestError):
            await commands.elect_leaders(ElectLeadersRequest(5, None, 5000))

    run(story)


def test_unclean_election_on_request_elects_a_live_replica() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (2, 3)})
        await cluster.create("u", assignment={0: (1,)})
        await cluster.brokers[3].kill()
        await cluster.until(lambda: cluster.brokers[2].hosted[TP].isr == (2,))
        old = cluster.brokers[3]
        again = cluster.brokers[3] = type(old)(cluster.zookeeper, 3)
        await again.start(previous_session=old.store.session_id)
        await cluster.until(lambda: again.hosted[TP].leader == 2)
        await cluster.brokers[2].kill()
        await cluster.until(lambda: cluster.brokers[1].metadata[TP].leader == -1)
        named = (DescribePartition("t", 0), DescribePartition("u", 0))
        answer = await cluster.controller.partitions.elect_leaders(
            ElectLeadersRequest(ElectionType.UNCLEAN, named, 5000)
        )
        results = [(each.topic, each.error_code) for each in answer.partitions]
        assert results == [("t", 0), ("u", ElectionNotNeededError.code)], "in the order of the request"
        state = await cluster.state()
        assert (state.leader, state.isr) == (3, (3,))

    run(story)


def test_reassignment_is_listed_cancelled_and_refused() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2)})
        commands = cluster.controller.partitions

        async def ask(*wanted: WantedReplicas) -> list[int]:
            answer = await commands.alter_reassignments(AlterPartitionReassignmentsRequest(wanted, 5000))
            return [each.error_code for each in answer.partitions]

        assert await ask(WantedReplicas("t", 0, None)) == [NoReassignmentInProgressError.code]
        assert await ask(WantedReplicas("t", 0, (1, 1)), WantedReplicas("u", 0, (1,))) == [
            InvalidReplicaAssignmentError.code,
            UnknownTopicOrPartitionError.code,
        ]
        assert await ask(WantedReplicas("t", 0, (3, 2)), WantedReplicas("t", 4, (1,))) == [
            0,
            UnknownTopicOrPartitionError.code,
        ]
        await cluster.until(lambda: cluster.brokers[3].hosted[TP].leader == 1)
        (moving,) = (await commands.list_reassignments(ListPartitionReassignmentsRequest())).partitions
        assert (moving.adding_replicas, moving.removing_replicas) == ((3,), (1,))
        assert await ask(WantedReplicas("t", 0, None)) == [0]
        await cluster.until(lambda: TP not in cluster.brokers[3].hosted)
        while (await commands.list_reassignments(ListPartitionReassignmentsRequest())).partitions:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        topic = await cluster.brokers[1].zk_client.read_topic("t")
        assert topic is not None and set(topic.partitions[0]) == {1, 2} and not topic.adding and not topic.removing

    run(story)


def test_reassignment_whose_answer_was_lost_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer_lost(nodes: TopicZnodes, assignment: TopicAssignment, epoch_version: int) -> TopicAssignment:
        monkeypatch.undo()
        await nodes.write_assignment(assignment, epoch_version)
        raise OutcomeUnknownError("no answer")

    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2)})
        monkeypatch.setattr(TopicZnodes, "write_assignment", answer_lost)
        request = AlterPartitionReassignmentsRequest((WantedReplicas("t", 0, (1, 3)),), timeout_ms=5000)
        (answer,) = (await cluster.controller.partitions.alter_reassignments(request)).partitions
        assert answer.error_code == RequestTimedOutError.code
        await cluster.until(lambda: 3 in cluster.brokers[1].metadata[TP].replicas)

    run(story)


def test_writes_in_flight_of_a_failed_term_are_fenced_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, in_flight, next_term_has_read = TopicZnodes.write_assignment, asyncio.Event(), asyncio.Event()

    async def late(nodes: TopicZnodes, assignment: TopicAssignment, epoch_version: int) -> TopicAssignment:
        in_flight.set()
        await next_term_has_read.wait()
        return await write(nodes, assignment, epoch_version)

    async def no_answer(zk_client: ZkClient, *, watch: bool = False) -> dict[str, int | None]:
        monkeypatch.undo()
        raise OutcomeUnknownError("no answer")

    async def story(cluster: Cluster) -> None:
        await cluster.create(assignment={0: (1, 2)})
        monkeypatch.setattr(TopicZnodes, "write_assignment", late)
        request = AlterPartitionReassignmentsRequest((WantedReplicas("t", 0, (1, 3)),), timeout_ms=5000)
        asked = asyncio.create_task(cluster.controller.partitions.alter_reassignments(request))
        await in_flight.wait()
        monkeypatch.setattr(ZkClient, "read_log_dir_failures", no_answer)
        others = cluster.brokers[2], cluster.brokers[3]
        for other in others:
            other.requests.clear()
        await others[0].zk_client.notify_log_dir_failure(2)
        await cluster.until(lambda: all(other.requests for other in others))
        next_term_has_read.set()
        (answer,) = (await asked).partitions
        assert answer.error_code == RequestTimedOutError.code
        topic = await cluster.brokers[1].zk_client.read_topic("t")
        assert topic is not None and (topic.partitions, topic.version) == ({0: (1, 2)}, 0)
        await cluster.until(lambda: all(other.elector.controller_epoch == 2 for other in others))
        assert {other.elector.controller_id for other in others} == {1}

    run(story)
