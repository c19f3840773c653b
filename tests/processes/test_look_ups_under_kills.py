"""Look-ups by time while their leaders die, sleep and lose their sessions: as exact as in quiet, with one exception.

A replaced leader that does not know its successor may return a record that the successor has trimmed. Kafka promises no
more, because a trim waits for the replicas that are alive only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.look_ups import (
    Asked,
    Inquirer,
    Loyal,
    Replacement,
    Timeline,
    Trimmer,
    check_look_ups,
    read_times,
)
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for
from tidelog import TopicPartition

KILLS = 12
LEAST_LOOK_UPS = 10_000
LEAST_SOON_AFTER = 1_000
SOON_S = 1.0
LEAST_SEGMENTS = 20
#: The number of records that compaction must have removed, beside the deleted ones.
LEAST_COMPACTED = 1_000
FILL = 12_000

#: Settings that make look-ups hard: short segments, sparse index entries, constant compaction, and deletions.
HARD = {
    "cleanup.policy": "compact,delete",
    "segment.bytes": "12288",
    "index.interval.bytes": "512",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.ms": "-1",
    "file.delete.delay.ms": "500",
}
BUSY_CLEANER = {"log_cleaner_backoff_ms": 300, "log_retention_check_interval_ms": 300}
SHORT_SESSION = {"zookeeper_session_timeout_ms": 3000}


@dataclass
class Inquiry:
    """Look-ups during the faults; `faults` has the time of each fault, and the partitions that the victim led."""

    timeline: Timeline
    trimmer: Trimmer
    inquirers: list[Inquirer]
    loyal: list[Loyal]
    faults: list[tuple[float, set[TopicPartition]]] = field(default_factory=list)
    replacements: list[Replacement] = field(default_factory=list)

    def strikes(self, cluster: RunningCluster, victim: int) -> None:
        """Note that a fault hits this broker now."""
        led = {tp for tp in self.timeline.sent if cluster.leader(tp) == victim}
        self.faults.append((time.monotonic(), led))

    @contextmanager
    def replacement(self, cluster: RunningCluster, victim: int) -> Iterator[None]:
        """Note that other brokers replace this leader during the `with` block, and that it may answer nevertheless.

        At the end, wait until the victim follows, because a follower in sync knows its leader's trims.
        """
        self.strikes(cluster, victim)
        began, led = self.faults[-1]
        before = {tp: cluster.znode(tp).state.leader_epoch for tp in led}
        yield
        for tp, epoch in before.items():
            wait_bitten(
                f"another leader epoch of {tp}",
                lambda tp=tp, epoch=epoch: cluster.znode(tp).state.leader_epoch > epoch,  # type: ignore[misc]
            )
        for tp in self.timeline.sent:
            cluster.wait_in_sync(tp)
        self.replacements.append(Replacement(began, time.monotonic()))

    @property
    def asked(self) -> list[Asked]:
        return [each for inquirer in self.inquirers for each in inquirer.asked]

    @property
    def asked_the_wrong(self) -> list[Asked]:
        """Return the look-ups that one broker answered, as the leader or not."""
        return [each for loyal in self.loyal for each in loyal.asked]

    def soon_after(self) -> tuple[int, int]:
        """Look-ups that were asked within a second after a fault, and those of what the victim had led."""
        ages = [(each.look_up.asked_at - at, each.tp in led) for each in list(self.asked) for at, led in self.faults]
        soon = [of_victim for age_s, of_victim in ages if 0 <= age_s <= SOON_S]
        return len(soon), sum(soon)


@contextmanager
def inquiry(
    cluster: RunningCluster, tps: Sequence[TopicPartition], fill: int = 2_000, least_compacted: int = 1
) -> Iterator[Inquiry]:
    """Run look-ups during the `with` block. After it, every broker must run, and each answer is checked.

    Every look-up of an ordinary client must be answered. A look-up sent to a former leader may fail.
    """
    servers = cluster.bootstrap_servers
    timeline = Timeline(servers, tps, seed=18)
    timeline.fill(fill)
    with ExitStack() as stack:
        stack.enter_context(timeline)
        under = Inquiry(
            timeline,
            stack.enter_context(Trimmer(servers, tps, pause_s=0.4)),
            [stack.enter_context(Inquirer(servers, timeline, seed)) for seed in range(4)],
            [stack.enter_context(Loyal(cluster.address(each), timeline, each)) for each in cluster.broker_ids],
        )
        yield under
        for tp in tps:
            cluster.wait_in_sync(tp, timeout_s=90)
    timeline.all_acknowledged()
    logs = read_times(servers, tps)
    outcomes = check_look_ups(timeline, under.trimmer.trims, under.asked, logs, under.replacements)
    soon, of_victim = under.soon_after()
    print(
        f"verdict: {len(under.asked)} look-ups, {dict(outcomes)}; {soon} within {SOON_S:.0f} s after one of"
        f" {len(under.faults)} faults, {of_victim} of them where the victim had led; {under.trimmer.confirmed} trims"
    )
    compacted = outcomes["compacted"]
    require_bite("compaction took too little", compacted >= least_compacted and f"{compacted} records were compacted")
    answered = outcomes["found"] + outcomes["nothing"]
    assert answered == len(under.asked), f"not all were answered: {outcomes}"
    assert outcomes["forced"] > answered // 3 and outcomes["nothing"] > answered // 50, outcomes
    assert under.trimmer.confirmed > len(under.faults)
    of_one = check_look_ups(timeline, under.trimmer.trims, under.asked_the_wrong, logs, under.replacements)
    print(f"of one broker, whether it led or not: {dict(of_one)}")
    assert of_one["found"] and of_one["NotLeaderOrFollowerError"], of_one


def segments(cluster: RunningCluster, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """On disk: the least that a replica has."""
    return {
        tp: min(len(list(cluster.replica_dir(each, tp).glob("*.log"))) for each in cluster.broker_ids) for tp in tps
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cluster", [BUSY_CLEANER], indirect=True)
def test_look_ups_are_exact_while_leaders_are_killed_in_rotation(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3, configs=HARD)
    with inquiry(cluster, tps, FILL, LEAST_COMPACTED) as under:
        for turn in range(KILLS):
            tp = tps[turn % len(tps)]
            victim, before = cluster.leader(tp), cluster.znode(tp).state.leader_epoch
            under.strikes(cluster, victim)
            cluster.kill(victim)
            wait_bitten("another leader", lambda tp=tp, before=before: cluster.znode(tp).state.leader_epoch > before)  # type: ignore[misc]
            time.sleep(SOON_S)
            cluster.restart(victim)
            for each in tps:
                cluster.wait_in_sync(each)
        least = segments(cluster, tps)
        require_bite("too few segments", min(least.values()) >= LEAST_SEGMENTS and f"{least} on disk")
        wait_for(f"{LEAST_LOOK_UPS} look-ups", lambda: len(under.asked) >= LEAST_LOOK_UPS, 300)
        soon, _ = under.soon_after()
        require_bite("too few look-ups soon after a kill", soon >= LEAST_SOON_AFTER and f"{soon} of them")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cluster", [BUSY_CLEANER | SHORT_SESSION], indirect=True)
def test_paused_old_leader_misses_only_trims_of_its_successors(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3, configs=HARD)
    with inquiry(cluster, tps) as under:
        for turn in range(3):
            tp = tps[turn % len(tps)]
            zombie, before = cluster.leader(tp), cluster.znode(tp).state.leader_epoch
            with under.replacement(cluster, zombie), cluster.paused(zombie):
                wait_bitten(
                    "another leader", lambda tp=tp, before=before: cluster.znode(tp).state.leader_epoch > before
                )  # type: ignore[misc]
                acknowledged = len(under.timeline.sent[tp])
                wait_for("records of the other leader", lambda tp=tp, n=acknowledged: under.timeline.sent[tp][n:][100:])  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cluster", [BUSY_CLEANER], indirect=True)
def test_look_ups_are_exact_while_sessions_of_leaders_expire(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3, configs=HARD)
    with inquiry(cluster, tps) as under:
        for turn in range(6):
            victim = cluster.leader(tps[turn % len(tps)])
            registered = cluster.wait_serves(victim)
            with under.replacement(cluster, victim):
                cluster.expire_session(victim)
                wait_bitten("another registration", lambda b=victim, e=registered: cluster.broker_epoch(b) > e)  # type: ignore[misc]
                time.sleep(SOON_S)
