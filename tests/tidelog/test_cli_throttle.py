"""`tidelog topic reassign --throttle`: which settings it makes and removes, and what it shows until the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.reassignments import reassign as reassign_module
from tidelog.cli.reassignments.progress import Progress, Trend, least_ms, sizes_of, total_left
from tidelog.cli.reassignments.throttle import RATE, RATES, REPLICAS, moves_of
from tidelog.client.admin.admin_results import ClusterDescription, PartitionDescription, TopicDescription
from tidelog.client.admin.config_requests import Changes, ConfigResource
from tidelog.errors import BrokerNotAvailableError, PolicyViolationError, TimeoutError, UnknownTopicOrPartitionError
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.admin_messages import ConfigEntry, ConfigResourceType, ConfigSource, LogDir, LogDirReplica
from tidelog.protocol.partition_messages import PartitionReassignment

MB = 1_000_000
A0, A1, B0, INTERNAL = (TopicPartition(*each) for each in (("a", 0), ("a", 1), ("b", 0), ("__consumer_offsets", 0)))
LEADER_RATE, FOLLOWER_RATE = RATES
LEADERS, FOLLOWERS = REPLICAS


class ScriptedCluster:
    """An admin of four brokers whose new replicas copy `rate` bytes per second. It is also the clock and its sleep."""

    def __init__(self) -> None:
        self.replicas = {A0: (1, 2), A1: (2, 3), B0: (1, 3), INTERNAL: (1, 2)}
        self.moving: dict[TopicPartition, tuple[int, ...]] = {}
        self.cancelled: dict[TopicPartition, tuple[int, ...]] = {}
        self.copied: dict[TopicPartition, float] = {}
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self.live = [1, 2, 3, 4]
        #: The brokers that leave the cluster, each one right after a description; None: no broker leaves then.
        self.leaves: list[int | None] = []
        self.size, self.rate, self.now_s = 10 * MB, MB, 0.0
        self.interrupts_at_s, self.refuses_moves, self.is_silent = 1e9, False, False
        self.loses_answers = False
        self.refuses_rates = False
        self.unknown_until_s = 0.0
        self.is_unknown_when_described = False
        self.calls: list[str] = []

    # --- the clock ---------------------------------------------------------------------------------------

    def monotonic_ms(self) -> int:
        return round(self.now_s * 1000)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s >= self.interrupts_at_s:
            raise KeyboardInterrupt
        self.cancelled.clear()
        for tp, target in list(self.moving.items()):
            self.copied[tp] = self.copied.get(tp, 0) + self.rate * seconds
            if self.copied[tp] >= self.size:
                self.replicas[tp] = target
                del self.moving[tp]

    # --- the admin ---------------------------------------------------------------------------------------

    def describe_topics(self, topics: Iterable[str] | None) -> list[TopicDescription]:
        names = sorted({tp.topic for tp in self.replicas}) if topics is None else list(topics)
        if names and self.is_unknown_when_described and 0 < self.now_s < self.unknown_until_s:
            raise UnknownTopicOrPartitionError(f"no topic {names[0]!r}")
        return [
            TopicDescription(
                name,
                "id",
                name.startswith("__"),
                tuple(self._described(tp) for tp in sorted(self.replicas) if tp.topic == name),
            )
            for name in names
        ]

    def _described(self, tp: TopicPartition) -> PartitionDescription:
        old = self.replicas[tp]
        adding = tuple(each for each in self.moving.get(tp, ()) if each not in old)
        return PartitionDescription(tp.partition, old[0], 1, old + adding, old, lag={})

    def list_topics(self) -> list[str]:
        if not self.is_unknown_when_described and 0 < self.now_s < self.unknown_until_s:
            return []
        return sorted({tp.topic for tp in self.replicas})

    def describe_cluster(self) -> ClusterDescription:
        known, leaving = self.live, self.leaves.pop(0) if self.leaves else None
        self.live = [broker for broker in known if broker != leaving]
        return ClusterDescription("id", 1, {broker: Endpoint("h", broker) for broker in known}, "Tidelog")

    def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        found = {
            tp: PartitionReassignment(*tp, self.replicas[tp] + adding, adding, adding)
            for tp, adding in self.cancelled.items()
        }
        for tp, target in self.moving.items():
            old = self.replicas[tp]
            adding = tuple(each for each in target if each not in old)
            found[tp] = PartitionReassignment(*tp, old + adding, adding, tuple(set(old) - set(target)))
        return found

    def alter_partition_reassignments(self, changes: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        self.calls.append("move")
        if self.refuses_moves:
            raise PolicyViolationError("the brokers are full")
        for tp, target in changes.items():
            if target is None:
                self.cancelled[tp] = tuple(set(self.moving.pop(tp)) - set(self.replicas[tp]))
            else:
                self.moving[tp] = tuple(target)
        if self.loses_answers:
            raise TimeoutError("the controller did not answer in time")

    def describe_log_dirs(self, timeout_ms: int) -> dict[int, tuple[LogDir, ...]]:
        if self.is_silent:
            raise TimeoutError("broker 3 does not answer")
        held: dict[int, list[LogDirReplica]] = {broker: [] for broker in self.live}
        for tp, old in self.replicas.items():
            for broker in old:
                held[broker].append(LogDirReplica(*tp, self.size, 0))
            for broker in set(self.moving.get(tp, ())) - set(old):
                held[broker].append(LogDirReplica(*tp, round(self.copied.get(tp, 0)), 0))
        return {broker: (LogDir("/d", 0, None, tuple(replicas)),) for broker, replicas in held.items()}

    def describe_configs(
        self, resources: Iterable[ConfigResource], timeout_ms: int | None = None
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        own = {
            ConfigResourceType.TOPIC: (REPLICAS, "", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            ConfigResourceType.BROKER: (RATES, str(2**63 - 1), ConfigSource.DYNAMIC_BROKER_CONFIG),
        }
        described = {}
        for each in resources:
            self._require_live(each)
            names, default, source = own[each.type]
            mine = self.configs.get(each, {})
            described[each] = {
                name: ConfigEntry(
                    name, mine.get(name, default), source if name in mine else ConfigSource.DEFAULT_CONFIG, 5
                )
                for name in names
            }
        return described

    def _require_live(self, resource: ConfigResource) -> None:
        if resource.broker_id not in (None, *self.live):
            raise BrokerNotAvailableError(f"broker {resource.broker_id} is not in the cluster now")

    def alter_configs(self, configs: Mapping[ConfigResource, Changes]) -> None:
        for resource, changes in configs.items():
            assert isinstance(changes, Mapping)
            if self.refuses_rates and resource == ConfigResource.broker(2) and None not in changes.values():
                raise TimeoutError("broker 2 does not answer")
            self._require_live(resource)
            settings = {**self.configs.pop(resource, {}), **changes}
            if kept := {name: value for name, value in settings.items() if value is not None}:
                self.configs[resource] = kept
        self.calls.append("set" if self.configs else "unset")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    scripted = ScriptedCluster()

    @contextmanager
    def open_admin(*_: Any) -> Iterator[ScriptedCluster]:
        yield scripted

    monkeypatch.setattr(reassign_module, "open_admin", open_admin)
    monkeypatch.setattr(reassign_module, "SystemClock", lambda: scripted)
    monkeypatch.setattr(reassign_module.time, "sleep", scripted.sleep)
    return scripted


def run(*arguments: str) -> Result:
    return CliRunner().invoke(reassign_module.reassign, arguments)


def succeed(*arguments: str) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


# --- the settings ----------------------------------------------------------------------------------------


def test_throttle_is_set_before_the_move_and_removed_after_it(cluster: ScriptedCluster) -> None:
    set_by: list[dict[ConfigResource, dict[str, str]]] = []
    move = cluster.alter_partition_reassignments
    cluster.alter_partition_reassignments = lambda changes: (set_by.append(dict(cluster.configs)), move(changes))  # type: ignore[assignment]
    succeed("a", "--replicas", "0:4,2", "--replicas", "1:3,2", "--throttle", "2MB/s")
    brokers = {ConfigResource.broker(broker): dict.fromkeys(RATES, str(2 * MB)) for broker in (1, 2, 4)}
    assert set_by == [{**brokers, ConfigResource.topic("a"): {LEADERS: "0:1,0:2", FOLLOWERS: "0:4"}}]
    assert (cluster.calls, cluster.configs) == (["set", "move", "unset"], {})
    assert cluster.replicas[A0] == (4, 2)


def test_all_topics_of_a_broker_move_with_internal_ones(cluster: ScriptedCluster) -> None:
    shown = succeed("--drain-broker", "1", "--throttle", "10MB/s").stdout
    assert not any(1 in replicas for replicas in cluster.replicas.values())
    assert [line.split(":")[0] for line in shown.splitlines() if "→" in line] == ["__consumer_offsets/0", "a/0", "b/0"]
    assert shown.splitlines()[-1] == "the throttle is removed" and cluster.configs == {}


def test_dead_broker_gets_no_rate(cluster: ScriptedCluster) -> None:
    cluster.live = [2, 3, 4]
    cluster.is_silent = True
    succeed("a", "--drain-broker", "1", "--throttle", "2MB/s")
    assert cluster.replicas[A0] == (4, 2) and cluster.configs == {}


@pytest.mark.parametrize("leaves", [[None, 1], [None, None, 3]], ids=["while it is set", "while it is removed"])
def test_broker_that_leaves_meanwhile_gets_no_rate(cluster: ScriptedCluster, leaves: list[int | None]) -> None:
    cluster.leaves, cluster.is_silent = leaves, True
    succeed("a", "--replicas", "0:4,2", "--throttle", "2MB/s")
    assert cluster.leaves == [] and cluster.replicas[A0] == (4, 2)
    assert cluster.configs.keys() <= {ConfigResource.broker(3)}


def test_live_broker_that_is_not_available_is_named(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(resource: ConfigResource) -> None:
        raise BrokerNotAvailableError("broker 2 is not in the cluster now")

    monkeypatch.setattr(cluster, "_require_live", refuse)
    result = run("a", "--replicas", "0:4,2", "--throttle", "2MB/s")
    assert isinstance(result.exception, BrokerNotAvailableError)
    assert cluster.replicas[A0] == (1, 2) and not cluster.moving


def test_refused_move_leaves_no_throttle(cluster: ScriptedCluster) -> None:
    cluster.refuses_moves = True
    result = run("a", "--replicas", "0:4,2", "--throttle", "2MB/s")
    assert isinstance(result.exception, PolicyViolationError)
    assert (cluster.calls, cluster.configs) == (["set", "move", "unset"], {})


def test_throttle_stays_if_it_is_unknown_whether_the_move_has_begun(cluster: ScriptedCluster) -> None:
    cluster.loses_answers = True
    result = run("a", "--replicas", "0:4,2", "--throttle", "2MB/s")
    assert isinstance(result.exception, TimeoutError)
    assert "may have begun, so that the throttle stays: tidelog topic reassign --status --wait" in result.stderr
    assert A0 in cluster.moving and ConfigResource.topic("a") in cluster.configs
    succeed("--status", "--wait")
    assert (cluster.configs, cluster.replicas[A0]) == ({}, (4, 2))


def test_refused_rate_starts_no_move_and_leaves_no_throttle(cluster: ScriptedCluster) -> None:
    cluster.configs[ConfigResource.broker(1)] = {LEADER_RATE: "1"}
    cluster.refuses_rates = True
    assert isinstance(run("a", "--replicas", "0:4,2", "--throttle", "2MB/s").exception, TimeoutError)
    assert (cluster.configs, cluster.moving) == ({}, {})


def test_interrupted_command_leaves_the_throttle_to_the_next_one(cluster: ScriptedCluster) -> None:
    cluster.interrupts_at_s = 3
    result = run("a", "--replicas", "0:4,2", "--throttle", "2MB/s")
    assert result.exit_code == 1
    assert "the reassignments go on: tidelog topic reassign --status --wait waits" in result.stderr
    assert ConfigResource.topic("a") in cluster.configs and A0 in cluster.moving
    cluster.interrupts_at_s = 1e9
    succeed("--status", "--wait")
    assert (cluster.configs, cluster.replicas[A0]) == ({}, (4, 2))


def test_repeated_command_changes_the_rate(cluster: ScriptedCluster) -> None:
    cluster.interrupts_at_s = 3
    for rate in ("2MB/s", "3MB/s"):
        run("a", "--drain-broker", "1", "--throttle", rate)
    assert {settings.get(LEADER_RATE) for settings in cluster.configs.values()} == {str(3 * MB), None}
    assert cluster.configs[ConfigResource.topic("a")] == {LEADERS: "0:1,0:2", FOLLOWERS: "0:4"}


def test_throttle_stays_while_another_topic_moves(cluster: ScriptedCluster) -> None:
    cluster.interrupts_at_s = 1
    run("--drain-broker", "1", "--throttle", "2MB/s")
    cancelled = succeed("a", "--cancel")
    assert cancelled.stdout.splitlines()[0] == "a/0: its reassignment is cancelled"
    assert cancelled.stdout.splitlines()[-1] == "the throttle is removed", "although the new replica still exists"
    topics = {each.name for each in cluster.configs if each.type == ConfigResourceType.TOPIC}
    assert (topics, ConfigResource.broker(1) in cluster.configs) == ({"b", "__consumer_offsets"}, True)
    cluster.cancelled.clear()
    succeed("--cancel")
    assert (cluster.configs, cluster.moving) == ({}, {})


def test_status_removes_nothing_and_says_what_does(cluster: ScriptedCluster) -> None:
    cluster.configs[ConfigResource.broker(2)] = {FOLLOWER_RATE: str(1 << 20)}
    result = succeed("--status")
    assert result.stdout == "no partition is being reassigned\n"
    assert result.stderr == "a throttle of 1 MiB/s is set: tidelog topic reassign --status --wait removes it\n"
    assert cluster.calls == []
    assert succeed("a", "--status", "--wait").stdout.splitlines()[-1] == "the throttle is removed"
    assert cluster.configs == {}


def test_cluster_without_a_throttle_is_not_written_to(cluster: ScriptedCluster) -> None:
    assert succeed("a", "--status", "--wait").stdout == "no partition of a is being reassigned\n"
    succeed("a", "--replicas", "0:2,1", "--throttle", "1MB/s")
    assert cluster.calls == ["move"], "the partition has these replicas already, so that nothing is copied"


def test_moves_have_the_replicas_that_get_records() -> None:
    held = {A0: (1, 2, 4), A1: (2, 3), B0: (1, 3)}
    moves = moves_of(held, {A0: (2, 3), A1: (3, 2)}, {A0: (4,), B0: (3,)})
    assert moves == {A0: ((1, 2), (3,)), B0: ((1,), (3,))}


# --- what is shown ---------------------------------------------------------------------------------------


def test_output_has_what_is_left_and_how_long_it_takes(cluster: ScriptedCluster) -> None:
    result = succeed("--drain-broker", "1", "--throttle", "4MiB/s")
    assert result.stdout.splitlines()[-2] == (
        "still to copy: 28.6 MiB; each broker sends and receives at most 4 MiB/s, so at least 7.15 s more"
    )
    assert result.stderr.splitlines() == [
        "3 reassignments: 25.7 MiB still to copy at 2.86 MiB/s, about 9 s left",
        "3 reassignments: 22.9 MiB still to copy at 2.86 MiB/s, about 8 s left",
        "3 reassignments: 17.2 MiB still to copy at 2.86 MiB/s, about 6 s left",
        "3 reassignments: 5.72 MiB still to copy at 2.86 MiB/s, about 2 s left",
        "the reassignments have ended after 10 s",
    ]


def test_json_has_the_throttle_and_the_outcome(cluster: ScriptedCluster) -> None:
    shown = json.loads(succeed("a", "--replicas", "0:4,2", "--throttle", "2MB/s", "--json").stdout)
    change = {"topic": "a", "partition": 0, "old_replicas": [1, 2], "new_replicas": [4, 2], "state": "done"}
    assert shown == {"topic": "a", "changes": [change], "reassignments": [], "throttle": 2 * MB}


def test_json_has_the_bytes_that_are_left(cluster: ScriptedCluster) -> None:
    succeed("--drain-broker", "2")
    cluster.sleep(4)
    shown = json.loads(succeed("--status", "--json").stdout)
    assert (shown["topic"], shown["throttle"]) == (None, None)
    left = {(each["topic"], each["partition"]): each["left_bytes"] for each in shown["reassignments"]}
    assert left == {tp: {"4": 6 * MB} for tp in (A0, A1, INTERNAL)}


def test_status_is_shown_without_the_rate_if_a_broker_does_not_answer(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time_out(*_: object) -> None:
        raise TimeoutError("broker 2 does not answer")

    succeed("--drain-broker", "1")
    monkeypatch.setattr(cluster, "describe_configs", time_out)
    assert succeed("--status").stdout.splitlines()[-1] == "still to copy: 28.6 MiB"


@pytest.mark.parametrize("is_unknown_when_described", [False, True])
def test_wait_goes_on_while_a_broker_does_not_know_the_topic(
    cluster: ScriptedCluster, is_unknown_when_described: bool
) -> None:
    cluster.unknown_until_s, cluster.is_unknown_when_described = 5, is_unknown_when_described
    result = succeed("a", "--replicas", "0:4,2", "--throttle", "2MB/s")
    assert cluster.replicas[A0] == (4, 2) and cluster.configs == {}
    unknown = "still to copy: not known, because a broker does not answer, or does not know the topic"
    assert result.stderr.splitlines() == [
        f"1 reassignment: {unknown}",
        f"1 reassignment: {unknown}",
        f"1 reassignment: {unknown}",
        "1 reassignment: 1.91 MiB still to copy at 977 KiB/s, about 2 s left",
        "the reassignments have ended after 10 s",
    ]


def test_partition_that_a_broker_does_not_know_is_shown_without_its_lag(cluster: ScriptedCluster) -> None:
    succeed("a", "--replicas", "0:4,2")
    cluster.now_s, cluster.unknown_until_s = 1, 2
    shown = json.loads(succeed("a", "--status", "--json").stdout)["reassignments"]
    assert shown == [
        {
            "topic": "a", "partition": 0, "replicas": [1, 2, 4], "isr": None, "adding": [4], "removing": [1],
            "lag": {"4": None}, "left_bytes": {"4": None},
        }
    ]  # fmt: skip


def test_silent_broker_hides_only_what_is_left(cluster: ScriptedCluster) -> None:
    cluster.is_silent = True
    result = succeed("a", "--replicas", "0:4,2", "--wait")
    assert result.stdout.splitlines()[-1].startswith("still to copy: not known, because a broker does not answer")
    assert "1 reassignment: still to copy: not known, because a broker does not answer" in result.stderr
    assert "the reassignments have ended after 10 s" in result.stderr


# --- bad arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "rate"),
    [
        ("10MB/s", 10 * MB), ("10 MB/s", 10 * MB), ("10mb", 10 * MB), ("1.5MiB/s", 3 << 19), ("500KB/s", 500_000),
        ("2GiB", 2 << 30), ("1TB/s", 10**12), ("750", 750), ("750B/s", 750), ("1/s", 1),
    ],
)  # fmt: skip
def test_rate_is_parsed_with_its_unit(typed: str, rate: int) -> None:
    assert RATE.convert(typed, None, None) == rate


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        *(
            (typed, f"{typed!r} is not a rate, such as 10MB/s")
            for typed in ("fast", "", "-1", "10M", "10MB/min", "1e9")
        ),
        *((typed, "at least 1 B/s") for typed in ("0", "0MB/s", "0.4B/s", "9300000TB/s")),
    ],
)
def test_bad_rate_is_a_usage_error(cluster: ScriptedCluster, typed: str, shown: str) -> None:
    result = run("a", "--drain-broker", "1", "--throttle", typed)
    assert result.exit_code == 2 and shown in result.stderr
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["a", "--status", "--throttle", "1MB/s"], "--throttle needs --replicas or --drain-broker"),
        (["--cancel", "--throttle", "1MB/s"], "--throttle needs --replicas or --drain-broker"),
        (["--throttle", "1MB/s"], "give exactly one of --replicas, --drain-broker, --cancel and --status"),
        (["--replicas", "0:1"], "--replicas needs a TOPIC"),
    ],
)
def test_options_that_do_not_fit_are_refused(cluster: ScriptedCluster, arguments: list[str], shown: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 and shown in result.stderr
    assert cluster.calls == []


# --- the estimates ---------------------------------------------------------------------------------------


def moving(tp: TopicPartition, leader: int, left_bytes: Mapping[int, int | None]) -> Progress:
    return Progress(tp, leader, (), (), tuple(left_bytes), (), {}, left_bytes)


def test_busiest_broker_decides_how_long_a_throttled_copy_takes() -> None:
    two_senders = [moving(A0, 1, {4: 3 * MB}), moving(A1, 2, {4: 2 * MB})]
    one_sender = [moving(A0, 1, {3: 3 * MB, 4: 3 * MB}), moving(A1, 2, {4: None})]
    assert (least_ms(two_senders, MB), least_ms(one_sender, MB), least_ms([], MB)) == (5000, 6000, 0)
    assert (total_left(two_senders), total_left(one_sender), total_left([])) == (5 * MB, None, 0)


def test_new_replica_in_sync_has_nothing_left_whatever_its_size() -> None:
    described = PartitionDescription(0, 1, 5, (1, 2, 3, 4), (1, 4), lag={})
    reassignment = PartitionReassignment("a", 0, (1, 2, 3, 4), (3, 4), (2,))
    progress = Progress.of(A0, reassignment, described, {(1, A0): 100, (4, A0): 30, (3, A0): 120})
    assert progress.left_bytes == {3: 0, 4: 0}
    assert Progress.of(A0, reassignment, described, {(3, A0): 120}).left_bytes == {3: None, 4: 0}


def test_copy_in_another_directory_of_the_broker_does_not_count() -> None:
    here, there = LogDirReplica("a", 0, 70, 0), LogDirReplica("a", 0, 30, 40, is_future=True)
    assert sizes_of({1: (LogDir("/d", 0, None, (here,)), LogDir("/e", 0, None, (there,)))}) == {(1, A0): 70}


def test_trend_is_that_of_the_last_half_minute() -> None:
    trend = Trend()
    for second in range(60):
        trend.note(second * 1000, 100 * MB - second * (MB if second < 20 else 0))
    assert trend.sentence() == "95.4 MiB still to copy, and not becoming less"
    for second in range(60, 100):
        trend.note(second * 1000, 100 * MB - (second - 59) * MB)
    assert trend.sentence() == "57.2 MiB still to copy at 977 KiB/s, about 60 s left"
    trend.note(100_000, None)
    assert trend.sentence().startswith("still to copy: not known, because a broker does not answer")


@given(st.lists(st.tuples(st.integers(1, 40_000), st.integers(0, 10**9)), min_size=1, max_size=40))
def test_trend_compares_with_the_newest_sample_that_is_old_enough(steps: list[tuple[int, int]]) -> None:
    trend, seen = Trend(), []
    for took_ms, left_bytes in steps:
        now_ms = took_ms + (seen[-1][0] if seen else 0)
        seen.append((now_ms, left_bytes))
        trend.note(now_ms, left_bytes)
    now_ms, left_bytes = seen[-1]
    old = [sample for sample in seen if sample[0] <= now_ms - 30_000]
    assert trend._seen[0] == (old[-1] if old else seen[0])
