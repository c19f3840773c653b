"""The load of a run against real brokers: its processes, their histories, and the end."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster
from tidelog.aio import Admin
from tidelog.history import group_operations, operations
from tidelog.history.history_files import DIRECTORY, read_history
from tidelog.history.operations import Client, ProduceFailed, ProduceInvoked, ProduceOk, ProduceUnknown
from tidelog.local.cluster import LocalCluster
from verify.chaos.load import Load
from verify.chaos.payload import producer_of
from verify.chaos.results.activity import Activity
from verify.chaos.results.final_logs import copy_replica_logs, read_final_logs
from verify.chaos.results.tail import HistoryTail
from verify.chaos.workload import Workload, create_topics
from verify.checker.inputs.logs import read_final_log
from verify.checker.inputs.run_directory import RunDirectory

pytestmark = pytest.mark.slow

LEAST_RATE = 200
LOAD = Load(rate=400, delivery_timeout_ms=8_000)


async def until(what: str, seen: Callable[[], bool], timeout_s: float = 40) -> None:
    deadline = time.monotonic() + timeout_s
    while not seen():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


async def work(cluster: RunningCluster, directory: Path) -> None:
    """Until there is load enough, a client process was killed, and another one works in its place."""
    tail, activity = HistoryTail(directory), Activity(LOAD.tps)
    producers: set[int] = set()

    def rate() -> int:
        for kind, name, event in tail.read():
            activity.take(kind, name, event)
            if isinstance(event, ProduceOk):
                producers.add(producer_of(event.ids[0]))
        return activity.rate(time.monotonic_ns())

    def kinds() -> set[type]:
        return {type(event) for path in (directory / DIRECTORY).glob("*.jsonl") for event in read_history(path)}

    servers = cluster.bootstrap_servers
    await create_topics(servers, LOAD, brokers=3)
    async with Workload(directory, servers, LOAD) as workload:
        await until("operations of each process", lambda: rate() >= LEAST_RATE and len(producers) == 6)
        workload.processes[1].signal(signal.SIGKILL)
        await until("another process in its place", lambda: workload.replaced == 1)
        await until("operations of the new process", lambda: rate() >= LEAST_RATE and len(producers) == 9)
        await until("all kinds of operations", lambda: kinds().issuperset(_EXPECTED))
    assert not workload.failures, "\n".join(workload.failures)
    await read_final_logs(servers, LOAD.tps, directory)
    topics = [topic.name for topic in LOAD.topics]
    for broker_id in (1, 2, 3):
        await copy_replica_logs(broker_id, [cluster.local.broker_dir(broker_id)], topics, directory)


@pytest.fixture
def directory(cluster: RunningCluster, tmp_path: Path) -> Path:
    """Return the directory of a finished run."""
    asyncio.run(work(cluster, tmp_path / "run"))
    return tmp_path / "run"


@pytest.mark.parametrize("cluster", [{"group_initial_rebalance_delay_ms": 0}], indirect=True)
def test_histories_match_final_logs_even_of_a_killed_client(directory: Path) -> None:
    invoked: set[int] = set()
    ended: dict[int, tuple[str, int] | None] = {}
    unheard_of: set[str] = set()
    lives = Counter[str]()
    for path in (directory / DIRECTORY).glob("*.jsonl"):
        before = len(invoked - ended.keys())
        for event in read_history(path):
            if isinstance(event, Client):
                lives[event.name] += 1
            elif isinstance(event, ProduceInvoked):
                invoked.update(event.ids)
            elif isinstance(event, ProduceOk):
                ended.update(zip(event.ids, ((str(event.tp), each) for each in event.offsets), strict=True))
            elif isinstance(event, (ProduceFailed, ProduceUnknown)):
                ended.update(dict.fromkeys(event.ids))
        if len(invoked - ended.keys()) > before:
            unheard_of.add(path.stem)
    assert set(lives.values()) == {1, 2} and all((n == 2) is name.startswith("clients-1") for name, n in lives.items())
    assert ended.keys() <= invoked
    assert all(name.startswith("clients-1") for name in unheard_of), "each other client heard of all that it sent"
    assert len(invoked - ended.keys()) < 200

    read = {path.stem: read_final_log(path) for path in (directory / "final" / "read").iterdir()}
    assert read.keys() == set(map(str, LOAD.tps))
    acknowledged = {record_id: place for record_id, place in ended.items() if place is not None}
    for record_id, (tp, offset) in acknowledged.items():
        if not tp.startswith("latest"):  # which compaction may thin out
            assert read[tp].ids[offset] == record_id
    for broker in "123":
        for path in (directory / "final" / broker).iterdir():
            replica, leader = read_final_log(path), read[path.stem]
            assert replica.batches and replica.leo == leader.leo
            if not path.stem.startswith("latest"):
                assert replica.ids == leader.ids and list(replica.offsets) == list(leader.offsets)
                assert replica.leader_epochs == leader.leader_epochs and replica.ts == leader.ts


async def until_level(admin: Admin, load: Load) -> None:
    deadline = time.monotonic() + 30
    while True:
        topics = await admin.describe_topics([topic.name for topic in load.topics])
        partitions = [partition for topic in topics for partition in topic.partitions]
        if all(each.high_watermark == each.log_end_offset and not any(each.lag.values()) for each in partitions):
            return
        assert time.monotonic() < deadline, "the replicas are not level"
        await asyncio.sleep(0.2)


async def work_for(seconds: float, cluster: LocalCluster, directory: Path, load: Load) -> None:
    """And bring it to its end."""
    servers = cluster.known_state().bootstrap_servers
    await create_topics(servers, load, brokers=3)
    async with Workload(directory, servers, load) as workload:
        await asyncio.sleep(seconds)
    assert not workload.failures, "\n".join(workload.failures)
    print(f"{workload.left_out} records were left out")
    async with Admin(servers) as admin:
        await until_level(admin, load)
    await read_final_logs(servers, load.tps, directory)
    for broker in cluster.known_state().brokers:
        log_dirs = [cluster.broker_dir(broker.broker_id)]
        await copy_replica_logs(broker.broker_id, log_dirs, [topic.name for topic in load.topics], directory)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_minute_of_thousand_records_per_second_passes_the_checker(tmp_path: Path) -> None:
    directory, load = tmp_path / "run", Load(rate=1_000)
    cluster = LocalCluster(tmp_path / "data", home=tmp_path / "home", histories=directory / DIRECTORY)
    try:
        cluster.start(3)
        asyncio.run(work_for(60, cluster, directory, load))
    finally:
        cluster.stop()
    verdict = RunDirectory(directory).check()
    print("\n".join(verdict.lines()))
    assert not verdict.violated
    # Invariants about faults, resources and deposed leaders need events that may not happen in this run.
    assert {row.key for row in verdict.without_data} <= {"I13", "I19", "I21"}


_EXPECTED = (
    operations.ProduceOk,
    operations.Read,
    operations.ReadFailed,
    operations.LatestOk,
    operations.EarliestOk,
    operations.LookUpOk,
    group_operations.CommitInvoked,
    group_operations.CommitOk,
    group_operations.CommittedOk,
    group_operations.Assigned,
)
