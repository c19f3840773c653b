"""The files of replicas, read without the brokers."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from storage.files import RealFiles
from storage.log.leader_epochs import LeaderEpochs
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.waiting import wait_for
from tidelog import TopicPartition
from tidelog.records.header import iter_headers


class BatchOnDisk(NamedTuple):
    """A batch as it lies in a file; `digest` is of all of its bytes."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    digest: int


def batches_on_disk(partition_directory: Path) -> list[BatchOnDisk]:
    """Every batch of one replica, in order of the files."""
    found = []
    for segment in sorted(partition_directory.glob("*.log")):
        content = segment.read_bytes()
        found += [
            BatchOnDisk(
                header.base_offset,
                header.last_offset,
                header.partition_leader_epoch,
                zlib.crc32(content[position : position + header.size_bytes]),
            )
            for position, header in iter_headers(content)
        ]
    return found


def end_on_disk(cluster: RunningCluster, broker_id: int, tp: TopicPartition) -> int:
    """Return the offset after the last batch in the broker's files, committed or not; 0 without a batch."""
    batches = batches_on_disk(cluster.replica_dir(broker_id, tp))
    return batches[-1].last_offset + 1 if batches else 0


def assert_replicas_identical(cluster: RunningCluster, tps: list[TopicPartition], replicas: int = 3) -> int:
    """The batches of all replicas are the same bytes from the highest log start to the end, their epochs only rise.

    Returns how many batches were compared.
    """
    compared = 0
    for tp in tps:
        end = cluster.wait_same_end(tp)
        by_broker = {
            broker_id: batches_on_disk(cluster.replica_dir(broker_id, tp)) for broker_id in cluster.znode(tp).state.isr
        }
        assert len(by_broker) == replicas
        check_replicas(tp, by_broker, end)
        for broker_id, batches in by_broker.items():
            noted = noted_epochs(cluster.replica_dir(broker_id, tp), until=batches[-1].leader_epoch)
            check_epochs(tp, batches, [(epoch, start) for epoch, start in noted if start < end])
        compared += sum(map(len, by_broker.values()))
    return compared


def check_replicas(tp: TopicPartition, by_broker: Mapping[int, Sequence[BatchOnDisk]], end: int) -> None:
    """The same for one partition whose replicas have these batches, all of them up to `end`."""
    start = max(batches[0].base_offset for batches in by_broker.values())
    views = {
        broker_id: [batch for batch in batches if start <= batch.base_offset and batch.last_offset < end]
        for broker_id, batches in by_broker.items()
    }
    reference = next(iter(views.values()))
    assert reference, f"{tp} is empty on disk"
    assert reference[-1].last_offset == end - 1, f"{tp} ends at {end}, on disk at {reference[-1].last_offset + 1}"
    for broker_id, view in views.items():
        assert view == reference, f"{tp}: broker {broker_id} differs from broker {next(iter(views))}"
    for before, after in itertools.pairwise(reference):
        assert after.base_offset == before.last_offset + 1, f"{tp}: gap at {after.base_offset}"
        assert after.leader_epoch >= before.leader_epoch, f"{tp}: the epoch falls at {after.base_offset}"


def noted_epochs(replica_dir: Path, *, until: int) -> list[tuple[int, int]]:
    """The epochs in the replica's file, and where they begin, once that one is there: it is noted a moment late."""

    def look() -> list[tuple[int, int]]:
        noted = LeaderEpochs.load(replica_dir, RealFiles())
        entries = [] if noted is None else list(noted.entries())
        return entries if entries and entries[-1][0] >= until else []

    return wait_for(f"{replica_dir} to note epoch {until}", look)


def check_epochs(tp: TopicPartition, batches: Sequence[BatchOnDisk], noted: Sequence[tuple[int, int]]) -> None:
    """Assert that the checkpointed epochs, as (epoch, start offset), match the batches."""
    said: dict[int, int] = {}
    for batch in batches:
        said.setdefault(batch.leader_epoch, batch.base_offset)
    assert list(noted) == list(said.items()), f"{tp}: epochs {list(noted)} are noted, the batches say {said}"
