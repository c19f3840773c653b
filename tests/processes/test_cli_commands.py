"""What the commands print where nothing is wrong, and the shapes that scripts rely on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.command import Shell
from tests.processes.harness.waiting import wait_for

pytestmark = pytest.mark.xdist_group("commands")  # one cluster, not one for each worker

SMALL_LOGS = {"log_file_max_bytes": 4096, "log_file_backups": 2, "log_level": "DEBUG"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), **SMALL_LOGS) as started:
        yield started


@pytest.fixture
def shell(cluster: RunningCluster) -> Shell:
    """A user whose last `up` was this cluster."""
    return Shell(cluster.local.home.parent, cluster.local.home)


def test_a_described_topic_has_the_documented_shape(shell: Shell) -> None:
    shell.succeed("topic", "create", "shape", "--partitions", "2")
    shell.succeed("produce", "shape", "--partition", "1", given=b"a\nb\n")
    described = json.loads(shell.succeed("topic", "describe", "shape", "--json"))
    empty, filled = described["partitions"]
    assert described["topic"] == "shape"
    assert {"partition", "leader", "leader_epoch", "isr", "replicas", "high_watermark", "log_end_offset", "lag"} <= set(
        empty
    )
    assert (filled["partition"], filled["log_end_offset"], sorted(filled["isr"])) == (1, 2, [1, 2, 3])
    assert len(filled["lag"]) == 2 and str(filled["leader"]) not in filled["lag"]


def test_status_has_the_documented_shape(shell: Shell, cluster: RunningCluster) -> None:
    status = json.loads(shell.succeed("status", "--json"))
    assert status["bootstrap_servers"] == cluster.bootstrap_servers
    assert [(broker["id"], broker["alive"]) for broker in status["brokers"]] == [(1, True), (2, True), (3, True)]


def test_a_setting_given_at_creation_is_in_force(shell: Shell) -> None:
    shell.succeed("topic", "create", "tiny", "--config", "max.message.bytes=100")
    refused = shell.run("produce", "tiny", given=b"x" * 200 + b"\n")
    assert refused.status == 1 and "max.message.bytes" in refused.complaint


def test_lines_that_are_too_large_together_are_taken_all_the_same(shell: Shell) -> None:
    shell.succeed("topic", "create", "narrow", "--config", "max.message.bytes=1000")
    lines = b"".join(b"%0100d\n" % number for number in range(100))
    shell.succeed("produce", "narrow", given=lines)
    assert shell.succeed("consume", "narrow") == lines


def test_consume_reads_as_many_as_it_is_told(shell: Shell) -> None:
    shell.succeed("topic", "create", "count")
    shell.succeed("produce", "count", given=b"1\n2\n3\n4\n")
    assert shell.succeed("consume", "count", "--count", "3") == b"1\n2\n3\n"
    assert shell.succeed("consume", "count", "--from", "1", "--until", "3") == b"2\n3\n"


def test_json_lines_lose_nothing(shell: Shell) -> None:
    shell.succeed("topic", "create", "copy")
    record = {"key": "k", "value": "v", "headers": [["h", "x"]], "timestamp": 1_700_000_000_000, "partition": 0}
    shell.succeed("produce", "copy", "--format", "json", given=json.dumps(record).encode() + b"\n")
    written = json.loads(shell.succeed("consume", "copy", "--format", "json"))
    assert {name: written[name] for name in record} == record


def test_a_deleted_topic_is_gone_from_the_list_and_from_the_disk(shell: Shell, cluster: RunningCluster) -> None:
    shell.succeed("topic", "create", "gone")
    assert "gone" in json.loads(shell.succeed("topic", "list", "--json"))["topics"]
    shell.succeed("topic", "delete", "gone")
    assert "gone" not in json.loads(shell.succeed("topic", "list", "--json"))["topics"]
    wait_for(
        "the logs to go",
        lambda: not [d for broker in cluster.broker_ids for d in cluster.local.broker_dir(broker).glob("gone-*")],
    )


def test_a_brokers_log_stays_within_its_bound(shell: Shell, cluster: RunningCluster) -> None:
    shell.succeed("topic", "create", "talk", "--partitions", "120")  # a line for each
    log = cluster.local.log_file(1)
    files = wait_for("the log to be rotated twice", lambda: len(f := [*log.parent.glob(f"{log.name}*")]) >= 3 and f)
    assert len(files) == 3, "the file and its two backups"
    assert sum(file.stat().st_size for file in files) <= 3 * 4096
