"""Test each call of our Admin, and the look-ups of our Consumer, on each cluster: docs/ANY-KAFKA.md says what works."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.any_kafka.any_kafka_page import CALLS_TABLE, COMMANDS_TABLE, rows
from tests.any_kafka.clusters import CLUSTERS, AnyCluster
from tests.any_kafka.command_stories import client_commands, refusal
from tests.processes.harness.waiting import wait_for
from tidelog import (
    Admin,
    ConfigResource,
    Consumer,
    ElectionType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    ToEarliest,
    TopicPartition,
)
from tidelog.errors import UnknownMemberIdError, UnsupportedVersionError

pytestmark = [pytest.mark.timeout(300)]

T0 = 1_700_000_000_000


@dataclass(frozen=True)
class Scene:
    """Our clients of one cluster, a partition with ten records and a group that has committed offset 4 of it."""

    admin: Admin
    consumer: Consumer
    tp: TopicPartition
    group: str

    @property
    def topic(self) -> str:
        return self.tp.topic


@pytest.fixture(scope="module")
def scene(cluster: AnyCluster) -> Iterator[Scene]:
    (tp,) = cluster.create_topic()
    servers, group = cluster.bootstrap_servers, f"group-of-{tp.topic}"
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(10):
            producer.send(tp.topic, b"v", timestamp_ms=T0 + number)
    with Admin(bootstrap_servers=servers) as admin, Consumer(bootstrap_servers=servers, group_id=group) as consumer:
        admin.alter_consumer_group_offsets(group, {tp: OffsetAndMetadata(4)})
        yield Scene(admin, consumer, tp, group)


def _fresh(scene: Scene, action: Callable[[str], object]) -> object:
    """Call the action with the name of a new topic of one partition."""
    name = f"fresh-{time.monotonic_ns()}"
    scene.admin.create_topics([NewTopic(name, assignment={0: (1, 2)})])

    def is_led() -> bool:
        return all(each.leader >= 0 for each in scene.admin.describe_topics([name])[0].partitions)

    wait_for("the new topic to be led", is_led, 60)
    return action(name)


ABSENT = MemberToRemove(group_instance_id="absent")
#: Calls that ask no broker.
OF_THE_CLIENT = {"Admin.close", "Admin.metrics"}
CALLS: Mapping[str, Callable[[Scene], object]] = {
    "Admin.alter_configs": lambda s: s.admin.alter_configs({ConfigResource.topic(s.topic): {"retention.ms": "-1"}}),
    "Admin.alter_consumer_group_offsets": lambda s: s.admin.alter_consumer_group_offsets(
        s.group, {s.tp: OffsetAndMetadata(4)}
    ),
    "Admin.alter_partition_reassignments": lambda s: _fresh(
        s, lambda name: s.admin.alter_partition_reassignments({TopicPartition(name, 0): (2, 3)})
    ),
    "Admin.alter_replica_log_dirs": lambda s: s.admin.alter_replica_log_dirs(
        1, {s.tp: s.admin.describe_log_dirs([1])[1][0].path}
    ),
    "Admin.alter_zookeeper_group_offsets": lambda s: s.admin.alter_zookeeper_group_offsets("old", {s.tp: 1}),
    "Admin.consumer_group_lag": lambda s: s.admin.consumer_group_lag(s.group)[s.tp].lag == 6,
    "Admin.create_partitions": lambda s: _fresh(s, lambda name: s.admin.create_partitions([NewPartitions(name, 2)])),
    "Admin.create_topics": lambda s: _fresh(s, lambda name: name),
    "Admin.delete_consumer_group_offsets": lambda s: _no_errors(
        s.admin.alter_consumer_group_offsets("deleted-offsets", {s.tp: OffsetAndMetadata(1)}),
        s.admin.delete_consumer_group_offsets("deleted-offsets", [s.tp]),
    ),
    "Admin.delete_consumer_groups": lambda s: _no_errors(
        s.admin.alter_consumer_group_offsets("deleted-group", {s.tp: OffsetAndMetadata(1)}),
        s.admin.delete_consumer_groups(["deleted-group"]),
    ),
    "Admin.delete_records": lambda s: _fresh(s, lambda name: s.admin.delete_records({TopicPartition(name, 0): -1})),
    "Admin.delete_topics": lambda s: _fresh(s, lambda name: s.admin.delete_topics([name])),
    "Admin.describe_clients": lambda s: s.admin.describe_clients(),
    "Admin.describe_cluster": lambda s: s.admin.describe_cluster().kind,
    "Admin.describe_configs": lambda s: s.admin.describe_configs([ConfigResource.broker(1)]),
    "Admin.describe_consumer_groups": lambda s: s.admin.describe_consumer_groups([s.group])[s.group],
    "Admin.describe_log_dirs": lambda s: s.admin.describe_log_dirs(),
    "Admin.describe_times": lambda s: s.admin.describe_times(s.topic)[0].newest,
    "Admin.describe_topics": lambda s: s.admin.describe_topics([s.topic]),
    "Admin.elect_leaders": lambda s: s.admin.elect_leaders(ElectionType.PREFERRED, [s.tp]),
    "Admin.list_consumer_group_offsets": lambda s: s.admin.list_consumer_group_offsets(s.group)[s.tp],
    "Admin.list_consumer_groups": lambda s: s.admin.list_consumer_groups(["Empty"]),
    "Admin.list_partition_reassignments": lambda s: s.admin.list_partition_reassignments() is not None,
    "Admin.list_topics": lambda s: s.admin.list_topics(),
    "Admin.list_zookeeper_group_offsets": lambda s: s.admin.list_zookeeper_group_offsets("old"),
    "Admin.list_zookeeper_groups": lambda s: s.admin.list_zookeeper_groups(),
    "Admin.migrate_zookeeper_group": lambda s: s.admin.migrate_zookeeper_group("old"),
    "Admin.partition_facts": lambda s: s.admin.partition_facts(s.tp),
    "Admin.remove_group_members": lambda s: isinstance(
        s.admin.remove_group_members(s.group, [ABSENT])[ABSENT], UnknownMemberIdError
    ),
    "Admin.reset_consumer_group_offsets": lambda s: s.admin.reset_consumer_group_offsets(s.group, ToEarliest(), [s.tp]),
    "Consumer.beginning_offsets": lambda s: s.consumer.beginning_offsets([s.tp]),
    "Consumer.committed": lambda s: s.consumer.committed(s.tp),
    "Consumer.offsets_before": lambda s: s.consumer.offsets_before({s.tp: T0}),
    "Consumer.offsets_for_times": lambda s: s.consumer.offsets_for_times({s.tp: T0})[s.tp],
    "Consumer.topics": lambda s: s.consumer.topics(),
}


def _no_errors(*results: Mapping[object, object]) -> object:
    assert all(error is None for result in results for error in result.values()), results
    return results


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_call_works_where_the_page_says_so(cluster: AnyCluster, scene: Scene, call: str) -> None:
    page = rows(CALLS_TABLE)[call][cluster.kind]
    if page == "yes":
        CALLS[call](scene)
        return
    assert page.startswith("no")
    with pytest.raises(UnsupportedVersionError):
        CALLS[call](scene)


def test_page_lists_every_call_of_an_admin() -> None:
    calls = {f"Admin.{name}" for name in vars(Admin) if not name.startswith("_")} - OF_THE_CLIENT
    assert {call for call in rows(CALLS_TABLE) if call.startswith("Admin.")} == calls
    assert rows(CALLS_TABLE).keys() == CALLS.keys()


def test_page_lists_every_command_and_where_it_is_refused() -> None:
    page = rows(COMMANDS_TABLE)
    assert page.keys() == {f"tidelog {command}" for command in client_commands()}
    for command, cells in page.items():
        for kind in CLUSTERS:
            is_refused = refusal(kind, command.removeprefix("tidelog ")) is not None
            assert cells[kind].startswith("no" if is_refused else "yes"), (command, kind)
