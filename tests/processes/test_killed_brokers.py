"""SIGKILL for brokers under load: leaders, followers, controllers, several at once, and while they start."""

from __future__ import annotations

import random
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.zookeeper import znodes
from cluster.zookeeper.state_znodes import STATES_PER_MULTI
from tests.processes.harness.asking import ask_to_append
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.dying import dying_at
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.replica_files import assert_replicas_identical, end_on_disk
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for
from tidelog import NewTopic, TopicPartition
from tidelog.errors import NotEnoughReplicasError
from tidelog.local.processes.ports import choose_port
from tidelog.local.zookeeper import EmbeddedZooKeeper
from tidelog.model import NO_LEADER, Endpoint
from verify.chaos.targets.zookeeper_proxy import MULTI, Fate, Request, ZooKeeperProxy

LONG_SESSION = {"zookeeper_session_timeout_ms": 10_000}
#: The session timeout, so long that a failed leader is noticed earlier by other means.
SOONER_THAN_A_SESSION_S = 4.0
#: A log of one segment, in which only the leader has the last records.
CUT = TopicPartition("cut", 0)
CUT_LOG = f"{CUT}/{0:020}.log"
#: The moments of the kill: while the broker rebuilds indexes, before and after it truncates, and while it fetches.
DEATHS_AT_START = [
    ("pwritev", ".index", "before"),
    ("pwritev", ".timeindex", "after"),
    ("ftruncate", CUT_LOG, "before"),
    ("ftruncate", CUT_LOG, "before"),
    ("ftruncate", CUT_LOG, "after"),
    ("pwritev", CUT_LOG, "before"),
    ("pwritev", CUT_LOG, "after"),
]


def leader_other_than(cluster: RunningCluster, tps: list[TopicPartition], not_by: int) -> int:
    """A broker that leads one of `tps` and is not `not_by`."""
    return next(leader for tp in tps if (leader := cluster.leader(tp)) != not_by)


@pytest.mark.slow
def test_ports_of_a_dead_broker_are_kept_for_its_next_start(tmp_path: Path) -> None:
    with running_cluster(tmp_path, 1) as cluster:
        ports = cluster.local.known_state().broker(1).ports
        cluster.kill(1)
        with ExitStack() as held:
            assert not {choose_port(held, preferred=port) for port in ports} & set(ports)
        cluster.restart(1)
        cluster.wait_serves(1)


@pytest.mark.parametrize("cluster", [LONG_SESSION], indirect=True)
def test_killed_leader_loses_no_record(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    victim = leader_other_than(cluster, tps, not_by=cluster.controller())
    led = [tp for tp in tps if cluster.leader(tp) == victim]
    before = {tp: cluster.znode(tp).state for tp in led}
    with ordeal(cluster, tps) as under:
        killed_at = time.monotonic()
        cluster.kill(victim)
        under.workload.wait_acknowledged(300)
        for tp in led:
            after = cluster.znode(tp).state
            require_bite("no other broker leads", after.leader_epoch > before[tp].leader_epoch)
            assert after.leader != victim and victim not in after.isr
        assert under.workload.longest_gap_s(tps, since=killed_at) < SOONER_THAN_A_SESSION_S
        cluster.restart(victim)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [LONG_SESSION], indirect=True)
def test_killed_follower_leaves_the_isr_and_rejoins(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    leader, controller = cluster.leader(tp), cluster.controller()
    victim = next(b for b in cluster.broker_ids if b not in (leader, controller))
    with ordeal(cluster, [tp]) as under:
        killed_at = time.monotonic()
        cluster.kill(victim)
        wait_bitten("the follower to leave the ISR", lambda: victim not in cluster.znode(tp).state.isr)
        under.workload.wait_acknowledged(300)
        assert cluster.leader(tp) == leader
        assert under.workload.longest_gap_s([tp], since=killed_at) < SOONER_THAN_A_SESSION_S
        cluster.restart(victim)


@pytest.mark.slow
def test_last_replica_acknowledges_nothing_and_serves_committed_records(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    leader = cluster.leader(tp)
    others = [b for b in cluster.broker_ids if b != leader]
    with ordeal(cluster, [tp]) as under:
        for victim in others:
            cluster.kill(victim)
        wait_bitten("the ISR to shrink to the leader", lambda: cluster.znode(tp).state.isr == (leader,))
        cluster.wait_leader_knows(tp, (leader,))
        assert ask_to_append(cluster.address(leader), tp, b"refused").error_code == NotEnoughReplicasError.code
        acknowledged = under.workload.acknowledged
        wait_for("all that was acknowledged to be read", lambda: under.witness.records >= acknowledged)
        assert under.workload.acknowledged == acknowledged
        for victim in others:
            cluster.restart(victim)


@pytest.mark.parametrize("cluster", [LONG_SESSION], indirect=True)
def test_killed_controller_is_replaced_and_its_partitions_get_leaders(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    victim = cluster.controller()
    require_bite("the controller leads nothing", victim in map(cluster.leader, tps))
    with ordeal(cluster, tps) as under:
        killed_at = time.monotonic()
        cluster.kill(victim)
        wait_bitten("another controller", lambda: cluster.controller() != victim)
        under.workload.wait_acknowledged(300)
        assert all(cluster.leader(tp) != victim for tp in tps)
        assert under.workload.longest_gap_s(tps, since=killed_at) < SOONER_THAN_A_SESSION_S
        cluster.restart(victim)


@pytest.mark.slow
def test_killed_controller_does_not_affect_other_brokers_partitions(
    tmp_path: Path,
) -> None:
    with running_cluster(tmp_path, brokers=4) as cluster:
        victim = cluster.controller()
        others = [each for each in cluster.broker_ids if each != victim]
        assignment = {partition: tuple(others[partition:] + others[:partition]) for partition in range(3)}
        cluster.admin.create_topics([NewTopic("t", assignment=assignment, configs={"min.insync.replicas": "2"})])
        tps = [TopicPartition("t", partition) for partition in assignment]
        for tp in tps:
            cluster.wait_in_sync(tp)
        before = {tp: cluster.znode(tp) for tp in tps}
        with ordeal(cluster, tps) as under:
            killed_at = time.monotonic()
            cluster.kill(victim)
            cluster.create_topic("meanwhile", replicas=2)
            require_bite("the controller is the same", cluster.controller() != victim)
            under.workload.wait_acknowledged(300)
            assert {tp: cluster.znode(tp) for tp in tps} == before
            assert under.workload.longest_gap_s(tps, since=killed_at) < 1
            cluster.restart(victim)


@pytest.mark.slow
def test_all_brokers_killed_at_once_return_with_all_records(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    with ordeal(cluster, tps) as under:
        epochs = {each: cluster.broker_epoch(each) for each in cluster.broker_ids}
        for broker_id in cluster.broker_ids:
            cluster.kill(broker_id)
        killed_at = time.monotonic()
        cluster.local.start()
        for broker_id, epoch in epochs.items():
            cluster.wait_serves(broker_id, since=epoch)
        under.workload.wait_acknowledged(200)
        require_bite("no client noticed", under.workload.longest_gap_s(tps, since=killed_at) > 0.1)


@pytest.mark.slow
def test_out_of_sync_replica_does_not_lead_even_if_first_back(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    leader = cluster.leader(tp)
    behind, other = (b for b in cluster.broker_ids if b != leader)
    with ordeal(cluster, [tp]) as under:
        cluster.kill(behind)
        wait_bitten("it to leave the ISR", lambda: behind not in cluster.znode(tp).state.isr)
        under.workload.wait_acknowledged(300)
        cluster.kill(other)
        cluster.kill(leader)
        last = cluster.znode(tp).state.isr
        cluster.restart(behind)
        wait_for("the controller to find no leader", lambda: cluster.znode(tp).state.leader == NO_LEADER)
        wait_for("it to have taken its seat", lambda: cluster.controller() == behind)
        assert cluster.znode(tp).state.leader == NO_LEADER
        for each in (other, leader):
            cluster.restart(each)
        wait_for("a leader", lambda: cluster.znode(tp).state.leader != NO_LEADER)
        assert {each.state.leader for each in under.history.of(tp)} <= {*last, leader, NO_LEADER}


@pytest.mark.slow
def test_next_controller_completes_the_writes_of_a_killed_one(tmp_path: Path) -> None:
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper,
        ZooKeeperProxy(Endpoint.parse(zookeeper.hosts)) as proxy,
        running_cluster(tmp_path, zookeeper=proxy.hosts, zookeeper_hosts=zookeeper.hosts) as cluster,
    ):
        controller = cluster.controller()
        # Each broker leads a third of them, which is more than the controller writes at once.
        tps = cluster.create_topic("t", partitions=3 * (STATES_PER_MULTI + 5))
        first = leader_other_than(cluster, tps, not_by=controller)
        led = {tp: cluster.znode(tp).state for tp in tps if cluster.leader(tp) == first}
        require_bite("one request writes all states", len(led) > STATES_PER_MULTI)
        passed: list[Request] = []
        at_the_kill: dict[TopicPartition, int] = {}
        dying, dead = threading.Event(), threading.Event()

        def die_at_the_second(request: Request) -> Fate | threading.Event:
            elects = request.opcode == MULTI and any(request.writes(znodes.state_path(tp)) for tp in led)
            if elects and not dead.is_set():
                if dying.is_set():
                    return dead  # the next controller writes once the states are read
                if passed:
                    dying.set()
                    passed[0].answered.wait(10)
                    cluster.kill(controller)
                    at_the_kill.update({tp: cluster.znode(tp).state.leader_epoch for tp in led})
                    dead.set()
                    return threading.Event()  # never set
                passed.append(request)
            return Fate.PASSES

        with ordeal(cluster, tps) as under:
            proxy.follow(die_at_the_second)
            cluster.kill(first)
            wait_bitten("the controller to be killed at its second write", dead.is_set)
            rewritten = [tp for tp, state in led.items() if at_the_kill[tp] > state.leader_epoch]
            require_bite(
                f"{len(rewritten)} of {len(led)} partitions were rewritten when it died",
                0 < len(rewritten) < len(led) and f"{len(rewritten)} of {len(led)} rewritten",
            )
            cluster.restart(first)  # two are needed for an acknowledgement
            under.workload.wait_acknowledged(300)
            assert cluster.controller() != controller
            assert all(cluster.znode(tp).state.leader_epoch > before.leader_epoch for tp, before in led.items())
            cluster.restart(controller)


@pytest.mark.slow
def test_broker_killed_repeatedly_during_startup_recovers_fully(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=4, configs={"segment.bytes": "65536"})
    victim = cluster.leader(tps[0])
    moments = random.Random(5)
    with ordeal(cluster, tps) as under:
        under.workload.wait_acknowledged(4000)
        cluster.kill(victim)
        config = cluster.config(victim, f"broker-{victim}")
        epoch, starts_s, early = cluster.broker_epoch(victim), 0.0, 0
        for round_ in range(12):
            launched_at = time.monotonic()
            with cluster.launched(config) as process:
                if round_ % 2:  # before it serves: while it reads and recovers what it has
                    time.sleep(moments.uniform(0.3, 0.95) * starts_s)
                else:  # after that: while it cuts its logs, and fetches what it lacks
                    epoch = cluster.wait_serves(victim, since=epoch)
                    starts_s = time.monotonic() - launched_at
                    time.sleep(moments.uniform(0, 0.2))
                early += cluster.broker_epoch(victim) <= epoch and round_ % 2
                process.kill()
                process.wait()
        require_bite("it was never killed before it served", early)
        cluster.restart(victim)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [{"zookeeper_session_timeout_ms": 10_000}], indirect=True)
def test_broker_killed_during_recovery_and_truncation_recovers_fully(cluster: RunningCluster, tmp_path: Path) -> None:
    (tp,) = cluster.create_topic("t", configs={"segment.bytes": "65536"})
    victim = cluster.leader(tp)
    others = [each for each in cluster.broker_ids if each != victim]
    cluster.admin.create_topics([NewTopic(CUT.topic, assignment={0: (victim, *others)})])
    cluster.wait_in_sync(CUT)
    config = cluster.config(victim, f"broker-{victim}")
    with ordeal(cluster, [tp]) as under:
        under.workload.wait_acknowledged(4000)
        append(cluster, CUT, 1)
        with ExitStack() as asleep:
            for each in others:
                asleep.enter_context(cluster.paused(each))
            append(cluster, CUT, 10)
            cluster.kill(victim)
        had = end_on_disk(cluster, victim, CUT)
        wait_for("another leader", lambda: cluster.znode(CUT).state.leader not in (victim, NO_LEADER))
        append(cluster, CUT, 3)
        ends: list[int] = []
        for moment in DEATHS_AT_START:
            with cluster.launched(config, dying_at(tmp_path, *moment)) as process:
                died = f"it to be killed {moment[2]} its first {moment[0]} of {moment[1]}"
                wait_bitten(died, lambda process=process: process.poll() == -signal.SIGKILL, 60)  # type: ignore[misc]
            ends.append(end_on_disk(cluster, victim, CUT))
        # The first of them may have been sent before the pause, in answer to a follower's earlier request.
        cut = had - min(ends)
        require_bite("the log was not cut", cut >= 9 and f"{cut} records cut off")
        cluster.restart(victim)
        cluster.wait_in_sync(CUT)
    assert_replicas_identical(cluster, [CUT])


def append(cluster: RunningCluster, tp: TopicPartition, count: int) -> None:
    """The leader alone acknowledges these."""
    for _ in range(count):
        assert ask_to_append(cluster.address(cluster.leader(tp)), tp, b"x", acks=1).error_code == 0
