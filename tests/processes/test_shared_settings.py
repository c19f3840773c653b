"""Settings that all brokers share: `tidelog up` hands the file to each of them, as compose and systemd do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness.command import Shell, a_newcomer


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with a_newcomer(tmp_path) as user:
        yield user


def partitions_of(shell: Shell, topic: str) -> int:
    return len(json.loads(shell.succeed("topic", "describe", topic, "--json"))["partitions"])


@pytest.mark.slow
def test_every_broker_reads_the_file_and_the_next_up_remembers_it(shell: Shell, tmp_path: Path) -> None:
    config = tmp_path / "cluster.toml"
    config.write_text("num_partitions = 7\ndefault_replication_factor = 1\n")
    shell.succeed("up", "--brokers", "2", "--detach", "--config", str(config))
    shell.succeed("topic", "create", "a")
    assert partitions_of(shell, "a") == 7
    config.write_text("num_partitions = 3\n")
    shell.succeed("down")
    shell.succeed("up", "--detach")
    shell.succeed("topic", "create", "b")
    assert partitions_of(shell, "b") == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "log_retention_hour = 1\n",
            "cluster.toml:1: no such setting: log_retention_hour (did you mean log_reten",
        ),
        ("num_partitions = 0\n", "num_partitions must be between 1 and"),
        ("broker_id = 1\n", "cluster.toml:1: leave broker_id out: tidelog up decides it for each broker"),
        ("http_listener = '127.0.0.1:1'\n", "cluster.toml:1: leave http_listener out: tidelog up decides it"),
        ("zookeeper = 'h:1'\n", "cluster.toml:1: leave zookeeper out, and pass it as --zookeeper"),
        ("num_partitions\n", "cluster.toml is not TOML"),
    ],
)
def test_wrong_shared_settings_print_one_line(shell: Shell, tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "cluster.toml").write_text(text)
    refused = shell.run("up", "--brokers", "1", "--detach", "--config", str(tmp_path / "cluster.toml"))
    assert refused.status == 1
    assert complaint in refused.complaint
    assert len(refused.complaint_lines) == 1
    assert not (shell.home / "zookeeper").exists(), "the file is checked before ZooKeeper starts"


@pytest.mark.slow
def test_error_is_taken_from_the_current_process_only(shell: Shell, tmp_path: Path) -> None:
    shell.succeed("up", "--brokers", "1", "--detach")
    shell.succeed("down")
    (tmp_path / "cluster.toml").write_text("num_partitons = 1\n")
    refused = shell.run("up", "--detach", "--config", str(tmp_path / "cluster.toml"))
    assert refused.status == 1
    assert "no such setting: num_partitons (did you mean num_partitions?)" in refused.complaint
