"""Elections where a topic or a request gives up the records that only absent replicas have."""

from __future__ import annotations

import pytest

from cluster.state import PartitionState
from tests.cluster.controller_stage import TP, Cluster, broker, short
from tidelog.model import NO_LEADER

UNCLEAN = {"unclean.leader.election.enable": "true"}


def no_isr_member_alive(**configs: str) -> Cluster:
    """Brokers 2 and 3 are behind, and no ISR member is alive."""
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3), **configs)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1)
    cluster.die(1)
    cluster.settle()
    return cluster


def test_unclean_election_takes_the_longest_log_and_resets_the_isr() -> None:
    cluster = no_isr_member_alive(**UNCLEAN)
    assert cluster.state().leader == NO_LEADER
    cluster.report_log_ends({2: 5, 3: 6})
    cluster.settle()
    assert cluster.state() == PartitionState(3, 2, (3,), 1)


def test_unclean_election_waits_a_bounded_time_for_a_silent_replica() -> None:
    cluster = no_isr_member_alive(**UNCLEAN)
    cluster.report_log_end(3, 0)
    for now_ms in (0, 299_999):
        cluster.play(cluster.controller.time_passed(now_ms))
    assert cluster.waiting == []
    cluster.play(cluster.controller.time_passed(300_000))
    assert [write.state.leader for write in cluster.waiting] == [3]


def test_an_unclean_election_asks_again_where_one_was_lost_since() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", (1, 2, 3, 4), **UNCLEAN)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1)
    cluster.die(1)
    cluster.settle()
    cluster.report_log_end(2, 6)
    cluster.report_log_end(3, 5)
    cluster.live.pop(3)
    cluster.come(broker(3, 60))
    cluster.settle()
    assert {broker_id for broker_id, _ in cluster.asked} == {2, 3, 4}, "2 may have gone down with it"
    assert cluster.state().leader == NO_LEADER


def test_requested_unclean_election_ends_if_no_replica_is_alive() -> None:
    cluster = no_isr_member_alive()
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    assert cluster.controller.election_in_progress(TP)
    cluster.die(2, 3)
    assert not cluster.controller.election_in_progress(TP)


def test_returning_isr_member_leads_and_reported_log_ends_are_dropped() -> None:
    cluster = no_isr_member_alive(**UNCLEAN)
    cluster.report_log_end(3, 6)
    cluster.come(broker(1, 60))
    cluster.settle()
    assert (cluster.state().leader, cluster.context.partitions[TP].log_end_query) == (1, None)


# --- of several that reach as far --------------------------------------------------------------------------


def test_replica_that_reports_a_loss_ranks_behind_another() -> None:
    cluster = no_isr_member_alive(**UNCLEAN)
    cluster.report_log_end(2, 5, lacks=True)
    cluster.report_log_end(3, 5)
    cluster.settle()
    assert cluster.state().leader == 3


def test_silent_replica_with_a_known_loss_ranks_behind_another_silent_one() -> None:
    cluster = no_isr_member_alive()
    cluster.play(cluster.controller.replicas_answered(2, [], [], [TP]))
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    for now_ms in (0, 300_000):
        cluster.play(cluster.controller.time_passed(now_ms))
    cluster.settle()
    assert cluster.state().leader == 3


def isr_member_is_back_as_suspect() -> Cluster:
    """Broker 2 is back and waits for 3, the other ISR member. Broker 1 was out of sync, and alive all the time."""
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.leader_changes_isr(TP, 2, 3)
    cluster.die(2, 3)
    cluster.settle()
    cluster.come(short(2, 98))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (NO_LEADER, (2, 3))
    return cluster


@pytest.mark.parametrize("leaving", [False, True], ids=["stays", "is about to leave"])
def test_isr_member_ranks_first_even_if_it_is_shutting_down(leaving: bool) -> None:
    cluster = isr_member_is_back_as_suspect()
    if leaving:
        cluster.play(cluster.controller.shutdown_wanted(2))
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.report_log_ends({1: 5, 2: 5})
    cluster.settle()
    assert cluster.state().leader == 2


def test_replica_in_shutdown_ranks_last_in_an_unclean_election() -> None:
    cluster = no_isr_member_alive()
    cluster.play(cluster.controller.shutdown_wanted(2))
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.report_log_ends({2: 5, 3: 5})
    cluster.settle()
    assert cluster.state().leader == 3


# --- as long as one of those in sync lives and may have everything -------------------------------------------


def isr_is_back_as_suspects() -> Cluster:
    """ISR members 1 and 2 are back and may be short. Broker 3 was behind, and is absent."""
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3), **UNCLEAN)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1, 2)
    cluster.die(1, 2, 3)
    cluster.settle()
    cluster.come(short(1, 97), short(2, 98))
    cluster.settle()
    assert cluster.state().leader == NO_LEADER
    return cluster


def test_out_of_sync_replica_is_not_elected_while_suspects_are_alive() -> None:
    cluster = isr_is_back_as_suspects()
    cluster.come(broker(3, 99))
    cluster.settle()
    cluster.report_log_ends({1: 7, 2: 8})
    cluster.settle()
    assert cluster.state().leader == 2


def test_out_of_sync_replica_is_elected_once_suspects_are_gone() -> None:
    cluster = isr_is_back_as_suspects()
    cluster.die(1, 2)
    cluster.come(broker(3, 99))
    cluster.settle()
    assert cluster.state().leader == 3


def test_suspect_replica_outside_the_isr_does_not_delay_an_election() -> None:
    """The controller reads late that the leader had removed 2 from the ISR before the leader failed."""
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3), **UNCLEAN)
    cluster.settle()
    cluster.silent.add(3)
    cluster.come(short(1, 97), short(2, 98))
    cluster.leader_changes_isr(TP, 1, 3)
    cluster.die(1, 3)
    cluster.settle()
    assert cluster.state().leader == 2


# --- replicas that register while others answer ------------------------------------------------------------


def test_unclean_election_waits_for_a_replica_that_is_registering() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", (1, 2, 3), (3, 4), **UNCLEAN)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1)
    cluster.die(1)
    cluster.settle()
    cluster.come(broker(3, 60))
    assert [write.tp.partition for write in cluster.waiting] == [1], (
        "broker 3 waits until its former self is dealt with"
    )
    cluster.report_log_end(2, 5)
    assert [write.tp.partition for write in cluster.waiting] == [1]
    cluster.settle()
    cluster.report_log_ends({2: 5, 3: 6})
    cluster.settle()
    assert cluster.state() == PartitionState(3, 2, (3,), 1)


def test_time_to_answer_begins_anew_with_every_question() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", (1, 2, 3, 4), **UNCLEAN)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1)
    cluster.die(1)
    cluster.settle()
    cluster.report_log_end(2, 5)
    cluster.play(cluster.controller.time_passed(0))
    cluster.play(cluster.controller.time_passed(299_000))
    cluster.die(4)  # a replica that has answered before is asked again
    cluster.report_log_end(2, 5)
    for now_ms in (299_500, 300_000, 599_499):
        cluster.play(cluster.controller.time_passed(now_ms))
    assert cluster.waiting == [], "broker 3 was asked a moment ago"
    cluster.play(cluster.controller.time_passed(599_500))
    assert [write.state.leader for write in cluster.waiting] == [2]


def test_unclean_election_gives_up_all_other_replicas_for_good() -> None:
    """A replica that was eligible may come back, and is no candidate any more."""
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.leader_changes_isr(TP, 1, 2)
    for broker_id in (2, 1):
        cluster.die(broker_id)
        cluster.settle()
    assert (cluster.state().isr, cluster.state().eligible) == ((1,), (2,))
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr, cluster.state().eligible) == (3, (3,), ())
