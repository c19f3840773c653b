"""Test that the resources of brokers are counted from outside and compared."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidelog.history.broker_events import Resources
from tidelog.history.history_files import read_history
from tidelog.local.state import BrokerState
from verify.chaos.results import resources
from verify.chaos.results.resources import ResourceCounts, as_of_controllers

#: No process has a greater number.
_GONE = 1 << 22


@pytest.fixture
def broker() -> Iterator[BrokerState]:
    """This process as a broker, without an HTTP server on its port."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        yield BrokerState(0, pid=os.getpid(), broker_id=1, http_port=deaf.getsockname()[1])


def counted(directory: Path) -> list[Resources]:
    return [
        each
        for path in sorted(directory.rglob("*.jsonl"))
        for each in read_history(path)
        if isinstance(each, Resources)
    ]


def test_each_broker_may_have_as_many_files_and_memory_as_the_controller() -> None:
    counts = {
        1: Resources(1, "baseline", fds=38, rss=9000, purgatory=3),
        2: Resources(2, "baseline", fds=47, rss=8000, purgatory=1),
    }
    found = as_of_controllers(counts)
    assert {broker: (each.fds, each.rss, each.purgatory) for broker, each in found.items()} == {
        1: (47, 9000, 3),
        2: (47, 9000, 1),
    }


def test_no_brokers_give_no_counts() -> None:
    assert as_of_controllers({}) == {}


async def counted_to_the_end(counts: ResourceCounts) -> None:
    await counts.busy("baseline")
    await counts.busy("healed")
    await counts.idle_after()
    counts.close()


async def test_resources_of_an_unresponsive_broker_are_counted(tmp_path: Path, broker: BrokerState) -> None:
    counts = ResourceCounts(tmp_path, lambda: [broker])
    await counts.idle_before()
    await counted_to_the_end(counts)
    busy, idle = counted(tmp_path)[:2], counted(tmp_path)[2:]
    assert [each.phase for each in (*busy, *idle)] == ["baseline", "healed"] * 2
    assert all(each.threads > 0 and each.rss > 0 for each in busy)
    assert all(each.fds > 0 and each.purgatory == -1 for each in idle)
    assert counts.troubles() == []


async def test_broker_without_a_final_count_is_a_trouble_of_the_run(tmp_path: Path, broker: BrokerState) -> None:
    brokers = [broker]
    counts = ResourceCounts(tmp_path, lambda: brokers)
    await counts.idle_before()
    await counts.busy("baseline")
    await counts.busy("healed")
    brokers[:] = [replace(broker, pid=_GONE)]
    await counts.idle_after()
    counts.close()
    assert counts.troubles() == [
        "the resources of broker 1 without clients are not checked: they could not be counted at the end of the run"
    ]


async def test_broker_without_metrics_at_the_end_is_a_trouble_of_the_run(
    tmp_path: Path, broker: BrokerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_LET_GO_S", 0.0)
    with monkeypatch.context() as answering:
        answering.setattr(resources, "_waiting", lambda broker: 3)
        counts = ResourceCounts(tmp_path, lambda: [broker])
        await counts.idle_before()
    await counted_to_the_end(counts)
    why = "the broker did not report its waiting operations at both times"
    assert counts.troubles() == [f"the resources of broker 1 without clients are not checked: {why}"]
