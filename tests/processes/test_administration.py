"""Settings that change while the cluster runs, records that are deleted, and disks, as their users see them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.command import Shell
from tests.processes.harness.sampling import each_fourth
from tests.processes.harness.waiting import wait_for
from tidelog import ConfigResource, Producer
from tidelog.errors import (
    InvalidConfigError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    TidelogError,
    UnknownTopicOrPartitionError,
)
from tidelog.errors import TimeoutError as TidelogTimeout

pytestmark = pytest.mark.xdist_group("administration")  # all tests share one cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, another_root: Callable[[], str]) -> Iterator[RunningCluster]:
    settings = {"log_retention_check_interval_ms": 100, "log_retention_hours": 100}
    with running_cluster(tmp_path_factory.mktemp("cluster"), zookeeper=another_root(), **settings) as started:
        yield started


@pytest.fixture
def shell(cluster: RunningCluster) -> Shell:
    return Shell(cluster.local.home.parent, cluster.local.home)


def refusal_of(cluster: RunningCluster, topic: str, value: bytes) -> TidelogError | None:
    """Why a record is not taken; None where it is."""
    with Producer(cluster.bootstrap_servers) as producer:
        try:
            producer.send(topic, value, partition=0).get(30)
        except TidelogError as error:
            return error
    return None


def setting(cluster: RunningCluster, topic: str, name: str) -> str | None:
    resource = ConfigResource.topic(topic)
    return cluster.admin.describe_configs([resource])[resource][name].value


def log_start(cluster: RunningCluster, topic: str) -> int | None:
    return cluster.admin.describe_topics([topic])[0].partitions[0].log_start_offset


@pytest.mark.slow
def test_changed_setting_applies_to_the_next_record_and_after_a_restart(cluster: RunningCluster, shell: Shell) -> None:
    (tp,) = cluster.create_topic("limits")
    assert refusal_of(cluster, "limits", b"x" * 500) is None
    reported = shell.succeed("topic", "alter", "limits", "--config", "max.message.bytes=200")
    assert reported == b"limits: max.message.bytes=200\n"
    wait_for("the limit", lambda: isinstance(refusal_of(cluster, "limits", b"x" * 500), MessageTooLargeError))
    asleep = cluster.leader(tp)
    cluster.terminate(asleep)
    shell.succeed("topic", "alter", "limits", "--delete-config", "max.message.bytes", "--config", "flush.ms=5")
    cluster.restart(asleep)
    cluster.wait_in_sync(tp)
    wait_for("no limit", lambda: refusal_of(cluster, "limits", b"x" * 500) is None)
    described = cluster.admin.describe_configs([ConfigResource.topic("limits")])[ConfigResource.topic("limits")]
    assert (described["flush.ms"].value, described["max.message.bytes"].value) == ("5", str(1024**2 + 12))


def test_next_controller_sends_settings_changed_without_a_controller(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("orphaned")
    killed = cluster.controller()
    cluster.kill(killed)
    cluster.admin.alter_configs({ConfigResource.topic("orphaned"): {"max.message.bytes": "200"}})
    wait_for("the limit", lambda: isinstance(refusal_of(cluster, "orphaned", b"x" * 500), MessageTooLargeError))
    cluster.restart(killed)
    cluster.wait_in_sync(tp)


def test_shorter_retention_deletes_older_records(cluster: RunningCluster, shell: Shell) -> None:
    (tp,) = cluster.create_topic("old")
    an_hour_ago_ms = round(time.time() * 1000) - 3_600_000
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send("old", b"x", partition=0, timestamp_ms=an_hour_ago_ms).get(30)
    cluster.wait_same_end(tp)
    assert log_start(cluster, "old") == 0
    refused = shell.run("topic", "alter", "old", "--config", "retention.ms=1000")
    assert (refused.status, refused.output) == (2, b"")
    assert "retention.ms=1000 deletes records older than 1 s, in 1 partition (the oldest is of 2" in refused.complaint
    assert "pass --yes to do it anyway" in refused.complaint
    assert setting(cluster, "old", "retention.ms") == "360000000", "nothing is changed yet"
    shell.succeed("topic", "alter", "old", "--config", "retention.ms=1000", "--yes")
    wait_for("the record to be deleted", lambda: log_start(cluster, "old") == 1)


def test_every_setting_is_shown_with_its_source(cluster: RunningCluster, shell: Shell) -> None:
    cluster.create_topic("sources")
    lines = [line.split(maxsplit=2) for line in shell.succeed("config", "describe", "sources").decode().splitlines()]
    assert lines[0] == ["SETTING", "VALUE", "SOURCE"]
    shown = {name: (value, source) for name, value, source in lines[1:]}
    assert shown["min.insync.replicas"] == ("2", "topic")
    assert shown["retention.ms"] == ("360000000", "broker's file: log_retention_hours=100")
    assert shown["segment.bytes"] == ("1073741824", "default")
    described = json.loads(shell.succeed("config", "describe", "sources", "--json"))
    retention = next(each for each in described["settings"] if each["name"] == "retention.ms")
    assert (described["topic"], retention["source"], retention["value"]) == (
        "sources",
        "STATIC_BROKER_CONFIG",
        "360000000",
    )


def test_broker_describes_its_own_settings(cluster: RunningCluster, shell: Shell) -> None:
    for broker in cluster.broker_ids:
        described = json.loads(shell.succeed("config", "describe", "--broker", str(broker), "--json"))
        settings = {each["name"]: each for each in described["settings"]}
        assert (described["broker"], settings["broker_id"]["value"]) == (broker, str(broker))
        assert settings["log_retention_hours"]["source"] == "STATIC_BROKER_CONFIG"
        assert settings["log_cleaner_threads"]["source"] == "DEFAULT_CONFIG"
        assert (settings["log_cleaner_threads"]["read_only"], settings["max_connections"]["read_only"]) == (True, False)
    with pytest.raises(InvalidConfigError, match=r"num\.partitions: a broker takes this setting from its file"):
        cluster.admin.alter_configs({ConfigResource.broker(1): {"num.partitions": "3"}})


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    each_fourth(
        [
            (
                ("topic", "alter", "wrong", "--config", "retention.ms=soon"),
                1,
                "retention.ms=soon: must be a whole number",
            ),
            (("topic", "alter", "wrong", "--config", "retention=5"), 1, "did you mean retention.ms?"),
            (("topic", "alter", "wrong", "--config", "retention.ms"), 2, "is not KEY=VALUE"),
            (("topic", "alter", "wrong", "--config", "flush.ms=1", "--delete-config", "flush.ms"), 2, "named twice"),
            (("topic", "alter", "wrong"), 2, "nothing to change"),
            (("topic", "alter", "nowhere", "--config", "flush.ms=1"), 1, "no topic 'nowhere'"),
            (("topic", "elect", "wrong", "--partition", "9"), 1, "no partition 9: its only partition is 0"),
            (("topic", "reassign", "wrong", "--replicas", "9:1,2"), 1, "no partition 9: its only partition is 0"),
            (("topic", "reassign", "wrong", "--replicas=-1:1"), 2, "'-1:1' is not P:ID,ID…"),
            (("topic", "reassign", "wrong", "--replicas", "0:-1"), 2, "'0:-1' is not P:ID,ID…"),
            (("topic", "reassign", "wrong", "--replicas", "0:1,1"), 2, "'0:1,1' names a broker twice"),
            (("topic", "reassign", "wrong", "--replicas", f"0:{10**30}"), 2, "is not P:ID,ID…"),
            (
                ("topic", "reassign", "wrong", "--replicas", "0:9"),
                1,
                "partition 0: broker 9 is not in the cluster now (there are: 1, 2, 3)",
            ),
            (
                ("topic", "reassign", "wrong", "--drain-broker", "9"),
                1,
                "broker 9 is not in the cluster now",
            ),
            (("topic", "reassign", "wrong", "--drain-broker", "1"), 1, "start more brokers"),
            (("config", "describe", "nowhere"), 1, "no topic 'nowhere'"),
            (("config", "describe", "--broker", "9"), 1, "broker 9 is not in the cluster now (there are: 1, 2, 3)"),
            (("config", "describe"), 2, "name a TOPIC, or give --broker"),
            (("config", "describe", "wrong", "--broker", "1"), 2, "name a TOPIC, or give --broker"),
        ]
    ),
)
def test_impossible_requests_print_one_line(
    cluster: RunningCluster, shell: Shell, arguments: tuple[str, ...], status: int, says: str
) -> None:
    if "wrong" not in cluster.admin.list_topics():
        cluster.create_topic("wrong")
    outcome = shell.run(*arguments)
    assert (outcome.status, len(outcome.complaint_lines)) == (status, 1)
    assert says in outcome.complaint


# --- moving replicas ---------------------------------------------------------------------------------------


def replicas_of(cluster: RunningCluster, topic: str) -> list[tuple[int, ...]]:
    return [each.replicas for each in cluster.admin.describe_topics([topic])[0].partitions]


def test_two_brokers_are_drained_without_moving_replicas_onto_either(cluster: RunningCluster, shell: Shell) -> None:
    shell.succeed("topic", "create", "drained", "--partitions", "6", "--replication-factor", "1")
    moved = [number for number, (replica,) in enumerate(replicas_of(cluster, "drained")) if replica != 3]
    drain = ("topic", "reassign", "drained", "--drain-broker", "1", "--drain-broker", "2")
    reported = shell.succeed(*drain).decode().splitlines()
    assert [line.split(":")[0] for line in reported if "→ 3" in line] == [f"drained/{number}" for number in moved]
    wait_for("the moves", lambda: replicas_of(cluster, "drained") == [(3,)] * 6)
    assert shell.succeed(*drain) == b"brokers 1, 2 have no replica of drained\n"


def test_fewer_replicas_need_yes(cluster: RunningCluster, shell: Shell) -> None:
    shell.succeed("topic", "create", "fewer", "--partitions", "3")
    before = replicas_of(cluster, "fewer")
    fewer = ("topic", "reassign", "fewer", "--replicas", "0:2,3", "--replicas", "2:1,2", "--replicas", "1:3")
    refused = shell.run(*fewer)
    assert (refused.status, refused.output) == (2, b"")
    assert (
        "partitions 0, 2 of fewer would have 2 replicas instead of 3; partition 1 of fewer would have 1 replica instead"
        " of 3: pass --yes to do it anyway"
    ) in refused.complaint
    assert replicas_of(cluster, "fewer") == before
    shell.succeed(*fewer, "--yes")
    wait_for("the moves", lambda: replicas_of(cluster, "fewer") == [(2, 3), (3,), (1, 2)])
    shell.succeed("topic", "reassign", "fewer", "--replicas", "1:3,1")  # more want nothing


def test_reassignment_is_printed_even_if_it_is_complete_at_once(cluster: RunningCluster, shell: Shell) -> None:
    shell.succeed("topic", "create", "turned", "--partitions", "1")
    (old,) = replicas_of(cluster, "turned")
    new = old[::-1]
    arrow = f"{','.join(map(str, old))} → {','.join(map(str, new))}"
    wanted = ("topic", "reassign", "turned", "--replicas", f"0:{','.join(map(str, new))}")
    assert shell.succeed(*wanted).decode() == f"turned/0: replicas {arrow}, done\n"
    reported = json.loads(shell.succeed(*wanted, "--json"))
    (change,) = reported["changes"]
    assert change == {
        "topic": "turned",
        "partition": 0,
        "old_replicas": [*new],
        "new_replicas": [*new],
        "state": "done",
    }
    assert shell.succeed(*wanted).decode() == f"turned/0: has the replicas {','.join(map(str, new))} already\n"
    assert shell.succeed("topic", "reassign", "turned", "--status") == b"no partition of turned is being reassigned\n"


# --- promises that are lowered -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("min.insync.replicas=1", "min.insync.replicas from 2 to 1 acknowledges records that have 1 copy"),
        ("unclean.leader.election.enable=true", "allows a leader that lacks acknowledged records"),
    ],
)
def test_weaker_guarantee_needs_yes(cluster: RunningCluster, shell: Shell, change: str, reported: str) -> None:
    if "promised" not in cluster.admin.list_topics():
        cluster.create_topic("promised")  # with min.insync.replicas=2
    name, value = change.split("=")
    old = setting(cluster, "promised", name)
    refused = shell.run("topic", "alter", "promised", "--config", change, "--config", "flush.ms=7")
    assert (refused.status, refused.output) == (2, b"") and reported in refused.complaint
    assert setting(cluster, "promised", name) == old
    assert shell.succeed("topic", "alter", "promised", "--config", change, "--yes") == f"promised: {change}\n".encode()
    wait_for("the change", lambda: setting(cluster, "promised", name) == value)


def test_deleted_setting_is_a_loss_if_the_brokers_value_is_lower(cluster: RunningCluster, shell: Shell) -> None:
    cluster.create_topic("back")  # with min.insync.replicas=2, and the brokers' 1
    refused = shell.run("topic", "alter", "back", "--delete-config", "min.insync.replicas")
    assert refused.status == 2 and "min.insync.replicas from 2 to 1" in refused.complaint
    shell.succeed("topic", "alter", "back", "--delete-config", "min.insync.replicas", "--yes")


def test_refused_change_changes_nothing(cluster: RunningCluster) -> None:
    cluster.create_topic("kept")
    resource = ConfigResource.topic("kept")
    with pytest.raises(InvalidConfigError, match=r"segment\.bytes=1"):
        cluster.admin.alter_configs({resource: {"flush.ms": "7", "segment.bytes": "1"}})
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        cluster.admin.alter_configs({ConfigResource.topic("nowhere"): {"flush.ms": "7"}})
    cluster.admin.alter_configs({resource: {"flush.ms": "8"}}, validate_only=True)
    assert cluster.admin.describe_configs([resource])[resource]["flush.ms"].value == str(2**63 - 1)


# --- deleting records --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_records_stay_deleted_on_every_replica_after_a_restart(cluster: RunningCluster, shell: Shell) -> None:
    (tp,) = cluster.create_topic("trimmed")
    shell.succeed("produce", "trimmed", given=b"a\nb\nc\nd\n")
    wanted = ("topic", "delete-records", "trimmed", "--before", "0:2")
    shown = shell.run(*wanted)
    assert (shown.status, shown.complaint) == (
        0,
        "nothing is changed yet: repeat the command with --execute to make the changes\n",
    )
    assert shown.output.split()[-4:] == [b"0", b"0", b"2", b"2"]
    assert log_start(cluster, "trimmed") == 0
    assert shell.succeed(*wanted, "--execute").split()[-4:] == [b"0", b"0", b"2", b"2"]
    assert shell.succeed("consume", "trimmed") == b"c\nd\n"
    first = cluster.leader(tp)
    cluster.terminate(first)
    assert cluster.leader(tp) != first, "another one leads"
    assert log_start(cluster, "trimmed") == 2
    cluster.restart(first)
    cluster.wait_in_sync(tp)
    the_rest = {"partition": 0, "old_log_start_offset": 2, "log_start_offset": 4, "records": 2}
    for execute in (False, True):
        options = ("--json", "--execute") if execute else ("--json",)
        reported = json.loads(shell.succeed("topic", "delete-records", "trimmed", "--before", "0:end", *options))
        assert reported == {"topic": "trimmed", "executed": execute, "partitions": [the_rest]}
    assert shell.succeed("consume", "trimmed") == b""
    with pytest.raises(OffsetOutOfRangeError, match="trimmed-0"):
        cluster.admin.delete_records({tp: 5})


def test_record_deletion_waits_for_a_paused_replica(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("awaited")
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send("awaited", b"x", partition=0).get(30)
    paused = next(each for each in cluster.broker_ids if each not in (cluster.leader(tp), cluster.controller()))
    with cluster.paused(paused), pytest.raises(TidelogTimeout, match="some live replicas have not followed"):
        cluster.admin.delete_records({tp: 1}, timeout_ms=3000)  # a tenth of it is the answer's
    assert cluster.admin.delete_records({tp: 1}) == {tp: 1}


# --- log directories ---------------------------------------------------------------------------------------


def test_log_directories_are_shown_with_sizes_lag_and_free_space(cluster: RunningCluster, shell: Shell) -> None:
    (tp,) = cluster.create_topic("measured")
    shell.succeed("produce", "measured", given=b"x" * 5000 + b"\n")
    cluster.wait_same_end(tp)
    shown = json.loads(shell.succeed("logdirs", "--topic", "measured", "--json"))["brokers"]
    assert [each["id"] for each in shown] == cluster.broker_ids
    for broker in shown:
        (directory,) = broker["log_dirs"]
        assert directory["path"] == str(cluster.local.broker_dir(broker["id"]))
        assert 0 < directory["usable_bytes"] < directory["total_bytes"]
        (log,) = directory["replicas"]
        on_disk = (cluster.local.broker_dir(broker["id"]) / "measured-0" / f"{0:020d}.log").stat().st_size
        assert (log["topic"], log["partition"], log["size_bytes"], log["lag"]) == ("measured", 0, on_disk, 0)
    summary = shell.succeed("logdirs", "--broker", "2").decode().splitlines()
    assert len(summary) == 2 and summary[1].split()[0] == "2" and summary[1].endswith("online")


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    each_fourth(
        [
            (
                ("topic", "delete-records", "wrong", "--before", "0:9"),
                1,
                "cannot delete records of wrong/0 before offset 9: its committed records end at 0",
            ),
            (
                ("topic", "delete-records", "compact", "--before", "0:0"),
                1,
                "cannot delete records of 'compact', because it is only compacted",
            ),
            (("topic", "delete-records", "wrong", "--before", "7:0"), 1, "has no partition 7"),
            (("topic", "delete-records", "nowhere", "--before", "0:0"), 1, "no topic 'nowhere'"),
            (("topic", "delete-records", "wrong", "--before", "0:-1"), 2, "is not PARTITION:OFFSET"),
            (("topic", "delete-records", "wrong", "--before", "0:1", "--before", "0:2"), 2, "named twice"),
            (("topic", "delete-records", "wrong"), 2, "--before"),
            (("logdirs", "--broker", "9"), 1, "broker 9 is not in the cluster now"),
            (("logdirs", "--topic", "nowhere"), 1, "nowhere"),
        ]
    ),
)
def test_impossible_deletions_and_descriptions_print_one_line(
    cluster: RunningCluster, shell: Shell, arguments: tuple[str, ...], status: int, says: str
) -> None:
    if "compact" not in cluster.admin.list_topics():
        cluster.create_topic("compact", configs={"cleanup.policy": "compact"})
    if "wrong" not in cluster.admin.list_topics():
        cluster.create_topic("wrong")
    outcome = shell.run(*arguments)
    assert (outcome.status, len(outcome.complaint_lines)) == (status, 1)
    assert says in outcome.complaint
