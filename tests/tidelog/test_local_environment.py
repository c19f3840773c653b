"""The checks of `tidelog doctor` on this machine."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.suspended import suspended_process
from tidelog.client.diagnosis.doctor_checks import Check, State
from tidelog.local.environment import examine_environment
from tidelog.local.processes.ports import LOOPBACK
from tidelog.local.state import BrokerState, ClusterState, ProcessState


def checked(checks: list[Check], name: str) -> Check:
    [found] = [check for check in checks if check.name == name]
    return found


def test_doctor_checks_only_the_machine_before_the_first_start(tmp_path: Path) -> None:
    checks = examine_environment(tmp_path / "not" / "there" / "yet", None)
    names = ["packages", "Java", "ZooKeeper's jars", "data directory", "files", "cluster"]
    assert [check.name for check in checks] == names
    assert checked(checks, "data directory").sentence.endswith("yet")
    assert (checked(checks, "cluster").state, checked(checks, "cluster").advice) == (
        State.WARNING,
        "tidelog up starts one",
    )


def test_doctor_without_java_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.local.environment.find_java.__defaults__", ({"PATH": str(tmp_path)},))
    found = checked(examine_environment(tmp_path, None), "Java")
    assert found.state is State.FAILURE and "apt-get install" in found.advice


def test_doctor_names_the_missing_packages_of_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(examine_environment(tmp_path, None), "packages").state is State.OK
    monkeypatch.setitem(sys.modules, "zmq", None)
    found = checked(examine_environment(tmp_path, None), "packages")
    assert (found.state, found.sentence, found.advice) == (
        State.FAILURE,
        "a local cluster needs pyzmq, which is not installed",
        "pip install 'tidelog[local]'",
    )


def test_stopped_cluster_needs_free_ports(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        state = ClusterState(f"{LOOPBACK}:{port}", None, (BrokerState(port, broker_id=1),), {})
        checks = examine_environment(tmp_path, state)
    found = checked(checks, "ports")
    assert (found.state, found.sentence) == (State.FAILURE, f"{port}: used by other processes")
    assert checked(checks, "ZooKeeper").state is State.OK, "a process listens there"
    assert checked(checks, "brokers").advice == "tidelog up"
    assert "Java" not in [check.name for check in checks], "the ZooKeeper is not ours"


def test_missing_external_zookeeper_is_named(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
    state = ClusterState(f"{LOOPBACK}:{port}", None, (), {})
    found = checked(examine_environment(tmp_path, state), "ZooKeeper")
    assert found.state is State.FAILURE and str(port) in found.sentence + found.advice


def test_doctor_names_each_suspended_process_and_how_to_resume_it(tmp_path: Path) -> None:
    with suspended_process() as broker, suspended_process() as server:
        zookeeper = ProcessState(1, server.pid, server.birth)
        state = ClusterState("h:1", zookeeper, (BrokerState(2, broker.pid, broker.birth, broker_id=7),), {})
        checks = examine_environment(tmp_path, state)
    for name, process in (("broker 7, process", broker), ("ZooKeeper, process", server)):
        found = checked(checks, name)
        assert (found.state, found.sentence) == (
            State.FAILURE,
            f"pid {process.pid} is suspended by a signal (state T)",
        )
        assert f"kill -CONT {process.pid}" in found.advice
    assert "ZooKeeper" not in [check.name for check in checks], "one check of it is enough"
