"""The AdminClients of Kafka's Java clients, franz-go and sarama."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from tests.clients.adapters.client_program import ProgramClient
from tests.clients.adapters.foreign_client import Record, RefusedError
from tests.clients.adapters.registry import JAVA_VERSIONS, PROGRAMS, Clients
from tests.clients.cluster_under_test import ClusterUnderTest
from tests.clients.group_readers import closing
from tests.clients.languages.program_reader import ProgramReader
from tests.processes.harness.waiting import wait_for
from tidelog import TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]  # all tests share one cluster

_numbers = count(1)


@pytest.fixture(params=PROGRAMS)
def admin(request: pytest.FixtureRequest, client: Clients) -> ProgramClient:
    return client.program(request.param)


def test_topics_are_created_grown_and_deleted(admin: ProgramClient) -> None:
    name = f"admin-{next(_numbers)}"
    admin.ask("create_topic", topic=name, partitions=3, replicas=2, configs={"retention.ms": "1000000"})
    described = wait_for("the topic", lambda: _described(admin, name))
    assert [len(each["replicas"]) for each in described["partitions"]] == [2, 2, 2]
    assert all(each["leader"] in each["isr"] for each in described["partitions"])
    with pytest.raises(RefusedError, match=r"(?i)exist"):
        admin.ask("create_topic", topic=name, partitions=1, replicas=1)
    wait_for("the topic in the list", lambda: name in admin.ask("topics"))
    admin.ask("create_partitions", topic=name, partitions=5)
    wait_for("five partitions", lambda: len((_described(admin, name) or {"partitions": ()})["partitions"]) == 5)
    with pytest.raises(RefusedError, match=r"(?i)partitions"):
        admin.ask("create_partitions", topic=name, partitions=4)
    admin.ask("delete_topic", topic=name)
    wait_for("the topic to be gone", lambda: name not in admin.ask("topics"))
    with pytest.raises(RefusedError, match=r"(?i)unknown|does not (host|exist)"):
        admin.ask("delete_topic", topic=name)


def _described(admin: ProgramClient, topic: str) -> dict[str, list[dict[str, object]]] | None:
    """Return the description, or None while the broker that was asked does not know all leaders yet."""
    try:
        found: dict[str, list[dict[str, object]]] = admin.ask("describe_topic", topic=topic)
    except RefusedError:
        return None
    return found if found["partitions"] and all(each["leader"] != -1 for each in found["partitions"]) else None


@pytest.mark.parametrize("name", JAVA_VERSIONS)
def test_java_creates_topics_by_assignment_and_deletes_them_by_id(
    cluster: ClusterUnderTest, client: Clients, name: str
) -> None:
    admin, topic = client.program(name), f"admin-{next(_numbers)}"
    tried = admin.ask("create_topic", topic=topic, partitions=2, replicas=3, validate_only=True)
    assert (tried["partitions"], tried["replicas"]) == (2, 3) and topic not in admin.ask("topics")
    created = admin.ask("create_topic", topic=topic, assignment=[[1, 2], [3, 1]])
    described = wait_for("the topic", lambda: _described(admin, topic))
    assert [each["replicas"] for each in described["partitions"]] == [[1, 2], [3, 1]]
    assert described["id"] == created["id"]
    admin.ask("delete_topic_by_id", id=created["id"])
    wait_for("the topic to be gone", lambda: topic not in admin.ask("topics"))


def test_cluster_is_described_with_its_listeners(cluster: ClusterUnderTest, servers: str, admin: ProgramClient) -> None:
    found = admin.ask("cluster")
    assert found["nodes"] == sorted(servers.split(","))
    assert found["controller"] in cluster.broker_ids
    if admin.name != "sarama":  # this client does not tell the id
        assert re.fullmatch(r"[\w-]{22}", found["id"])


def test_offsets_are_listed_and_records_deleted(admin: ProgramClient, topic: str) -> None:
    # franz-go gives up a record whose timestamp lies further back than its delivery timeout.
    start_ms = int(time.time() * 1000)
    admin.produce(topic, [Record(b"%d" % number, timestamp_ms=start_ms + number) for number in range(10)], acks="all")

    def offset(at: str) -> int:
        found: int = admin.ask("list_offset", topic=topic, partition=0, at=at)
        return found

    assert (offset("earliest"), offset("latest"), offset(str(start_ms + 6))) == (0, 10, 6)
    if admin.name != "sarama":  # this client asks in a version that has no such look-up
        assert offset("max_timestamp") == 9
    assert admin.ask("delete_records", topic=topic, partition=0, offset=4) == 4
    wait_for("the new first offset", lambda: offset("earliest") == 4)
    with pytest.raises(RefusedError, match=r"(?i)out.?of.?range|(not within|outside) the range"):
        admin.ask("delete_records", topic=topic, partition=0, offset=99)


def test_static_member_that_has_gone_is_removed(admin: ProgramClient, topic: str) -> None:
    group = f"admin-group-{next(_numbers)}"
    admin.produce(topic, [Record(b"x")], acks="all")
    member = ProgramReader(admin, topic, group, instance="a", session_timeout_ms=300_000)
    with closing(member):
        wait_for("the member", lambda: len(member.seen) == 1)
    assert [each["instance"] for each in admin.ask("describe_group", group=group)["members"]] == ["a"]
    admin.ask("remove_member", group=group, name="a")
    wait_for("the empty group", lambda: admin.ask("describe_group", group=group)["state"] == "Empty")


def test_configs_are_described_and_altered(admin: ProgramClient, topic: str) -> None:
    def value() -> object:
        return admin.ask("configs", type="TOPIC", name=topic)["retention.ms"]["value"]

    before = value()
    admin.ask("alter_configs", type="TOPIC", name=topic, set={"retention.ms": "123456789"})
    wait_for("the change", lambda: value() == "123456789")
    described = admin.ask("configs", type="TOPIC", name=topic)["retention.ms"]
    assert "topic" in described["source"].lower()
    if admin.name != "sarama":  # this client asks for no synonyms
        assert described["synonyms"][0] == "retention.ms=123456789"
    admin.ask("alter_configs", type="TOPIC", name=topic, delete={"retention.ms": ""})
    wait_for("the default", lambda: value() == before)
    if admin.name in JAVA_VERSIONS:
        admin.ask("alter_configs", type="TOPIC", name=topic, append={"cleanup.policy": "compact"})
        policy = wait_for(
            "both policies", lambda: _both(admin.ask("configs", type="TOPIC", name=topic)["cleanup.policy"])
        )
        assert policy["type"] == "LIST" and policy["documentation"]
    assert admin.ask("configs", type="BROKER", name="1")["log.retention.ms"]


def _both(policy: dict[str, str]) -> dict[str, str] | None:
    return policy if set(policy["value"].split(",")) == {"delete", "compact"} else None


@contextmanager
def _joined_group(admin: ProgramClient, topic: str) -> Iterator[str]:
    """Run a member of a new group, which reads 10 records of the topic. At the end the member commits and leaves."""
    group = f"admin-group-{next(_numbers)}"
    admin.produce(topic, [Record(b"%d" % number) for number in range(10)], acks="all")
    member = ProgramReader(admin, topic, group)
    with closing(member):
        wait_for("the member", lambda: len(member.seen) == 10)
        yield group


def test_groups_are_described_changed_and_deleted(admin: ProgramClient, topic: str) -> None:
    with _joined_group(admin, topic) as group:
        described = admin.ask("describe_group", group=group)
        assert described["state"] == "Stable" and described["assignor"] == "range"
        assert [each["partitions"] for each in described["members"]] == [[0]]
        assert group in admin.ask("groups")
        with pytest.raises(RefusedError, match=r"(?i)not.?empty"):
            admin.ask("delete_group", group=group)
    assert admin.ask("group_offsets", group=group) == {f"{topic}-0": 10}
    assert admin.ask("describe_group", group=group)["state"] == "Empty"
    if admin.name != "sarama":  # this client has no such call
        admin.ask("alter_group_offset", group=group, topic=topic, partition=0, offset=7)
        assert admin.ask("group_offsets", group=group) == {f"{topic}-0": 7}
    admin.ask("delete_group", group=group)
    assert group not in admin.ask("groups")


def test_group_without_members_goes_with_its_last_offset(admin: ProgramClient, topic: str) -> None:
    with _joined_group(admin, topic) as group:
        assert admin.ask("describe_group", group=group)["state"] == "Stable"
    assert admin.ask("group_offsets", group=group) == {f"{topic}-0": 10}
    admin.ask("delete_group_offset", group=group, topic=topic, partition=0)
    assert group not in admin.ask("groups")
    with pytest.raises(RefusedError, match=r"(?i)not.?(exist|found)"):
        admin.ask("delete_group", group=group)


def test_log_directories_are_described(cluster: ClusterUnderTest, admin: ProgramClient, topic: str) -> None:
    admin.produce(topic, [Record(b"x" * 1_000)], codec="none", acks="all")

    def sizes() -> list[int]:
        found = admin.ask("log_dirs", brokers=cluster.broker_ids)
        assert set(found) == set(map(str, cluster.broker_ids))
        return [broker.get(f"{topic}-0", 0) for broker in found.values()]

    wait_for("each replica to have the record", lambda: min(sizes()) >= 1_000)


def _replicas(admin: ProgramClient, topic: str) -> list[int]:
    """Return the replicas of the topic's partition 0, the preferred leader first."""
    described: dict[str, Any] = wait_for("the topic", lambda: _described(admin, topic))
    found: list[int] = described["partitions"][0]["replicas"]
    return found


def test_leaders_are_elected(cluster: ClusterUnderTest, admin: ProgramClient, topic: str) -> None:
    replicas = _replicas(admin, topic)
    # A reassignment to the same replicas in another order only changes the preferred leader.
    turned = [*replicas[1:], replicas[0]]
    admin.ask("reassign", topic=topic, partition=0, replicas=turned)
    wait_for("the new order", lambda: _replicas(admin, topic) == turned)
    assert admin.ask("elect", type="PREFERRED", topic=topic, partition=0) is None
    wait_for("the preferred leader", lambda: cluster.leader(TopicPartition(topic, 0)) == turned[0])
    again = admin.ask("elect", type="PREFERRED", topic=topic, partition=0)
    assert again is not None and re.search("(?i)not.?needed", again), again


def test_partitions_move_to_other_brokers(cluster: ClusterUnderTest, admin: ProgramClient) -> None:
    topic = f"admin-{next(_numbers)}"
    cluster.create_topic(topic, replicas=2)
    replicas = _replicas(admin, topic)
    (other,) = set(cluster.broker_ids) - set(replicas)
    admin.ask("reassign", topic=topic, partition=0, replicas=[other, replicas[0]])

    def has_moved() -> bool:
        found = admin.ask("reassignments", topic=topic, partition=0)
        if any(each["adding"] or each["removing"] for each in found.values()):
            return False
        return _replicas(admin, topic) == [other, replicas[0]]

    wait_for("the replicas to move", has_moved)
