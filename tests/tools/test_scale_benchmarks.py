"""The benchmarks of many brokers, members, groups and connections: what they plan, and each at a small size."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from cluster.controller.replicas.placement import place_replicas
from tidelog import ElectionType, NewTopic, TopicPartition
from tidelog.errors import RebalanceInProgressError, TopicAlreadyExistsError
from tools.bench.clusters import cluster_failover
from tools.bench.environment import BenchEnvironment, ClusterUnderTest
from tools.bench.groups.look_ups import fill
from tools.bench.groups.member import group_of, slowest_rebalance
from tools.bench.kafka.brokers import kafka_brokers
from tools.bench.kafka_clients.target import Target, TidelogTarget
from tools.bench.results import Figure, NotMeasured
from tools.bench.scale import busy, connections, idle, many_groups, one_group, partitions, twelve_brokers
from tools.bench.scale.findings import Findings
from tools.check.toolbox import kafka_jars


def test_spread_counts_a_broker_that_does_not_occur() -> None:
    assert twelve_brokers.spread([1, 1, 2], [1, 2]) == 1
    assert twelve_brokers.spread([1, 1, 2], [1, 2, 3]) == 2


def test_moved_replicas_leave_the_broker_and_keep_the_others_even() -> None:
    placed = place_replicas(range(1, 13), 600, 3, random.Random(0))
    before = {TopicPartition("wide", number): replicas for number, replicas in placed.items()}
    moves = twelve_brokers.moves_from(12, before, range(1, 13))
    assert moves.keys() == {tp for tp, replicas in before.items() if 12 in replicas}
    for tp, replicas in moves.items():
        assert len(set(replicas)) == 3
        assert all(old in (new, 12) for old, new in zip(before[tp], replicas, strict=True))
    after = {**before, **moves}.values()
    held = [broker for replicas in after for broker in replicas]
    assert 12 not in Counter(held)
    assert twelve_brokers.spread(held, range(1, 12)) <= 2
    assert twelve_brokers.spread((replicas[0] for replicas in after), range(1, 12)) <= 1


class Heart:
    """A member whose third heartbeat fails."""

    def __init__(self) -> None:
        self.beats = 0

    async def heartbeat(self) -> None:
        self.beats += 1
        if self.beats == 3:
            raise RebalanceInProgressError("others join")


def test_heartbeats_take_turns_until_one_fails() -> None:
    hearts: Any = [Heart(), Heart()]
    with pytest.raises(RebalanceInProgressError):
        asyncio.run(one_group.send_heartbeats(hearts, 0.0))
    assert [heart.beats for heart in hearts] == [3, 2]


def test_value_is_shown_as_soon_as_it_is_found() -> None:
    said: list[str] = []
    findings = Findings(said.append)
    findings.note(Figure("made-up.rate", "a made-up rate", "MB/s"), 1234.5)
    assert findings.values == {"made-up.rate": 1234.5}
    assert said == ["      a made-up rate: 1,230 MB/s"]


class Acknowledged:
    """The future of a record that is acknowledged at once."""

    def get(self, timeout_s: float) -> None:
        pass

    def add_callback(self, callback: Callable[[Self], object]) -> None:
        callback(self)


class ScriptedCluster(Target):
    """A cluster of three brokers in memory, together with its clients. Broker 1 is the first controller.

    steps   what the cluster was asked to do, in this order
    """

    def __init__(self, refusals: int) -> None:
        super().__init__("none:1")
        self.steps: list[str] = []
        self._alive = {1, 2, 3}
        self._controller = 1
        self._leaders: dict[int, int] = {}
        self._refusals = refusals

    # the processes

    @property
    def pids(self) -> Mapping[int, int]:
        return dict.fromkeys(self._alive, os.getpid())

    def kill(self, broker_id: int) -> None:
        self._leave(f"kill {broker_id}", broker_id)

    def shut_down(self, broker_id: int, timeout_s: float) -> None:
        self._leave(f"shut down {broker_id}", broker_id)

    def restart(self, broker_id: int) -> None:
        self.steps.append(f"start {broker_id}")
        self._alive.add(broker_id)

    def _leave(self, step: str, broker_id: int) -> None:
        self.steps.append(step)
        self._alive.remove(broker_id)
        successor = max(self._alive)
        self._leaders = {
            number: successor if leader == broker_id else leader for number, leader in self._leaders.items()
        }
        self._controller = successor if self._controller == broker_id else self._controller

    # the metadata

    def leaders(self, topic: str) -> dict[int, int]:
        return self._leaders

    def controller(self) -> int:
        return self._controller

    def wait_in_sync(self, topic: str, partitions: int, timeout_s: float = 0) -> None:
        assert self._alive == {1, 2, 3} and len(self._leaders) == partitions

    def wait_for_preferred_leaders(self, topic: str, timeout_s: float) -> None:
        assert self.steps[-1] == "elect"

    # the admin and the producer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def create_topics(self, topics: list[NewTopic], timeout_ms: int) -> None:
        [new] = topics
        if self.steps and self._refusals > 0:
            self._refusals -= 1
            self.steps.append("refuse")
            raise TopicAlreadyExistsError(f"{new.name} is marked for deletion")
        self.steps.append(f"create {new.num_partitions}")
        self._elect(new.num_partitions)

    def delete_topics(self, topics: list[str], timeout_ms: int) -> None:
        self.steps.append("delete")

    def elect_leaders(self, election_type: ElectionType, timeout_ms: int) -> None:
        self.steps.append("elect")
        self._elect(len(self._leaders))

    def _elect(self, partitions: int) -> None:
        self._leaders = {number: 1 + number % 3 for number in range(partitions)}

    def send(self, topic: str, value: bytes, *, partition: int) -> Acknowledged:
        assert self._leaders[partition] in self._alive
        return Acknowledged()


def test_topic_of_many_partitions_lives_through_the_steps_in_order(
    short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ScriptedCluster(refusals=2)
    monkeypatch.setattr(partitions, "Admin", lambda servers, **options: cluster)
    monkeypatch.setattr(cluster_failover, "Producer", lambda servers, **options: cluster)
    said: list[str] = []
    found = partitions.measure(cluster, 6, said.append)
    assert found.keys() == partitions.WHAT.keys()
    assert len(said) == len(found)
    assert cluster.steps == [
        *("create 6", "shut down 2", "start 2"),
        *("elect", "kill 2", "start 2"),
        *("elect", "kill 1", "start 1"),
        *("delete", "refuse", "refuse", "create 1"),
    ]


# --- at a small size, on real brokers ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """Run four brokers, because the reassignment needs another broker than the three of a partition."""
    env = BenchEnvironment(tmp_path_factory.mktemp("bench"), 0.2, print)
    with env.fresh_cluster(4, leader_imbalance_check_interval_seconds=1) as started:
        yield started


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "SETTLE_S", 0.1)
    monkeypatch.setattr(idle, "WATCH_S", 0.2)
    monkeypatch.setattr(many_groups, "WARM_UP_S", 0.1)


@pytest.mark.slow
def test_members_rebalance_send_heartbeats_and_leave(cluster: ClusterUnderTest, short_waits: None) -> None:
    tps = cluster.create_topic(10)
    findings = Findings(print)
    asyncio.run(one_group.measure_group(cluster.bootstrap_servers, cluster.broker_pids, tps, 5, 0.0, findings))
    assert {figure.key for figure in one_group.BENCHMARK.figures} - findings.values.keys() == {"scale-group.idle"}
    assert findings.values["scale-group.last-join"] > 0 < findings.values["scale-group.cooperative"]

    async def assigned_to_others() -> None:
        async with group_of(cluster.bootstrap_servers, tps, "range", 3) as members:
            assert sorted(len(member.owned) for member in members) == [3, 3, 4], "members of the first group are gone"
            with pytest.raises(NotMeasured, match="10 of 9 partitions are assigned"):
                await slowest_rebalance(members, tps[:9], 1)

    asyncio.run(assigned_to_others())


@pytest.mark.slow
def test_commits_of_many_groups_are_counted(
    cluster: ClusterUnderTest, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_groups, "GROUPS", 20)
    found = many_groups.measure(TidelogTarget(cluster), 0.5)
    assert found.keys() == {"rate", "p50", "p99", "cpu"}
    assert found["rate"] > 0 < found["p50"] <= found["p99"]


@pytest.mark.slow
def test_connections_are_measured_beside_look_ups(cluster: ClusterUnderTest, short_waits: None) -> None:
    findings = Findings(print)
    asyncio.run(connections.measure_connections(cluster, fill(cluster, 1, 1_000), 20, findings))
    assert findings.values.keys() == {figure.key for figure in connections.BENCHMARK.figures}
    assert findings.values["scale-connections.p50"] > 0 < findings.values["scale-connections.p50-ratio"]


@pytest.mark.slow
def test_busy_partitions_are_measured_beside_idle_ones(cluster: ClusterUnderTest, short_waits: None) -> None:
    ratios = {idle: Figure(f"beside-{idle}", "a ratio", "×") for idle in (2, 5)}
    found = busy.measure_beside(cluster, 0.2, ratios, Findings(print))
    assert found.keys() == {"scale-busy.rate", "beside-2", "beside-5"}
    assert min(found.values()) > 0


@pytest.mark.slow
def test_leaders_return_to_a_broker_and_its_replicas_move_away(cluster: ClusterUnderTest) -> None:
    found = twelve_brokers.measure_cluster(cluster, 12, Findings(print))
    assert found.keys() == {figure.key for figure in twelve_brokers.BENCHMARK.figures}
    assert found["scale-brokers.leaders"] <= 1 and found["scale-brokers.replicas"] <= 2


@pytest.mark.slow
def test_topic_of_some_partitions_is_measured_on_tidelog(cluster: ClusterUnderTest, short_waits: None) -> None:
    found = partitions.measure(TidelogTarget(cluster), 12, print)
    assert found.keys() == partitions.WHAT.keys()
    assert min(found.values()) >= 0 < found["leader-killed"]
    assert len(cluster.broker_pids) == 4, "every broker runs again"


@pytest.mark.slow
def test_topic_of_some_partitions_is_measured_on_kafka(tmp_path: Path, short_waits: None) -> None:
    with kafka_brokers(tmp_path, kafka_jars()) as kafka:
        found = partitions.measure(kafka, 6, print)
    assert found.keys() == partitions.WHAT.keys()
    assert min(found.values()) >= 0 < found["leader-killed"]
