"""`tidelog produce` as a user pipes into it, while brokers die."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.replica_files import assert_replicas_identical
from tests.processes.harness.waiting import wait_for
from tests.processes.harness.workload import read_all
from tidelog import TopicPartition

pytestmark = pytest.mark.slow

COMMAND = Path(sys.executable).parent / "tidelog"
PARTITIONS = 6


def start_producing(cluster: RunningCluster, topic: str) -> subprocess.Popen[bytes]:
    """Start the command, which reads lines from a pipe."""
    environment = {**os.environ, "TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    command = [str(COMMAND), "produce", topic]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def committed(cluster: RunningCluster, topic: str) -> int:
    """How many records consumers of the topic may see."""
    return sum(p.high_watermark for p in cluster.admin.describe_topics([topic])[0].partitions if p.high_watermark > 0)


def kill_a_leader_in_the_middle(cluster: RunningCluster, topic: str, source: Path, count: int) -> None:
    """Produce half of `source`, SIGKILL the leader of a partition, produce the rest; the command must not notice."""
    tps, lines = cluster.create_topic(topic, PARTITIONS), source.read_bytes()
    producing = start_producing(cluster, topic)
    try:
        assert producing.stdin is not None
        producing.stdin.write(lines[: len(lines) // 2])
        wait_for("a fifth of the lines", lambda: committed(cluster, topic) > count // 5)
        victim = cluster.leader(tps[0])
        cluster.kill(victim)
        _, complaint = producing.communicate(lines[len(lines) // 2 :], timeout=120)
    finally:
        producing.kill()
        producing.wait()
    assert producing.returncode == 0, complaint.decode()
    cluster.restart(victim)
    for tp in tps:
        cluster.wait_in_sync(tp)


def assert_each_line_once_in_order(cluster: RunningCluster, topic: str, count: int) -> None:
    tps = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found = read_all(cluster.bootstrap_servers, tps, timeout_s=120)
    for tp, records in found.items():
        assert [offset for offset, _ in records] == list(range(len(records))), f"{tp}: offsets have gaps"
        numbers = [number for _, number in records]
        assert all(a < b for a, b in itertools.pairwise(numbers)), f"{tp}: order broken or a line doubled"
    everything = sorted(number for records in found.values() for _, number in records)
    assert everything == list(range(count)), f"{count - len(set(everything))} lines lost"


@pytest.fixture
def numbered_lines(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A file of as many numbered lines as the test asks for."""
    path = tmp_path / "lines"
    with path.open("w") as file:
        file.writelines(f"{number}\n" for number in range(request.param))
    return path


@pytest.mark.parametrize("numbered_lines", [100_000], indirect=True)
def test_killed_leader_loses_no_line_and_all_survive_down_and_up(cluster: RunningCluster, numbered_lines: Path) -> None:
    kill_a_leader_in_the_middle(cluster, "t", numbered_lines, 100_000)
    assert_each_line_once_in_order(cluster, "t", 100_000)
    cluster.local.stop()
    cluster.local.start()
    assert_each_line_once_in_order(cluster, "t", 100_000)
    assert_replicas_identical(cluster, [TopicPartition("t", partition) for partition in range(PARTITIONS)])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("numbered_lines", [1_000_000], indirect=True)
def test_ten_kills_in_ten_million_lines_lose_none(cluster: RunningCluster, numbered_lines: Path) -> None:
    for round_ in range(10):
        kill_a_leader_in_the_middle(cluster, f"round-{round_}", numbered_lines, 1_000_000)
        assert_each_line_once_in_order(cluster, f"round-{round_}", 1_000_000)
    cluster.local.stop()
    cluster.local.start()
    for round_ in range(10):
        assert_each_line_once_in_order(cluster, f"round-{round_}", 1_000_000)
        tps = [TopicPartition(f"round-{round_}", partition) for partition in range(PARTITIONS)]
        assert_replicas_identical(cluster, tps)
