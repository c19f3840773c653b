"""Committed offsets under every fault that may hit their coordinator (F7, F16, F35 and F36 with I17)."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes.harness.clients import client
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.coordinators import coordinator, wait_moved, wait_offsets_topic
from tests.processes.harness.leaks import sockets_of, waiting_requests
from tests.processes.harness.registers import Registers
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for
from tidelog import Consumer, TopicPartition
from tidelog.errors import CoordinatorNotAvailableError
from tidelog.local.zookeeper import EmbeddedZooKeeper
from verify.checker.outcomes import error_name

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

GROUPS = [f"group-{number}" for number in range(6)]
NOT_NOW = error_name(CoordinatorNotAvailableError)
SHORT_SESSION = {"zookeeper_session_timeout_ms": 3000}
_LEAST_DURING_A_FAULT = 100


@dataclass(frozen=True)
class Kept:
    """The registers, and the partition that keeps the first group's."""

    registers: Registers
    tp: TopicPartition


@contextmanager
def kept(cluster: RunningCluster) -> Iterator[Kept]:
    """Groups commit and are read; at the end every register must have been one, and all is well again."""
    tps = cluster.create_topic("t", partitions=2)
    tp = wait_offsets_topic(cluster, GROUPS[0])
    addresses = {each: cluster.address(each) for each in cluster.broker_ids}
    with Registers(cluster.bootstrap_servers, addresses, GROUPS, tps) as registers:
        began, before = time.monotonic(), registers.answered
        yield Kept(registers, tp)
        during = registers.answered - before
        print(f"{during} answers in {time.monotonic() - began:.1f} s of the fault")
        require_bite("the fault hit no request", during > _LEAST_DURING_A_FAULT and f"{during} answers")
        cluster.wait_in_sync(tp)
        registers.wait_committed(20)
    gap_s = registers.longest_gap_s(GROUPS[0], since=began)
    print(f"longest time without a commit of {GROUPS[0]}: {gap_s:.2f} s")
    registers.check()
    assert [each for each in cluster.broker_ids if cluster.said(each, "Traceback")] == []


def test_group_survives_a_killed_coordinator(cluster: RunningCluster) -> None:
    with kept(cluster) as under:
        for _ in range(4):
            victim = coordinator(cluster, GROUPS[0])
            cluster.kill(victim)
            wait_moved(cluster, GROUPS[0], away_from=victim)
            under.registers.wait_committed(20)
            cluster.restart(victim)
            cluster.wait_in_sync(under.tp)
            under.registers.wait_committed(5)


def test_group_survives_coordinators_restarted_in_turn(cluster: RunningCluster) -> None:
    with kept(cluster) as under:
        for _ in range(5):
            leaves = coordinator(cluster, GROUPS[0])
            cluster.terminate(leaves)
            wait_moved(cluster, GROUPS[0], away_from=leaves)
            under.registers.wait_committed(5)
            cluster.restart(leaves)
            cluster.wait_in_sync(under.tp)


def test_group_survives_all_brokers_killed_at_once(cluster: RunningCluster) -> None:
    with kept(cluster) as under:
        for _ in range(2):
            cluster.kill_all()
            for broker_id in cluster.broker_ids[::-1]:
                cluster.restart(broker_id)
            under.registers.wait_committed(20)
            cluster.wait_in_sync(under.tp)


@pytest.mark.parametrize("cluster", [SHORT_SESSION], indirect=True)
def test_coordinator_paused_beyond_its_session_resumes_without_groups(
    cluster: RunningCluster,
) -> None:
    asked = 0
    with kept(cluster) as under:
        for _ in range(3):
            zombie = coordinator(cluster, GROUPS[0])
            epoch = cluster.broker_epoch(zombie)
            with cluster.paused(zombie):
                wait_moved(cluster, GROUPS[0], away_from=zombie)
                under.registers.wait_committed(20, timeout_s=90)
                asked += under.registers.ask_in_its_sleep(zombie)
                time.sleep(0.5)  # so that the request has arrived
            cluster.wait_serves(zombie, since=epoch)
            cluster.wait_in_sync(under.tp)
        require_bite("no zombie was asked anything", asked and f"{asked} questions to zombies")


def test_group_survives_repeated_expiry_of_the_coordinators_session(cluster: RunningCluster) -> None:
    moments, moved = random.Random(8), 0
    with kept(cluster) as under:
        for _ in range(20):
            victim = coordinator(cluster, GROUPS[0])
            epoch, led = cluster.broker_epoch(victim), cluster.znode(under.tp).state.leader_epoch
            cluster.expire_session(victim)
            cluster.wait_serves(victim, since=epoch)
            wait_bitten("an election", lambda led=led: cluster.znode(under.tp).state.leader_epoch > led)  # type: ignore[misc]
            moved += coordinator(cluster, GROUPS[0]) != victim
            under.registers.wait_committed(1)
            time.sleep(moments.uniform(0, 0.5))  # at a random moment of a broker's start
        require_bite("the coordinator never moved", moved and f"{moved} of 20 times it moved")


@pytest.mark.parametrize("fault", ["is away", "sleeps"])
def test_groups_commit_without_zookeeper_and_get_no_stale_offsets(tmp_path: Path, fault: str) -> None:
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper,
        running_cluster(tmp_path, zookeeper=zookeeper.hosts, **SHORT_SESSION) as cluster,
        kept(cluster) as under,
    ):
        process = zookeeper.process
        assert process is not None
        for _ in range(2):
            process.signal(signal.SIGKILL if fault == "is away" else signal.SIGSTOP)
            began_s = time.monotonic()
            while time.monotonic() < began_s + 7:  # more than two sessions
                under.registers.wait_committed(5)
            if fault == "is away":
                zookeeper.start()
                process = zookeeper.process
                assert process is not None
            else:
                process.signal(signal.SIGCONT)
            back_s = time.monotonic()
            under.registers.wait_read()
            print(f"read again after {time.monotonic() - back_s:.2f} s")
            cluster.wait_in_sync(under.tp)
            under.registers.wait_committed(50)
        shown = [count for (what, outcome), count in under.registers.tally.items() if outcome == NOT_NOW]
        require_bite("all brokers reported offsets all the while", sum(shown))


#: Joins, then commits one offset after the other, and says which were accepted.
COMMIT = """
import sys
from itertools import count
from tidelog import Consumer, OffsetAndMetadata, TopicPartition
settings = {"group_id": "killed", "enable_auto_commit": False, "session_timeout_ms": 6000}
with Consumer("t", bootstrap_servers=sys.argv[1], **settings) as consumer:
    while not consumer.assignment():
        consumer.poll(timeout_ms=100)
    tp = TopicPartition("t", 0)
    before = consumer.committed([tp])[tp]
    for offset in count(before.offset + 1 if before else 1):
        print("asks", offset, flush=True)
        consumer.commit({tp: OffsetAndMetadata(offset)})
        print("has", offset, flush=True)
"""

#: Joins a group whose other member does not poll, so that its request waits.
JOIN = """
import sys
from tidelog import Consumer
settings = {"group_id": "killed", "enable_auto_commit": False, "session_timeout_ms": 6000}
with Consumer("t", bootstrap_servers=sys.argv[1], **settings) as consumer:
    print("joins", flush=True)
    while True:
        consumer.poll(timeout_ms=100)
"""


def test_members_killed_during_commit_or_join_are_removed(cluster: RunningCluster) -> None:
    tp, *_ = cluster.create_topic("t", partitions=8)
    wait_offsets_topic(cluster, "killed")
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="killed", enable_auto_commit=False) as reader:
        assert reader.committed([tp]) == {tp: None}
        files = sockets_of(cluster)
        most_waiting = max(waiting_requests(cluster) for _ in range(20))
        unanswered = 0
        for _ in range(4):
            with client(COMMIT, cluster.bootstrap_servers) as committing:
                assert committing.stdout is not None
                for _ in range(200):
                    assert committing.stdout.readline(), "it ended"
                with client(JOIN, cluster.bootstrap_servers) as joining:
                    assert joining.stdout is not None
                    assert joining.stdout.readline() == "joins\n"
                    time.sleep(1)  # so that its request is at the coordinator
                    committing.kill()
                words = [line.split() for line in committing.stdout.read().rpartition("\n")[0].splitlines()]
            asked = max(int(offset) for what, offset in words if what == "asks")
            had = max(int(offset) for what, offset in words if what == "has")
            unanswered += asked > had
            found = reader.committed([tp])[tp]
            assert found is not None and had <= found.offset <= asked
        require_bite("every commit was answered before its member died", unanswered and f"{unanswered} were not")
        wait_for("the brokers to have closed what the members opened", lambda: sockets_of(cluster) <= files + 2)
        wait_for("no request of an ended member to wait", lambda: waiting_requests(cluster) <= most_waiting)
        wait_for(
            "the dead to be missed", lambda: not cluster.admin.describe_consumer_groups(["killed"])["killed"].members
        )


@pytest.fixture
def four(tmp_path: Path) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path, brokers=4) as cluster:
        yield cluster


def test_group_survives_the_move_of_its_offsets_partition(four: RunningCluster) -> None:
    with kept(four) as under:
        for _ in range(4):
            replicas = four.znode(under.tp).state.isr
            leaves = coordinator(four, GROUPS[0])
            (comes,) = set(four.broker_ids) - set(replicas)
            stay = [each for each in replicas if each != leaves]
            four.admin.alter_partition_reassignments({under.tp: [comes, *stay]})
            wait_for("the reassignment to end", lambda: not four.admin.list_partition_reassignments(), 90)
            wait_moved(four, GROUPS[0], away_from=leaves)
            four.wait_in_sync(under.tp)
            under.registers.wait_committed(5)
