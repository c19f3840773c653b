"""Test the sentences for given facts about a partition."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tidelog.any_message import ANY, values_of
from tidelog.client.diagnosis.explain_partition import Finding, PartitionFacts, explain
from tidelog.model import TopicPartition
from tidelog.protocol.messages import PartitionMetadata
from tidelog.protocol.operator_messages import (
    ExamineReplicaResponse,
    FollowerReport,
    ReplicaReport,
    RetentionReport,
    SegmentReport,
)

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
FOLLOWS = ReplicaReport(
    "follower", 1, 5, (1, 2, 3), (1, 2, 3), (), 2, 30_000, 0, 100, 100, -1, -1, False, False, ()
)  # fmt: skip
NEAR = FollowerReport(2, True, 100, 0, 20)
ALSO_NEAR = replace(NEAR, broker_id=3)
LEADS = replace(FOLLOWS, role="leader", epoch_start_offset=90, followers=(NEAR, ALSO_NEAR))
HOLDS = RetentionReport(
    2, 10_000, 0, True, HOUR_MS, -1, 300_000, SegmentReport(50, 5_000, NOW_MS - 60_000, NOW_MS - 60_000)
)


def facts(
    reports: dict[int, ReplicaReport] | None = None,
    *,
    brokers: tuple[int, ...] = (1, 2, 3),
    controller: int = 1,
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    silent: dict[int, str] | None = None,
) -> PartitionFacts:
    replicas = {1: LEADS, 2: FOLLOWS, 3: FOLLOWS} if reports is None else reports
    return PartitionFacts(
        TopicPartition("t", 0),
        brokers,
        controller,
        PartitionMetadata(0, 0, leader, 5, (1, 2, 3), isr),
        {broker: ExamineReplicaResponse(0, NOW_MS, report) for broker, report in replicas.items()},
        silent or {},
    )


def with_leader(**changes: Any) -> PartitionFacts:
    return facts({1: replace(LEADS, **changes), 2: FOLLOWS, 3: FOLLOWS})


def problems(of: PartitionFacts) -> list[str]:
    return [f"{finding.about}: {finding.sentence}" for finding in explain(of) if finding.problem]


def the_only(of: PartitionFacts, about: str) -> Finding:
    [found] = [finding for finding in explain(of) if finding.about == about]
    return found


def test_healthy_partition_has_no_findings() -> None:
    assert explain(facts()) == []


# --- leadership -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (
            facts({3: FOLLOWS}, brokers=(3,), isr=(1, 2), leader=-1),
            "no broker leads it: of its in-sync replicas 1, 2 none is registered: start one of those brokers"
            " (unclean.leader.election.enable is false: another might lack committed records)",
        ),
        (
            facts({2: FOLLOWS}, controller=-1, isr=(2,), leader=-1),
            "no broker leads it: the cluster has no controller to elect one;"
            " see whether ZooKeeper answers (tidelog doctor)",
        ),
        (
            facts({2: replace(FOLLOWS, role="offline"), 3: FOLLOWS}, isr=(2,), leader=-1),
            "no broker leads it: the log directory below it is offline on broker 2: repair the disk and start again",
        ),
        (
            facts({3: FOLLOWS}, isr=(2,), leader=-1, silent={2: "no answer in 3 s"}),
            "no broker leads it: its in-sync replicas do not answer (broker 2: no answer in 3 s)",
        ),
        (
            facts({3: FOLLOWS}, isr=(2, 3), leader=-1),
            "no broker leads it: brokers 2, 3 could; the controller, broker 1, has not elected any yet",
        ),
        (
            facts({3: FOLLOWS}, brokers=(1, 3), isr=(2, 3), leader=-1),
            "no broker leads it: broker 3 could; the controller, broker 1, has not elected any yet;"
            " after a power failure it may wait for broker 2 to compare logs",
        ),
        (
            facts({3: FOLLOWS}, brokers=(3,), controller=3, isr=(3,), leader=-1),
            "no broker leads it: broker 3 could; the controller, broker 3, has not elected any yet;"
            " after a power failure it may wait for brokers 1, 2 to compare logs",
        ),
        (
            facts({3: replace(FOLLOWS, unclean_election=True)}, brokers=(3,), controller=3, isr=(3,), leader=-1),
            "no broker leads it: broker 3 could; the controller, broker 3, has not elected any yet",
        ),
        (
            facts({2: FOLLOWS, 3: FOLLOWS}, silent={1: "no answer in 3 s"}),
            "broker 1 leads, and does not answer: no answer in 3 s",
        ),
        (
            with_leader(cut_off=True),
            "the leader, broker 1, has had no contact with ZooKeeper for a session timeout, or is shutting down:"
            " another leader may be elected, and this one does not change the ISR meanwhile",
        ),
    ],
)
def test_reason_for_a_missing_leader_is_explained(of: PartitionFacts, said: str) -> None:
    assert (the_only(of, "leader").sentence, the_only(of, "leader").problem) == (said, True)


def test_leader_with_the_later_epoch_counts() -> None:
    of = facts({1: replace(LEADS, leader_epoch=4), 2: replace(LEADS, replicas=(2, 1, 3))})
    assert of.leader is not None and of.leader[0] == 2


def test_another_leader_than_the_preferred_one_is_no_problem() -> None:
    found = the_only(with_leader(replicas=(2, 1, 3)), "leader")
    assert (found.problem, found.sentence) == (False, "broker 1 leads, the preferred leader is broker 2")


# --- ISR ------------------------------------------------------------------------------------------------

LAGGING = FollowerReport(3, True, 60, 43_000, 20)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (
            facts({1: replace(LEADS, isr=(1, 2)), 2: FOLLOWS}, brokers=(1, 2)),
            "replica 3 is not in sync: broker 3 is not registered; it does not run, or does not reach ZooKeeper",
        ),
        (
            facts({1: LEADS, 2: FOLLOWS}, brokers=(1, 2)),
            "replica 3 counts as in sync, but broker 3 is not registered; it does not run, or does not reach ZooKeeper",
        ),
        (
            facts({1: replace(LEADS, isr=(1, 2)), 2: FOLLOWS}, silent={3: "connection refused"}),
            "replica 3 is not in sync: its broker does not answer: connection refused",
        ),
        (
            facts({1: replace(LEADS, isr=(1, 2)), 2: FOLLOWS, 3: replace(FOLLOWS, role="offline")}),
            "replica 3 is not in sync: its log directory is offline: see its log, repair the disk, start it again",
        ),
        (
            facts({1: replace(LEADS, isr=(1, 2)), 2: FOLLOWS, 3: replace(FOLLOWS, leader_epoch=4)}),
            "replica 3 is not in sync: it knows leader epoch 4 only, and 5 runs",
        ),
        (
            with_leader(isr=(1, 2), followers=(NEAR, LAGGING)),
            "replica 3 is not in sync: it is catching up: it is 40 records behind, and was last level with the leader"
            " 43 s ago (limit 30 s)",
        ),
        (
            with_leader(isr=(1, 2), followers=(NEAR, replace(LAGGING, fetched_ago_ms=60_000))),
            "replica 3 is not in sync: it is 40 records behind and last fetched 60 s ago (limit 30 s)",
        ),
        (
            with_leader(isr=(1, 2), followers=(NEAR, replace(LAGGING, registered=False))),
            "replica 3 is not in sync: the leader has not heard that it is registered",
        ),
        (
            with_leader(isr=(1, 2), followers=(NEAR, FollowerReport(3, True, -1, -1, -1))),
            "replica 3 is not in sync: it has fetched nothing in leader epoch 5: it may still align or open its log",
        ),
        (
            with_leader(isr=(1, 2), proposed_isr=(1, 2, 3)),
            "replica 3 is not in sync: it has caught up with the leader; ZooKeeper has not confirmed the new ISR yet",
        ),
        (
            with_leader(isr=(1, 2)),
            "replica 3 is not in sync: it has caught up with the leader; it is about to join the ISR",
        ),
        (
            with_leader(isr=(1, 2), log_end_offset=150),
            "replica 3 is not in sync: it has reached the high watermark, 50 records behind the leader;"
            " it is about to join the ISR",
        ),
        (
            with_leader(isr=(1, 2), followers=(NEAR, replace(LAGGING, log_end_offset=99))),
            "replica 3 is not in sync: it is catching up: it is 1 record behind, and was last level with the leader"
            " 43 s ago (limit 30 s)",
        ),
        (
            facts({1: replace(LEADS, isr=(1, 2)), 2: FOLLOWS, 3: replace(FOLLOWS, role="stopped")}),
            "replica 3 is not in sync: it waits for the controller to assign its role",
        ),
    ],
)
def test_why_a_replica_is_not_in_sync(of: PartitionFacts, said: str) -> None:
    found = the_only(of, "replication")
    assert (found.sentence, found.problem, found.evidence["broker"]) == (said, True, 3)


def test_the_evidence_of_a_lag_is_in_numbers() -> None:
    found = the_only(with_leader(isr=(1, 2), followers=(NEAR, LAGGING)), "replication")
    assert (found.evidence["lag"], found.evidence["caught_up_ago_ms"], found.evidence["max_lag_ms"]) == (
        40,
        43_000,
        30_000,
    )


# --- rejected writes and invisible records --------------------------------------------------------------


def test_too_small_isr_rejects_writes_and_holds_the_high_watermark() -> None:
    of = facts({1: replace(LEADS, isr=(1,), log_end_offset=105)}, brokers=(1,), isr=(1,))
    assert [said for said in problems(of) if not said.startswith("replication")] == [
        "min ISR: 1 of 2 needed replicas are in sync (min.insync.replicas): acks=all is refused",
        "high watermark: it stands at 100: fewer replicas are in sync than min.insync.replicas asks for",
        "visibility: offsets 100 to 104 are in the log of broker 1 and invisible to consumers,"
        " since the high watermark stands still",
    ]


def test_a_proposal_to_shrink_counts_as_shrunk() -> None:
    assert "min ISR" in problems(with_leader(proposed_isr=(1,)))[0]


def test_min_isr_above_the_replica_count_requires_all_replicas() -> None:
    found = the_only(with_leader(min_insync_replicas=4), "min ISR")
    assert not found.problem and "all of them are asked for" in found.sentence


def test_records_on_their_way_are_no_problem() -> None:
    behind = replace(NEAR, log_end_offset=100, caught_up_ago_ms=15)
    of = with_leader(log_end_offset=101, followers=(behind, replace(ALSO_NEAR, log_end_offset=101)))
    found = the_only(of, "visibility")
    assert (found.problem, found.evidence["records"]) == (False, 1)
    assert found.sentence.startswith("offset 100 is in the log of broker 1")


def test_stalled_follower_in_the_isr_holds_the_high_watermark() -> None:
    stuck = replace(NEAR, caught_up_ago_ms=4_000, fetched_ago_ms=4_000)
    of = with_leader(log_end_offset=101, followers=(stuck, replace(ALSO_NEAR, log_end_offset=101)))
    said = the_only(of, "high watermark").sentence
    assert said == (
        "it stands at 100: it waits for broker 2, a member of the ISR:"
        " it is in sync, 1 record behind, and was last level with the leader 4 s ago (limit 30 s)"
    )


def test_a_member_of_the_isr_is_never_about_to_join_it() -> None:
    behind = tuple(replace(each, caught_up_ago_ms=12) for each in (NEAR, ALSO_NEAR))
    found = the_only(with_leader(log_end_offset=150, followers=behind), "visibility")
    assert found.sentence.count("it is in sync, 50 records behind") == 2
    assert "about to join" not in found.sentence and not found.problem


def test_one_that_is_about_to_join_holds_it_too_and_one_that_lags_does_not() -> None:
    joining = FollowerReport(2, True, 100, 2_000, 20)
    of = with_leader(isr=(1, 3), log_end_offset=150, followers=(joining, replace(LAGGING, log_end_offset=150)))
    assert "broker 2, about to join the ISR" in the_only(of, "high watermark").sentence
    lagging = replace(joining, caught_up_ago_ms=31_000)
    of = with_leader(isr=(1, 3), log_end_offset=150, followers=(lagging, replace(LAGGING, log_end_offset=150)))
    assert not [finding for finding in explain(of) if finding.about == "high watermark"]


def test_unflushed_disk_holds_the_high_watermark() -> None:
    far = (replace(NEAR, log_end_offset=101), replace(ALSO_NEAR, log_end_offset=101))
    of = with_leader(log_end_offset=101, synced_end=100, followers=far)
    found = explain(of)
    assert [each.about for each in found] == ["visibility"] and not found[0].problem, "it may be syncing just now"


def test_leader_that_does_not_know_the_committed_end_is_reported() -> None:
    found = the_only(with_leader(epoch_start_offset=101), "high watermark")
    assert "before its epoch 5" in found.sentence and not found.problem


# --- retention ------------------------------------------------------------------------------------------


def held(retention: RetentionReport, oldest: SegmentReport | None = None, **changes: Any) -> Finding:
    retention = replace(retention, oldest=oldest or retention.oldest)
    return the_only(with_leader(retention=retention, **changes), "segments")


def test_segments_that_are_not_due_are_reported_with_their_time() -> None:
    found = held(HOLDS)
    assert not found.problem
    assert found.sentence == (
        "broker 1 keeps 2 segments, 9.77 KiB: the youngest record of the oldest (offsets 0 to 49) is 60 s old,"
        " and goes after 60 min (retention.ms)"
    )


@pytest.mark.parametrize(
    ("retention", "said"),
    [
        (replace(HOLDS, deletes=False), "cleanup.policy is compact"),
        (replace(HOLDS, retention_ms=-1), "nothing ever goes"),
        (replace(HOLDS, retention_ms=-1, retention_bytes=1 << 20), "retention.bytes is 1 MiB"),
        (replace(HOLDS, deletable=2), "2 segments may go, and will at the next check, within 5 min"),
    ],
)
def test_other_reasons_to_stay(retention: RetentionReport, said: str) -> None:
    found = held(retention)
    assert said in found.sentence and not found.problem


def test_old_records_above_the_high_watermark_must_not_go() -> None:
    old = SegmentReport(101, 5_000, NOW_MS - 3 * HOUR_MS, NOW_MS - 3 * HOUR_MS)
    found = held(HOLDS, old)
    assert found.problem and "past retention.ms by 2 h" in found.sentence and "high watermark 100" in found.sentence


def test_a_record_from_the_future_keeps_its_segment_until_its_file_is_old() -> None:
    found = held(HOLDS, SegmentReport(50, 5_000, NOW_MS + 5 * HOUR_MS, NOW_MS - 60_000))
    assert found.problem and "claims to be 5 h in the future" in found.sentence


def test_overdue_segment_is_a_problem() -> None:
    old = SegmentReport(50, 5_000, NOW_MS - 3 * HOUR_MS, NOW_MS - 3 * HOUR_MS)
    assert "should be gone" in held(HOLDS, old).sentence
    just = SegmentReport(50, 5_000, NOW_MS - HOUR_MS - 1000, NOW_MS - HOUR_MS - 1000)
    assert not held(replace(HOLDS, deletable=1), just).problem


def test_followers_segments_are_reported_if_they_have_a_problem() -> None:
    fine = facts({1: LEADS, 2: replace(FOLLOWS, retention=HOLDS), 3: FOLLOWS})
    assert explain(fine) == []
    old = SegmentReport(50, 5_000, NOW_MS - 3 * HOUR_MS, NOW_MS - 3 * HOUR_MS)
    wrong = facts({1: LEADS, 2: replace(FOLLOWS, retention=replace(HOLDS, oldest=old)), 3: FOLLOWS})
    assert the_only(wrong, "segments").sentence.startswith("broker 2 keeps")


# --- any facts ------------------------------------------------------------------------------------------

BROKERS = st.integers(-1, 4)
ODD = {**ANY, int: BROKERS | ANY[int], str: st.sampled_from(("leader", "follower", "stopped", "offline", "?"))}


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(BROKERS, values_of(ReplicaReport, ODD), max_size=4),
    st.lists(BROKERS, max_size=4),
    values_of(PartitionMetadata, ODD),
    st.dictionaries(BROKERS, st.just("no answer"), max_size=3),
)
def test_findings_for_any_facts_have_sentences_and_evidence(
    reports: dict[int, ReplicaReport], brokers: list[int], metadata: PartitionMetadata, silent: dict[int, str]
) -> None:
    of = replace(facts(reports, brokers=tuple(brokers), silent=silent), metadata=metadata)
    found = explain(of)
    for finding in found:
        assert finding.sentence and "\n" not in finding.sentence
        json.dumps(asdict(finding))
    wrong = [finding.problem for finding in found]
    assert wrong == sorted(wrong, reverse=True), "problems come first"
    if of.leader is None:
        assert any(wrong), "a partition without a leader is never well"
