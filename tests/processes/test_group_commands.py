"""The commands for consumer groups in a real cluster, and `tidelog consume` as a member of a group."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.command import Outcome, Shell
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer
from tidelog.client.admin.config_requests import ConfigResource
from tidelog.errors import InvalidTopicError, PolicyViolationError
from tidelog.groups.offsets_topic import OFFSETS_TOPIC, partition_for
from tidelog.model import TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("group commands")]  # all tests share one cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, another_root: Callable[[], str]) -> Iterator[RunningCluster]:
    settings = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 5}
    with running_cluster(tmp_path_factory.mktemp("cluster"), zookeeper=another_root(), **settings) as started:
        yield started


@pytest.fixture
def shell(cluster: RunningCluster) -> Shell:
    """A user whose last `up` was this cluster."""
    return Shell(cluster.local.home.parent, cluster.local.home)


def reported(shell: Shell, *arguments: str) -> Any:
    return json.loads(shell.succeed(*arguments, "--json"))


def refused(shell: Shell, *arguments: str) -> str:
    outcome = shell.run(*arguments)
    assert outcome.status == 1, outcome
    return only_line(outcome)


def only_line(outcome: Outcome) -> str:
    assert len(outcome.complaint_lines) == 1, outcome.complaint
    return outcome.complaint_lines[0].removeprefix("tidelog: ")


def write(shell: Shell, topic: str, *ages_s: float, partition: int = 0) -> None:
    """A record of each age; its value is its number."""
    now_ms = time.time_ns() // 1_000_000
    lines = [
        json.dumps({"value": str(number), "partition": partition, "timestamp": now_ms - round(age * 1000)})
        for number, age in enumerate(ages_s)
    ]
    shell.succeed("produce", topic, "--format", "json", given="".join(f"{line}\n" for line in lines).encode())


def a_topic(shell: Shell, topic: str, *ages_s: float, partitions: int = 1) -> None:
    shell.succeed("topic", "create", topic, "--partitions", str(partitions))
    write(shell, topic, *ages_s)


def committed(shell: Shell, group: str) -> dict[tuple[str, int], int | None]:
    parts = reported(shell, "group", "describe", group)["partitions"]
    return {(each["topic"], each["partition"]): each["committed_offset"] for each in parts}


@contextmanager
def a_member(shell: Shell, topic: str, group: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a member that has joined, and end it by Ctrl-C."""
    with shell.start("consume", topic, "--group", group, "--follow") as process:
        try:
            wait_for("the member", lambda: group in [each["group"] for each in groups(shell) if each["members"]])
            yield process
        finally:
            process.kill()


def groups(shell: Shell, *options: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = reported(shell, "group", "list", *options)["groups"]
    return listed


# --- where a group is --------------------------------------------------------------------------------


def test_lag_is_shown_in_records_and_seconds(shell: Shell) -> None:
    a_topic(shell, "late", 300, 200, 100, partitions=2)
    shell.succeed("group", "reset", "late", "--topic", "late", "--to-offset", "1", "--execute")
    described = reported(shell, "group", "describe", "late")
    behind, empty = described["partitions"]
    assert (behind["committed_offset"], behind["log_end_offset"], behind["lag"]) == (1, 3, 2)
    assert 200 <= behind["lag_seconds"] < 260
    assert (empty["lag"], empty["lag_seconds"]) == (0, 0)
    assert (described["state"], described["lag"], described["lag_seconds"]) == ("Empty", 2, behind["lag_seconds"])
    _, state, _, headings, first, _ = shell.succeed("group", "describe", "late").decode().splitlines()
    assert state.split()[:2] == ["late", "Empty"]
    assert headings.split() == [
        "TOPIC", "PARTITION", "COMMITTED", "LOG", "END", "LAG", "SECONDS", "MEMBER", "HOST", "NOTE",
    ]  # fmt: skip
    assert first.split()[:5] == ["late", "0", "1", "3", "2"] and 200 <= int(first.split()[5]) < 260
    shell.succeed("group", "reset", "late", "--all-topics", "--to-latest", "--execute")
    assert reported(shell, "group", "describe", "late")["lag_seconds"] == 0


def test_records_deleted_unread_are_noted(shell: Shell) -> None:
    a_topic(shell, "trimmed", 3, 2, 1)
    shell.succeed("group", "reset", "trimmed", "--topic", "trimmed", "--to-earliest", "--execute")
    shell.succeed("topic", "delete-records", "trimmed", "--before", "0:2", "--execute")
    (partition,) = reported(shell, "group", "describe", "trimmed")["partitions"]
    assert (partition["standing"], partition["lag"], partition["log_start_offset"]) == ("below_log_start", 1, 2)
    shown = shell.succeed("group", "describe", "trimmed").decode()
    assert "the log starts at 2: 2 records deleted unread" in shown
    read = shell.run("consume", "trimmed", "--group", "trimmed")
    assert (read.status, read.output) == (0, b"2\n")
    assert read.complaint.splitlines() == [
        "tidelog: trimmed-0: going from offset 0 to the earliest: the offset is out of range, valid is 2 to 3"
    ]


def test_recreated_topic_leaves_the_group_past_its_end_or_without_offset(shell: Shell) -> None:
    a_topic(shell, "anew", 3, 2, 1)
    shell.succeed("group", "reset", "anew", "--topic", "anew", "--to-latest", "--execute")
    shell.succeed("topic", "delete", "anew")
    a_topic(shell, "anew", 1)
    outcome = shell.run("group", "describe", "anew", "--json")
    if outcome.status == 0:
        assert [each["standing"] for each in json.loads(outcome.output)["partitions"]] == ["past_log_end"]
        plan = reported(shell, "group", "reset", "anew", "--all-topics", "--to-current")["partitions"]
        assert [(each["old_offset"], each["new_offset"], each["adjustment"]) for each in plan] == [(3, 1, "log_end")]
    else:
        assert "no group 'anew'" in outcome.complaint


def test_rate_shows_how_fast_a_group_consumes(shell: Shell) -> None:
    a_topic(shell, "speed", 1)
    shell.succeed("group", "reset", "speed", "--topic", "speed", "--to-earliest", "--execute")
    (partition,) = reported(shell, "group", "describe", "speed", "--rate", "0.2")["partitions"]
    assert (partition["committed_per_second"], partition["written_per_second"]) == (0, 0)
    assert b"COMMITTED/S  WRITTEN/S" in shell.succeed("group", "describe", "speed", "--rate", "0.2")


# --- moving it ---------------------------------------------------------------------------------------


def test_dry_run_shows_changes_and_changes_nothing(shell: Shell) -> None:
    a_topic(shell, "dry", 30_000, 20_000, 10_000)
    shell.succeed("group", "reset", "dry", "--topic", "dry", "--to-latest", "--execute")
    outcome = shell.run("group", "reset", "dry", "--topic", "dry", "--to-time", "-25000s")
    assert outcome.status == 0
    assert only_line(outcome) == "nothing is changed yet: repeat the command with --execute to make the changes"
    row = outcome.output.decode().splitlines()[1].split()
    assert row[:5] == ["dry", "0", "3", "1", "-2"] and row[5].endswith("Z")
    assert committed(shell, "dry") == {("dry", 0): 3}
    done = reported(shell, "group", "reset", "dry", "--topic", "dry", "--to-time", "-25000s", "--execute")
    (part,) = done["partitions"]
    assert done["executed"] and (part["old_offset"], part["new_offset"], part["adjustment"]) == (3, 1, None)
    assert part["new_timestamp"] < time.time_ns() // 1_000_000 - 19_000_000
    assert committed(shell, "dry") == {("dry", 0): 1}


@pytest.mark.parametrize(
    ("way", "new", "note"),
    [
        ("--to-earliest", 1, None),
        ("--to-latest", 4, None),
        ("--to-current", 2, None),
        ("--to-offset 3", 3, None),
        ("--to-offset 0", 1, "the log starts there"),
        ("--to-offset 9", 4, "the log ends there"),
        ("--shift-by 1", 3, None),
        ("--shift-by -5", 1, "the log starts there"),
        ("--shift-by 99", 4, "the log ends there"),
        ("--to-time -25000s", 2, None),
        ("--to-datetime -1d", 1, "every record is newer: the first record"),
        ("--to-time now", 4, "every record is older: the log's end"),
        ("--by-duration PT5H", 3, None),
        ("--by-duration 15000s", 3, None),
    ],
)
def test_reset_moves_the_group_for_each_target_option(shell: Shell, way: str, new: int, note: str | None) -> None:
    if "ways" not in [each["group"] for each in groups(shell)]:
        a_topic(shell, "ways", 40_000, 30_000, 20_000, 10_000)
        shell.succeed("topic", "delete-records", "ways", "--before", "0:1", "--execute")
        shell.succeed("group", "reset", "ways", "--topic", "ways", "--to-offset", "2", "--execute")
    (part,) = reported(shell, "group", "reset", "ways", "--topic", "ways:0", *way.split())["partitions"]
    assert (part["old_offset"], part["new_offset"], part["error"]) == (2, new, None)
    shown = shell.succeed("group", "reset", "ways", "--all-topics", *way.split()).decode()
    assert (note or "  -\n") in shown


def test_shift_without_a_committed_offset_moves_no_partition(shell: Shell) -> None:
    a_topic(shell, "half", 2, 1, partitions=2)
    shell.succeed("group", "reset", "half", "--topic", "half:0", "--to-latest", "--execute")
    for execute in ([], ["--execute"]):
        outcome = shell.run("group", "reset", "half", "--topic", "half", "--shift-by", "-1", *execute)
        assert outcome.status == 1
        assert "half-1: cannot shift, because the group has no committed offset" in only_line(outcome)
    assert committed(shell, "half") == {("half", 0): 2}
    shell.succeed("group", "reset", "half", "--topic", "half:0", "--shift-by", "-1", "--execute")
    assert committed(shell, "half") == {("half", 0): 1}


# --- deleting it -------------------------------------------------------------------------------------


def test_offsets_of_a_topic_and_then_the_group_are_deleted(shell: Shell) -> None:
    for topic in ("kept", "dropped"):
        a_topic(shell, topic, 1, partitions=2)
        shell.succeed("group", "reset", "leaving", "--topic", topic, "--to-latest", "--execute")
    reports = shell.succeed("group", "delete", "leaving", "--topic", "dropped", "--topic", "kept:1")
    assert reports == b"deleted the committed offsets of leaving for dropped, kept:1\n"
    assert committed(shell, "leaving") == {("kept", 0): 1}
    assert refused(shell, "group", "delete", "leaving", "--topic", "dropped") == (
        "group 'leaving' has no committed offset for dropped"
    )
    outcome = shell.run("group", "delete", "leaving", "nope", "--json")
    assert json.loads(outcome.output)["deleted"] == ["leaving"]
    assert outcome.status == 1 and only_line(outcome) == "no group 'nope': tidelog group list shows all groups"
    assert refused(shell, "group", "describe", "leaving").startswith("no group 'leaving'")
    both = refused(shell, "group", "delete", "nope", "neither")
    assert "no group 'nope'" in both and "no group 'neither'" in both


def test_topic_delete_explains_the_refusal_of_the_offsets_topic(shell: Shell) -> None:
    a_topic(shell, "lasting", 1)
    shell.succeed("group", "reset", "lasting", "--topic", "lasting", "--to-latest", "--execute")
    refusal = refused(shell, "topic", "delete", OFFSETS_TOPIC)
    assert refusal == (
        f"topic '{OFFSETS_TOPIC}': it may not be deleted, because it holds the committed offsets of all groups; "
        "tidelog group delete GROUP deletes one group"
    )
    assert committed(shell, "lasting") == {("lasting", 0): 1}


def test_brokers_refuse_admin_requests_that_destroy_the_offsets_topic(cluster: RunningCluster, shell: Shell) -> None:
    a_topic(shell, "shielded", 1)
    shell.succeed("group", "reset", "shielded", "--topic", "shielded", "--to-latest", "--execute")
    partition = TopicPartition(OFFSETS_TOPIC, 0)
    topic = ConfigResource.topic(OFFSETS_TOPIC)
    with pytest.raises(PolicyViolationError, match="may not be deleted"):
        cluster.admin.delete_topics([OFFSETS_TOPIC])
    with pytest.raises(PolicyViolationError, match=r"cleanup\.policy=delete: must be compact"):
        cluster.admin.alter_configs({topic: {"cleanup.policy": "delete"}})
    with pytest.raises(InvalidTopicError, match=f"delete records of {partition}"):  # Kafka has no text here
        cluster.admin.delete_records({partition: -1})
    with pytest.raises(PolicyViolationError, match="must be at least"):
        cluster.admin.alter_partition_reassignments({partition: [1]})
    assert committed(shell, "shielded") == {("shielded", 0): 1}


# --- with members ------------------------------------------------------------------------------------


def test_group_with_a_member_is_shown_but_not_moved_or_deleted(shell: Shell) -> None:
    a_topic(shell, "busy", 2, 1, partitions=2)
    with a_member(shell, "busy", "busy") as process:
        wait_for("the commit", lambda: committed(shell, "busy").get(("busy", 0)) == 2)
        (listed,) = (each for each in groups(shell, "--state", "stable") if each["group"] == "busy")
        assert (listed["type"], listed["members"]) == ("consumer", 1)
        assert "busy" not in [each["group"] for each in groups(shell, "--state", "empty")]
        (member,) = reported(shell, "group", "describe", "busy", "--members")["members"]
        assert (member["client_id"], member["host"]) == ("tidelog-consume", "127.0.0.1")
        assert member["topics"] == ["busy"]
        assert member["assignment"] == [{"topic": "busy", "partition": 0}, {"topic": "busy", "partition": 1}]
        state = reported(shell, "group", "describe", "busy", "--state")
        assert (state["state"], state["assignor"], state["members"]) == ("Stable", "range", 1)
        owners = {each["member_id"] for each in reported(shell, "group", "describe", "busy")["partitions"]}
        assert owners == {member["member_id"]}
        for ended in (
            refused(shell, "group", "reset", "busy", "--all-topics", "--to-latest"),
            refused(shell, "group", "reset", "busy", "--all-topics", "--to-latest", "--execute"),
        ):
            assert member["member_id"] in ended and "stop them first" in ended
        shown = "tidelog group describe busy --members shows them"
        assert shown in refused(shell, "group", "delete", "busy")
        assert shown in refused(shell, "group", "delete", "busy", "--topic", "busy")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert [each["members"] for each in groups(shell, "--state", "empty") if each["group"] == "busy"] == [0]
    shell.succeed("group", "delete", "busy")


def test_stopped_static_member_is_removed_at_once(cluster: RunningCluster, shell: Shell) -> None:
    a_topic(shell, "desk", 2, 1)
    options: dict[str, Any] = {"group_instance_id": "desk-1", "session_timeout_ms": 300_000}
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="desk", **options) as consumer:
        consumer.subscribe(["desk"])
        wait_for("the assignment", lambda: consumer.poll(100) is not None and consumer.assignment())
    assert [each["members"] for each in groups(shell) if each["group"] == "desk"] == [1], "static members do not leave"
    ended = refused(shell, "group", "remove-member", "desk", "--instance-id", "desk-2", "--member-id", "m")
    assert "group 'desk' has no member with group_instance_id 'desk-2'; group 'desk' has no member with" in ended
    assert "tidelog group describe desk --members shows its members" in ended
    removed = shell.succeed("group", "remove-member", "desk", "--instance-id", "desk-1")
    assert removed == b"removed the member of desk with group_instance_id 'desk-1'\n"
    assert [each["members"] for each in groups(shell) if each["group"] == "desk"] == [0]
    outcome = shell.run("group", "remove-member", "desk", "--instance-id", "desk-1", "--json")
    (member,) = json.loads(outcome.output)["members"]
    assert (member["member_id"], member["group_instance_id"]) == (None, "desk-1")
    assert outcome.status == 1 and "has no member" in member["error"]
    usage = shell.run("group", "remove-member", "desk")
    assert usage.status == 2 and "name at least one member with --instance-id or --member-id" in usage.complaint


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_member_that_gets_sigterm_leaves_as_by_ctrl_c(shell: Shell, how: signal.Signals) -> None:
    name = f"stopped-{how.name}"
    a_topic(shell, name, 2, 1)
    with a_member(shell, name, name) as process:
        wait_for("the commit", lambda: committed(shell, name).get((name, 0)) == 2)
        for _ in range(2):  # as `timeout` does
            process.send_signal(how)
        assert process.wait(30) == 130
    assert [each["members"] for each in groups(shell, "--state", "empty") if each["group"] == name] == [0]


def test_group_continues_after_the_written_records(shell: Shell) -> None:
    a_topic(shell, "going", 3, 2, 1)
    assert shell.succeed("consume", "going", "--group", "going", "--count", "2") == b"0\n1\n"
    assert committed(shell, "going") == {("going", 0): 2}
    assert shell.succeed("consume", "going", "--group", "going") == b"2\n"
    assert shell.succeed("consume", "going", "--group", "going") == b""
    write(shell, "going", 0)
    assert shell.succeed("consume", "going", "--group", "going", "--from", "end") == b"0\n", "committed comes first"
    assert shell.succeed("consume", "going", "--group", "other", "--from", "end") == b""


@pytest.mark.slow
def test_group_stops_at_a_time_and_continues_from_there(shell: Shell) -> None:
    a_topic(shell, "until", 30_000, 20_000, 10_000)
    assert shell.succeed("consume", "until", "--group", "until", "--until", "-15000s") == b"0\n1\n"
    assert committed(shell, "until") == {("until", 0): 2}
    assert shell.succeed("consume", "until", "--group", "until", "--until", "-25000s") == b"", "it never goes back"
    assert committed(shell, "until") == {("until", 0): 2}
    assert shell.succeed("consume", "until", "--group", "until") == b"2\n"


def test_a_new_group_may_begin_at_a_time(shell: Shell) -> None:
    a_topic(shell, "since", 30_000, 20_000, 10_000)
    assert shell.succeed("consume", "since", "--group", "since", "--from", "-15000s") == b"2\n"


def test_ctrl_c_commits_written_records(shell: Shell) -> None:
    a_topic(shell, "stopped", 3, 2, 1)
    with a_member(shell, "stopped", "stopped") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(30) == 130
    written = 1 + len(rest.splitlines())
    assert committed(shell, "stopped") == {("stopped", 0): written}
    remaining = shell.succeed("consume", "stopped", "--group", "stopped")
    assert b"0\n" + rest + remaining == b"0\n1\n2\n"


@pytest.mark.slow
def test_killed_member_is_removed_after_a_short_session(shell: Shell) -> None:
    a_topic(shell, "killed", 3, 2, 1)
    with a_member(shell, "killed", "killed") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        wait_for("its commit", lambda: committed(shell, "killed") == {("killed", 0): 3})
        process.kill()
    write(shell, "killed", 0)
    assert shell.succeed("consume", "killed", "--group", "killed") == b"0\n"


def test_unwritten_records_are_not_committed(shell: Shell) -> None:
    a_topic(shell, "unwritten", 3, 2, 1)
    assert shell.succeed("consume", "unwritten", "--group", "unwritten", "--count", "1") == b"0\n"
    with open("/dev/full", "wb") as full:
        outcome = shell.run("consume", "unwritten", "--group", "unwritten", output=full.fileno())
    assert outcome.status == 1
    assert only_line(outcome) == "cannot write to standard output: No space left on device"
    assert committed(shell, "unwritten") == {("unwritten", 0): 1}
    assert shell.succeed("consume", "unwritten", "--group", "unwritten") == b"1\n2\n"


def test_two_members_share_the_partitions_and_write_each_record_once(shell: Shell) -> None:
    shell.succeed("topic", "create", "shared", "--partitions", "4")
    with a_member(shell, "shared", "shared") as first, a_member(shell, "shared", "shared") as second:
        wait_for(
            "both members", lambda: len(reported(shell, "group", "describe", "shared", "--members")["members"]) == 2
        )
        wait_for(
            "a share for each",
            lambda: (
                [
                    len(each["assignment"] or ())
                    for each in reported(shell, "group", "describe", "shared", "--members")["members"]
                ]
                == [2, 2]
            ),
        )
        lines = [json.dumps({"value": str(number), "partition": number % 4}) + "\n" for number in range(400)]
        shell.succeed("produce", "shared", "--format", "json", given="".join(lines).encode())
        wait_for("all commits", lambda: reported(shell, "group", "describe", "shared")["lag"] == 0)
        outputs = []
        for process in (first, second):
            process.send_signal(signal.SIGINT)
            outputs.append(process.communicate(timeout=30)[0].split())
    assert outputs[0] and outputs[1]
    assert sorted(map(int, outputs[0] + outputs[1])) == list(range(400))


# --- brokers that are not there ----------------------------------------------------------------------


@pytest.mark.slow
def test_group_list_names_a_hanging_broker_and_shows_the_other_groups(shell: Shell, cluster: RunningCluster) -> None:
    a_topic(shell, "listed", 1)
    names = [f"listed-{number}" for number in range(6)]
    for name in names:
        shell.succeed("group", "reset", name, "--topic", "listed", "--to-latest", "--execute")
    before = {each["group"]: each["coordinator"] for each in groups(shell) if each["group"] in names}
    hung = before["listed-0"]
    with cluster.paused(hung):
        servers = ("--bootstrap-servers", cluster.bootstrap_servers)
        outcome = shell.run("group", "list", "--json", "--timeout", "4", *servers)  # less than its session
        if outcome.status == 1:  # its session may have ended in time, and others took its groups over
            assert f"broker {hung} did not list its groups" in only_line(outcome)
            listed = json.loads(outcome.output)
            assert list(listed["errors"]) == [str(hung)]
            shown = {each["group"] for each in listed["groups"]}
            assert {name for name, broker in before.items() if broker != hung} <= shown
    wait_for("broker to be back", lambda: shell.run("group", "list").status == 0)


def test_group_survives_its_coordinator(shell: Shell, cluster: RunningCluster) -> None:
    a_topic(shell, "outlived", 2, 1)
    shell.succeed("group", "reset", "outlived", "--topic", "outlived", "--to-offset", "1", "--execute")
    partition = TopicPartition(OFFSETS_TOPIC, partition_for("outlived", 5))
    cluster.wait_in_sync(partition)
    coordinator = cluster.leader(partition)
    cluster.kill(coordinator)
    try:
        described = reported(shell, "group", "describe", "outlived", "--state")
        assert described["coordinator"] != coordinator and described["state"] == "Empty"
        assert committed(shell, "outlived") == {("outlived", 0): 1}
    finally:
        cluster.restart(coordinator)
    cluster.wait_in_sync(partition)
