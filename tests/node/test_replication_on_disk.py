"""Replication over the real log: all replicas hold the same bytes, also after a change of leaders."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from storage.files import RealFiles
from storage.log_manager import LogManager
from tests.node.client_requests import TP, batch_of, produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import InvalidRecordError
from tidelog.records.header import HEADER, HEADER_BYTES, read_header, seal


def another_disk(root: Path, disks: list[LogManager]) -> LogManager:
    """Open the log manager of the next broker."""
    disks.append(LogManager.open([root / str(len(disks) + 1)], RealFiles(), len(disks) + 1, "c", "boot"))
    return disks[-1]


@on_virtual_time
async def test_replicas_hold_equal_bytes_and_truncate_a_diverging_tail(tmp_path: Path) -> None:
    directories: list[LogManager] = []
    async with MemoryCluster(directory=partial(another_disk, tmp_path, directories)) as cluster:
        await cluster.elect(1)
        for number in range(20):
            assert await cluster.produce(b"record %d" % number) == (0, number)
        cluster.cut(1, 2, 3)
        await cluster.produce(b"only on 1", acks=1)
        await cluster.elect(2, send_to=[2, 3])
        assert await cluster.produce(b"the next", to=2) == (0, 20)
        cluster.heal()
        await cluster.send_state([1])
        logs = [each.logs()[TP] for each in directories]
        await until(lambda: all(log.log_end_offset == 21 for log in logs))
        assert [code for code, _ in [await cluster.produce(b"x" * 5000) for _ in range(50)]] == [0] * 50
    for each in directories:
        each.close()
    files = [(tmp_path / str(broker_id) / "t-0" / f"{0:020d}.log").read_bytes() for broker_id in (1, 2, 3)]
    assert files[0] == files[1] == files[2]
    assert b"the next" in files[0]
    assert b"only on 1" not in files[0]
    epochs = [(tmp_path / str(broker_id) / "t-0" / "leader-epoch-checkpoint").read_text() for broker_id in (1, 2, 3)]
    assert epochs[0] == epochs[1] == epochs[2]


@on_virtual_time
async def test_replica_catches_up_if_the_leaders_log_begins_within_a_batch(tmp_path: Path) -> None:
    managers: list[LogManager] = []
    async with MemoryCluster(directory=partial(another_disk, tmp_path, managers)) as cluster:
        await cluster.elect(1)
        ten = produce_request(*(b"%d" % number for number in range(10)))
        assert (await cluster.leader.ask(ten)).partitions[0].error_code == 0
        cluster.cut(3, 1, 2)
        for _ in range(4):
            assert (await cluster.leader.ask(ten)).partitions[0].error_code == 0
        await until(lambda: cluster.states.states[TP].state.isr == (1, 2))
        cluster.leader.replica().log.delete_records(35, 50)
        cluster.heal()
        await until(lambda: set(cluster.states.states[TP].state.isr) == {1, 2, 3})
        log = cluster.nodes[3].replica().log
        assert (log.log_start_offset, log.log_end_offset) == (35, 50)
        assert bytes(log.read(35, 10_000, 50)) == bytes(managers[0].logs()[TP].read(35, 10_000, 50))
    for manager in managers:
        manager.close()


@pytest.mark.parametrize("attributes", [0x20, 0x30, 0x40, 0x60], ids=["control", "marker", "delete horizon", "both"])
@on_virtual_time
async def test_clients_cannot_produce_control_or_compacted_batches(tmp_path: Path, attributes: int) -> None:
    manager = LogManager.open([tmp_path], RealFiles(), 1, "c", "boot")
    sent = batch_of(b"x")
    forged = bytearray(HEADER.pack(*read_header(sent)._replace(attributes=attributes)) + sent[HEADER_BYTES:])
    seal(forged, 0, len(forged))
    async with MemoryCluster(1, directory=lambda: manager) as cluster:
        await cluster.elect(1)
        for acks in (-1, 1):
            answer = await cluster.leader.ask(produce_request(batch=bytes(forged), acks=acks))
            assert answer.partitions[0].error_code == InvalidRecordError.code == 87
        assert await cluster.leader.ask(produce_request(batch=bytes(forged), acks=0)) is None
        assert manager.logs()[TP].size_bytes == 0
    manager.close()
