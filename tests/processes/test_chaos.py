"""`tidelog chaos` for real: it breaks a cluster of its own, judges it, and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness.command import Shell, processes_of
from tests.processes.harness.waiting import wait_for
from tidelog.local.state import load_state
from verify.chaos.run_directory import clean_up

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("chaos"),  # not at once, because each test has three busy brokers
    pytest.mark.timeout(400),
    pytest.mark.skipif(shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="needs Java"),
]


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, tmp_path / "home")
    yield shell
    clean_up(shell.home, lambda text: None)
    assert processes_of(tmp_path) == []


def run_directory(user: Shell) -> Path:
    (found,) = (user.home / "chaos").iterdir()
    return found


def brokers_in(user: Shell, conditions: str) -> list[int]:
    """Pids of brokers whose processes are in one of these conditions, as the kernel abbreviates them."""
    states = [load_state(run / "cluster") for run in (user.home / "chaos").glob("*")]
    pids = [broker.pid for state in states if state for broker in state.brokers if broker.running]
    stats = {pid: Path(f"/proc/{pid}/stat").read_text() for pid in pids}
    return [pid for pid, stat in stats.items() if stat.rpartition(")")[2].split()[0] in conditions]


def test_chaos_run_that_kills_leaders_keeps_every_promise(user: Shell, tmp_path: Path) -> None:
    report = tmp_path / "report"
    command = ("chaos", "--scenario", "leader-kill", "--kafka-clients", "1", "--seconds", "1", "--seed", "1", "--json")
    outcome = user.run(*command, "--report", str(report), timeout_s=300)
    verdict = json.loads(outcome.output)
    assert verdict["verdict"]["violated"] == [], verdict["verdict"]["findings"]
    assert (outcome.status, verdict["shortcomings"]) == (0, []), outcome.complaint
    assert [(row["row"], row["injected"], row["bit"]) for row in verdict["rows"]] == [("F1", 1, 1), ("F6", 1, 1)]
    assert all(row["observations"] for row in verdict["verdict"]["invariants"])
    assert verdict["seed"] == 1
    kafka_history = (report / "histories" / "confluent-2-producer.jsonl").read_text()
    assert kafka_history.count('{"e":"ok","f":"produce"') > 10
    assert (report / "report.html").stat().st_size > 10_000
    assert list((user.home / "chaos").iterdir()) == []


@pytest.mark.timeout(1_200)
def test_chaos_run_keeps_promises_beside_3_000_idle_partitions(user: Shell) -> None:
    rows = ("F1", "F4", "F6", "F17", "F18")
    command = (
        "chaos",
        "--only",
        ",".join(rows),
        "--idle-partitions",
        "3000",
        "--seconds",
        "1",
        "--seed",
        "1",
        "--json",
    )
    outcome = user.run(*command, timeout_s=1_000)
    verdict = json.loads(outcome.output)
    assert verdict["verdict"]["violated"] == [], verdict["verdict"]["findings"]
    assert (outcome.status, verdict["shortcomings"]) == (0, []), outcome.complaint
    assert [row["row"] for row in verdict["rows"] if row["bit"]] == list(rows)


def test_ctrl_c_heals_faults_and_prints_the_verdict_on_the_history_so_far(user: Shell) -> None:
    with user.start("chaos", "--scenario", "zombie", "--seconds", "600", "--seed", "1") as process:
        wait_for("a broker to be paused", lambda: brokers_in(user, "T"), timeout_s=120)
        process.send_signal(signal.SIGINT)
        output, complaint = process.communicate(timeout=200)
    assert process.returncode == 3, complaint.decode()
    assert b"not reached: F" in output
    assert b"acknowledged records are there" in output
    assert b"NOT PROVED" in output
    assert list((user.home / "chaos").iterdir()) == []


@pytest.mark.slow
def test_next_run_removes_the_leftovers_of_a_killed_run(user: Shell) -> None:
    with user.start("chaos", "--scenario", "zombie", "--seconds", "600", "--seed", "1") as process:
        wait_for("a broker to be paused", lambda: brokers_in(user, "T"), timeout_s=120)
        left = run_directory(user)
        clean_up(user.home, lambda text: pytest.fail(f"its run lives: {text}"))
        process.kill()
        process.communicate(timeout=30)
    assert brokers_in(user, "STR")
    outcome: list[str] = []
    clean_up(user.home, outcome.append)
    assert outcome == [f"cleaning up after a killed run: {left}"]
    assert not left.exists()
    wait_for("the clients to end after their parent", lambda: not processes_of(user.directory), timeout_s=60)


@pytest.mark.slow
def test_run_on_an_existing_cluster_removes_its_topics_and_groups(user: Shell, tmp_path: Path) -> None:
    up = ("up", "--detach", "--histories", str(tmp_path / "seen"))
    user.succeed(*up)
    try:
        state = load_state(user.home)
        assert state is not None
        broken = ("chaos", "--bootstrap-servers", state.bootstrap_servers, "--yes", "--only")

        outcome = user.run(*broken, "F1,F55", "--seconds", "1", "--seed", "1", "--json", timeout_s=200)
        assert (outcome.status, json.loads(outcome.output)["shortcomings"]) == (0, []), outcome.complaint
        assert sorted(os.listdir(tmp_path / "seen")) == ["1.jsonl", "2.jsonl", "3.jsonl"]

        with user.start(*broken, "F1", "--seconds", "600") as process:
            # The command may fail, because the run kills brokers meanwhile.
            wait_for("groups of the run", lambda: b"chaos-" in user.run("group", "list").output, timeout_s=60)
            process.kill()
        user.succeed(*up)  # starts the broker that the run may have killed

        shutil.rmtree(tmp_path / "seen")
        outcome = user.run(*broken, "F1", "--seconds", "1", "--seed", "1", "--json", timeout_s=200)
        assert outcome.status == 3, outcome.complaint
        shortcomings = json.loads(outcome.output)["shortcomings"]
        assert any("cannot copy the brokers' histories" in each for each in shortcomings), shortcomings

        assert user.succeed("topic", "list").split() == [b"__consumer_offsets"]
        assert json.loads(user.succeed("group", "list", "--json"))["groups"] == []

        outcome = user.run(*broken, "F1", environment={"TIDELOG_HOME": str(tmp_path / "other")})
        assert outcome.status == 1
        assert "is neither the cluster of your last tidelog up nor one in containers" in outcome.complaint_lines[-1]
    finally:
        user.succeed("down", "--purge")
