"""The ISR in ZooKeeper, and its effect on acks=all and on consumers."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.processes.harness.asking import ask_to_append
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.replica_files import assert_replicas_identical, batches_on_disk
from tests.processes.harness.waiting import wait_bitten, wait_for
from tidelog import Consumer, Producer
from tidelog.errors import NotEnoughReplicasError, TimeoutError

pytestmark = pytest.mark.slow

QUICK = {"replica_lag_time_max_ms": 2000}
#: Longer than any pause here, so that ZooKeeper has no opinion about a stopped follower.
UNHURRIED = {**QUICK, "zookeeper_session_timeout_ms": 10_000}


@pytest.mark.parametrize("cluster", [UNHURRIED], indirect=True)
def test_stopped_follower_leaves_the_isr_and_rejoins_only_caught_up(
    cluster: RunningCluster,
) -> None:
    (tp,) = cluster.create_topic("t")
    leader, controller = cluster.leader(tp), cluster.controller()
    slow = next(b for b in cluster.broker_ids if b not in (leader, controller))
    before = cluster.znode(tp)
    with ordeal(cluster, [tp]) as under:
        with cluster.paused(slow):
            wait_bitten("the follower to leave the ISR", lambda: slow not in cluster.znode(tp).state.isr)
            after = cluster.znode(tp)
            assert after.state.leader_epoch == before.state.leader_epoch
            assert after.partition_epoch > before.partition_epoch
            under.workload.wait_acknowledged(300)
            assert slow not in cluster.znode(tp).state.isr
            committed = cluster.admin.describe_topics([tp.topic])[0].partitions[tp.partition].high_watermark
        cluster.wait_in_sync(tp)
        assert batches_on_disk(cluster.local.broker_dir(slow) / str(tp))[-1].last_offset + 1 >= (committed or 0)
        assert under.history.epochs_of(tp) == {before.state.leader_epoch}


@pytest.mark.parametrize("cluster", [UNHURRIED], indirect=True)
def test_stopped_followers_block_acks_and_reads_above_the_high_watermark(
    cluster: RunningCluster,
) -> None:
    (tp,) = cluster.create_topic("t")
    leader = cluster.leader(tp)
    followers = [b for b in cluster.broker_ids if b != leader]
    address = cluster.address(leader)
    with (
        Producer(address, request_timeout_ms=1000, delivery_timeout_ms=7000) as producer,
        Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer,
    ):
        assert producer.send("t", b"committed", partition=0).get(30).offset == 0
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        seen = wait_for("the committed record", lambda: consumer.poll(timeout_ms=500).get(tp))
        assert [record.value for record in seen] == [b"committed"]
        with ExitStack() as paused:
            for follower in followers:
                paused.enter_context(cluster.paused(follower))
            held = producer.send("t", b"not committed", partition=0)
            assert consumer.poll(timeout_ms=1000) == {}
            assert not held.done()
            wait_for("the ISR to shrink to the leader", lambda: cluster.znode(tp).state.isr == (leader,))
            cluster.wait_leader_knows(tp, (leader,))
            assert ask_to_append(address, tp, b"refused").error_code == NotEnoughReplicasError.code
            # The last of the attempts may begin a few ms before the deadline, and then gets no answer that says why.
            with pytest.raises(TimeoutError, match=r"not acknowledged within \d+ ms"):
                held.get(30)
            assert consumer.poll(timeout_ms=1000) == {}
            assert consumer.end_offsets([tp])[tp] == 1
        cluster.wait_in_sync(tp)
        # The record was written but not acknowledged, so that it may stay.
        end = cluster.wait_same_end(tp)
        consumer.seek_to_beginning(tp)
        read: list[bytes | None] = []
        while consumer.position(tp) < end:
            read += [record.value for record in consumer.poll(timeout_ms=1000).get(tp, ())]
        assert read in ([b"committed"], [b"committed", b"not committed"])
    assert_replicas_identical(cluster, [tp])
