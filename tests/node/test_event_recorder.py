"""The events that brokers record, and the history file that keeps them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cluster.replication.partition import Partition
from cluster.state import PartitionState, VersionedState
from cluster.zookeeper.in_memory import MemoryZooKeeper
from node.events.history_file import LONGEST_WAIT_S, EventRecorder, HistoryFile, Tracebacks
from node.events.recorder import NO_EVENTS, Events
from node.process.zookeeper_session import ZooKeeperSession
from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import VirtualClock, on_virtual_time, until
from tidelog.errors import NotLeaderOrFollowerError, RequestTimedOutError
from tidelog.history import broker_events
from tidelog.history.broker_events import Broker, BrokerEvent
from tidelog.history.history_files import read_history
from tidelog.protocol.control_messages import LeaderAndIsrRequest

E = TypeVar("E", bound=BrokerEvent)


def events_of(cluster: MemoryCluster, broker_id: int, kind: type[E]) -> list[E]:
    return [event for event in cluster.histories[broker_id] if isinstance(event, kind)]


@on_virtual_time
async def test_roles_and_appends_are_recorded_by_leader_and_followers() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.produce(b"b")
        (leads,) = events_of(cluster, 1, broker_events.BecomeLeader)
        (follows,) = events_of(cluster, 2, broker_events.BecomeFollower)
        assert (leads.tp, leads.epoch, leads.leo, leads.hw, leads.partition_epoch) == (TP, 0, 0, 0, 0)
        assert (follows.tp, follows.epoch, follows.leader) == (TP, 0, 1)
        for broker_id, role in (1, "leader"), (2, "follower"), (3, "follower"):
            appended = events_of(cluster, broker_id, broker_events.Append)
            assert [(each.base, each.last, each.epoch, each.role) for each in appended] == [
                (0, 0, 0, role),
                (1, 1, 0, role),
            ]


@on_virtual_time
async def test_high_watermark_is_recorded_before_the_acknowledgement() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await until(lambda: len(events_of(cluster, 3, broker_events.HighWatermark)) == 1)
        order = [type(event) for event in cluster.histories[1]]
        assert order.index(broker_events.HighWatermark) < order.index(broker_events.Ack)
        assert [each.value for each in events_of(cluster, 1, broker_events.HighWatermark)] == [1]
        assert [(each.epoch, each.value) for each in events_of(cluster, 3, broker_events.HighWatermark)] == [(0, 1)]


@on_virtual_time
async def test_acknowledgement_event_has_the_known_log_ends() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        (ack,) = events_of(cluster, 1, broker_events.Ack)
        assert (ack.tp, ack.last, ack.epoch, ack.isr, list(ack.pending)) == (TP, 0, 0, (1, 2, 3), [])
        assert (ack.replicas, ack.min_isr, ack.leos) == ((1, 2, 3), 2, {1: 1, 2: 1, 3: 1})


@on_virtual_time
async def test_only_acks_all_is_recorded() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a", acks=1)
        cluster.cut(1, 2, 3)
        assert (await cluster.produce(b"b", timeout_ms=100))[0] == RequestTimedOutError.code
        assert not events_of(cluster, 1, broker_events.Ack)


def test_acknowledgement_event_has_pending_isr_and_no_guessed_log_end() -> None:
    kept: list[BrokerEvent] = []
    partition, live = Partition(1, TP, max_lag_ms=1000), {1: 10, 2: 20, 3: 30}
    state = VersionedState(PartitionState(1, 4, (1, 2), 1), 0)
    partition.make_leader(state, (1, 2, 3), live, log_end_offset=0, now_ms=0)
    assert partition.follower_fetched(3, 0, 30, log_end_offset=0, now_ms=1).proposal is not None
    EventRecorder(kept.append, lambda: 5).ack(partition, 9, required_offset=8)
    assert kept == [broker_events.Ack(5, TP, 7, 4, (1, 2), [3], {1: 9, 3: 0}, (1, 2, 3), 1)]


@on_virtual_time
async def test_isr_change_is_recorded_with_its_version() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 3)
        await cluster.produce(b"a")
        (change,) = events_of(cluster, 1, broker_events.IsrChange)
        assert (change.isr, change.epoch, change.partition_epoch, change.ok) == ((1, 2), 0, 1, True)


@on_virtual_time
async def test_deposed_leader_records_its_failed_isr_change_and_truncation() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.elect(2, isr=[2, 3], send_to=[2, 3])
        await cluster.produce(b"new", to=2)
        assert (await cluster.produce(b"old", to=1, timeout_ms=10_000))[0] == NotLeaderOrFollowerError.code
        (change,) = events_of(cluster, 1, broker_events.IsrChange)
        assert (change.epoch, change.partition_epoch, change.ok) == (0, 0, False)
        await cluster.send_state([1])
        await until(lambda: cluster.nodes[1].log().values == [b"a", b"new"])
        (cut,) = events_of(cluster, 1, broker_events.Truncate)
        assert (cut.tp, cut.to) == (TP, 1)


@on_virtual_time
async def test_control_requests_are_recorded_with_epochs_and_refusals() -> None:
    async with MemoryCluster() as cluster:
        cluster.controller_epoch = 7
        await cluster.elect(1)
        stale = cluster.leader_and_isr()
        stale = LeaderAndIsrRequest(1, 6, stale.partitions, stale.topics, stale.live_brokers)
        await cluster.nodes[1].ask(stale, sender_epoch=1)
        acted = [each for each in events_of(cluster, 1, broker_events.Processed) if each.api == "LEADER_AND_ISR"]
        assert [(each.epoch, each.known) for each in acted] == [(7, -1)]
        assert [(each.api, each.why) for each in events_of(cluster, 1, broker_events.Reject)] == [
            ("LEADER_AND_ISR", "controller epoch 6 is older than 7")
        ]


@on_virtual_time
async def test_restarted_broker_appends_to_its_history() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.kill(3)
        cluster.restart(3)
        await cluster.elect(3)
        assert [each.epoch for each in events_of(cluster, 3, broker_events.BecomeLeader)] == [1]
        assert events_of(cluster, 3, broker_events.BecomeLeader)[0].leo == 1


# ---- the session


class NoGuard:
    def start(self) -> None: ...
    def stop(self) -> None: ...


@on_virtual_time
async def test_session_states_are_recorded() -> None:
    zookeeper = MemoryZooKeeper(clock := VirtualClock(), session_timeout_ms=300)
    store, kept = zookeeper.connect(), list[BrokerEvent]()
    session = ZooKeeperSession(store, clock, NoGuard(), events=EventRecorder(kept.append, lambda: 5))
    await session.start()
    zookeeper.expire(store.session_id)
    await until(lambda: broker_events.Session(5, "expired") in kept)
    await session.stop()
    assert kept[0] == broker_events.Session(5, "connected")


# ---- what is kept


def test_no_event_is_built_without_a_history() -> None:
    for name in (name for name in vars(Events) if not name.startswith("_")):
        record: Callable[..., Any] = getattr(NO_EVENTS, name)
        assert record(*[object()] * (record.__code__.co_argcount - 1 - len(record.__defaults__ or ()))) is None


class Later:
    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, delay_s: float, call: Callable[[], None]) -> None:
        self.calls.append((delay_s, call))


def lines(path: Path) -> list[object]:
    return list(read_history(path))


def test_visible_events_are_written_at_once_and_others_in_a_second(tmp_path: Path) -> None:
    later = Later()
    file = HistoryFile(tmp_path / "1.jsonl", Broker("1", 1), later)
    raised, appended = broker_events.HighWatermark(2, TP, 0, 1), broker_events.Append(3, TP, 1, 1, 0, "leader")
    file.keep(raised)
    assert lines(file_path := tmp_path / "1.jsonl") == [Broker("1", 1), raised]
    file.keep(appended)
    file.keep(appended)
    assert lines(file_path) == [Broker("1", 1), raised]
    ((delay_s, flush),) = later.calls
    assert delay_s == LONGEST_WAIT_S <= 1
    flush()
    assert lines(file_path) == [Broker("1", 1), raised, appended, appended]


def test_buffered_events_are_bounded_and_written_on_close(tmp_path: Path) -> None:
    file = HistoryFile(path := tmp_path / "1.jsonl", Broker("1"), Later())
    appended = broker_events.Append(3, TP, 1, 1, 0, "leader")
    for _ in range(2000):
        file.keep(appended)
    assert len(lines(path)) > 1000
    file.close()
    assert len(lines(path)) == 2001


def test_failed_disk_ends_the_history_and_not_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    file = HistoryFile(Path("/dev/full"), Broker("1"), Later())
    for _ in range(2):
        file.keep(broker_events.HighWatermark(2, TP, 0, 1))
    assert [record.message for record in caplog.records] == [
        "the history file cannot be written, so that the history ends here: [Errno 28] No space left on device"
    ]
    file.close()


async def test_logged_stacks_are_recorded_from_any_thread() -> None:
    kept: list[BrokerEvent] = []
    log = logging.getLogger("node.somewhere")
    log.addHandler(handler := Tracebacks(EventRecorder(kept.append, lambda: 5), asyncio.get_running_loop()))

    def fail() -> None:
        try:
            raise ValueError("unexpected")
        except ValueError:
            log.exception("it failed")
        log.error("this was foreseen")

    try:
        await asyncio.to_thread(fail)
        await asyncio.sleep(0)
    finally:
        log.removeHandler(handler)
    (event,) = kept
    assert isinstance(event, broker_events.Traceback)
    assert event.text.startswith("it failed\n")
    assert "unexpected" in event.text


@pytest.mark.parametrize(("decided_ms", "late"), [(774, False), (775, False), (776, True), (780, True)])
def test_decision_before_the_deadline_is_on_time_if_recorded_later(decided_ms: int, late: bool) -> None:
    """Invariant I20 compares the time of the event with the deadline; both come from whole milliseconds."""
    kept: list[BrokerEvent] = []
    EventRecorder(kept.append, lambda: 790_000_027).processed(LeaderAndIsrRequest.api, decided_ms, deadline_ms=775)
    (event,) = kept
    assert isinstance(event, broker_events.Processed)
    assert (event.deadline < event.t) is late
