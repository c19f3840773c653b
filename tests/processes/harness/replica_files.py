"""What the replicas have on disk, read without the broker's help."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.processes.harness.cluster import RunningCluster
from tidelog import TopicPartition
from tidelog.records.header import iter_headers


def batches_on_disk(partition_directory: Path) -> list[tuple[int, int, int, int]]:
    """(base offset, last offset, leader epoch, CRC) of every batch of one replica, in order of the files."""
    found = []
    for segment in sorted(partition_directory.glob("*.log")):
        found += [
            (header.base_offset, header.last_offset, header.partition_leader_epoch, header.crc)
            for _, header in iter_headers(segment.read_bytes())
        ]
    return found


def assert_replicas_identical(cluster: RunningCluster, tps: list[TopicPartition]) -> None:
    """The batches of all replicas agree from the highest log start to the lowest high watermark."""
    for tp in tps:
        end = cluster.wait_same_end(tp)
        by_broker = {
            broker_id: batches_on_disk(cluster.local.broker_dir(broker_id) / str(tp))
            for broker_id in cluster.znode(tp).state.isr
        }
        assert len(by_broker) == len(cluster.broker_ids)
        start = max(batches[0][0] for batches in by_broker.values())
        views = {
            broker_id: [batch for batch in batches if start <= batch[0] and batch[1] < end]
            for broker_id, batches in by_broker.items()
        }
        reference = next(iter(views.values()))
        assert reference, f"{tp} is empty on disk"
        for broker_id, view in views.items():
            assert view == reference, f"{tp}: broker {broker_id} differs from broker {next(iter(views))}"
        offsets = [(base, last) for base, last, _, _ in reference]
        assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(offsets)), f"{tp}: gap"
