"""Offsets by the times of segments, held to the old broker's procedure over the files that lie on the leader's disk."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.storage.old_lookup import EARLIEST, LATEST, offsets_before, segment_files
from tidelog import Consumer, Producer, TopicPartition

DAY_MS = 86_400_000
QUERIES = 300


def age_segments(cluster: RunningCluster, tp: TopicPartition, rng: random.Random) -> None:
    """On its leader's disk: every segment is as old as chance has it, the active one too."""
    for path in sorted(cluster.replica_dir(cluster.leader(tp), tp).glob("*.log")):
        modified_s = time.time() - rng.randint(1, 20) * DAY_MS / 20_000
        os.utime(path, (modified_s, modified_s))


def compare(cluster: RunningCluster, tps: list[TopicPartition], rng: random.Random) -> tuple[int, int]:
    """How many answers were empty, and how many there were."""
    empty = 0
    files = {tp: segment_files(cluster.replica_dir(cluster.leader(tp), tp)) for tp in tps}
    ends = {tp: cluster.wait_same_end(tp) for tp in tps}
    now_ms = time.time_ns() // 10**6
    times = [
        LATEST,
        EARLIEST,
        *(file.modified_ms + nudge for each in files.values() for file in each for nudge in (-1, 0)),
    ]
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        for _ in range(QUERIES):
            target = rng.choice(times) if rng.random() < 0.5 else now_ms - rng.randrange(DAY_MS + 3_600_000)
            most = rng.choice((1, 2, 1000))
            shown = consumer.offsets_before(dict.fromkeys(tps, target), most)
            assert shown == {tp: offsets_before(files[tp], ends[tp], now_ms, target, most) for tp in tps}, (
                target,
                most,
            )
            empty += sum(not offsets for offsets in shown.values())
    return empty, QUERIES * len(tps)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_offsets_before_a_time_match_kafkas_old_algorithm(cluster: RunningCluster) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    tps = cluster.create_topic("t", partitions=2, configs={"segment.bytes": "4000"})
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in range(120):
            producer.send("t", b"x" * 500, partition=number % 2)
            if number % 4 == 3:
                producer.flush()
    for tp in tps:
        assert cluster.wait_same_end(tp) == 60
        age_segments(cluster, tp, rng)
        assert len(segment_files(cluster.replica_dir(cluster.leader(tp), tp))) >= 5
    empty, all_of_them = compare(cluster, tps, rng)
    assert 0 < empty < all_of_them
    killed = cluster.leader(tps[0])
    cluster.kill(killed)
    cluster.restart(killed)
    for tp in tps:
        cluster.wait_in_sync(tp)
        age_segments(cluster, tp, rng)
    assert cluster.leader(tps[0]) != killed
    compare(cluster, tps, rng)
