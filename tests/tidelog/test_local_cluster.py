"""Which brokers a local cluster has, start by start; their processes are those of tests/processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.hand_clock import HandClock
from tests.suspended import suspended_process
from tidelog.cli.cluster.up import up
from tidelog.errors import LocalError
from tidelog.local import cluster as cluster_module
from tidelog.local.cluster import LocalCluster
from tidelog.local.processes.ports import LOOPBACK
from tidelog.local.processes.process import birth_of
from tidelog.local.state import STATE_FILE, BrokerState, ClusterState, ProcessState, load_state, save_state
from tidelog.model import Endpoint


class Planned(LocalCluster):
    """A cluster whose ZooKeeper is away, so that a start goes as far as its plan, which is kept."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, home=directory)
        with socket.create_server((LOOPBACK, 0)) as closed:
            self._nobody = f"{LOOPBACK}:{closed.getsockname()[1]}"

    def plan(self, brokers: int | None = None) -> dict[int, BrokerState]:
        """The brokers, by their ids, of a start with so many."""
        with pytest.raises(LocalError, match="ZooKeeper"):
            self.start(brokers, zookeeper=None if self.state else self._nobody)
        state = load_state(self.data_dir)
        assert state is not None
        return {broker.broker_id: broker for broker in state.brokers}

    def make_directories(self, *broker_ids: int) -> None:
        """As brokers do that come so far."""
        for broker_id in broker_ids:
            self.broker_dir(broker_id).mkdir()


@pytest.fixture
def cluster(tmp_path: Path) -> Planned:
    return Planned(tmp_path)


def ports(brokers: dict[int, BrokerState]) -> dict[int, tuple[int, ...]]:
    return {broker_id: broker.ports for broker_id, broker in brokers.items()}


def test_broker_with_a_missing_directory_stays_in_the_cluster(cluster: Planned) -> None:
    cluster.plan(3)
    cluster.make_directories(1, 2, 3)
    before = cluster.plan()
    shutil.rmtree(cluster.broker_dir(2))
    assert cluster.lost_directories() == [cluster.broker_dir(2)]
    assert ports(cluster.plan()) == ports(before)
    with pytest.raises(LocalError, match="has 3 brokers, and none can be removed"):
        cluster.start(2)
    after = cluster.plan(5)
    assert sorted(after) == [1, 2, 3, 4, 5]
    assert {broker_id: after[broker_id].ports for broker_id in before} == ports(before)


def test_lost_directory_is_reported_only_if_its_broker_starts(cluster: Planned) -> None:
    cluster.plan(2)
    cluster.make_directories(1, 2)
    cluster.plan()
    shutil.rmtree(cluster.broker_dir(2))
    outcome = CliRunner().invoke(up, ["--data-dir", str(cluster.data_dir), "--brokers", "1"])
    assert isinstance(outcome.exception, LocalError) and "has 2 brokers" in str(outcome.exception)
    assert outcome.output == ""


def test_running_broker_is_never_planned_again(cluster: Planned) -> None:
    brokers = cluster.plan(2)
    cluster.make_directories(2)
    pid = os.getpid()
    running = replace(brokers[1], pid=pid, birth=birth_of(pid) or "")
    save_state(cluster.data_dir, cluster.known_state().with_broker(running))
    cluster.refresh()
    after = cluster.plan(3)
    assert (after[1].pid, after[1].ports) == (pid, brokers[1].ports)
    assert sorted(after) == [1, 2, 3]
    assert cluster.lost_directories() == []


def test_broker_without_a_directory_is_planned_again(
    cluster: Planned,
) -> None:
    cluster.plan(3)
    cluster.make_directories(1, 3)
    before = cluster.plan()
    assert cluster.lost_directories() == []
    after = cluster.plan()
    assert sorted(after) == [1, 2, 3]
    assert (after[1], after[3]) == (before[1], before[3])


def test_next_start_uses_the_planned_number_of_brokers(cluster: Planned) -> None:
    cluster.plan(5)
    assert len(cluster.plan()) == 5
    assert len(cluster.plan(2)) == 2, "none of them has come to have a directory"
    cluster.make_directories(1)
    assert len(cluster.plan()) == 2


def test_state_of_an_earlier_release_keeps_brokers_with_directories(cluster: Planned) -> None:
    brokers = cluster.plan(2)
    cluster.make_directories(1, 2)
    state_file = cluster.data_dir / STATE_FILE
    state = json.loads(state_file.read_text())
    for broker in state["brokers"]:
        del broker["had_directory"]
    state_file.write_text(json.dumps(state))
    cluster.refresh()
    assert ports(cluster.plan()) == ports(brokers)


def test_cluster_cannot_start_while_it_is_removed(cluster: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.plan(2)
    cluster.make_directories(1, 2)
    (cluster.data_dir / "notes.txt").touch()
    removed: list[Path] = []

    def remove(directory: Path, **_: object) -> None:
        removed.append(directory)
        with pytest.raises(LocalError, match="another command is starting or stopping the cluster"):
            LocalCluster(cluster.data_dir, home=cluster.home).start()

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", remove)
        cluster.purge()
    assert {cluster.broker_dir(1), cluster.broker_dir(2)} <= {*removed}
    assert not [path for path in cluster.data_dir.iterdir() if path.is_file() and path.name != "notes.txt"]


# --- processes that do not come up ---------------------------------------------------------------------


def a_cluster_that_runs(directory: Path, pids: dict[int, tuple[int, str]], clock: HandClock) -> LocalCluster:
    """A cluster whose brokers are these processes (pid and birth); no process listens at their ports."""
    brokers = tuple(BrokerState(1, pid, birth, broker_id=broker_id) for broker_id, (pid, birth) in pids.items())
    save_state(directory, ClusterState("h:1", None, brokers, {}))
    return LocalCluster(directory, home=directory, clock=clock)


def test_start_refuses_at_once_if_a_process_is_suspended(tmp_path: Path) -> None:
    own = os.getpid(), birth_of(os.getpid()) or ""
    with suspended_process() as process:
        cluster = a_cluster_that_runs(tmp_path, {1: own, 2: (process.pid, process.birth)}, HandClock())
        with pytest.raises(LocalError) as refused:
            cluster.start()
    assert str(refused.value) == (
        f"broker 2 (pid {process.pid}) is suspended by a signal (state T): resume it with kill -CONT {process.pid},"
        " or stop the cluster with tidelog down"
    )


def test_start_names_the_broker_it_waits_for_and_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    own = os.getpid(), birth_of(os.getpid()) or ""
    cluster = a_cluster_that_runs(tmp_path, {1: own, 2: own}, clock)
    cluster.log_file(2).parent.mkdir()
    cluster.log_file(2).write_text("INFO read 7 of 9 logs\n")

    def probe(endpoints: dict[int, object]) -> dict[int, frozenset[int]]:
        clock.at_ms += 1_000
        return {1: frozenset({1, 2}), 2: frozenset({2})}

    monkeypatch.setattr("tidelog.local.processes.liveness_probe.probe", probe)
    monkeypatch.setattr("tidelog.local.cluster.require_zookeeper", lambda hosts: None)
    monkeypatch.setattr(
        "tidelog.local.cluster.why_not_ready", lambda broker: "it reads its logs" if clock.at_ms < 5_000 else None
    )
    said: list[tuple[str, str, int]] = []
    monkeypatch.setattr("tidelog.local.cluster._stop", lambda processes: None)
    with pytest.raises(LocalError) as gave_up:
        cluster.start(on_wait=lambda *shown: said.append(shown), timeout_ms=8_000)
    who = f"broker 2 (pid {os.getpid()})"
    unknown = "it does not know broker 1 yet"
    assert said == [(who, "not ready: it reads its logs", 3_000), (who, unknown, 6_000)]
    assert str(gave_up.value) == (
        f"gave up waiting for {who} after 8 s: {unknown}; its log ends with: INFO read 7 of 9 logs"
        f" (see {cluster.log_file(2)})"
    )


def a_running_zookeeper(directory: Path, clock: HandClock) -> LocalCluster:
    """A cluster whose ZooKeeper is this process."""
    server = ProcessState(1, os.getpid(), birth_of(os.getpid()) or "")
    save_state(directory, ClusterState(f"{LOOPBACK}:1", server, (), {}))
    return LocalCluster(directory, home=directory, clock=clock)


@pytest.mark.parametrize("serves_after_ms", [0, 2_000])
def test_start_waits_until_a_running_zookeeper_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serves_after_ms: int
) -> None:
    clock = HandClock()

    def serves_later(endpoint: Endpoint) -> bool:
        assert endpoint == Endpoint(LOOPBACK, 1)
        clock.at_ms += 500
        return clock.at_ms > serves_after_ms

    monkeypatch.setattr(cluster_module, "serves", serves_later)
    a_running_zookeeper(tmp_path, clock).start_zookeeper(timeout_ms=3_000)
    assert clock.at_ms == serves_after_ms + 500


def test_running_zookeeper_that_does_not_serve_is_named_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()

    def never_serves(endpoint: Endpoint) -> bool:
        clock.at_ms += 500
        return False

    monkeypatch.setattr(cluster_module, "serves", never_serves)
    cluster = a_running_zookeeper(tmp_path, clock)
    with pytest.raises(LocalError) as refused:
        cluster.start_zookeeper(timeout_ms=3_000)
    assert str(refused.value) == (
        f"ZooKeeper (pid {os.getpid()}) runs, but did not serve at {LOOPBACK}:1 within 3 s: see {cluster.log_file()}"
    )


def test_suspended_zookeeper_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "serves", lambda _: False)
    with suspended_process() as process:
        server = ProcessState(1, process.pid, process.birth)
        save_state(tmp_path, ClusterState("h:1", server, (), {}))
        with pytest.raises(LocalError, match=rf"ZooKeeper \(pid {process.pid}\) is suspended by a signal"):
            LocalCluster(tmp_path, home=tmp_path, clock=HandClock()).start_zookeeper()
