"""Clients find the leader, and only the leader answers."""

from __future__ import annotations

import pytest

from tests.processes.harness.asking import ask, ask_to_append
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.workload import Workload, read_all
from tidelog import Consumer, Producer, TopicPartition
from tidelog.errors import LogTruncationError, NotLeaderOrFollowerError
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from tidelog.records.encode import encode_batch

pytestmark = pytest.mark.slow


def test_follower_answers_produce_and_list_offsets_with_not_leader(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    leader = cluster.leader(tp)
    for broker_id in cluster.broker_ids:
        expected = 0 if broker_id == leader else NotLeaderOrFollowerError.code
        assert ask_to_append(cluster.address(broker_id), tp, b"x").error_code == expected
        for timestamp in (0, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            listed = ask(cluster.address(broker_id), ListOffsetsRequest((ListOffsetsPartition("t", 0, timestamp),)))
            assert isinstance(listed, ListOffsetsResponse)
            assert listed.partitions[0].error_code == expected


def test_clients_survive_the_loss_of_their_only_bootstrap_broker(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    victim = next(b for b in cluster.broker_ids if b != cluster.controller())
    with (
        Consumer(bootstrap_servers=cluster.address(victim), auto_offset_reset="earliest") as consumer,
        Workload(cluster.address(victim), tps) as workload,
    ):
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        assert consumer.poll(timeout_ms=5000)
        cluster.kill(victim)
        workload.wait_acknowledged(300)
        ends = consumer.end_offsets(tps)
        seen: dict[TopicPartition, int] = {}
        while any(seen.get(tp, 0) < ends[tp] for tp in tps):
            for tp, records in consumer.poll(timeout_ms=5000).items():
                seen[tp] = records[-1].offset + 1
    survivors = [cluster.address(b) for b in cluster.broker_ids if b != victim]
    assert workload.check(survivors) > 300


def test_next_leader_answers_a_repeated_batch_with_its_first_offset(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send("t", b"0", partition=0).get(30)
    leader = cluster.leader(tp)
    batch = encode_batch(
        [(1, None, b"1", ()), (2, None, b"2", ())], producer_id=4711, producer_epoch=0, base_sequence=0
    )
    request = ProduceRequest(-1, 5000, (ProducePartition("t", 0, batch),))
    first = ask(cluster.address(leader), request)
    again = ask(cluster.address(leader), request)
    cluster.terminate(leader)
    elsewhere = ask(cluster.address(cluster.leader(tp)), request)
    for answer in (first, again, elsewhere):
        assert isinstance(answer, ProduceResponse)
        assert (answer.partitions[0].error_code, answer.partitions[0].base_offset) == (0, 1)
    values = read_all([cluster.address(cluster.leader(tp))], [tp])[tp]
    assert values == [(0, 0), (1, 1), (2, 2)]


def test_consumer_of_records_lost_in_an_unclean_election_rewinds(cluster: RunningCluster) -> None:
    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    (tp,) = cluster.create_topic("t", replicas=2, configs=configs)
    leader = cluster.leader(tp)
    (follower,) = {*cluster.znode(tp).state.isr} - {leader}
    with (
        Producer(cluster.bootstrap_servers) as producer,
        Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer,
        Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="none") as strict,
    ):

        def write(*values: bytes) -> None:
            for value in values:
                producer.send("t", value, partition=0).get(60)

        def read(count: int) -> list[tuple[int, bytes | None]]:
            seen: list[tuple[int, bytes | None]] = []
            while len(seen) < count:
                seen += [(record.offset, record.value) for record in consumer.poll(20_000)[tp]]
            return seen

        consumer.assign([tp])
        strict.assign([tp])
        strict.seek(tp, 0)
        write(b"0", b"1")
        cluster.kill(follower)
        write(b"lost 2", b"lost 3")
        assert read(4)[-1] == (3, b"lost 3")
        while strict.position(tp) < 4:
            strict.poll(20_000)
        cluster.kill(leader)
        cluster.restart(follower)
        write(b"new 2", b"new 3", b"new 4")
        assert read(3) == [(2, b"new 2"), (3, b"new 3"), (4, b"new 4")]
        with pytest.raises(LogTruncationError, match="from offset 2 on") as shown:
            strict.poll(20_000)
        assert (shown.value.offset, shown.value.divergent_offset) == (4, 2)
