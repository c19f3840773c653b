"""Registrations outlive their processes: no member leaves an ISR in favour of one that may have died too."""

from __future__ import annotations

from cluster.controller.liveness import Liveness
from cluster.state import PartitionState
from tests.cluster.controller_stage import TP, Cluster, broker, short
from tidelog.model import NO_LEADER, TopicPartition


def settled(*broker_ids: int, controller_id: int = 9) -> Cluster:
    """A topic with a replica on each of these brokers, led by the first."""
    cluster = Cluster(*broker_ids, controller_id=controller_id)
    cluster.create("t", broker_ids)
    cluster.settle()
    return cluster


def test_only_an_answer_to_a_request_after_the_loss_proves_liveness() -> None:
    liveness = Liveness(controller_id=9)
    asked = liveness.epoch
    liveness.note_lost([1])
    liveness.answered(2, asked)
    assert not liveness.any_alive_since_loss([2], [1]), "the request was sent before the loss"
    liveness.answered(2, liveness.epoch)
    assert liveness.any_alive_since_loss([2], [1])
    assert liveness.any_alive_since_loss([2, 3], [1]), "one live candidate is enough"
    liveness.note_lost([3])
    assert not liveness.any_alive_since_loss([2], [1, 3])
    assert liveness.any_alive_since_loss([2], [1])
    liveness.on_registration_ended(2)
    assert not liveness.any_alive_since_loss([2], [1]), "the next process has not answered yet"
    assert liveness.any_alive_since_loss([9], [1, 3]), "the controller lives"


def test_a_dead_leader_is_replaced_when_one_of_the_others_has_answered() -> None:
    cluster = settled(1, 2, 3)
    cluster.silent = {2, 3}
    cluster.die(1)
    cluster.settle()
    assert cluster.state() == PartitionState(1, 0, (1, 2, 3), 1), "2 and 3 may have died with it"
    cluster.resume_answers(3)
    cluster.settle()
    assert cluster.state() == PartitionState(2, 1, (2, 3), 1)


def test_controllers_own_replica_needs_no_proof_of_liveness() -> None:
    cluster = settled(1, 2, 3, controller_id=3)
    cluster.silent = {2, 3}
    cluster.die(1)
    cluster.settle()
    assert cluster.state() == PartitionState(2, 1, (2, 3), 1)


def test_a_follower_that_died_stays_in_the_isr_until_another_has_answered() -> None:
    cluster = settled(1, 2)
    cluster.silent = {1}
    cluster.die(2)
    cluster.settle()
    assert cluster.state().isr == (1, 2)
    cluster.resume_answers(1)
    cluster.settle()
    assert cluster.state() == PartitionState(1, 0, (1,), 1)


def test_longest_log_leads_after_an_unnoticed_restart_of_all_brokers() -> None:
    cluster = settled(1, 2, 3)
    cluster.silent = {1, 2, 3}  # all are dead, but still registered
    for broker_id in (1, 2, 3):
        cluster.silent.discard(broker_id)
        cluster.come(short(broker_id, 90 + broker_id))
        cluster.settle()
        cluster.play(cluster.controller.time_passed(5000 * broker_id))
        cluster.settle()
        assert set(cluster.state().isr) == {1, 2, 3}
    assert sorted({asked for asked, _ in cluster.asked}) == [1, 2, 3]
    for broker_id, end in ((1, 5), (2, 9), (3, 7)):
        cluster.report_log_end(broker_id, end)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))
    assert sorted(cluster.cleared_marks) == [1, 2, 3]


def test_suspect_member_leaves_the_isr_once_the_leader_has_answered() -> None:
    cluster = settled(1, 2, 3)
    cluster.silent = {1, 2}
    cluster.come(short(3, 99))
    cluster.settle()
    assert cluster.state() == PartitionState(1, 0, (1, 2, 3), 1)
    assert 3 not in cluster.context.brokers, "the ISR still counts on the previous registration"
    cluster.resume_answers(1)
    cluster.settle()
    assert cluster.state() == PartitionState(1, 1, (1, 2), 1)
    assert cluster.cleared_marks == [3]


def test_registering_broker_waits_a_bounded_time_for_liveness() -> None:
    cluster = settled(1, 2, 3)
    cluster.create("u", (2, 3))
    cluster.settle()
    cluster.silent = {1, 2, 3}
    cluster.come(broker(1, 98))
    cluster.come(short(3, 99))
    cluster.settle()
    assert not {1, 3} & cluster.context.brokers.keys()
    cluster.play(cluster.controller.time_passed(0))
    cluster.play(cluster.controller.time_passed(999))
    cluster.settle()
    assert not {1, 3} & cluster.context.brokers.keys()
    cluster.play(cluster.controller.time_passed(1000))
    cluster.settle()
    assert {1, 3} <= cluster.context.brokers.keys()
    assert cluster.state() == PartitionState(NO_LEADER, 1, (1, 2, 3), 1)
    assert cluster.state(TopicPartition("u", 0)) == PartitionState(2, 1, (2, 3), 1), "in an epoch of which 3 knows"
    assert cluster.cleared_marks == []
    cluster.resume_answers(1)
    cluster.settle()
    assert cluster.state() == PartitionState(1, 2, (1, 2), 1)


def test_broker_in_shutdown_leaves_the_isr_for_a_live_member() -> None:
    cluster = settled(1, 2)
    cluster.silent = {2}
    cluster.play(cluster.controller.shutdown_wanted(1))
    cluster.settle()
    assert cluster.state() == PartitionState(1, 0, (1, 2), 1)
    assert cluster.controller.has_pending_work(1), "the leader's partitions are not taken from it yet"
    cluster.resume_answers(2)
    cluster.settle()
    assert cluster.state() == PartitionState(2, 1, (2,), 1)
    assert not cluster.controller.has_pending_work(1)


def test_shutdown_during_a_write_moves_only_the_leadership() -> None:
    cluster = settled(1, 2, 3)
    cluster.die(3)
    cluster.play(cluster.controller.shutdown_wanted(1))
    cluster.settle()
    assert cluster.state() == PartitionState(2, 1, (1, 2), 1)


def test_leader_is_asked_anew_if_a_member_is_lost_before_its_hand_off() -> None:
    cluster = settled(1, 2, 3)
    cluster.die(1)
    cluster.settle()
    cluster.come(broker(1, 50))
    cluster.leader_changes_isr(TP, 1, 2, 3)
    cluster.silent = {1, 2}
    cluster.play(cluster.controller.elections_wanted([TP]))
    question = cluster.controller.liveness.epoch
    cluster.die(3)
    cluster.play(cluster.controller.broker_answered(2, question))
    cluster.resume_answers(1)
    cluster.settle()
    assert cluster.state() == PartitionState(2, 1, (1, 2), 1), "broker 2 may be unreachable since broker 3 was lost"
    cluster.resume_answers(2)
    cluster.settle()
    assert cluster.state() == PartitionState(1, 2, (1, 2), 1)


def test_late_answer_of_an_earlier_registration_proves_nothing() -> None:
    cluster = settled(1, 2, 3)
    cluster.silent = {2, 3}
    cluster.die(1, 3)
    liveness = cluster.controller.liveness
    assert list(cluster.controller.broker_answered(3, liveness.epoch)) == []
    assert not liveness.any_alive_since((3,), liveness.epoch)


def test_dead_registered_broker_expires_and_the_suspect_one_leads() -> None:
    cluster = settled(1, 2)
    cluster.silent = {2}
    cluster.come(short(1, 99))
    cluster.settle()
    cluster.die(2)
    cluster.settle()
    assert cluster.state() == PartitionState(NO_LEADER, 1, (1, 2), 1), "2 may be whole when it comes back"
    cluster.come(broker(2, 100))
    cluster.settle()
    assert cluster.state().leader == NO_LEADER, "and it must have outlived the other's loss"
    cluster.resume_answers(2)
    cluster.settle()
    assert cluster.state() == PartitionState(2, 2, (2,), 1)
    assert cluster.cleared_marks == [1]


def test_next_controller_suspects_the_same_replicas() -> None:
    cluster = settled(1, 2, 3)
    cluster.silent = {2, 3}
    cluster.live = {2: broker(2), 3: broker(3)}
    cluster.begin_term(2)
    cluster.settle()
    assert cluster.state() == PartitionState(1, 0, (1, 2, 3), 1)
    cluster.come(short(2, 99))
    cluster.settle()
    assert cluster.state().isr == (1, 2, 3)
    cluster.resume_answers(3)
    cluster.settle()
    assert cluster.state() == PartitionState(3, 1, (3,), 2)
