"""A broker with two log directories, one of which fails: only the partitions in it go offline."""

from __future__ import annotations

from pathlib import Path

from node.replication.replica_manager import ReplicaManager
from storage.log_manager import LogManager
from tests.node.client_requests import TP, produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.storage.logs import UnsyncedFiles
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import IneligibleReplicaError, StorageError
from tidelog.model import TopicPartition
from tidelog.protocol.messages import ProduceResponse
from verify.simulation.disks.failing_files import FailingFiles, Fault

OTHER = TP._replace(partition=1)


class Disks:
    """Two directories for each broker."""

    def __init__(self, root: Path) -> None:
        self.files = FailingFiles(UnsyncedFiles())
        self.managers: list[LogManager] = []
        self._root = root

    def paths(self, broker_id: int) -> list[Path]:
        return [self._root / str(broker_id) / name for name in ("a", "b")]

    def __call__(self) -> LogManager:
        broker_id = len(self.managers) + 1
        manager = LogManager.open(self.paths(broker_id), self.files, broker_id, "c", "boot")
        self.managers.append(manager)
        return manager


async def produce(cluster: MemoryCluster, tp: TopicPartition) -> int:
    response = await cluster.nodes[1].ask(produce_request(b"x", tp=tp))
    assert isinstance(response, ProduceResponse)
    return response.partitions[0].error_code


def led(replicas: ReplicaManager) -> list[TopicPartition]:
    return sorted(replicas.led())


@on_virtual_time
async def test_leader_with_a_failed_disk_still_leads_on_its_other_disks(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        await cluster.elect(1, tp=OTHER)
        assert [await produce(cluster, tp) for tp in (TP, OTHER)] == [0, 0]
        leader = cluster.nodes[1]
        disks.files.fail(Fault.WRITE_ERROR, disks.paths(1)[0])
        assert await produce(cluster, TP) == StorageError.code
        assert led(leader.replicas) == [OTHER]
        assert await produce(cluster, OTHER) == 0
        assert await produce(cluster, TP) == StorageError.code
        assert leader.storage_errors == [], "the broker keeps running"
        await until(lambda: cluster.states.log_dir_failures == [1])
        answer = await leader.ask(cluster.leader_and_isr(TP), sender_epoch=1)
        assert [each.error_code for each in answer.partitions] == [StorageError.code]
        await cluster.elect(2, isr=[2, 3], send_to=[2, 3])
        disks.files.heal()
        assert (await cluster.produce(b"y", to=2))[0] == 0
        disks.files.fail(Fault.WRITE_ERROR, disks.paths(1)[1])
        assert await produce(cluster, OTHER) == StorageError.code
        assert len(leader.storage_errors) == 1, "no log directory is left"


@on_virtual_time
async def test_follower_with_a_failed_disk_still_follows_on_its_other_disks(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        await cluster.elect(1, tp=OTHER)
        disks.files.fail(Fault.FULL, disks.paths(3)[0])
        assert [await produce(cluster, tp) for tp in (TP, OTHER)] == [0, 0]
        follower = cluster.nodes[3]
        await until(lambda: follower.replica(OTHER).log.log_end_offset == 1)
        assert (follower.replica(TP).offline, follower.replica(OTHER).offline) == (True, False)
        await until(lambda: set(cluster.states.states[TP].state.isr) == {1, 2})
        assert set(cluster.states.states[OTHER].state.isr) == {1, 2, 3}


@on_virtual_time
async def test_failed_checkpoint_takes_only_its_directory_offline(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        await cluster.elect(1, tp=OTHER)
        disks.files.fail(Fault.READ_ONLY, disks.paths(1)[1])
        await cluster.nodes[1].replicas.checkpoint_high_watermarks()
        assert led(cluster.nodes[1].replicas) == [TP]


@on_virtual_time
async def test_in_sync_replica_with_a_lost_log_restarts_only_outside_the_isr(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    async with MemoryCluster(directory=disks) as cluster:
        await cluster.elect(1)
        assert await produce(cluster, TP) == 0
        manager = disks.managers[1]
        await cluster.kill(2)
        manager.close()
        paths = disks.paths(2)
        for path in paths:
            path.rename(path.with_name(path.name + "-lost"))
        empty = LogManager.open(paths, disks.files, 2, "c", "boot")
        empty.open_logs(hosted={TP: "topic-id-1"})
        cluster.nodes[2].directory = empty
        cluster.restart(2)
        refused = await cluster.nodes[2].ask(cluster.leader_and_isr(TP), sender_epoch=1)
        assert [each.error_code for each in refused.partitions] == [IneligibleReplicaError.code]
        assert cluster.nodes[2].storage_errors == []
        await cluster.elect(1, isr=[1, 3])
        await until(lambda: set(cluster.states.states[TP].state.isr) == {1, 2, 3})
        assert cluster.nodes[2].replica(TP).log.log_end_offset == 1
