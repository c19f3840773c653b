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
from tidelog.chaos.activity import Activity
from tidelog.chaos.final_logs import copy_replica_logs, read_final_logs
from tidelog.chaos.load import Load
from tidelog.chaos.payload import producer_of
from tidelog.chaos.tail import HistoryTail
from tidelog.chaos.workload import Workload, create_topics
from tidelog.checker import events
from tidelog.checker.events import ProduceFailed, ProduceInvoked, ProduceOk, ProduceUnknown
from tidelog.checker.history import DIRECTORY, read_history
from tidelog.checker.logs import read_final_log

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
    assigned: set[str] = set()

    def rate() -> int:
        for kind, name, event in tail.read():
            activity.take(kind, name, event)
            if isinstance(event, ProduceOk):
                producers.add(producer_of(event.ids[0]))
            elif isinstance(event, events.Assigned):
                assigned.add(name)
        return activity.rate(time.monotonic_ns())

    servers = cluster.bootstrap_servers
    await create_topics(servers, LOAD, brokers=3)
    async with Workload(directory, servers, LOAD) as workload:
        await until(
            "200 operations a second", lambda: rate() >= LEAST_RATE and len(producers) == 5 and len(assigned) == 4
        )
        workload.processes[1].signal(signal.SIGKILL)
        await until("another process in its place", lambda: workload.replaced == 1)
        await until("operations of the new process", lambda: rate() >= LEAST_RATE and len(producers) == 7)
    assert not workload.failures, "\n".join(workload.failures)
    await read_final_logs(servers, LOAD.tps, directory)
    topics = [topic.name for topic in LOAD.topics]
    for broker_id in (1, 2, 3):
        await copy_replica_logs(broker_id, [cluster.local.broker_dir(broker_id)], topics, directory)


@pytest.fixture
def directory(cluster: RunningCluster, tmp_path: Path) -> Path:
    """Of a run that has ended."""
    asyncio.run(work(cluster, tmp_path / "run"))
    return tmp_path / "run"


@pytest.mark.parametrize("cluster", [{"group_initial_rebalance_delay_ms": 0}], indirect=True)
def test_histories_and_final_logs_tell_one_story_also_of_a_client_that_was_killed(directory: Path) -> None:
    invoked: set[int] = set()
    ended: dict[int, tuple[str, int] | None] = {}
    lives, kinds = Counter[str](), Counter[str]()
    for path in (directory / DIRECTORY).glob("*.jsonl"):
        for event in read_history(path):
            kinds[type(event).__name__] += 1
            if isinstance(event, events.Client):
                lives[event.name] += 1
            elif isinstance(event, ProduceInvoked):
                invoked.update(event.ids)
            elif isinstance(event, ProduceOk):
                ended.update(zip(event.ids, ((str(event.tp), each) for each in event.offsets), strict=True))
            elif isinstance(event, (ProduceFailed, ProduceUnknown)):
                ended.update(dict.fromkeys(event.ids))
    assert set(lives.values()) == {1, 2} and all((n == 2) is name.startswith("clients-1") for name, n in lives.items())
    assert ended.keys() <= invoked
    assert len(invoked - ended.keys()) < 200  # what the killed process never heard of
    missing = {kind.__name__ for kind in _EXPECTED} - kinds.keys()
    assert not missing

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


_EXPECTED = (
    events.ProduceOk,
    events.Read,
    events.ReadFailed,
    events.LatestOk,
    events.EarliestOk,
    events.LookUpOk,
    events.CommitInvoked,
    events.CommitOk,
    events.CommittedOk,
    events.Assigned,
)
