"""Offsets of version 0, which lie in ZooKeeper: written by any broker, and by consumers that know no broker for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes.harness.asking import ask
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.command import Shell
from tests.processes.harness.waiting import wait_for
from tests.processes.test_zookeeper_outages import cluster_behind, kill
from tidelog import TopicPartition
from tidelog.errors import RequestTimedOutError, TimeoutError, UnknownTopicOrPartitionError
from tidelog.groups.zookeeper_requests import ZooKeeperOffset
from tidelog.local.zookeeper import EmbeddedZooKeeper
from tidelog.model import OffsetAndMetadata
from tidelog.protocol.group_messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper_offsets")]  # all tests share one cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, another_root: Callable[[], str]) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), zookeeper=another_root()) as started:
        started.create_topic("t", partitions=3)
        addresses = [started.address(each) for each in started.broker_ids]
        wait_for("every broker to know the topic", lambda: not any(commit(each, "known", 0) for each in addresses))
        yield started


@pytest.fixture
def shell(cluster: RunningCluster) -> Shell:
    return Shell(cluster.local.home.parent, cluster.local.home)


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as started:
        yield started


def commit(address: str, group_id: str, offset: int, topic: str = "t", *, timeout_ms: int = 10_000) -> int:
    """Commit an offset of partition 0 through this broker. Return the error code."""
    part = OffsetCommitPartition(topic, 0, offset, committed_metadata="a note")
    answer = ask(address, OffsetCommitRequest(group_id, (part,), in_zookeeper=True), timeout_ms)
    assert isinstance(answer, OffsetCommitResponse)
    return answer.partitions[0].error_code


def refused(address: str) -> int | None:
    """The error code of a commit that can be none; None where the answer came too late.

    A request of Kafka's protocol does not say how long its client waits. The broker waits ten seconds for ZooKeeper.
    """
    try:
        code = commit(address, "g", 2, timeout_ms=15_000)
    except TimeoutError:
        return None
    assert code, "there is no ZooKeeper"
    return code


def fetch(address: str, group_id: str) -> dict[TopicPartition, int]:
    answer = ask(address, OffsetFetchRequest(group_id, None, in_zookeeper=True))
    assert isinstance(answer, OffsetFetchResponse) and answer.error_code == 0
    return {TopicPartition(part.topic, part.partition): part.committed_offset for part in answer.partitions}


def test_any_broker_writes_an_offset_and_every_other_reads_it(cluster: RunningCluster) -> None:
    for number, broker_id in enumerate(cluster.broker_ids):
        assert commit(cluster.address(broker_id), "any", 10 + number) == 0
        with cluster.zookeeper() as client:
            assert client.get("/consumers/any/offsets/t/0")[0] == b"%d" % (10 + number)
        for other in cluster.broker_ids:
            assert fetch(cluster.address(other), "any") == {TopicPartition("t", 0): 10 + number}
    assert commit(cluster.address(1), "any", 1, "u") == UnknownTopicOrPartitionError.code
    assert "any" in cluster.admin.list_zookeeper_groups()


def test_offsets_written_by_a_kafka_0_8_consumer_are_read(cluster: RunningCluster) -> None:
    with cluster.zookeeper() as client:
        client.ensure_path("/consumers/old/ids")
        client.ensure_path("/consumers/old/owners/t")
        client.create("/consumers/old/offsets/t/1", b"123456", makepath=True)
        client.create("/consumers/old/offsets/gone/0", b"7", makepath=True)
        client.ensure_path("/consumers/without/ids")
    offsets = cluster.admin.list_zookeeper_group_offsets("old")
    assert offsets.pop(TopicPartition("t", 1)) == ZooKeeperOffset(123456)
    (gone,) = offsets.values()
    assert gone.offset == 7 and isinstance(gone.error, UnknownTopicOrPartitionError)
    assert {"old", "without"} & set(cluster.admin.list_zookeeper_groups()) == {"old"}


def test_zookeeper_offsets_survive_the_kill_of_every_broker(cluster: RunningCluster) -> None:
    cluster.admin.alter_zookeeper_group_offsets("kept", {TopicPartition("t", number): number for number in range(3)})
    cluster.kill_all()
    for broker_id in cluster.broker_ids:
        cluster.restart(broker_id)
    offsets = cluster.admin.list_zookeeper_group_offsets("kept")
    assert offsets == {TopicPartition("t", number): ZooKeeperOffset(number) for number in range(3)}


@pytest.mark.slow
def test_commit_without_zookeeper_fails_with_a_retriable_error(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> None:
    with cluster_behind(tmp_path, zookeeper) as (cluster, _):
        cluster.create_topic("t")
        admin, tp = cluster.admin, TopicPartition("t", 0)
        assert commit(cluster.address(1), "g", 1) == 0
        kill(zookeeper)
        reported = wait_for("the broker to answer before its client gives up", lambda: refused(cluster.address(1)), 40)
        assert reported == RequestTimedOutError.code
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=r"from ZooKeeper|LIST_GROUPS"):
            admin.list_zookeeper_groups(2000)
        with pytest.raises(TimeoutError):
            admin.alter_zookeeper_group_offsets("g", {tp: 3}, 2000)
        assert time.monotonic() - begun < 15
        zookeeper.start()
        admin.alter_zookeeper_group_offsets("g", {tp: 4})
        assert admin.list_zookeeper_group_offsets("g") == {tp: ZooKeeperOffset(4)}


def test_group_migrates_to_its_coordinator_only_with_execute(cluster: RunningCluster, shell: Shell) -> None:
    tps = [TopicPartition("t", number) for number in range(3)]
    admin = cluster.admin
    admin.alter_zookeeper_group_offsets("moving", {tps[0]: 5, tps[1]: 6, tps[2]: 7})
    admin.alter_consumer_group_offsets("moving", {tps[1]: OffsetAndMetadata(3), tps[2]: OffsetAndMetadata(9)})

    def migrate(*options: str) -> list[tuple[int, int, int | None, str]]:
        reported = json.loads(shell.succeed("group", "migrate", "moving", "--json", *options))
        (group,) = reported["groups"]
        assert group["group"] == "moving" and reported["executed"] == ("--execute" in options)
        names = ("partition", "zookeeper_offset", "committed_offset", "outcome")
        return [(each[names[0]], each[names[1]], each[names[2]], each[names[3]]) for each in group["partitions"]]

    def committed() -> list[int | None]:
        return [at and at.offset for at in admin.list_consumer_group_offsets("moving", tps).values()]

    plan = [(0, 5, None, "move"), (1, 6, 3, "move"), (2, 7, 9, "keep")]
    assert migrate() == plan and committed() == [None, 3, 9]
    shown = shell.run("group", "migrate", "moving")
    assert (
        b"stays: the committed offset is further" in shown.output
        and "repeat the command with --execute" in shown.complaint
    )
    assert migrate("--execute") == plan and committed() == [5, 6, 9]
    assert migrate("--force", "--execute") == [(0, 5, 5, "same"), (1, 6, 6, "same"), (2, 7, 9, "move")]
    assert committed() == [5, 6, 7]
    assert admin.list_zookeeper_group_offsets("moving") == {tp: ZooKeeperOffset(5 + tp.partition) for tp in tps}
    killed = next(iter(cluster.broker_ids))
    cluster.kill(killed)
    assert committed() == [5, 6, 7]
    cluster.restart(killed)


def test_failed_migrations_are_reported_and_the_others_completed(cluster: RunningCluster, shell: Shell) -> None:
    tp = TopicPartition("t", 0)
    cluster.admin.alter_zookeeper_group_offsets("odd", {tp: 5})
    with cluster.zookeeper() as client:
        client.create("/consumers/odd/offsets/t/1", b"soon", makepath=True)
        client.create("/consumers/odd/offsets/gone/0", b"7", makepath=True)
    moved = shell.run("group", "migrate", "odd", "--execute")
    assert (
        moved.status == 1
        and "group 'odd': the cluster has no partition gone-0 (and 1 more)" in moved.complaint_lines[-1]
    )
    committed = cluster.admin.list_consumer_group_offsets("odd")
    assert {tp: at and at.offset for tp, at in committed.items()} == {tp: 5}
    none = shell.run("group", "migrate", "unknown")
    assert none.status == 1 and "'unknown' has no offsets in ZooKeeper" in none.complaint_lines[-1]
    assert shell.run("group", "migrate").status == 2
    everything = json.loads(shell.run("group", "migrate", "--all", "--json").output)
    assert "odd" in [group["group"] for group in everything["groups"]] and not everything["executed"]
