"""Starting and stopping a cluster on this machine, time and again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.processes.harness.command import Shell, processes_of
from tidelog.errors import LocalError
from tidelog.local.cluster import LocalCluster
from tidelog.local.processes.ports import choose_port
from tidelog.local.state import load_state, save_state

pytestmark = pytest.mark.slow


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    user = Shell(tmp_path, tmp_path / "home")
    try:
        yield user
    finally:
        for data_dir in {*tmp_path.glob("*/cluster.json")}:
            user.run("down", "--data-dir", str(data_dir.parent))
        assert processes_of(tmp_path) == []


def pids(shell: Shell) -> dict[int, int]:
    return {broker["id"]: broker["pid"] for broker in json.loads(shell.succeed("status", "--json"))["brokers"]}


def test_addresses_and_records_survive_down_and_up(shell: Shell) -> None:
    shell.succeed("up", "--brokers", "2", "--detach")
    before = json.loads(shell.succeed("status", "--json"))
    shell.succeed("topic", "create", "t", "--partitions", "3")
    shell.succeed("produce", "t", given=b"1\n2\n3\n")
    shell.succeed("down")
    stopped = json.loads(shell.succeed("status", "--json"))
    assert [broker["alive"] for broker in stopped["brokers"]] == [False, False]
    assert processes_of(shell.home) == []

    shell.succeed("up", "--detach")
    after = json.loads(shell.succeed("status", "--json"))
    assert (after["bootstrap_servers"], after["zookeeper"]) == (before["bootstrap_servers"], before["zookeeper"])
    assert [broker["alive"] for broker in after["brokers"]] == [True, True]
    assert sorted(shell.succeed("consume", "t").split()) == [b"1", b"2", b"3"]


def test_up_json_names_every_address_and_directory(shell: Shell) -> None:
    with free_port_before_a_taken_one() as port:
        shown = json.loads(shell.succeed("up", "--brokers", "2", "--port", str(port), "--detach", "--json"))
    assert shown == json.loads(shell.succeed("status", "--json"))
    first, second = shown["brokers"]
    assert all(each["ready"] is True and each["http"].startswith("http://127.0.0.1:") for each in (first, second))
    assert first["port"] == port
    assert second["port"] not in (None, port, port + 1), "another port, because this one was taken"
    assert shown["bootstrap_servers"] == f"127.0.0.1:{port},127.0.0.1:{second['port']}"
    brokers = AdminClient({"bootstrap.servers": shown["bootstrap_servers"]}).list_topics(timeout=60).brokers
    assert {id_: each.port for id_, each in brokers.items()} == {1: port, 2: second["port"]}


@contextmanager
def free_port_before_a_taken_one() -> Iterator[int]:
    """Yield a port that a broker may use, while the next one is taken."""
    for _ in range(100):
        with ExitStack() as held:
            port = choose_port(held)
        with socket.socket() as next_one:
            try:
                next_one.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            yield port
            return
    raise AssertionError("no two ports are free")


@pytest.mark.slow
def test_up_starts_only_missing_processes(shell: Shell) -> None:
    shell.succeed("up", "--brokers", "2", "--detach")
    before = pids(shell)
    os.kill(before[2], signal.SIGKILL)
    assert b"ended by itself" in shell.succeed("status")
    shell.succeed("up")
    after = pids(shell)
    assert after[1] == before[1]
    assert after[2] != before[2]


def test_a_suspended_broker_is_named_by_every_command_and_stopped_by_down(shell: Shell) -> None:
    shell.succeed("up", "--brokers", "2", "--detach")
    pid = pids(shell)[2]
    os.kill(pid, signal.SIGSTOP)
    refused = shell.run("up", "--detach")
    assert refused.status == 1
    assert f"broker 2 (pid {pid}) is suspended" in refused.complaint and f"kill -CONT {pid}" in refused.complaint
    assert f"kill -CONT {pid} resumes it".encode() in shell.succeed("status")
    broker = json.loads(shell.succeed("status", "--json"))["brokers"][1]
    assert (broker["alive"], broker["condition"], broker["ready"]) == (True, "suspended", False)
    ailing = json.loads(shell.run("doctor", "--json").output)
    assert [check["name"] for check in ailing["checks"] if check["state"] == "failure"] == ["broker 2, process"]
    began = time.monotonic()
    shell.succeed("down")
    assert time.monotonic() - began < 15, "it was resumed, so that it could end by itself"


def test_brokers_can_be_added_but_not_left_out(shell: Shell) -> None:
    shell.succeed("up", "--brokers", "1", "--detach")
    shell.succeed("up", "--brokers", "2")
    assert len(pids(shell)) == 2
    shell.succeed("topic", "create", "t", "--replication-factor", "2")
    refused = shell.run("up", "--brokers", "1")
    assert refused.status == 1
    assert "has 2 brokers, and none can be removed" in refused.complaint


@pytest.mark.slow
def test_up_reports_a_lost_directory_and_starts_with_an_empty_one(shell: Shell) -> None:
    shell.succeed("up", "--brokers", "2", "--detach")
    before = json.loads(shell.succeed("status", "--json"))
    shell.succeed("topic", "create", "t", "--partitions", "3", "--replication-factor", "2")
    os.kill(pids(shell)[2], signal.SIGKILL)  # and so it is not the last one that has everything
    shell.succeed("produce", "t", given=b"1\n2\n3\n")
    shell.succeed("down")
    lost = Path(before["brokers"][1]["data_dir"])
    shutil.rmtree(lost)
    started = shell.run("up", "--detach")
    assert started.status == 0
    assert f"{lost} is missing: its broker starts with an empty directory" in started.complaint
    after = json.loads(shell.succeed("status", "--json"))
    assert [(broker["port"], broker["alive"]) for broker in after["brokers"]] == [
        (broker["port"], True) for broker in before["brokers"]
    ]
    assert sorted(shell.succeed("consume", "t").split()) == [b"1", b"2", b"3"]


def test_purge_removes_only_the_clusters_files(shell: Shell) -> None:
    data = shell.directory / "data"
    data.mkdir()
    (data / "notes.txt").write_text("mine")
    shell.succeed("up", "--brokers", "1", "--detach", "--data-dir", "data")
    shell.succeed("down", "--purge")
    assert [path.name for path in data.iterdir()] == ["notes.txt"]
    assert shell.run("status").status == 1


@pytest.mark.slow
def test_two_clusters_of_one_user_run_at_once(shell: Shell) -> None:
    for name in ("a", "b"):
        shell.succeed("up", "--brokers", "1", "--detach", "--data-dir", name)
        shell.succeed("topic", "create", f"topic-of-{name}")
    assert shell.succeed("topic", "list") == b"topic-of-b\n"
    shell.succeed("down")
    status = json.loads(shell.succeed("status", "--json", "--data-dir", "a"))
    assert status["brokers"][0]["alive"]
    servers = status["bootstrap_servers"]
    assert shell.succeed("topic", "list", "--bootstrap-servers", servers) == b"topic-of-a\n"
    shell.succeed("down", "--data-dir", "a")


@pytest.mark.slow
def test_an_existing_zookeeper_can_be_used_below_a_chroot(shell: Shell) -> None:
    shell.succeed("up", "--brokers", "1", "--detach", "--data-dir", "a")
    zookeeper = json.loads(shell.succeed("status", "--json"))["zookeeper"]
    shell.succeed("up", "--brokers", "1", "--detach", "--data-dir", "b", "--zookeeper", f"{zookeeper}/other/place")
    assert json.loads(shell.succeed("status", "--json"))["zookeeper_pid"] is None
    shell.succeed("topic", "create", "there")
    shell.succeed("down", "--data-dir", "b")
    shell.succeed("down", "--data-dir", "a")


def test_folders_of_the_user_on_pythonpath_do_not_shadow_ours(shell: Shell) -> None:
    for shadow in ("node", "storage", "cluster"):
        (shell.directory / shadow).mkdir()
        (shell.directory / shadow / "__init__.py").write_text("raise RuntimeError('the wrong package')\n")
    started = shell.run("up", "--brokers", "1", "--detach", environment={"PYTHONPATH": str(shell.directory)})
    assert started.status == 0, started.complaint


def test_recycled_pid_is_not_stopped(shell: Shell) -> None:
    shell.succeed("up", "--brokers", "1", "--detach")
    shell.succeed("down")
    state = load_state(shell.home)
    assert state is not None
    recycled = replace(state.brokers[0], pid=os.getpid(), birth="an earlier boot/1")
    save_state(shell.home, state.with_broker(recycled))
    assert json.loads(shell.succeed("status", "--json"))["brokers"][0]["alive"] is False
    shell.succeed("down")  # we are still here


def test_two_commands_cannot_start_the_same_cluster_at_once(tmp_path: Path) -> None:
    first = LocalCluster(tmp_path, home=tmp_path)
    with first.locked(), pytest.raises(LocalError, match="another command is starting or stopping the cluster"):
        LocalCluster(tmp_path, home=tmp_path).start(1)
