"""Test a run with a cluster that cannot be started."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM
from types import SimpleNamespace
from typing import cast

import pytest

from tidelog.aio import Admin
from tidelog.client.admin.admin_results import PartitionDescription, TopicDescription
from tidelog.errors import LocalError
from verify.chaos import run
from verify.chaos.load import Load
from verify.chaos.report.reading import read_about
from verify.chaos.run import Request, _ChaosRun, running
from verify.chaos.run_directory import WorkDirectory
from verify.chaos.runner import Reporter
from verify.chaos.scenarios import SCENARIOS
from verify.chaos.targets.process_target import Cluster

REQUEST = Request(SCENARIOS["leader-kill"], ("F1", "F6"), 1, 30.0, Load())


class Unavailable:
    """A cluster with one broker that has begun its history when another one fails to start."""

    def __init__(self, results: Path) -> None:
        self._results = results

    async def __aenter__(self) -> None:
        (self._results / "histories").mkdir()
        (self._results / "histories" / "1.jsonl").write_text("{}\n")
        raise LocalError("broker 2 ended with status 1")

    async def __aexit__(self, *_: object) -> None:
        pytest.fail("it was never entered")


def test_results_are_emptied_if_the_cluster_cannot_start(tmp_path: Path) -> None:
    async def try_it() -> None:
        async with running(cast(Cluster, Unavailable(tmp_path)), tmp_path):
            pytest.fail("there is no cluster")

    with pytest.raises(LocalError, match="broker 2 ended"):
        asyncio.run(try_it())
    assert list(tmp_path.iterdir()) == []


class Ours:
    """A cluster that receives no requests."""

    is_ours = True
    broker_ids = (1, 2, 3)
    broker_histories = Path("/nowhere")

    async def __aenter__(self) -> None:
        """Enter without a start."""

    async def __aexit__(self, *_: object) -> None:
        """Leave the cluster running."""


class Killed(BaseException):
    """End like a SIGKILL, without any cleanup."""


def test_killed_run_has_recorded_its_request_and_its_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(_: _ChaosRun) -> None:
        raise Killed

    monkeypatch.setattr(run, "_target", lambda *_: Ours())
    monkeypatch.setattr(_ChaosRun, "run_load_and_faults", die)
    place = WorkDirectory(tmp_path)
    with pytest.raises(Killed):
        asyncio.run(run.run(REQUEST, place, Reporter(), asyncio.Event()))
    about = read_about(place.path / "results")
    assert about.rows == ["F1", "F6"]
    assert about.troubles == ["the run was interrupted before its end"]


def test_run_killed_during_the_check_has_recorded_its_troubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(run, "judge", die)
    ordeal = _ChaosRun(
        REQUEST, cast(Cluster, Ours()), tmp_path, Reporter(), asyncio.Event(), ["the replicas were not level"]
    )
    with pytest.raises(Killed):
        ordeal.judge()
    about = read_about(tmp_path)
    assert about.rows == ["F1", "F6"]
    assert about.troubles == ["the replicas were not level"]


class Describing:
    """An admin that describes an idle topic of two partitions, of which the second one has these facts."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), end: int | None = 0, lag: int = 0) -> None:
        self._first = PartitionDescription(0, 1, 5, (1, 2, 3), (3, 1, 2), (), 0, 0, 0, {2: 0, 3: 0})
        self._second = PartitionDescription(1, 2, 5, (2, 3, 1), isr, (), 0, 0, end, {1: 0, 3: lag})
        self.asked: list[str] = []

    async def describe_topics(self, topics: list[str], timeout_ms: int) -> list[TopicDescription]:
        self.asked = topics
        return [TopicDescription("chaos-idle", "id", False, (self._first, self._second))]


@pytest.mark.parametrize(
    ("admin", "is_level"),
    [
        (Describing(), True),
        (Describing(isr=(2, 3)), False),
        (Describing(end=4), False),
        (Describing(end=None), False),
        (Describing(lag=1), False),
    ],
    ids=["level", "one not in sync", "not committed", "leader silent", "behind"],
)
def test_run_waits_for_idle_partitions_too(tmp_path: Path, admin: Describing, is_level: bool) -> None:
    request = replace(REQUEST, load=Load(idle_partitions=2))
    chaos_run = _ChaosRun(request, cast(Cluster, Ours()), tmp_path, Reporter(), asyncio.Event())
    assert asyncio.run(chaos_run._is_level(cast(Admin, admin))) is is_level
    assert admin.asked[-1] == "chaos-idle" and len(admin.asked) == 6


class Restarted(Ours, Describing):
    """A cluster and its admin. It notes the signals and starts of its brokers and the looks at its partitions."""

    def __init__(self, lag: int = 0) -> None:
        Describing.__init__(self, lag=lag)
        self.ends = True
        self.steps: list[object] = []

    async def describe_topics(self, topics: list[str], timeout_ms: int) -> list[TopicDescription]:
        self.steps.append("look")
        return await super().describe_topics(topics, timeout_ms)

    def broker_process(self, broker_id: int) -> Restarted:
        self.steps.append(broker_id)
        return self

    def signal(self, number: int) -> bool:
        self.steps.append(number)
        return True

    def wait(self, timeout_ms: int) -> bool:
        return self.ends

    async def start_broker(self, broker_id: int) -> None:
        self.steps.append(f"start {broker_id}")

    def restart(self, directory: Path, *, stopped: bool = False) -> list[str]:
        """Restart the brokers for a run, which was asked to stop if `stopped`. Return the troubles."""
        stop = asyncio.Event()
        if stopped:
            stop.set()
        chaos_run = _ChaosRun(REQUEST, cast(Cluster, self), directory, Reporter(), stop)
        asyncio.run(chaos_run._restart_brokers(cast(Admin, self)))
        return chaos_run.troubles


def test_brokers_restart_one_after_the_other_once_all_are_in_sync(tmp_path: Path) -> None:
    cluster = Restarted()
    assert cluster.restart(tmp_path) == []
    assert cluster.steps == [step for each in (1, 2, 3) for step in (each, SIGTERM, f"start {each}", "look")]


def test_brokers_that_stay_out_of_sync_are_a_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1000))
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(run, "_WATCH_EVERY_S", 0.0)
    cluster = Restarted(lag=1)
    assert cluster.restart(tmp_path) == ["some replicas lacked records 60 s after the restart of broker 1"]
    assert cluster.steps[:4] == [1, SIGTERM, "start 1", "look"] and 2 not in cluster.steps


def test_broker_that_ignores_sigterm_ends_the_run(tmp_path: Path) -> None:
    cluster = Restarted()
    cluster.ends = False
    with pytest.raises(LocalError, match="broker 1 did not end within 20 s of SIGTERM"):
        cluster.restart(tmp_path)


def test_stopped_run_restarts_no_broker(tmp_path: Path) -> None:
    cluster = Restarted()
    assert cluster.restart(tmp_path, stopped=True) == [] == cluster.steps
