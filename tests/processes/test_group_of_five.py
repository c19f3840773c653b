"""Five consumer processes over twelve partitions, while they and their coordinators are killed in turn."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.checker.judging import verdict_on
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.coordinators import coordinator, wait_moved, wait_offsets_topic
from tests.processes.harness.group_member import SESSION_TIMEOUT_MS
from tests.processes.harness.handovers import Turn, by_partition, handover_violations, unowned_s
from tests.processes.harness.members import Member, Members, assignments, commits, members_of, turns
from tests.processes.harness.waiting import require_bite, wait_for
from tests.processes.harness.workload import Workload
from tidelog import Consumer, TopicPartition
from tidelog.history.group_operations import Assigned, CommitOk, CommitUnknown

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

GROUP, TOPIC, PARTITIONS, MEMBERS = "five", "t", 12, 5
MEMBER_KILLS, COORDINATOR_KILLS, MEMBER_SLEEPS = 12, 4, 2
#: How long a partition may be without an owner, beyond the session of the member that died.
GRACE_S = 5


def wait_owned(members: Members) -> None:
    """Return when each partition is owned by a running member."""

    def owned() -> bool:
        members.check_alive()
        return members.owned() == set(range(PARTITIONS))

    wait_for("all partitions to be owned", owned, 60)


def doings(member: Member) -> set[str]:
    return {entry["did"] for entry in member.entries()}


def kill_in_turn(cluster: RunningCluster, members: Members, rng: random.Random) -> None:
    """Members, coordinators, and both at once, in an order of the seed's; each fault meets a group that is well.

    Some members only sleep, for longer than their session.
    """
    rounds = ["member"] * (MEMBER_KILLS - 2) + ["both"] * 2 + ["coordinator"] * (COORDINATOR_KILLS - 2)
    rounds += ["sleeper"] * MEMBER_SLEEPS
    rng.shuffle(rounds)
    for each in rounds:
        wait_owned(members)
        time.sleep(rng.uniform(0, 2))  # anywhere between a poll and a commit
        leader = coordinator(cluster, GROUP)
        if each == "sleeper":
            sleeper = rng.choice(members.living)
            with sleeper.asleep():
                others = set(range(PARTITIONS))
                wait_for("the others to have all", lambda: members.owned(without=sleeper) == others)  # noqa: B023
            wait_for("it to have something again", lambda: "lost" in doings(sleeper) and sleeper.owned())  # noqa: B023
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
def test_group_of_five_reads_all_records_while_members_are_killed(
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
        with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            ends = consumer.end_offsets(tps)
        with Consumer(
            bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP, enable_auto_commit=False
        ) as consumer:
            wait_for(
                "everything to be read and committed",
                lambda: {tp: each and each.offset for tp, each in consumer.committed(tps).items()} == ends,
                90,
            )
        members.check_alive()
    check(members, tps, ends, ended_s)
    assert [each for each in cluster.broker_ids if cluster.said(each, "Traceback")] == []
    print(f"{records} records in {ended_s - began_s:.0f} s")


def check(members: Members, tps: list[TopicPartition], ends: Mapping[TopicPartition, int], ended_s: float) -> None:
    """The verdict, from what the members have written down."""
    assigned: list[Assigned] = []
    attempts: list[CommitOk | CommitUnknown] = []
    all_turns: list[Turn] = []
    for member in members.all:
        entries, complaints = member.entries(), member.errors.read_text()
        print(complaints, end="")
        assert "Traceback" not in complaints, f"{member.name}: {complaints}"
        assigned += assignments(member.name, GROUP, TOPIC, entries)
        attempts += commits(GROUP, TOPIC, entries)
        all_turns += turns(member.name, TOPIC, entries, member.died_s, member.slept_s)
    of_partition = by_partition(all_turns)
    wrong = [str(each) for each in verdict_on([*assigned, *attempts], "I17").findings]
    wrong += [line for tp in tps for line in handover_violations(tp, of_partition[tp], ends[tp])]
    longest_s = max(unowned_s(of_partition[tp], ended_s) for tp in tps)

    generations = {each.generation for each in assigned}
    refused = sum(isinstance(each, CommitUnknown) for each in attempts)
    again = sum(len(each.offsets) for turn in all_turns for each in turn.processed) - sum(ends.values())
    print(
        f"verdict: {MEMBER_KILLS} members and {COORDINATOR_KILLS} coordinators killed, {MEMBER_SLEEPS} members asleep;"
        f" {len(generations)} generations, {len(all_turns)} turns; {len(attempts)} commits of a partition, of which"
        f" {refused} were refused; {again} records processed again; longest without an owner {longest_s:.2f} s"
    )
    require_bite("fewer members began than were killed", len(members.all) >= MEMBERS + MEMBER_KILLS and "all did")
    require_bite("the group was never balanced anew", len(generations) > MEMBER_KILLS and max(generations))
    require_bite("no member died with unprocessed records", again > 0 and again)
    require_bite("no paused member committed", refused)
    assert not wrong, "\n".join(wrong[:10])
    assert longest_s <= SESSION_TIMEOUT_MS / 1000 + GRACE_S
