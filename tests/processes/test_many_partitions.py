"""Thousands of partitions slow a cluster down, but stop no broker and lose no record.

A case with 10,000 partitions takes one to two minutes on two cores.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from struct import pack

import pytest

from node.process.descriptors import share_descriptors
from node.process.main import OFFLOAD_THREADS
from node.replication.log_maintenance import OTHER_WORK
from tests.processes.harness.asking import is_served
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.many_partitions import (
    PATIENCE_S,
    Ledger,
    LivingBrokers,
    Usage,
    WideTopic,
    pid_of,
    under_ulimit,
    usage_of,
)
from tests.processes.harness.waiting import require_bite, wait_for
from tidelog import NewTopic
from tidelog.errors import PolicyViolationError
from tidelog.model import Endpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("many partitions"),  # not at once, because each test needs the whole machine
    pytest.mark.timeout(1_200),
]

ROUNDS = 10
#: The threads of each pool that the rounds use. A pool starts them when it has work and no idle thread.
POOLS = {"offload": OFFLOAD_THREADS, "log-maintenance": OTHER_WORK + 1}
MORE_CONNECTIONS = 50
#: A request of ApiVersions version 0 without a client id.
API_VERSIONS = pack(">ihhih", 10, 18, 0, 1, 0)


def limits_of(cluster: RunningCluster) -> set[tuple[int, int]]:
    """Return the limits of open files that the brokers have, each as (soft, hard)."""
    return {resource.prlimit(pid_of(cluster, broker_id), resource.RLIMIT_NOFILE) for broker_id in cluster.broker_ids}


@pytest.mark.parametrize("partitions", [1_000, 10_000])
@pytest.mark.parametrize("descriptors", [1_024, 4_096, None], ids=["ulimit 1024", "ulimit 4096", "default limit"])
def test_wide_topic_survives_a_kill_under_any_descriptor_limit(
    tmp_path: Path, another_root: Callable[[], str], descriptors: int | None, partitions: int
) -> None:
    places = under_ulimit(descriptors) if descriptors else None
    with running_cluster(tmp_path, zookeeper=another_root(), places=places) as cluster:
        if descriptors:
            require_bite("the limit is another one", limits_of(cluster) == {(descriptors, descriptors)})
        brokers = LivingBrokers(cluster)
        topic = WideTopic(cluster, "wide", partitions)
        before = topic.states()
        victim = before[0].leader
        with Ledger(cluster, topic.written) as ledger:
            ledger.write()
            brokers.kill_and_restart(victim, [ledger])
            topic.wait_in_sync()
            led = [(then, now) for then, now in zip(before, topic.states(), strict=True) if then.leader == victim]
            require_bite("the victim led too few", len(led) >= partitions // 4 and f"{len(led)} elections")
            assert all(now.leader_epoch > then.leader_epoch for then, now in led)
            ledger.write()
            assert ledger.check() == 4 * len(topic.written)
        brokers.check()
        topic.delete()
        WideTopic(cluster, "wide", 1)
        brokers.stop()


def test_one_broker_holds_20_000_replicas_with_4_096_descriptors(
    tmp_path: Path, another_root: Callable[[], str]
) -> None:
    places = under_ulimit(4_096, brokers=1)
    with running_cluster(tmp_path, 1, zookeeper=another_root(), places=places, max_broker_partitions=20_000) as cluster:
        require_bite("the limit is another one", limits_of(cluster) == {(4_096, 4_096)})
        brokers = LivingBrokers(cluster)
        topics = [WideTopic(cluster, name, 10_000, replicas=1) for name in ("first", "second")]
        with pytest.raises(PolicyViolationError, match=r"holds 20,000 and may hold 20,000 \(max\.broker\.partitions\)"):
            cluster.admin.create_topics([NewTopic("third", 1, 1)])
        with ExitStack() as open_ledgers:
            ledgers = [open_ledgers.enter_context(Ledger(cluster, topic.written)) for topic in topics]
            for ledger in ledgers:
                ledger.write()
            brokers.kill_and_restart(1, ledgers)
            for topic, ledger in zip(topics, ledgers, strict=True):
                topic.wait_in_sync()
                ledger.write()
                assert ledger.check() == 4 * len(topic.written)
        brokers.check()
        for topic in topics:
            topic.delete()
        WideTopic(cluster, "third", 1, replicas=1)
        brokers.stop()


def test_connections_beyond_their_share_are_refused_and_others_stay(
    tmp_path: Path, another_root: Callable[[], str]
) -> None:
    share = share_descriptors(1_024).connections
    with running_cluster(tmp_path, 1, zookeeper=another_root(), places=under_ulimit(1_024, brokers=1)) as cluster:
        brokers = LivingBrokers(cluster)
        address = Endpoint.parse(cluster.address(1))
        topic = WideTopic(cluster, "wide", 1_000, replicas=1)
        with Ledger(cluster, topic.tps) as ledger, ExitStack() as held:
            ledger.write()

            def connect() -> socket.socket:
                return held.enter_context(socket.create_connection((address.host, address.port), PATIENCE_S))

            connections = [connect() for _ in range(share + MORE_CONNECTIONS)]
            standing = [each for each in connections if is_served(each, API_VERSIONS)]
            refused = len(connections) - len(standing)
            require_bite("all are served", refused >= MORE_CONNECTIONS and f"{refused} of {len(connections)} refused")
            assert len(standing) > share - MORE_CONNECTIONS, "the clients of this test have only a few"
            wait_for("the refusal to be logged", lambda: cluster.said(1, f"the process may have {share}"))
            ledger.write()
            assert all(is_served(each, API_VERSIONS) for each in standing), "they stay while files are exchanged"
            for each in standing[:MORE_CONNECTIONS]:
                each.close()
            wait_for("new connections to be served again", lambda: is_served(connect(), API_VERSIONS))
            assert all(is_served(each, API_VERSIONS) for each in standing[MORE_CONNECTIONS:])
            assert ledger.check() == 2 * len(topic.tps)
        topic.delete()
        brokers.stop()


def test_rounds_of_create_write_and_delete_leave_no_resources_behind(
    tmp_path: Path, another_root: Callable[[], str]
) -> None:
    with running_cluster(tmp_path, zookeeper=another_root()) as cluster:
        brokers = LivingBrokers(cluster)
        pids = {broker_id: pid_of(cluster, broker_id) for broker_id in cluster.broker_ids}
        rounds: list[dict[int, Usage]] = []
        for number in range(1, ROUNDS + 1):
            topic = WideTopic(cluster, "wide", 1_000)
            with Ledger(cluster, topic.tps) as ledger:
                ledger.write()
                assert ledger.check() == len(topic.tps)
            topic.delete()
            rounds.append({broker_id: usage_of(pid) for broker_id, pid in pids.items()})
            print(f"round {number}: {rounds[-1]}")
        for broker_id, pid in pids.items():
            first = rounds[0][broker_id]
            require_bite(
                "the pools have other names", all(first.threads[name] for name in POOLS) and f"{first.threads}"
            )
            bound = Usage(first.descriptors, {**first.threads, **POOLS}, first.resident_kib * 11 // 10)
            wait_for(
                f"broker {broker_id} to use at most {bound}, after {rounds[-1][broker_id]}",
                lambda pid=pid, bound=bound: _is_within(usage_of(pid), bound),  # type: ignore[misc]
            )
        brokers.stop()


def _is_within(now: Usage, bound: Usage) -> bool:
    return (
        now.descriptors <= bound.descriptors
        and all(count <= bound.threads.get(name, 0) for name, count in now.threads.items())
        and now.resident_kib <= bound.resident_kib
    )
