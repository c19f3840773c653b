"""Brokers that return after their machine failed, so that unflushed records may be lost."""

from __future__ import annotations

import pytest

from cluster.controller.decision import Ask, Awaited, Question, Wait
from cluster.controller.timer import Timer
from cluster.controller.unclean_recovery import GONE, LogEnd, LogEndQuery, choose_recovery_leader
from cluster.state import PartitionState
from tests.cluster.controller_stage import TP, Cluster, broker, short
from tidelog.model import NO_LEADER, TopicPartition


def both_replicas_went_down() -> Cluster:
    """A partition on brokers 1 and 2, both in sync; broker 3 has no replica."""
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.die(1, 2)
    cluster.settle()
    return cluster


@pytest.mark.parametrize(
    ("live", "query", "overdue", "expected"),
    [
        pytest.param(
            {1},
            LogEndQuery(),
            (False, False),
            Wait(Awaited.ABSENT_CANDIDATES),
            id="the absent member may be trusted, so it is waited for",
        ),
        pytest.param(
            {1},
            LogEndQuery(),
            (True, False),
            Ask(Question.LOG_ENDS, (1,)),
            id="the wait for the absent member is bounded",
        ),
        pytest.param(
            {1, 2}, LogEndQuery(), (False, False), Ask(Question.LOG_ENDS, (1, 2)), id="all are online and are asked"
        ),
        pytest.param(
            {1, 2},
            LogEndQuery({1: LogEnd(1, 9)}, {1: 0, 2: 0}, Timer(70)),
            (True, False),
            Wait(Awaited.LOG_ENDS, 70),
            id="one replica has not answered",
        ),
        pytest.param(
            {1, 2},
            LogEndQuery({1: LogEnd(1, 9)}, {1: 0, 2: 0}),
            (False, True),
            1,
            id="the wait for the answer is bounded",
        ),
        pytest.param({1, 2}, LogEndQuery({1: LogEnd(1, 9), 2: LogEnd(2, 5)}), (False, False), 2, id="the later epoch"),
        pytest.param({1, 2}, LogEndQuery({1: LogEnd(2, 9), 2: LogEnd(2, 5)}), (False, False), 1, id="the longer log"),
        pytest.param(
            {1, 2},
            LogEndQuery({1: LogEnd(9, 9, True), 2: LogEnd(0, 1)}),
            (False, False),
            2,
            id="one replica reports a loss",
        ),
        pytest.param(
            {1, 2},
            LogEndQuery({1: GONE, 2: GONE}),
            (False, False),
            Wait(Awaited.SOUND_LOG),
            id="both report a loss, so no replica leads",
        ),
    ],
)
def test_recovery_chooses_among_suspect_replicas(
    live: set[int], query: LogEndQuery, overdue: tuple[bool, bool], expected: int | Ask | Wait
) -> None:
    absent, answers = overdue
    choice = choose_recovery_leader((1, 2), (1, 2), query, live, absent_overdue=absent, answers_overdue=answers)
    assert choice == expected


@pytest.mark.parametrize(
    ("ends", "leader"),
    [
        pytest.param({1: LogEnd(1, 5), 3: LogEnd(1, 6, epochs=((1, 0),))}, 3, id="more records of the same epoch"),
        pytest.param(
            {1: LogEnd(1, 5), 3: LogEnd(2, 6, epochs=((1, 0), (2, 5)))}, 3, id="a later epoch with more records"
        ),
        pytest.param(
            {1: LogEnd(1, 5), 3: LogEnd(2, 6, epochs=((1, 0), (2, 4)))}, 1, id="a later epoch that began too early"
        ),
        pytest.param({1: LogEnd(1, 6), 3: LogEnd(1, 6)}, 1, id="an equal log"),
        pytest.param({1: LogEnd(1, 5, True), 3: LogEnd(1, 6)}, None, id="a loss that both may have"),
        pytest.param({1: LogEnd(1, 5), 3: LogEnd(1, 6, True)}, 1, id="a log that reports a loss"),
    ],
)
def test_eligible_replica_leads_if_its_log_contains_the_isrs(ends: dict[int, LogEnd], leader: int | None) -> None:
    choice = choose_recovery_leader(
        (1,), (1, 3), LogEndQuery(ends), {1, 3}, absent_overdue=False, answers_overdue=False
    )
    assert choice == (Wait(Awaited.SOUND_LOG) if leader is None else leader)


def test_the_only_member_needs_no_comparison() -> None:
    cluster = Cluster(1)
    cluster.create("t", (1,))
    cluster.settle()
    cluster.come(short(1, 99))
    cluster.settle()
    assert cluster.state() == PartitionState(1, 2, (1,), 1)
    assert (cluster.asked, cluster.cleared_marks) == ([], [1])


def test_suspect_broker_is_online_only_after_its_leaders_epochs_rose() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3), (2, 3, 1))
    cluster.settle()
    second = TopicPartition("t", 1)
    cluster.die(3)
    cluster.settle()
    epochs = cluster.state(TP).leader_epoch, cluster.state(second).leader_epoch
    cluster.news()
    cluster.come(short(3, 99))
    assert cluster.news() == [], "an expansion to its former self may be on its way"
    cluster.settle()
    assert (cluster.state(TP).leader_epoch, cluster.state(second).leader_epoch) == (epochs[0] + 1, epochs[1] + 1)
    news = cluster.news()
    assert news.index("open 3@99") > news.index("tell 1: t-0 leader=1 isr=1,2")
    assert cluster.cleared_marks == [3]


def test_earlier_registration_that_joined_the_isr_meanwhile_is_removed() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.die(3)
    cluster.settle()
    epoch = cluster.state().leader_epoch
    cluster.come(short(3, 99))
    cluster.leader_writes_isr(TP, 1, 2, 3)  # it won against the controller's write
    cluster.settle()
    assert cluster.state().isr == (1, 2)
    assert cluster.state().leader_epoch == epoch + 1, "in the old epoch the leader could let the former self in again"
    assert 3 in cluster.context.brokers


def test_suspect_registration_during_an_isr_change_raises_the_epoch() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.die(3)
    (shrinks,) = cluster.waiting
    assert shrinks.state == PartitionState(1, 0, (1, 2), 1)
    cluster.come(short(3, 99))
    assert 3 not in cluster.context.brokers
    cluster.settle()
    assert cluster.state() == PartitionState(1, 1, (1, 2), 1)


def test_suspect_replica_leaves_the_isr_in_a_new_epoch() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.come(short(3, 99))
    cluster.settle()
    assert cluster.state() == PartitionState(1, 1, (1, 2), 1)
    assert len(cluster.history) == 2, "in one write"


def test_trusted_member_that_returns_leads_and_the_suspect_one_copies() -> None:
    cluster = both_replicas_went_down()
    cluster.come(short(1, 98))
    cluster.settle()
    assert cluster.state() == PartitionState(NO_LEADER, 1, (1, 2), 1), "the other replica is waited for"
    assert cluster.cleared_marks == []
    cluster.come(broker(2, 99))
    cluster.settle()
    assert cluster.state() == PartitionState(2, 2, (2,), 1)
    assert cluster.cleared_marks == [1]


def test_longest_log_leads_alone_if_every_member_is_suspect() -> None:
    cluster = both_replicas_went_down()
    cluster.come(short(1, 98))
    cluster.come(short(2, 99))
    cluster.settle()
    assert sorted(cluster.asked) == [(1, [TP]), (2, [TP])]
    cluster.report_log_end(1, 7)
    assert cluster.waiting == []
    cluster.report_log_end(2, 8)
    cluster.settle()
    assert cluster.state() == PartitionState(2, 2, (2,), 1)
    assert sorted(cluster.cleared_marks) == [1, 2]


@pytest.mark.parametrize(
    ("other", "extends"),
    [
        pytest.param(LogEnd(1, 5), True, id="the other is its beginning"),
        pytest.param(LogEnd(1, 7), True, id="up to where the next epoch begins"),
        pytest.param(LogEnd(1, 8), False, id="the other has more of that epoch"),
        pytest.param(LogEnd(3, 9), True, id="the same"),
        pytest.param(LogEnd(3, 10), False, id="the other is longer"),
        pytest.param(LogEnd(2, 6), False, id="the other has an epoch of its own"),
        pytest.param(LogEnd(0, 2), False, id="an epoch older than those reported"),
        pytest.param(LogEnd(-1, 0), True, id="the other is empty"),
        pytest.param(LogEnd(-1, 12), False, id="the other is empty, and begins behind it"),
    ],
)
def test_epochs_show_whether_a_log_contains_another(other: LogEnd, extends: bool) -> None:
    assert LogEnd(3, 9, epochs=((1, 3), (3, 7))).extends(other) == extends


@pytest.mark.parametrize("unclean", ["false", "true"])
def test_last_isr_member_waits_for_eligible_replicas_unless_unclean(unclean: str) -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2), **{"unclean.leader.election.enable": unclean})
    cluster.settle()
    cluster.die(1)
    cluster.settle()
    cluster.die(2)
    cluster.settle()
    cluster.come(short(2, 99))
    cluster.settle()
    assert cluster.state().leader == (2 if unclean == "true" else NO_LEADER)
    cluster.come(broker(1, 100))
    cluster.settle()
    if unclean == "false":
        cluster.report_log_ends({1: 7, 2: 7})
        cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))


def test_last_isr_member_ignores_replicas_that_left_the_isr_earlier() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.die(3)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1, 2)
    cluster.die(2)
    cluster.settle()
    assert (cluster.state().isr, cluster.state().eligible) == ((1,), (2,))
    cluster.die(1)
    cluster.settle()
    cluster.begin_term(2)
    cluster.come(short(1, 99))
    cluster.come(broker(3, 100))
    cluster.settle()
    assert (cluster.state().leader, cluster.asked) == (NO_LEADER, [])
    cluster.come(broker(2, 101))
    cluster.settle()
    cluster.report_log_ends({1: 7, 2: 8})
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr, cluster.state().eligible) == (2, (2,), (1,))


def test_replica_dropped_by_an_unclean_election_is_not_waited_for() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.die(2)
    cluster.settle()
    cluster.die(1)
    cluster.come(broker(2, 50))
    cluster.settle()
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.settle()
    assert (cluster.state().isr, cluster.state().eligible) == ((2,), ())


def test_isr_change_by_the_leader_clears_eligible_replicas() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.die(2)
    cluster.settle()
    cluster.come(broker(2, 50))
    cluster.settle()
    for isr in ((1, 2), (1,)):
        cluster.leader_changes_isr(TP, *isr)
    cluster.die(1)
    cluster.settle()
    cluster.come(short(1, 99))
    cluster.settle()
    assert (cluster.state().leader, cluster.asked) == (1, [])


def test_wait_for_absent_members_is_bounded() -> None:
    cluster = both_replicas_went_down()
    cluster.come(short(1, 98))
    cluster.settle()
    cluster.play(cluster.controller.time_passed(1000))
    cluster.play(cluster.controller.time_passed(300_999))
    assert cluster.asked == []
    cluster.play(cluster.controller.time_passed(301_000))
    assert cluster.asked == [(1, [TP])]
    cluster.report_log_end(1, 7)
    cluster.settle()
    assert cluster.state() == PartitionState(1, 2, (1,), 1)


@pytest.mark.parametrize("silent_for_ms", [1000, 300_000, 500_000])
def test_wait_for_a_trusted_member_starts_when_it_fails(silent_for_ms: int) -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.silent.add(1)
    cluster.come(short(2, 98))
    cluster.settle()
    for now_ms in (0, silent_for_ms // 2, silent_for_ms):
        cluster.play(cluster.controller.time_passed(now_ms))
    cluster.settle()
    assert cluster.state().isr == (1, 2), "the member has not proved that it is alive"
    cluster.die(1)
    cluster.settle()
    gone_ms = silent_for_ms + 1000
    for now_ms in (gone_ms, gone_ms + 299_999):
        cluster.play(cluster.controller.time_passed(now_ms))
    assert cluster.asked == []
    waits = cluster.state()
    cluster.play(cluster.controller.time_passed(gone_ms + 300_000))
    assert cluster.asked == [(2, [TP])], "nor is it waited for ever"
    cluster.silent.clear()
    cluster.come(broker(1, 99))
    cluster.settle()
    assert (waits.leader, waits.isr) == (NO_LEADER, (1, 2))
    assert (cluster.state().leader, cluster.state().isr) == (1, (1,))


def test_requested_unclean_election_ends_the_wait() -> None:
    cluster = both_replicas_went_down()
    cluster.come(short(1, 98))
    cluster.settle()
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.settle()
    assert cluster.state().leader == 1


def test_suspect_replica_that_restarts_is_suspect_and_asked_again() -> None:
    cluster = both_replicas_went_down()
    cluster.come(short(1, 97))
    cluster.come(short(2, 98))
    cluster.settle()
    cluster.report_log_end(1, 7)
    cluster.die(1)
    cluster.settle()
    cluster.asked.clear()
    cluster.come(broker(1, 99))  # only its process died since then: the mark is gone, but the broker stays suspect
    cluster.settle()
    assert sorted(cluster.asked) == [(1, [TP]), (2, [TP])], "2 too: it may have gone down with it"


def test_the_next_controller_deals_with_those_that_still_bear_the_mark() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2), (2, 1, 3))
    cluster.settle()
    cluster.live = {1: short(1, 97), 2: short(2, 98), 3: broker(3, 99)}
    cluster.begin_term(2)
    cluster.settle()
    assert cluster.state() == PartitionState(NO_LEADER, 1, (1, 2), 2)
    assert cluster.state(TopicPartition("t", 1)) == PartitionState(3, 1, (3,), 2)
    assert sorted(cluster.asked) == [(1, [TP]), (2, [TP])]
    assert cluster.cleared_marks == []


def test_deletion_ignores_a_broker_brought_online_after_a_refused_write() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.die(3)
    cluster.settle()
    cluster.come(short(3, 35))
    assert [write.tp for write in cluster.waiting] == [TP], "a new epoch begins before the broker is online"
    cluster.leader_writes_isr(TP, 1)
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    cluster.settle()
    assert 3 in cluster.context.brokers
    cluster.answer_stops()
    assert cluster.news()[-1] == "remove t"


def test_removed_topic_ends_the_suspicion_of_its_replicas() -> None:
    cluster = Cluster(1, 3)
    cluster.create("t", (3,))
    cluster.settle()
    cluster.die(3)
    cluster.settle()
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    cluster.come(short(3, 35))
    assert 3 in cluster.context.brokers
    cluster.play(cluster.controller.topic_removed("t"))
    assert cluster.cleared_marks == [3]


def test_wait_for_a_whole_member_starts_again_after_it_was_registered() -> None:
    cluster = both_replicas_went_down()
    cluster.come(short(1, 98))
    cluster.settle()
    cluster.play(cluster.controller.time_passed(0))
    cluster.silent.add(2)
    cluster.come(broker(2, 99))
    cluster.settle()
    cluster.play(cluster.controller.time_passed(299_000))
    cluster.die(2)
    cluster.settle()
    for now_ms in (299_500, 300_000, 599_499):
        cluster.play(cluster.controller.time_passed(now_ms))
    assert cluster.asked == [], "broker 2 was there until a moment ago"
    cluster.play(cluster.controller.time_passed(599_500))
    assert cluster.asked == [(1, [TP])]


def test_wait_for_a_whole_member_begins_anew_also_if_it_was_over_before() -> None:
    cluster = both_replicas_went_down()
    cluster.come(short(1, 98))
    cluster.settle()
    for now_ms in (0, 300_000):
        cluster.play(cluster.controller.time_passed(now_ms))
    assert cluster.asked == [(1, [TP])]
    cluster.silent.add(2)
    cluster.come(broker(2, 99))
    cluster.settle()
    cluster.die(2)
    cluster.settle()
    for now_ms in (300_500, 600_499):
        cluster.report_log_end(1, 5)
        cluster.play(cluster.controller.time_passed(now_ms))
        cluster.settle()
        assert cluster.state().leader == NO_LEADER, "broker 2 may have more, and was there until a moment ago"
    cluster.play(cluster.controller.time_passed(600_500))
    cluster.report_log_end(1, 5)
    cluster.settle()
    assert cluster.state().leader == 1


def test_recovery_waits_for_a_registering_member_however_long_it_was_away() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2), (3, 2))
    cluster.settle()
    cluster.die(1, 2)
    cluster.settle()
    cluster.come(short(1, 98))
    cluster.settle()
    for now_ms in (0, 300_000):
        cluster.play(cluster.controller.time_passed(now_ms))
    cluster.come(short(2, 99))  # it waits until the state of its other partition is written
    assert [write.tp.partition for write in cluster.waiting] == [1]
    cluster.report_log_end(1, 5)
    assert [write.tp.partition for write in cluster.waiting] == [1]
    cluster.settle()
    cluster.report_log_ends({1: 5, 2: 6})
    cluster.settle()
    assert cluster.state() == PartitionState(2, 2, (2,), 1)
