"""Five consumer processes over twelve partitions, while they and their coordinators are killed in turn."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.coordinators import coordinator, wait_moved, wait_offsets_topic
from tests.processes.harness.group_member import SESSION_TIMEOUT_MS
from tests.processes.harness.handovers import by_partition, handover_violations, unowned_s
from tests.processes.harness.histories import sharing_violations
from tests.processes.harness.members import Members, assignments, members_of, turns
from tests.processes.harness.waiting import require_bite, wait_for
from tests.processes.harness.workload import Workload
from tidelog import Consumer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

GROUP, TOPIC, PARTITIONS, MEMBERS = "five", "t", 12, 5
MEMBER_KILLS, COORDINATOR_KILLS = 12, 4
#: What a partition may be without an owner beyond the session of the one that died.
GRACE_S = 5


def wait_owned(members: Members) -> None:
    """Returns when each partition belongs to somebody who lives."""

    def owned() -> bool:
        members.check_alive()
        return members.owned() == set(range(PARTITIONS))

    wait_for("all partitions to be owned", owned, 60)


def kill_in_turn(cluster: RunningCluster, members: Members, rng: random.Random) -> None:
    """Members, coordinators, and both at once, in an order of the seed's; each fault meets a group that is well."""
    rounds = ["member"] * (MEMBER_KILLS - 2) + ["both"] * 2 + ["coordinator"] * (COORDINATOR_KILLS - 2)
    rng.shuffle(rounds)
    for each in rounds:
        wait_owned(members)
        time.sleep(rng.uniform(0, 2))  # anywhere between a poll and a commit
        leader = coordinator(cluster, GROUP)
        if each in ("member", "both"):
            rng.choice(members.living).kill()
        if each in ("coordinator", "both"):
            cluster.kill(leader)
            wait_moved(cluster, GROUP, away_from=leader)
            cluster.restart(leader)
            wait_offsets_topic(cluster, GROUP)
        time.sleep(rng.uniform(0, 1.5 * SESSION_TIMEOUT_MS / 1000))  # before and after the dead one is missed
        while len(members.living) < MEMBERS:
            members.start()
    wait_owned(members)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_of_five_reads_everything_whoever_is_killed(
    cluster: RunningCluster, tmp_path: Path, strategy: str
) -> None:
    tps = cluster.create_topic(TOPIC, partitions=PARTITIONS)
    wait_offsets_topic(cluster, GROUP)
    began_s = time.monotonic()
    with members_of(tmp_path, cluster.bootstrap_servers, GROUP, TOPIC, strategy) as members:
        for _ in range(MEMBERS):
            members.start()
        with Workload(cluster.bootstrap_servers, tps) as workload:
            kill_in_turn(cluster, members, random.Random(2026))
            records = workload.acknowledged
        ended_s = time.monotonic()
        with Consumer(cluster.bootstrap_servers) as consumer:
            ends = consumer.end_offsets(tps)
        with Consumer(cluster.bootstrap_servers, group_id=GROUP, enable_auto_commit=False) as consumer:
            wait_for(
                "everything to be read and committed",
                lambda: {tp: each and each.offset for tp, each in consumer.committed(tps).items()} == ends,
                90,
            )
        members.check_alive()
    diaries = {each: each.entries() for each in members.all}
    assigned = [a for each, entries in diaries.items() for a in assignments(each.name, GROUP, TOPIC, entries)]
    all_turns = by_partition([t for each, e in diaries.items() for t in turns(each.name, TOPIC, e, each.died_s)])
    generations = {each.generation for each in assigned}
    require_bite(
        "fewer members began than were killed", len(members.all) >= MEMBERS + MEMBER_KILLS and len(members.all)
    )
    require_bite("the group was never balanced anew", len(generations) > MEMBER_KILLS and sorted(generations))
    wrong = list(sharing_violations(assigned))
    wrong += [line for tp in tps for line in handover_violations(tp, all_turns[tp], ends[tp])]
    longest_s = max(unowned_s(all_turns[tp], ended_s) for tp in tps)
    processed = sum(len(p.offsets) for each in all_turns.values() for turn in each for p in turn.processed)
    print(
        f"verdict after {ended_s - began_s:.0f} s: {MEMBER_KILLS} members and {COORDINATOR_KILLS} coordinators killed,"
        f" {len(generations)} generations, {sum(map(len, all_turns.values()))} turns, {records} records, of which"
        f" {processed - sum(ends.values())} were processed again; longest without an owner {longest_s:.2f} s"
    )
    require_bite("nobody died with records in its hands", processed > sum(ends.values()) and "some were")
    assert not wrong, "\n".join(wrong[:10])
    assert longest_s <= SESSION_TIMEOUT_MS / 1000 + GRACE_S
