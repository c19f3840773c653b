"""The operator's view of three real brokers while one of them dies and restarts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.command import Shell
from tests.processes.harness.waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def shell(cluster: RunningCluster, tmp_path: Path) -> Iterator[Shell]:
    yield Shell(tmp_path, cluster.local.home)


def get(cluster: RunningCluster, broker_id: int, path: str) -> tuple[int, str]:
    address = cluster.local.known_state().broker(broker_id).http_address
    try:
        with urllib.request.urlopen(address + path, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def metrics(cluster: RunningCluster, broker_id: int, path: str = "/metrics") -> dict[str, float]:
    _, shown = get(cluster, broker_id, path)
    lines = (line.rsplit(" ", 1) for line in shown.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def asked(shell: Shell, *arguments: str) -> tuple[int, Any]:
    outcome = shell.run(*arguments, "--json")
    assert outcome.output, outcome.complaint
    return outcome.status, json.loads(outcome.output)


def test_dead_broker_is_shown_by_http_status_explain_and_doctor(cluster: RunningCluster, shell: Shell) -> None:
    [tp] = cluster.create_topic("t")
    where = f"{tp.topic}/{tp.partition}"
    shell.succeed("produce", "t", given=b"a\nb\n")
    leader = cluster.leader(tp)
    victim = leader % 3 + 1
    for broker_id in cluster.broker_ids:
        assert get(cluster, broker_id, "/readyz") == (200, "ready\n")
    shown = metrics(cluster, leader)
    assert shown["tidelog_ready"] == shown["tidelog_leaders"] == 1
    single = metrics(cluster, leader, "/metrics/partitions/t")
    assert single['tidelog_partition_high_watermark{partition="0",topic="t"}'] == 2
    assert shown['tidelog_request_seconds_count{api="PRODUCE",door="KAFKA"}'] >= 1
    assert shown['tidelog_request_seconds_count{api="FETCH",door="REPLICATION"}'] >= 2
    assert shown[f'tidelog_follower_lag_records{{follower="{victim}"}}'] == 0
    assert shown["process_resident_memory_bytes"] > 1 << 20

    assert asked(shell, "explain", where)[0] == 0
    status, doctor = asked(shell, "doctor")
    assert (status, [check for check in doctor["checks"] if check["state"] == "failure"]) == (0, [])

    cluster.kill(victim)
    wait_for("the ISR to shrink", lambda: victim not in cluster.znode(tp).state.isr)
    wait_for("the leader to know", lambda: metrics(cluster, leader)["tidelog_under_replicated_partitions"] == 1)
    [dead] = [each for each in asked(shell, "status")[1]["brokers"] if each["id"] == victim]
    assert (dead["alive"], dead["ready"]) == (False, None)
    status, explained = asked(shell, "explain", where)
    [finding] = [each for each in explained["findings"] if each["problem"]]
    assert (status, finding["about"], finding["evidence"]["broker"]) == (1, "replication", victim)
    assert f"broker {victim} is not registered" in finding["sentence"]
    status, doctor = asked(shell, "doctor")
    failed = {check["name"]: check["advice"] for check in doctor["checks"] if check["state"] != "ok"}
    assert status == 1 and f"broker {victim}" in failed and failed["partitions"] == f"tidelog explain {where}"

    cluster.restart(victim)
    cluster.wait_in_sync(tp)
    wait_for("the broker to be ready", lambda: get(cluster, victim, "/readyz")[0] == 200)
    wait_for("all to be well", lambda: asked(shell, "explain", where)[0] == 0)


def test_suspended_broker_is_not_ready_and_shows_the_reason(cluster: RunningCluster, shell: Shell) -> None:
    with cluster.paused(2):

        def only_it() -> str | None:
            brokers = asked(shell, "status")[1]["brokers"]
            assert brokers[1]["ready"] is False
            others_are_ready = brokers[0]["ready"] and brokers[2]["ready"]
            return str(brokers[1]["not_ready_because"]) if others_are_ready else None

        assert "suspended by a signal (state T)" in wait_for("the others to answer in time", only_it)
    wait_for("the broker to be ready", lambda: get(cluster, 2, "/readyz")[0] == 200)
