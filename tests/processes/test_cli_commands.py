"""The output of commands without an error, and the JSON objects that scripts rely on."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.command import Shell
from tests.processes.harness.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("commands")]  # all tests share one cluster

SMALL_LOGS = {"log_file_max_bytes": 4096, "log_file_backups": 2, "log_level": "DEBUG"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), **SMALL_LOGS) as started:
        yield started


@pytest.fixture
def shell(cluster: RunningCluster) -> Shell:
    """A user whose last `up` was this cluster."""
    return Shell(cluster.local.home.parent, cluster.local.home)


def test_topic_describe_json_has_the_documented_shape(shell: Shell) -> None:
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


def test_status_json_has_the_documented_shape(shell: Shell, cluster: RunningCluster) -> None:
    status = json.loads(shell.succeed("status", "--json"))
    assert status["bootstrap_servers"] == cluster.bootstrap_servers
    assert [(broker["id"], broker["alive"]) for broker in status["brokers"]] == [(1, True), (2, True), (3, True)]


def test_a_setting_given_at_creation_is_in_force(shell: Shell) -> None:
    shell.succeed("topic", "create", "tiny", "--config", "max.message.bytes=100")
    refused = shell.run("produce", "tiny", given=b"x" * 200 + b"\n")
    assert refused.status == 1 and "max.message.bytes" in refused.complaint


def test_lines_larger_than_a_batch_together_are_all_accepted(shell: Shell) -> None:
    shell.succeed("topic", "create", "narrow", "--config", "max.message.bytes=1000")
    lines = b"".join(b"%0100d\n" % number for number in range(100))
    shell.succeed("produce", "narrow", given=lines)
    assert shell.succeed("consume", "narrow") == lines


def test_produce_prints_a_summary_unless_quiet(shell: Shell) -> None:
    shell.succeed("topic", "create", "summed", "--partitions", "6")
    lines = b"".join(b"line %d\n" % number for number in range(300))
    shown = shell.run("produce", "summed", given=lines)
    assert (shown.status, shown.output) == (0, b"")
    assert re.fullmatch(
        r"wrote 300 records, 2.24 KiB, to 6 partitions of summed: (summed/[0-5] offsets 0 to \d+(, |\n)){6}",
        shown.complaint,
    ), shown.complaint
    assert shell.run("produce", "summed", "--quiet", given=b"x\n").complaint == ""
    shown = shell.run("produce", "summed", "--acks", "0", given=b"x\n")
    assert shown.complaint == "sent, without acknowledgement, 1 record, 1 B, to 1 partition of summed\n"


def test_json_summary_goes_to_standard_output_for_lines_and_json_alike(shell: Shell) -> None:
    shell.succeed("topic", "create", "counted")
    for given, options in ((b"ab\n", ("--format", "lines")), (b'{"value": "cd"}\n', ())):
        shown = shell.run("produce", "counted", "--json", *options, given=given)
        summary = json.loads(shown.output)
        assert shown.complaint == ""
        assert (summary["topic"], summary["records"], summary["bytes"]) == ("counted", 1, 2)
    assert summary["partitions"] == [{"partition": 0, "records": 1, "bytes": 2, "first_offset": 1, "last_offset": 1}]
    failed = shell.run("produce", "counted", "--json", given=b'{"value": "ef"}\nno JSON\n')
    assert (failed.status, json.loads(failed.output)["records"]) == (1, 1)
    assert shell.succeed("consume", "counted") == b"ab\ncd\nef\n"


def test_consume_stops_after_count_records(shell: Shell) -> None:
    shell.succeed("topic", "create", "count")
    shell.succeed("produce", "count", given=b"1\n2\n3\n4\n")
    assert shell.succeed("consume", "count", "--count", "3") == b"1\n2\n3\n"
    assert shell.succeed("consume", "count", "--from", "1", "--until", "3") == b"2\n3\n"


def test_json_lines_are_lossless(shell: Shell) -> None:
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


# --- completion --------------------------------------------------------------------------------------------


def completions(shell: Shell, words: str, **changes: str) -> list[str]:
    """Return the completions that bash offers after these words, of which the last is incomplete."""
    environment = {
        "_TIDELOG_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), **changes
    }  # fmt: skip
    outcome = shell.run(environment=environment)
    assert outcome.complaint == ""
    return [line.removeprefix("plain,") for line in outcome.output.decode().split()]


def test_tab_completes_topics_partitions_and_brokers(shell: Shell) -> None:
    shell.succeed("topic", "create", "tab-one", "--partitions", "2")
    shell.succeed("topic", "create", "tab-two", "--partitions", "1")
    for command in ("consume", "produce", "topic alter", "topic delete", "config describe", "logdirs --topic"):
        assert completions(shell, f"tidelog {command} tab-") == ["tab-one", "tab-two"], command
    assert completions(shell, "tidelog explain tab-") == ["tab-one/0", "tab-one/1", "tab-two/0"]
    assert completions(shell, "tidelog explain tab-one/") == ["tab-one/0", "tab-one/1"]
    assert completions(shell, "tidelog topic reassign tab-one --drain-broker ") == ["1", "2", "3"]
    assert completions(shell, "tidelog topic al") == ["alter"]


def test_tab_completes_groups_and_their_topics(shell: Shell) -> None:
    shell.succeed("topic", "create", "tab-three")
    for group in ("tab-a", "tab-b"):
        shell.succeed("group", "reset", group, "--topic", "tab-three", "--to-latest", "--execute")
    for command in ("group describe", "group reset", "group delete", "consume tab-three --group"):
        assert completions(shell, f"tidelog {command} tab-") == ["tab-a", "tab-b"], command
    assert completions(shell, "tidelog group reset tab-a --topic tab-th") == ["tab-three"]


def test_tab_completes_nothing_without_a_broker(shell: Shell) -> None:
    assert completions(shell, "tidelog consume t", TIDELOG_BOOTSTRAP_SERVERS="127.0.0.1:1") == []
    assert completions(shell, "tidelog consume t", TIDELOG_BOOTSTRAP_SERVERS="nonsense") == []
    assert completions(shell, "tidelog consume t", TIDELOG_HOME="/nowhere") == []


# --- what changes something says so to programs, too ---------------------------------------------------------


def test_changing_commands_print_their_changes_as_json(shell: Shell) -> None:
    created = json.loads(shell.succeed("topic", "create", "told", "--partitions", "2", "--json"))
    assert (created["topic"], created["partitions"], created["replication_factor"]) == ("told", 2, 3)
    altered = shell.succeed("topic", "alter", "told", "--partitions", "3", "--config", "flush.ms=7", "--json")
    assert json.loads(altered) == {"topic": "told", "configs": {"flush.ms": "7"}, "partitions": 3}
    shell.succeed("produce", "told", "--json", given=b'{"key": "k", "value": "v", "partition": 1}\n')
    (record,) = map(json.loads, shell.succeed("consume", "told", "--json").splitlines())
    assert (record["key"], record["value"], record["partition"]) == ("k", "v", 1)
    logged = list(map(json.loads, shell.succeed("logs", "--json").splitlines()))
    assert {each["process"] for each in logged} == {"broker 1", "broker 2", "broker 3", "zookeeper"}
    assert json.loads(shell.succeed("topic", "delete", "told", "--json")) == {"deleted": ["told"]}


def test_deletions_before_a_refusal_are_reported(shell: Shell) -> None:
    shell.succeed("topic", "create", "half", "--partitions", "2")
    outcome = shell.run("topic", "alter", "half", "--config", "flush.ms=7", "--partitions", "1")
    assert (outcome.status, outcome.output) == (1, b"half: flush.ms=7\n")
    outcome = shell.run("topic", "delete", "half", "nowhere", "--json")
    assert (outcome.status, json.loads(outcome.output)) == (1, {"deleted": ["half"]})
    assert "no topic 'nowhere'" in outcome.complaint


@pytest.mark.slow
def test_offsets_before_a_time_are_the_starts_of_segments_written_by_then(
    shell: Shell, cluster: RunningCluster
) -> None:
    (tp,) = cluster.create_topic("aged")

    def before(at: str, most: int = 9) -> list[int]:
        shown = json.loads(shell.succeed("offsets", "aged", "--before", at, "--max", str(most), "--json"))
        (answer,) = shown["partitions"]
        assert answer["partition"] == 0
        return list(answer["offsets"])

    assert before("latest") == [0]
    shell.succeed("produce", "aged", given=b"a\nb\nc\n")
    wait_for("what is committed", lambda: before("latest") == [3, 0])
    assert before("latest", 1) == [3] and before("earliest") == [0]
    assert before("-1h") == []
    assert b"every segment was written later" in shell.succeed("offsets", "aged", "--before", "-1h")
    (segment,) = cluster.replica_dir(cluster.leader(tp), tp).glob("*.log")
    two_hours_ago = time.time() - 7200
    os.utime(segment, (two_hours_ago, two_hours_ago))
    assert before("-1h") == [0] and before("-3h") == []
