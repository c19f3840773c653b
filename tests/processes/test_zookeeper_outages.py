"""ZooKeeper itself: away for a while, an answer of it lost, a controller that writes too late, and time turned back."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.zookeeper import znodes
from tests.processes.harness.asking import ask_to_append
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.replica_files import batches_on_disk
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for
from tests.processes.harness.workload import Workload
from tidelog.errors import NotLeaderOrFollowerError
from tidelog.local.zookeeper import EmbeddedZooKeeper
from tidelog.model import Endpoint
from verify.chaos.targets.zookeeper_proxy import BAD_VERSION, MULTI, SET_DATA, Fate, Request, ZooKeeperProxy

pytestmark = pytest.mark.slow

LONG_SESSION = {"zookeeper_session_timeout_ms": 10_000}
SHORT_SESSION = {"zookeeper_session_timeout_ms": 3000}
#: Clients retry every half second, and both processors may be busy.
LATEST_BACK_S = 5


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as started:
        yield started


def kill(zookeeper: EmbeddedZooKeeper) -> None:
    process = zookeeper.process
    assert process is not None and process.signal(signal.SIGKILL) and process.wait(10_000)


@contextmanager
def cluster_at(directory: Path, zookeeper: EmbeddedZooKeeper, **settings: int) -> Iterator[RunningCluster]:
    with running_cluster(directory, zookeeper=zookeeper.hosts, **settings) as cluster:
        yield cluster


@contextmanager
def cluster_behind(
    directory: Path, zookeeper: EmbeddedZooKeeper, **settings: int
) -> Iterator[tuple[RunningCluster, ZooKeeperProxy]]:
    """Brokers that reach ZooKeeper through a proxy only."""
    with (
        ZooKeeperProxy(Endpoint.parse(zookeeper.hosts)) as proxy,
        running_cluster(directory, zookeeper=proxy.hosts, zookeeper_hosts=zookeeper.hosts, **settings) as cluster,
    ):
        yield cluster, proxy


# --- away ------------------------------------------------------------------------------------------------------


def test_leaders_acknowledge_while_zookeeper_restarts(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> None:
    with cluster_at(tmp_path, zookeeper, **LONG_SESSION) as cluster:
        tps = cluster.create_topic("t", partitions=3)
        before = {tp: cluster.znode(tp) for tp in tps}
        with ordeal(cluster, tps) as under:
            kill(zookeeper)
            acknowledged = under.workload.acknowledged
            under.workload.wait_acknowledged(600)
            require_bite("ZooKeeper runs", not zookeeper.running and under.workload.acknowledged - acknowledged)
            zookeeper.start()
            assert {tp: cluster.znode(tp) for tp in tps} == before
            cluster.create_topic("afterwards")


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("away_s", [10, 60])
def test_long_zookeeper_outage_allows_acks_of_the_full_isr_only(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper, away_s: int
) -> None:
    with cluster_at(tmp_path, zookeeper, **SHORT_SESSION) as cluster:
        tps = cluster.create_topic("t", partitions=3)
        asked = cluster.create_topic("asked", partitions=3)
        leaders = {tp: cluster.leader(tp) for tp in asked}
        require_bite("some broker leads nothing", set(leaders.values()) == set(cluster.broker_ids))

        def cut_off() -> set[int]:
            """Return the brokers that refuse, as leaders, records that the followers do not confirm."""
            answers = {each: ask_to_append(cluster.address(each), tp, b"?", acks=1) for tp, each in leaders.items()}
            return {each for each, answer in answers.items() if answer.error_code == NotLeaderOrFollowerError.code}

        with ordeal(cluster, tps) as under:
            kill(zookeeper)
            killed_at = time.monotonic()
            wait_bitten("all leaders to know themselves cut off", lambda: len(cut_off()) == 3)
            while time.monotonic() < killed_at + away_s:
                under.workload.wait_acknowledged(100)
            assert len(cut_off()) == 3
            zookeeper.start()
            started_at = time.monotonic()
            wait_for("no broker to be cut off", lambda: not cut_off())
            back_s = time.monotonic() - started_at
            print(f"back after {back_s:.2f} s")
            assert back_s < LATEST_BACK_S
            assert under.workload.longest_gap_s(tps, since=killed_at) < away_s / 2


# --- answers that are lost -------------------------------------------------------------------------------------


class LoseOneAnswer:
    """The first request that `chosen` accepts is carried out, and its answer lost."""

    def __init__(self, opcode: int, path: str) -> None:
        self._opcode, self._path = opcode, path
        self.request: Request | None = None

    def __call__(self, request: Request) -> Fate:
        if self.request is None and request.opcode == self._opcode and request.writes(self._path):
            self.request = request
            return Fate.LOSES_ANSWER
        return Fate.PASSES

    @property
    def carried_out(self) -> bool:
        request = self.request
        return request is not None and request.answered.is_set() and BAD_VERSION not in request.answer


def test_a_topic_whose_creation_was_not_answered_exists_once_and_works(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper
) -> None:
    with cluster_behind(tmp_path, zookeeper, **LONG_SESSION) as (cluster, proxy):
        proxy.follow(lost := LoseOneAnswer(MULTI, "/brokers/topics/t"))
        tps = cluster.create_topic("t", partitions=3)
        wait_bitten("the creation to lose its answer", lambda: lost.carried_out)
        with ordeal(cluster, tps) as under:
            under.workload.wait_acknowledged(100)


def test_isr_after_an_unanswered_change_is_read_again(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> None:
    with cluster_behind(tmp_path, zookeeper, replica_lag_time_max_ms=2000, **LONG_SESSION) as (cluster, proxy):
        (tp,) = cluster.create_topic("t")
        leader = cluster.leader(tp)
        slow = next(each for each in cluster.broker_ids if each not in (leader, cluster.controller()))
        before = cluster.znode(tp)
        with ordeal(cluster, [tp]) as under:
            proxy.follow(lost := LoseOneAnswer(SET_DATA, "/brokers/topics/t/partitions/0/state"))
            with cluster.paused(slow):
                wait_bitten("the shrinking to lose its answer", lambda: lost.carried_out)
                under.workload.wait_acknowledged(300)
                after = cluster.znode(tp)
                assert (after.state.leader, after.partition_epoch) == (leader, before.partition_epoch + 1)


@pytest.mark.slow
def test_unanswered_registration_is_recognised_by_its_broker(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> None:
    with cluster_behind(tmp_path, zookeeper, **LONG_SESSION) as (cluster, proxy):
        (tp,) = cluster.create_topic("t")
        victim = cluster.leader(tp)
        with ordeal(cluster, [tp]) as under:
            cluster.kill(victim)
            proxy.follow(lost := LoseOneAnswer(MULTI, f"/brokers/ids/{victim}"))
            cluster.restart(victim)
            require_bite("the registration did not lose its answer", lost.carried_out)
            under.workload.wait_acknowledged(100)


# --- a controller that writes too late -------------------------------------------------------------------------


def test_writes_of_a_replaced_controller_are_refused(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> None:
    with cluster_behind(tmp_path, zookeeper, **LONG_SESSION) as (cluster, proxy):
        zombie = cluster.controller()
        tps = cluster.create_topic("t", partitions=6)
        held: list[Request] = []
        release = threading.Event()

        def hold(request: Request) -> Fate | threading.Event:
            if not held and request.opcode == MULTI and request.writes("/brokers/topics/t/partitions/"):
                held.append(request)
                return release
            return Fate.PASSES

        victim = next(leader for tp in tps if (leader := cluster.leader(tp)) != zombie)
        with ordeal(cluster, tps):
            proxy.follow(hold)
            cluster.kill(victim)
            wait_bitten("the controller to write", lambda: held)
            with cluster.paused(zombie):
                with cluster.zookeeper() as client:
                    client.delete(znodes.CONTROLLER)
                wait_bitten("another controller", lambda: cluster.controller() != zombie)
                cluster.restart(victim)  # two are needed for an acknowledgement, and to lead
                wait_for("all to be led by others", lambda: all(cluster.znode(tp).state.leader > 0 for tp in tps))
                states = {tp: cluster.znode(tp) for tp in tps}
                release.set()
                wait_bitten("the late write to arrive", held[0].answered.is_set)
                assert held[0].was_refused_by_a_check_of(znodes.CONTROLLER_EPOCH), held[0].answer
                assert all(cluster.znode(tp).partition_epoch >= states[tp].partition_epoch for tp in tps)


# --- time turned back ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_brokers_do_not_follow_a_zookeeper_whose_data_went_back_in_time(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper
) -> None:
    with cluster_at(tmp_path, zookeeper) as cluster:
        (tp,) = cluster.create_topic("t")
        zookeeper.stop()
        shutil.copytree(zookeeper.data_dir, tmp_path / "earlier")
        zookeeper.start()
        for each in cluster.broker_ids:
            cluster.wait_serves(each)
        old = cluster.znode(tp).state.leader_epoch
        with Workload(cluster.bootstrap_servers, [tp]) as workload:
            for _ in range(4):
                leader, epoch = cluster.leader(tp), cluster.znode(tp).state.leader_epoch
                cluster.terminate(leader)
                wait_for("an election", lambda epoch=epoch: cluster.znode(tp).state.leader_epoch > epoch)  # type: ignore[misc]
                workload.wait_acknowledged(50)
                cluster.restart(leader)
                cluster.wait_in_sync(tp)
        cluster.wait_same_end(tp)
        present = cluster.znode(tp).state.leader_epoch
        for each in cluster.broker_ids:
            cluster.kill(each)
        before = {each: batches_on_disk(cluster.local.broker_dir(each) / str(tp)) for each in cluster.broker_ids}
        require_bite(
            "the last epoch is in no batch", all(batches[-1].leader_epoch > old + 3 for batches in before.values())
        )
        kill(zookeeper)
        zookeeper.data_dir.rename(tmp_path / "later")
        shutil.copytree(tmp_path / "earlier", zookeeper.data_dir)
        zookeeper.start()
        for each in cluster.broker_ids:
            cluster.restart(each)
        require_bite("time did not go back", cluster.znode(tp).state.leader_epoch < present)
        wait_for("all to refuse", lambda: all(cluster.said(each, "; refused") for each in cluster.broker_ids))
        after = {each: batches_on_disk(cluster.local.broker_dir(each) / str(tp)) for each in cluster.broker_ids}
        assert after == before
