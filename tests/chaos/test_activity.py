"""Test what a run knows of its clients and brokers while they write."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from tidelog.history.broker_events import Append, Broker, HighWatermark, Registered, Session
from tidelog.history.history_files import HistoryWriter, history_path
from tidelog.history.operations import (
    Client,
    LatestOk,
    ProduceFailed,
    ProduceInvoked,
    ProduceOk,
    ProduceUnknown,
    Read,
    ReadFailed,
)
from tidelog.model import TopicPartition
from verify.chaos.results.activity import Activity
from verify.chaos.results.tail import HistoryTail

TP = TopicPartition("t", 0)
MS = 1_000_000
SECOND = 1_000 * MS
FAILED = ProduceFailed(TP, range(9, 10), ("X",), array("q", [11]))


def activity_of(directory: Path) -> Activity:
    activity, tail = Activity([TP]), HistoryTail(directory)
    for line in tail.read():
        activity.take(*line)
    return activity


def test_only_acknowledged_records_count_as_load(tmp_path: Path) -> None:
    with HistoryWriter(history_path(tmp_path, "c"), Client("c")) as history:
        history.write(ProduceInvoked(TP, [1, 2, 3], [5, 5, 5], [0, 0, 0]))
        history.write(ProduceOk(TP, [1, 2], [0, 1], [SECOND, SECOND + 10 * MS]))
        history.write(Read(TP, 0, 2, SECOND, SECOND + 20 * MS, [0, 1], [1, 2], [5, 5]))
        history.write(LatestOk(TP, 2, SECOND, SECOND + 30 * MS))
        history.write(ReadFailed(TP, "NOT_LEADER_OR_FOLLOWER", SECOND, SECOND + 40 * MS))
        history.write(ProduceUnknown(TP, [3], ["REQUEST_TIMED_OUT"], [SECOND + 50 * MS]))
    activity = activity_of(tmp_path)
    assert activity.between(0, 2 * SECOND) == 2
    assert activity.rate(2 * SECOND) == 2
    assert activity.rate(3 * SECOND) == 0
    assert activity.errors(0, 2 * SECOND) == {"NOT_LEADER_OR_FOLLOWER": 1, "REQUEST_TIMED_OUT": 1}
    assert activity.slowest_ms(0, 2 * SECOND) == 1_010


def test_gap_lasts_from_the_fault_to_the_next_acknowledgement(tmp_path: Path) -> None:
    with HistoryWriter(history_path(tmp_path, "c"), Client("c")) as history:
        history.write(ProduceOk(TP, [2], [1], [5 * SECOND]))
        history.write(ProduceOk(TP, [1], [0], [2 * SECOND]))  # of another client, read later
    activity = activity_of(tmp_path)
    assert activity.longest_gap_ms(SECOND, 6 * SECOND) == {TP: 3_000}
    assert activity.longest_gap_ms(5 * SECOND + 1, 9 * SECOND) == {TP: pytest.approx(4_000, abs=1)}


def test_partition_is_served_once_it_acknowledged_a_record() -> None:
    idle = TopicPartition("t", 1)
    activity = Activity([TP, idle])
    assert activity.is_served(5), "no client has produced"
    activity.take("client", "p", ProduceInvoked(TP, [1], [5], [1]))
    assert not activity.is_served(0), "nothing was ever acknowledged"
    activity.take("client", "p", ProduceOk(TP, [1], [0], [7]))
    assert (activity.is_served(7), activity.is_served(8)) == (True, False)


def test_broker_events_are_kept_except_those_of_single_batches(tmp_path: Path) -> None:
    with HistoryWriter(history_path(tmp_path, "2"), Broker("2")) as history:
        history.write(Session(1, "connected"))
        history.write(Append(2, TP, 0, 1, 3, "leader"))
        history.write(HighWatermark(3, TP, 3, 2))
        history.write(Registered(4, 77))
    assert activity_of(tmp_path).broker_events(0, 10) == {2: [Session(1, "connected"), Registered(4, 77)]}


def test_tail_continues_at_its_position_and_waits_for_line_ends(tmp_path: Path) -> None:
    tail = HistoryTail(tmp_path)
    assert list(tail.read()) == []
    path = history_path(tmp_path, "c")
    with HistoryWriter(path, Client("c")) as history:
        history.write(LatestOk(TP, 2, 1, 10))
        history.write(FAILED)
    assert list(tail.read()) == [("client", "c", FAILED)]
    line = b'{"e":"failed","f":"produce","tp":["t",0],"ids":[9],"errors":["X"],"t":[11]}\n'
    with path.open("ab") as file:
        file.write(line[:20])
    assert list(tail.read()) == []
    with path.open("ab") as file:
        file.write(line[20:])
    assert list(tail.read()) == [("client", "c", FAILED)]


def test_invalid_line_is_skipped(tmp_path: Path) -> None:
    with HistoryWriter(history_path(tmp_path, "c"), Client("c")) as history:
        history.write(FAILED)
    with history_path(tmp_path, "c").open("ab") as file:
        file.write(b'nonsense\n{"e":"ok"}\n[1]\n{"e":"failed","f":"never"}\n')
    assert list(HistoryTail(tmp_path).read()) == [("client", "c", FAILED)]
