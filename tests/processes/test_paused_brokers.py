"""SIGSTOP for brokers under load: shorter and longer than their session, one and all; and one held from within."""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.zookeeper import znodes
from tests.processes.harness.asking import ask_to_append
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for
from tidelog.errors import NotLeaderOrFollowerError
from tidelog.local.broker import broker_environment

pytestmark = pytest.mark.slow

SHORT_SESSION = {"zookeeper_session_timeout_ms": 3000}


@pytest.mark.parametrize("cluster", [SHORT_SESSION], indirect=True)
def test_leader_paused_beyond_its_session_resumes_without_leadership(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    zombie, before = cluster.leader(tp), cluster.znode(tp).state
    epoch = cluster.broker_epoch(zombie)
    with ordeal(cluster, [tp]) as under:
        with cluster.paused(zombie):
            wait_bitten("another leader", lambda: cluster.znode(tp).state.leader not in (zombie, -1))
            assert cluster.znode(tp).state.leader_epoch > before.leader_epoch
            under.workload.wait_acknowledged(300)
        refused = ask_to_append(cluster.address(zombie), tp, b"too late", acks=1)
        assert refused.error_code == NotLeaderOrFollowerError.code
        cluster.wait_serves(zombie, since=epoch)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [SHORT_SESSION], indirect=True)
def test_leaders_paused_at_any_moment_acknowledge_nothing_wrongly(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    moments = random.Random(11)
    with ordeal(cluster, tps) as under:
        for _ in range(5):
            zombie = cluster.leader(tps[0])
            before = cluster.znode(tps[0]).state.leader_epoch
            time.sleep(moments.random() / 10)  # anywhere between an append and its acknowledgement
            with cluster.paused(zombie):
                wait_bitten("an election", lambda before=before: cluster.znode(tps[0]).state.leader_epoch > before)  # type: ignore[misc]
                under.workload.wait_acknowledged(100)
            for tp in tps:
                cluster.wait_in_sync(tp)


@pytest.mark.slow
@pytest.mark.parametrize("also", ["nothing", "the controller"])
def test_leader_paused_for_less_than_its_session_keeps_leading(cluster: RunningCluster, also: str) -> None:
    tps = cluster.create_topic("t", partitions=3)
    controller = cluster.controller()
    leader = next(b for b in cluster.broker_ids if (b == controller) is (also == "the controller"))
    led = [tp for tp in tps if cluster.leader(tp) == leader]
    require_bite("the sleeper leads nothing", led)
    before = {tp: cluster.znode(tp) for tp in tps}
    epochs = [cluster.broker_epoch(each) for each in cluster.broker_ids]
    with ordeal(cluster, tps) as under:
        with cluster.paused(leader):
            paused_at = time.monotonic()
            time.sleep(4)  # the promise is of this time, and of the settings as they are shipped
        under.workload.wait_acknowledged(100)
        gap_s = under.workload.longest_gap_s(led, since=paused_at)
        require_bite("no client noticed", gap_s > 3 and f"{gap_s:.2f} s without an acknowledgement")
        assert {tp: cluster.znode(tp) for tp in tps} == before
        assert all(under.history.epochs_of(tp) == {before[tp].state.leader_epoch} for tp in tps)
        assert cluster.controller() == controller
        assert [cluster.broker_epoch(each) for each in cluster.broker_ids] == epochs


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [SHORT_SESSION], indirect=True)
def test_all_brokers_paused_beyond_their_sessions_recover_in_any_order(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    order = random.Random(7).sample(cluster.broker_ids, 3)
    with ordeal(cluster, tps):
        with ExitStack() as asleep:
            for each in order:
                asleep.enter_context(cluster.paused(each))
            with cluster.zookeeper() as client:
                wait_bitten("all sessions to end", lambda: not client.get_children(znodes.BROKER_IDS))
        for each in order:
            cluster.wait_serves(each)


#: A thread of the broker that, once this file is there, holds the interpreter's lock in one call into C.
HOLD = """
import ctypes, os, threading, time

def hold():
    order = os.environ["HOLD_ORDER"]
    while not os.path.exists(order):
        time.sleep(0.02)
    seconds = int(open(order).read())
    os.rename(order, order + ".done")
    ctypes.PyDLL(None).sleep(seconds)

if "HOLD_ORDER" in os.environ:
    threading.Thread(target=hold, daemon=True).start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [SHORT_SESSION], indirect=True)
def test_broker_blocked_in_c_beyond_its_session_stops_leading(cluster: RunningCluster, tmp_path: Path) -> None:
    (tp,) = cluster.create_topic("t")
    held = cluster.leader(tp)
    order = tmp_path / "order"
    (tmp_path / "sitecustomize.py").write_text(HOLD)
    cluster.terminate(held)
    config = cluster.config(held, f"broker-{held}")
    path = os.pathsep.join(filter(None, (str(tmp_path), broker_environment().get("PYTHONPATH"))))
    environment = {"HOLD_ORDER": str(order), "PYTHONPATH": path}
    with cluster.launched(config, environment) as process:
        cluster.wait_in_sync(tp)
        others = [b for b in cluster.broker_ids if b != held]
        for other in others:  # until the broker that can be held leads
            if cluster.leader(tp) != held:
                cluster.terminate(other)
                wait_for("a new leader", lambda other=other: cluster.znode(tp).state.leader not in (other, -1))  # type: ignore[misc]
                cluster.restart(other)
                cluster.wait_in_sync(tp)
        require_bite("the broker that can be held does not lead", cluster.leader(tp) == held)
        before = cluster.znode(tp).state
        with ordeal(cluster, [tp]) as under:
            order.write_text("8")
            wait_bitten("another leader", lambda: cluster.znode(tp).state.leader not in (held, -1))
            require_bite("the call was not made", order.with_name("order.done").exists())
            assert cluster.znode(tp).state.leader_epoch > before.leader_epoch
            under.workload.wait_acknowledged(300)
            wait_for(
                "it to end or to be back",
                lambda: process.poll() is not None or held in cluster.znode(tp).state.isr,
            )
            if process.poll() is not None:
                cluster.restart(held)
