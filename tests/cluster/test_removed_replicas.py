"""A reassignment has removed the origin, and the remaining members fail before the removal is confirmed."""

from __future__ import annotations

import pytest

from cluster.state import ReplicaAssignment
from tests.cluster.controller_stage import TP, Cluster, broker, short
from tidelog.model import NO_LEADER

UNCLEAN = {"unclean.leader.election.enable": "true"}


def replicas_removed(origin: tuple[int, ...], remaining: tuple[int, ...], **configs: str) -> Cluster:
    """The state with only the remaining members in sync is written, and none of them has answered since."""
    cluster = Cluster(*origin, *remaining)
    cluster.create("t", origin, **configs)
    cluster.settle()
    cluster.reassign(TP, *remaining)
    cluster.settle()
    cluster.leader_changes_isr(TP, *origin, *remaining)
    cluster.silent.update(remaining)
    cluster.settle()
    assert (cluster.state().isr, cluster.stops) == (remaining, [])
    return cluster


def restart_with_possible_loss(cluster: Cluster, *broker_ids: int) -> None:
    """Restart brokers whose machines went down."""
    cluster.die(*broker_ids)
    cluster.settle()
    cluster.silent.clear()
    cluster.come(*(short(broker_id, 50 + broker_id) for broker_id in broker_ids))
    cluster.settle()


def catch_up(cluster: Cluster, *isr: int) -> None:
    cluster.leader_changes_isr(TP, *isr)
    cluster.settle()


# --- a remaining member comes back as a suspect -----------------------------------------------------


def test_removed_replica_leads_again_if_the_only_remaining_one_has_loss() -> None:
    cluster = replicas_removed((1,), (4,))
    restart_with_possible_loss(cluster, 4)
    cluster.news()
    cluster.report_log_ends({1: 7, 4: 5})
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (1, (1,))
    assert cluster.news() == ["tell 1: t-0 leader=1 isr=1", "tell 4: t-0 leader=1 isr=1"]
    assert cluster.stops == [] and cluster.cleared_marks == [4]
    catch_up(cluster, 1, 4)
    assert (cluster.state().isr, cluster.stops) == ((4,), [(1, [TP])])
    cluster.answer_stops()
    cluster.settle()
    assert cluster.assigned(TP) == ReplicaAssignment((4,)) and cluster.context.reassignments() == {}


def test_removed_replica_keeps_its_log_until_the_next_removal_is_confirmed() -> None:
    cluster = replicas_removed((1,), (4,))
    restart_with_possible_loss(cluster, 4)
    cluster.silent.add(4)
    cluster.report_log_ends({1: 7, 4: 7})
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (4, (4,))
    assert cluster.sent_holders() == {1, 4}
    cluster.resume_answers(4)
    cluster.silent.add(4)
    cluster.settle()
    assert cluster.stops == [], "the remaining member has not answered since the write"
    cluster.resume_answers(4)
    assert cluster.stops == [(1, [TP])]


def test_longest_log_leads_among_remaining_and_removed_replicas() -> None:
    cluster = replicas_removed((1, 2), (3, 4))
    restart_with_possible_loss(cluster, 3, 4)
    cluster.report_log_ends({1: 7, 2: 8, 3: 5, 4: 6})
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr, cluster.stops) == (2, (2,), [])
    catch_up(cluster, 2, 3, 4)
    assert cluster.state().isr == (3, 4)


def test_removed_replica_with_the_longest_log_leads_after_a_partial_loss() -> None:
    """Both may lack the same records, because only one had noted how far they were committed."""
    cluster = replicas_removed((1, 2), (3, 4))
    restart_with_possible_loss(cluster, 3, 4)
    cluster.report_log_end(3, 5, lacks=True)
    cluster.report_log_ends({1: 10, 2: 10, 4: 6})
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr, cluster.stops) == (1, (1,), [])


def test_wait_for_a_silent_registered_replica_is_bounded() -> None:
    cluster = replicas_removed((1,), (4,))
    restart_with_possible_loss(cluster, 4)
    cluster.report_log_end(4, 5)
    for now_ms in (0, 299_999):
        cluster.play(cluster.controller.time_passed(now_ms))
    assert cluster.waiting == []
    cluster.play(cluster.controller.time_passed(300_000))
    assert [write.state.leader for write in cluster.waiting] == [4]


def test_no_replica_leads_after_a_known_loss_without_an_unclean_request() -> None:
    cluster = replicas_removed((1,), (4,))
    restart_with_possible_loss(cluster, 4)
    cluster.report_log_end(1, 7)
    cluster.report_log_end(4, 5, lacks=True)
    cluster.settle()
    assert (cluster.state().leader, cluster.stops) == (NO_LEADER, [])
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (1, (1,))


def test_wait_for_an_absent_removed_replica_is_bounded() -> None:
    cluster = replicas_removed((1,), (4,))
    cluster.die(1)
    restart_with_possible_loss(cluster, 4)
    cluster.play(cluster.controller.time_passed(0))
    cluster.play(cluster.controller.time_passed(299_999))
    assert (cluster.state().leader, cluster.asked) == (NO_LEADER, [])
    cluster.play(cluster.controller.time_passed(300_000))
    cluster.report_log_ends({4: 5})
    cluster.settle()
    assert cluster.state().leader == 4


def test_removed_replica_that_returns_is_asked_and_leads() -> None:
    cluster = replicas_removed((1,), (4,))
    cluster.die(1)
    restart_with_possible_loss(cluster, 4)
    cluster.come(broker(1, 60))
    cluster.settle()
    cluster.report_log_ends({1: 7, 4: 5})
    cluster.settle()
    assert cluster.state().leader == 1


def test_no_replica_leads_while_the_only_remaining_member_is_absent() -> None:
    cluster = replicas_removed((1,), (4,))
    restart_with_possible_loss(cluster, 4)
    cluster.die(4)
    cluster.settle()
    cluster.asked.clear()
    cluster.play(cluster.controller.time_passed(0))
    cluster.play(cluster.controller.time_passed(300_000))
    cluster.settle()
    assert (cluster.state().leader, cluster.asked) == (NO_LEADER, []), "the absent replica may have all records"


def test_next_controller_asks_replicas_being_removed_too() -> None:
    cluster = replicas_removed((1, 2), (3, 4))
    cluster.die(3, 4)
    cluster.settle()
    cluster.begin_term(2)
    cluster.settle()
    restart_with_possible_loss(cluster, 3, 4)
    cluster.report_log_ends({1: 7, 2: 8, 3: 5, 4: 6})
    cluster.settle()
    assert (cluster.state().leader, cluster.stops) == (2, [])


def test_cancelled_reassignment_elects_an_original_replica_after_a_loss() -> None:
    cluster = replicas_removed((1,), (4,))
    restart_with_possible_loss(cluster, 4)
    cluster.reassign(TP)
    cluster.report_log_ends({1: 7, 4: 5})
    cluster.settle()
    cluster.answer_stops()
    cluster.settle()
    assert (cluster.state().leader, cluster.assigned(TP)) == (1, ReplicaAssignment((1,)))


def test_chosen_leader_that_fails_before_the_write_is_suspect_again() -> None:
    cluster = replicas_removed((1,), (4,))
    restart_with_possible_loss(cluster, 4)
    cluster.report_log_ends({1: 7, 4: 7})
    assert [write.state.leader for write in cluster.waiting] == [4]
    cluster.live.pop(4)
    cluster.come(short(4, 70))
    cluster.settle()
    assert cluster.state().leader == NO_LEADER
    cluster.report_log_ends({1: 7, 4: 6})
    cluster.settle()
    assert cluster.state().leader == 1


def test_confirmed_reassignment_considers_only_remaining_replicas() -> None:
    cluster = replicas_removed((1,), (4,))
    cluster.resume_answers(4)
    assert cluster.stops == [(1, [TP])]
    restart_with_possible_loss(cluster, 4)
    assert (cluster.state().leader, cluster.asked) == (4, [])


# --- whose sign of life counts -----------------------------------------------------------------------------


def joined_after_the_removal() -> Cluster:
    """Broker 3 stays. It was absent when 1 and 2 were removed, and caught up with 4, which has not answered since."""
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.die(3)
    cluster.settle()
    cluster.reassign(TP, 3, 4)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1, 2, 4)
    cluster.silent.add(4)
    cluster.settle()
    cluster.come(broker(3, 60))
    cluster.silent.add(3)
    catch_up(cluster, 4, 3)
    return cluster


def test_answer_before_joining_the_isr_proves_nothing() -> None:
    cluster = joined_after_the_removal()
    assert (cluster.state().isr, cluster.stops) == ((4, 3), [])
    cluster.resume_answers(4)
    assert cluster.stops == [(1, [TP]), (2, [TP])]


def test_current_remaining_members_are_asked_if_the_asked_ones_failed() -> None:
    cluster = joined_after_the_removal()
    cluster.resume_answers(3)
    cluster.silent.add(3)
    cluster.die(4)
    cluster.settle()
    cluster.resume_answers(3)
    cluster.settle()
    assert (cluster.state().isr, cluster.stops) == ((3,), [(1, [TP]), (2, [TP])])


def reassigned_from_a_silent_leader() -> Cluster:
    """Only an answer of the old leader is missing for its removal."""
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.reassign(TP, 2, 3, 4)
    cluster.settle()
    cluster.silent.add(1)
    catch_up(cluster, 1, 2, 3, 4)
    assert (cluster.state().leader, cluster.state().isr) == (1, (1, 2, 3, 4))
    return cluster


def test_leader_that_does_not_answer_is_not_removed() -> None:
    """Such a leader would not learn of its successor, and go on telling clients that records are committed."""
    cluster = reassigned_from_a_silent_leader()
    cluster.resume_answers(1)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2, 3, 4))


def test_answer_to_an_earlier_handoff_proves_nothing_for_the_next() -> None:
    cluster = reassigned_from_a_silent_leader()
    catch_up(cluster, 1, 2, 3)  # the new replica falls behind, so that no replica is removed yet
    cluster.resume_answers(1)
    cluster.silent.add(1)
    catch_up(cluster, 1, 2, 3, 4)
    assert cluster.state().leader == 1
    cluster.resume_answers(1)
    cluster.settle()
    assert cluster.state().isr == (2, 3, 4)


def test_remaining_member_proves_liveness_after_the_leaders_answer() -> None:
    """The leader may have answered long after the remaining members."""
    cluster = reassigned_from_a_silent_leader()
    cluster.silent = {2, 3, 4}
    cluster.resume_answers(1)
    cluster.settle()
    assert cluster.state().leader == 1
    cluster.resume_answers(3)
    cluster.settle()
    assert cluster.state().isr == (2, 3, 4)


def test_remaining_members_are_asked_again_after_a_new_leader_epoch() -> None:
    cluster = reassigned_from_a_silent_leader()
    cluster.silent = {2, 3, 4}
    cluster.resume_answers(1)  # the remaining members are asked
    cluster.silent.add(1)
    cluster.play(cluster.controller.leadership_ended(1, {TP: cluster.state().leader_epoch}))
    cluster.settle()
    cluster.resume_answers(2, 3, 4)
    cluster.settle()
    assert cluster.state().leader == 1, "the leader has not answered in this epoch"
    cluster.silent = {2, 3, 4}
    cluster.resume_answers(1)
    cluster.settle()
    assert cluster.state().leader == 1, "the remaining members answered before the leader did"
    cluster.resume_answers(3)
    cluster.settle()
    assert cluster.state().isr == (2, 3, 4)


# --- unclean elections -------------------------------------------------------------------------------------


def test_unclean_election_prefers_a_removed_replica_with_a_longer_log() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", (1, 2, 3), **UNCLEAN)
    cluster.settle()
    cluster.die(3)
    cluster.settle()
    cluster.reassign(TP, 3, 4)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1, 2, 4)
    cluster.silent.add(4)
    cluster.settle()
    cluster.come(broker(3, 60))
    cluster.settle()
    cluster.die(4)
    cluster.settle()
    cluster.report_log_ends({1: 7, 2: 7, 3: 5})
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr, cluster.stops) == (1, (1,), [])
    cluster.come(broker(4, 70))
    catch_up(cluster, 1, 2, 3, 4)
    assert cluster.state().isr == (3, 4)


@pytest.mark.parametrize("cancelled", [False, True])
def test_unclean_election_skips_a_replica_that_deleted_its_log(
    cancelled: bool,
) -> None:
    cluster = replicas_removed((1, 2), (3, 4), **UNCLEAN)
    cluster.resume_answers(3, 4)
    assert cluster.stops == [(1, [TP]), (2, [TP])]
    if cancelled:
        cluster.reassign(TP)
        cluster.settle()
    cluster.begin_term(2)
    cluster.leader_changes_isr(TP, 3)
    cluster.settle()
    cluster.die(3)
    cluster.settle()
    cluster.report_log_ends({1: 0, 2: 0, 4: 5})
    cluster.settle()
    assert cluster.state().leader == 4


def test_requested_unclean_election_may_elect_a_removed_replica() -> None:
    cluster = replicas_removed((1, 2), (3,))
    cluster.die(3)
    cluster.settle()
    assert cluster.controller.election_refusal(TP, unclean=True) is None
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.report_log_end(1, 7)
    assert cluster.waiting == [] and cluster.controller.election_in_progress(TP), "the other replica is waited for"
    cluster.report_log_end(2, 8)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))
    assert not cluster.controller.election_in_progress(TP)
