"""Test the final logs that a client reads from the leaders."""

from __future__ import annotations

from tests.tidelog.clients import a_consumer, put
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog.history.columns import DAMAGED
from tidelog.model import TopicPartition
from verify.chaos.payload import make_id, payload
from verify.chaos.results.final_logs import read_leaders
from verify.checker.inputs.logs import READ

TPS = [TopicPartition("t", 0), TopicPartition("t", 1)]


@on_virtual_time
async def test_final_log_has_id_timestamp_and_epoch_of_every_record() -> None:
    cluster = FakeCluster()
    full, empty = cluster.create("t", 2)
    ids = [make_id(1, sequence) for sequence in range(6)]
    put(full, *(payload(each, 40) for each in ids[:2]), at_ms=7)
    full.elect(2)
    put(full, *(payload(each, 40) for each in ids[2:]), b"foreign", at_ms=9)
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        logs = await read_leaders(consumer, TPS)
    assert [(log.broker, log.tp, log.log_start, log.leo) for log in logs] == [
        (READ, TPS[0], 0, 7),
        (READ, TPS[1], 0, 0),
    ]
    assert list(logs[0].offsets) == list(range(7))
    assert list(logs[0].ids) == [*ids, DAMAGED]
    assert list(logs[0].ts) == [7, 7, 9, 9, 9, 9, 9]
    assert list(logs[0].leader_epochs) == [0, 0, 1, 1, 1, 1, 1]
    assert not empty.batches and not logs[1].ids


@on_virtual_time
async def test_final_log_has_no_records_below_the_log_start() -> None:
    cluster = FakeCluster()
    (partition, *_) = cluster.create("t", 2)
    put(partition, *(payload(make_id(1, sequence), 40) for sequence in range(5)))
    partition.first_offset = 3
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        (log, _) = await read_leaders(consumer, TPS)
    assert (log.log_start, list(log.offsets), list(log.ids)) == (3, [3, 4], [make_id(1, 3), make_id(1, 4)])
