"""Replicas of a real broker move between its log directories, while clients and followers read and write them."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.languages.shell_tools import run_tool
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.command import Shell
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.waiting import require_bite, wait_for
from tests.processes.harness.workload import FILL_KEY
from tests.processes.test_log_directories import TwoDisks, two_disks
from tidelog import ConfigResource, ElectionType, NewTopic, Producer, TopicPartition

pytestmark = pytest.mark.slow

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Mover:
    """Moves the replica of a partition on broker 1 between its two directories."""

    def __init__(self, disks: TwoDisks, tp: TopicPartition) -> None:
        self.disks = disks
        self.admin = disks.cluster.admin
        self.tp = tp
        self.source = next(path for path in (disks.first, disks.second) if (path / str(tp)).is_dir())
        self.target = disks.second if self.source == disks.first else disks.first

    def limit(self, bytes_per_second: int) -> None:
        self.admin.alter_configs({ConfigResource.broker(1): {RATE: str(bytes_per_second)}})

    def begin(self, rate: int | None = None) -> None:
        if rate is not None:
            self.limit(rate)
        self.admin.alter_replica_log_dirs(1, {self.tp: str(self.target)})

    def copied_bytes(self) -> int | None:
        """Return the size of the future log; None if there is none."""
        found = [
            replica.size_bytes
            for each in self.admin.describe_log_dirs([1])[1]
            for replica in each.replicas
            if replica.is_future and (replica.topic, replica.partition) == self.tp
        ]
        return found[0] if found else None

    def wait_moved(self) -> None:
        wait_for("the replica to be in the other directory", lambda: (self.target / str(self.tp)).is_dir(), 60)
        wait_for("the old log to be removed", lambda: not list(self.source.glob(f"{self.tp}*")), 60)
        assert self.copied_bytes() is None


def fill(cluster: RunningCluster, topic: str, megabytes: int) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=5) as producer:
        for _ in range(megabytes * 10):
            producer.send(topic, bytes(100_000), key=FILL_KEY)
        producer.flush()


@pytest.fixture
def disks(cluster: RunningCluster, tmp_path: Path) -> Iterator[TwoDisks]:
    with two_disks(cluster, tmp_path / "second") as found:
        wait_for("broker 1 to be back", lambda: len(cluster.admin.describe_cluster().brokers) == 3, 30)
        yield found


def test_replica_moves_by_command_and_both_logs_are_shown(
    cluster: RunningCluster, disks: TwoDisks, tmp_path: Path
) -> None:
    (tp,) = cluster.create_topic("t")
    fill(cluster, "t", 4)
    mover = Mover(disks, tp)
    mover.limit(10_000)  # so that the move takes longer than the commands
    shell = Shell(tmp_path, cluster.local.data_dir)
    servers = ("--bootstrap-servers", cluster.bootstrap_servers)
    begun = shell.succeed("logdirs", "move", "t/0", "--broker", "1", "--to", str(mover.target), *servers).decode()
    assert begun == f"t/0 moves to {mover.target} of broker 1\n"
    shown = shell.succeed("logdirs", "--topic", "t", "--broker", "1", *servers).decode().splitlines()
    assert any(re.search(rf"t-0 \(future\) .* {mover.target}$", line) for line in shown), shown
    listed = json.loads(shell.succeed("logdirs", "--broker", "1", "--json", *servers))["brokers"][0]["log_dirs"]
    assert [each["replicas"][0]["future"] for each in listed if each["path"] == str(mover.target)] == [True]
    summary = shell.succeed("logdirs", "--broker", "1", *servers).decode()
    assert "online, 1 log arriving" in summary
    mover.limit(2**40)
    mover.wait_moved()
    ended = shell.succeed("logdirs", "move", "t/0", "--broker", "1", "--to", str(mover.target), *servers).decode()
    assert ended == f"t/0 is in {mover.target} of broker 1\n"
    elsewhere = shell.run("logdirs", "move", "t/0", "--broker", "1", "--to", "/nowhere", *servers)
    assert elsewhere.status == 1 and "'/nowhere' is not the absolute path of a log directory" in elsewhere.complaint


@pytest.mark.slow
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_replica_moves_there_and_back_under_load(cluster: RunningCluster, disks: TwoDisks, role: str) -> None:
    (tp,) = cluster.create_topic("t", configs={"flush.messages": "1"} if role == "leader" else {})
    if role == "leader":
        cluster.admin.alter_partition_reassignments({tp: [1, 2, 3]})
        wait_for("broker 1 to lead", lambda: _elect(cluster, tp) == 1)
    fill(cluster, "t", 30)
    require_bite("it has another role", role == "follower" or cluster.leader(tp) == 1)
    with ordeal(cluster, [tp]) as under:
        for _ in range(4):
            mover = Mover(disks, tp)
            under.workload.wait_acknowledged(50)
            mover.begin()
            mover.wait_moved()
        under.workload.wait_acknowledged(50)
        assert disks.runs
        assert disks.stop() == 0
        disks.start()


@pytest.mark.slow
def test_killed_broker_goes_on_with_the_move(cluster: RunningCluster, disks: TwoDisks) -> None:
    (tp,) = cluster.create_topic("t")
    fill(cluster, "t", 12)
    mover = Mover(disks, tp)
    with ordeal(cluster, [tp]) as under:
        mover.begin(rate=2_000_000)
        wait_for("half of the log to be copied", lambda: (mover.copied_bytes() or 0) > 6_000_000, 60)
        mover.limit(1_000_000)
        assert disks.process is not None
        disks.process.send_signal(signal.SIGKILL)
        disks.process.wait()
        under.workload.wait_acknowledged(50)
        disks.start()
        wait_for("broker 1 to be back", lambda: len(cluster.admin.describe_cluster().brokers) == 3, 30)
        wait_for("the move to go on", lambda: (mover.copied_bytes() or 0) > 6_000_000, 60)
        mover.limit(2**40)
        mover.wait_moved()


@pytest.mark.slow
def test_full_target_disk_leaves_the_replica_where_it_is(cluster: RunningCluster, small_disk: Path) -> None:
    with two_disks(cluster, small_disk / "second") as disks:
        wait_for("broker 1 to be back", lambda: len(cluster.admin.describe_cluster().brokers) == 3, 30)
        (tp,) = cluster.create_topic("t")
        fill(cluster, "t", 30)
        mover, given_up = Mover(disks, tp), "is given up"
        require_bite("the small disk has the log", mover.target == disks.second)
        with ordeal(cluster, [tp]) as under:
            mover.begin()
            wait_for("the move to be given up", lambda: cluster.said(1, given_up), 60)
            wait_for("the copy to be removed", lambda: not list(disks.second.glob("t-*")), 60)
            under.workload.wait_acknowledged(50)
            assert disks.runs and (mover.source / str(tp)).is_dir()
            assert [each.error_code for each in cluster.admin.describe_log_dirs([1])[1]] == [0, 0]


@pytest.mark.slow
def test_tools_of_kafka_move_a_replica_and_show_its_copy(
    cluster: RunningCluster, disks: TwoDisks, tmp_path: Path
) -> None:
    (tp,) = cluster.create_topic("t")
    fill(cluster, "t", 12)
    mover, file = Mover(disks, tp), tmp_path / "move.json"
    replicas = list(cluster.admin.describe_topics(["t"])[0].partitions[0].replicas)
    places = [str(mover.target) if broker == 1 else "any" for broker in replicas]
    moved = {"topic": "t", "partition": 0, "replicas": replicas, "log_dirs": places}
    file.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    bootstrap = ["--bootstrap-server", cluster.bootstrap_servers]
    given = ["--reassignment-json-file", str(file), *bootstrap]
    status, shown = run_tool(
        "kafka-reassign-partitions", [*given, "--execute", "--replica-alter-log-dirs-throttle", "1000000"]
    )
    assert status == 0 and "Successfully started moving log directory to" in shown, shown
    status, shown = run_tool("kafka-log-dirs", ["--describe", "--broker-list", "1", "--topic-list", "t", *bootstrap])
    assert status == 0 and '"isFuture":true' in shown, shown
    status, shown = run_tool("kafka-reassign-partitions", [*given, "--verify", "--preserve-throttles"])
    assert "is still in progress" in shown, shown
    mover.limit(2**40)
    mover.wait_moved()
    status, shown = run_tool("kafka-reassign-partitions", [*given, "--verify"])
    assert status == 0 and "Reassignment of replica t-0-1 completed successfully" in shown, shown


@pytest.mark.slow
def test_replica_that_tools_of_kafka_add_gets_the_named_directory(
    cluster: RunningCluster, disks: TwoDisks, tmp_path: Path
) -> None:
    cluster.create_topic("t", partitions=2)
    cluster.admin.create_topics([NewTopic("added", assignment={0: [2, 3]})])
    cluster.admin.delete_topics(["t"])
    wait_for("both directories to be empty", lambda: not [*disks.first.glob("t-*"), *disks.second.glob("t-*")], 60)
    file = tmp_path / "move.json"
    moved = {"topic": "added", "partition": 0, "replicas": [1, 2], "log_dirs": [str(disks.second), "any"]}
    file.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    given = ["--reassignment-json-file", str(file), "--bootstrap-server", cluster.bootstrap_servers]
    status, shown = run_tool("kafka-reassign-partitions", [*given, "--execute"])
    assert status == 0, shown
    wait_for("the replica", lambda: cluster.znode(TopicPartition("added", 0)).state.isr in ((1, 2), (2, 1)), 60)
    assert (disks.second / "added-0").is_dir(), "the first of two empty directories would be the usual one"


def _elect(cluster: RunningCluster, tp: TopicPartition) -> int:
    cluster.admin.elect_leaders(ElectionType.PREFERRED, [tp])
    return cluster.leader(tp)
