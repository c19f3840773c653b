"""Test that our group members share any Kafka's partitions with each other and with foreign members."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.any_kafka.clusters import AnyCluster
from tests.any_kafka.foreign_members import MEMBERS
from tests.processes.harness.waiting import wait_for
from tidelog import Admin, Consumer, MemberToRemove, OffsetAndMetadata, Producer, TopicPartition
from tidelog.errors import FencedInstanceIdError, UnknownMemberIdError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Member:
    """One of our consumers, which reads in its own thread."""

    def __init__(self, cluster: AnyCluster, topic: str, group: str, **options: Any) -> None:
        self.values: list[bytes | None] = []
        self.assigned: set[TopicPartition] = set()
        self.generation = -1
        self._ended = threading.Event()
        self._settings = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group, **options}
        self._topic = topic
        self._thread = threading.Thread(target=self._read)

    @contextmanager
    def reading(self) -> Iterator[Member]:
        self._thread.start()
        try:
            yield self
        finally:
            self.end()

    def end(self) -> None:
        """Leave the group after a commit of the positions."""
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        with Consumer(**self._settings, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([self._topic])
            while not self._ended.is_set():
                for records in consumer.poll(200).values():
                    self.values += [record.value for record in records]
                self.assigned = consumer.assignment()
                self.generation = consumer.group_metadata().generation_id


def produce(cluster: AnyCluster, topic: str, numbers: range) -> set[bytes]:
    values = {b"%d" % number for number in numbers}
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, key=value)
    return values


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_share_the_partitions_and_hand_them_over(cluster: AnyCluster, strategy: str) -> None:
    topic, group = cluster.create_topic(6)[0].topic, f"shared-{strategy}"
    first = Member(cluster, topic, group, partition_assignment_strategy=strategy)
    second = Member(cluster, topic, group, partition_assignment_strategy=strategy)
    with first.reading():
        wait_for("the first member to have all partitions", lambda: len(first.assigned) == 6, 60)
        with second.reading():
            wait_for("both members to have three", lambda: (len(first.assigned), len(second.assigned)) == (3, 3), 60)
            values = produce(cluster, topic, range(600))
            wait_for("all records to be read", lambda: {*first.values, *second.values} == values, 60)
            assert len(first.values) + len(second.values) == 600, "no record is read twice"
        wait_for("the first member to have all partitions again", lambda: len(first.assigned) == 6, 60)
        more = produce(cluster, topic, range(600, 700))
        wait_for("further records to be read", lambda: more <= set(first.values), 60)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        committed = admin.list_consumer_group_offsets(group)
        assert sum(each.offset for each in committed.values()) == 700


@pytest.mark.parametrize(("library", "strategy"), MEMBERS)
def test_member_of_ours_and_a_foreign_one_share_a_group(cluster: AnyCluster, library: str, strategy: str) -> None:
    topic, group = cluster.create_topic(4)[0].topic, f"{library}-{strategy}"
    ours = Member(cluster, topic, group, partition_assignment_strategy=strategy)
    with ours.reading():
        wait_for("our member to have all partitions", lambda: len(ours.assigned) == 4, 60)
        with closing(MEMBERS[library, strategy](cluster.bootstrap_servers, topic, group, strategy)) as foreign:

            def is_shared() -> bool:
                foreign.poll()
                return len(ours.assigned) == 2

            wait_for("our member to have two partitions", is_shared, 60)
            values = produce(cluster, topic, range(400))

            def all_is_read() -> bool:
                foreign.poll()
                return {*ours.values, *foreign.values} >= values

            wait_for("all records to be read", all_is_read, 60)
            assert len(ours.values) + len(foreign.values) == 400, "no record is read twice"
            assert ours.values and foreign.values
        wait_for("our member to have all partitions again", lambda: len(ours.assigned) == 4, 60)
        more = produce(cluster, topic, range(400, 500))
        wait_for("further records to be read", lambda: more <= set(ours.values), 60)


def test_static_member_gets_its_partitions_back_without_a_rebalance(cluster: AnyCluster) -> None:
    topic, group = cluster.create_topic(4)[0].topic, "static"
    options = {"partition_assignment_strategy": "range", "session_timeout_ms": 45_000}
    one, two, again = (
        Member(cluster, topic, group, group_instance_id=name, **options) for name in ("one", "two", "one")
    )
    with two.reading():
        with one.reading():
            wait_for("both members to have two", lambda: (len(one.assigned), len(two.assigned)) == (2, 2), 60)
        generation = two.generation
        with again.reading():
            wait_for("the member to have its partitions again", lambda: again.assigned == one.assigned, 30)
            values = produce(cluster, topic, range(200))
            wait_for("all records to be read", lambda: {*two.values, *again.values} == values, 60)
            assert two.generation == generation


def test_commits_are_read_reset_and_deleted(cluster: AnyCluster) -> None:
    (tp,) = cluster.create_topic()
    produce(cluster, tp.topic, range(50))
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="committed", enable_auto_commit=False
    ) as consumer:
        consumer.assign([tp])
        consumer.commit({tp: OffsetAndMetadata(20)})
        assert consumer.committed(tp) == 20
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.list_consumer_group_offsets("committed")[tp].offset == 20
        assert "committed" in {each.group_id for each in admin.list_consumer_groups().valid}
        admin.alter_consumer_group_offsets("committed", {tp: OffsetAndMetadata(5)})
        assert admin.list_consumer_group_offsets("committed")[tp].offset == 5
        assert admin.describe_consumer_groups(["committed"])["committed"].state.value == "Empty"
        admin.delete_consumer_groups(["committed"])
        assert "committed" not in {each.group_id for each in admin.list_consumer_groups().valid}


def test_removed_static_member_frees_its_partitions(cluster: AnyCluster) -> None:
    topic, group = cluster.create_topic(4)[0].topic, "removed"
    # 5 min are longer than this test, so that only the removal can free the partitions of the stopped member.
    stopped = Member(cluster, topic, group, group_instance_id="stopped", session_timeout_ms=300_000)
    other = Member(cluster, topic, group)
    with stopped.reading():
        wait_for("the static member to have all partitions", lambda: len(stopped.assigned) == 4, 60)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        (described,) = admin.describe_consumer_groups([group])[group].members
        assert described.group_instance_id == "stopped", "a static member that stops does not leave"
        wrong, unknown = MemberToRemove("another", "stopped"), MemberToRemove(group_instance_id="missing")
        named = MemberToRemove(group_instance_id="stopped")
        outcomes = admin.remove_group_members(group, [wrong, unknown, named])
        assert isinstance(outcomes[wrong], FencedInstanceIdError)
        assert isinstance(outcomes[unknown], UnknownMemberIdError)
        assert outcomes[named] is None
        with other.reading():
            wait_for("the other member to have all partitions", lambda: len(other.assigned) == 4, 60)
