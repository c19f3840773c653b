"""Clients of confluent-kafka in the load of a chaos run: real brokers, their histories, and the checker's verdict."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.test_workload import until, until_level
from tidelog.aio import Admin
from tidelog.history import group_operations, operations
from tidelog.history.broker_events import Broker
from tidelog.history.columns import as_array
from tidelog.history.events import Event
from tidelog.history.history_files import DIRECTORY, read_history
from tidelog.history.operations import Client, LookUpOk, ProduceOk
from tidelog.local.zookeeper import EmbeddedZooKeeper
from tidelog.model import TopicPartition
from verify.chaos.load import Load
from verify.chaos.results.final_logs import copy_replica_logs, read_final_logs
from verify.chaos.workload import Workload, create_topics
from verify.checker.findings import Finding
from verify.checker.inputs.logs import FinalLog, read_final_log, write_final_log
from verify.checker.inputs.run_directory import RunDirectory

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chaos clients of confluent-kafka"), pytest.mark.timeout(240)]
pytest.importorskip("confluent_kafka")

LOAD = Load(rate=300, processes=1, kafka_processes=1, delivery_timeout_ms=8_000)
PRODUCER = "confluent-1-producer"


def kafka_events(directory: Path, life: int | None = None) -> Iterator[Event]:
    """Yield the events in the histories of the Kafka clients: of one start of their process, from 0, or of all."""
    for path in sorted((directory / DIRECTORY).glob("confluent-1-*.jsonl")):
        lives = count(-1)
        current = next(lives)
        for each in read_history(path):
            if isinstance(each, (Client, Broker)):
                current = next(lives)
            elif life in (None, current):
                yield each


def kinds(directory: Path, life: int) -> set[type]:
    return {type(event) for event in kafka_events(directory, life)}


async def work(cluster: RunningCluster, directory: Path) -> None:
    """Run the load until Kafka clients have recorded each kind of operation. Kill the process once, and its successor
    records each kind again.
    """
    servers = cluster.bootstrap_servers
    await create_topics(servers, LOAD, brokers=3)
    async with Workload(directory, servers, LOAD) as workload:
        await until("operations of each kind", lambda: kinds(directory, life=0) >= EXPECTED)
        workload.processes[1].signal(signal.SIGKILL)
        await until("another process in its place", lambda: workload.replaced == 1)
        await until("operations of each kind by the new process", lambda: kinds(directory, life=1) >= EXPECTED)
    assert not workload.failures, "\n".join(workload.failures)
    async with Admin(servers) as admin:
        await until_level(admin, LOAD)
    await read_final_logs(servers, LOAD.tps, directory)
    topics = [topic.name for topic in LOAD.topics]
    for broker_id in (1, 2, 3):
        await copy_replica_logs(broker_id, [cluster.local.broker_dir(broker_id)], topics, directory)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run."""
    place = tmp_path_factory.mktemp("cluster")
    with (
        EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        running_cluster(place, zookeeper=zookeeper.hosts, group_initial_rebalance_delay_ms=0) as cluster,
    ):
        asyncio.run(work(cluster, place / "run"))
    return place / "run"


def test_histories_of_confluent_clients_pass_the_checker(run: Path) -> None:
    verdict = RunDirectory(run).check()
    assert not verdict.violated, "\n".join(verdict.lines())
    # The generation of a commit and the epoch of a look-up are known, so that the checker can compare them.
    commits = [each for each in kafka_events(run) if isinstance(each, group_operations.CommitOk)]
    assert min(each.generation for each in commits) > 0 and all(each.member for each in commits)
    found = [each for each in kafka_events(run) if isinstance(each, LookUpOk) and each.offset >= 0]
    assert found and all(each.epoch is not None for each in found)


def an_acknowledgement(run: Path) -> tuple[TopicPartition, int]:
    """Return partition and offset of a record that was acknowledged to a Kafka client."""
    for event in kafka_events(run):
        if isinstance(event, ProduceOk) and event.tp.topic == "orders":
            return event.tp, event.offsets[0]
    raise AssertionError("no record of orders was acknowledged to a Kafka client")


def logs_of(run: Path, tp: TopicPartition) -> Sequence[FinalLog]:
    return [read_final_log(path) for path in (run / "final").glob(f"*/{tp}.jsonl")]


def findings(run: Path, key: str) -> Sequence[Finding]:
    return [each for each in RunDirectory(run).check().findings if each.invariant == key]


def test_lost_record_of_a_confluent_client_is_found(run: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(run, tmp_path / "broken")
    tp, offset = an_acknowledgement(run)
    for log in logs_of(broken, tp):
        kept = [place for place, at in enumerate(log.offsets) if at != offset]
        columns = {
            name: as_array([getattr(log, name)[place] for place in kept])
            for name in ("offsets", "ids", "ts", "leader_epochs")
        }
        write_final_log(broken, replace(log, **columns))
    lost = findings(broken, "I1")
    assert len(lost) == 4, "three replicas, and the log read by a client"
    assert all(f"at offset {offset}, but" in each.says and PRODUCER in str(each) for each in lost)


def test_doubled_record_of_a_confluent_client_is_found(run: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(run, tmp_path / "broken")
    tp, offset = an_acknowledgement(run)
    for log in logs_of(broken, tp):
        place = log.place(offset)
        assert place is not None
        columns = {
            name: as_array([*getattr(log, name), getattr(log, name)[place]]) for name in ("ids", "ts", "leader_epochs")
        }
        offsets = as_array([*log.offsets, log.leo])
        write_final_log(broken, replace(log, **columns, offsets=offsets, leo=log.leo + 1, hw=log.leo + 1))
    (doubled,) = findings(broken, "I3")
    assert re.search(rf"is at offset {offset} and at \d+$", doubled.says) and PRODUCER in str(doubled)


EXPECTED = {
    operations.ProduceInvoked,
    operations.ProduceOk,
    operations.Read,
    operations.LatestOk,
    operations.EarliestOk,
    operations.LookUpOk,
    group_operations.CommitInvoked,
    group_operations.CommitOk,
    group_operations.CommittedOk,
    group_operations.Assigned,
}
