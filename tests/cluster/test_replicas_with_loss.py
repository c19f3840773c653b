"""Replicas that report a loss of committed records: their log is gone, or ends before its high watermark."""

from __future__ import annotations

from cluster.controller.effects import SendLeaderAndIsr
from cluster.state import PartitionState
from tests.cluster.controller_stage import TP, Cluster, broker, short
from tidelog.model import NO_LEADER


def with_lacking(*broker_ids: int, **configs: str) -> Cluster:
    """Replicas on 1 and 2, both in sync; all failed, and these brokers came back and noticed their loss."""
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2), **configs)
    cluster.settle()
    cluster.die(1, 2)
    cluster.settle()
    for broker_id in broker_ids:
        cluster.come(short(broker_id, 90 + broker_id))
        cluster.settle()
        refuse(cluster, broker_id)
    for broker_id in broker_ids:
        cluster.report_log_end(broker_id, broker_id * 10, lacks=True)
    return cluster


def refuse(cluster: Cluster, broker_id: int) -> None:
    cluster.play(cluster.controller.replicas_answered(broker_id, [], [], [TP]))
    cluster.settle()


def accept(cluster: Cluster, broker_id: int) -> None:
    cluster.play(cluster.controller.replicas_answered(broker_id, [TP], []))
    cluster.settle()


def is_reported_unclean(cluster: Cluster) -> bool:
    effects = cluster.context.leader_and_isr({TP: cluster.states[TP]}, [cluster.state().leader])
    return any(state.unclean for each in effects if isinstance(each, SendLeaderAndIsr) for state in each.partitions)


def test_replica_with_loss_leaves_the_isr_in_favour_of_a_trusted_one() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    refuse(cluster, 1)
    assert cluster.state() == PartitionState(2, 1, (2, 3), 1)
    accept(cluster, 1)  # outside the ISR it may follow
    cluster.leader_changes_isr(TP, 2, 3, 1)
    assert cluster.state().isr == (2, 3, 1)
    assert cluster.waiting == []


def test_replica_with_loss_never_leads_by_a_clean_election() -> None:
    cluster = with_lacking(1)
    state = cluster.state()
    assert (state.leader, state.isr) == (NO_LEADER, (1, 2))
    cluster.play(cluster.controller.elections_wanted([TP]))
    cluster.settle()
    assert cluster.state() == state
    cluster.come(broker(2, 99))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))


def test_requested_unclean_election_takes_the_longest_log_with_loss() -> None:
    cluster = with_lacking(1, 2)
    assert cluster.state().leader == NO_LEADER
    assert not is_reported_unclean(cluster)
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))
    assert is_reported_unclean(cluster)
    accept(cluster, 2)
    assert not cluster.controller.election_in_progress(TP)
    epoch = cluster.state().leader_epoch
    cluster.come(broker(2, 199))  # its log counts from now on
    cluster.settle()
    assert cluster.state().leader == 2
    assert cluster.state().leader_epoch > epoch
    assert not is_reported_unclean(cluster)


def test_replica_with_loss_leads_uncleanly_if_no_other_can() -> None:
    cluster = with_lacking(1, **{"unclean.leader.election.enable": "true"})
    assert (cluster.state().leader, cluster.state().isr) == (1, (1,))
    assert is_reported_unclean(cluster)


def test_suspect_that_reports_a_loss_does_not_delay_an_unclean_election() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3), **{"unclean.leader.election.enable": "true"})
    cluster.settle()
    cluster.leader_changes_isr(TP, 1, 2)
    cluster.die(1, 2, 3)
    cluster.come(short(1, 91), short(2, 92), short(3, 93))
    cluster.settle()
    assert cluster.state().leader == NO_LEADER
    for broker_id in (1, 2):
        cluster.report_log_end(broker_id, broker_id * 10, lacks=True)
    cluster.settle()
    assert cluster.asked == [(3, [TP])], "the unclean election considers all replicas"
    cluster.report_log_end(3, 15)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,)), "the longest log wins"
    assert is_reported_unclean(cluster)


def test_a_refusal_that_crossed_with_the_election_is_dealt_with_again() -> None:
    cluster = with_lacking(1, **{"unclean.leader.election.enable": "true"})
    refuse(cluster, 1)  # the request that was sent before
    assert cluster.state().leader == 1
    assert is_reported_unclean(cluster)


def test_out_of_sync_replica_is_preferred_to_one_with_a_lost_log() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.die(2)
    cluster.settle()
    cluster.come(broker(2, 98))
    refuse(cluster, 1)
    assert cluster.state() == PartitionState(NO_LEADER, 1, (1,), 1)
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.report_log_end(1, -1, -1, lacks=True)
    cluster.report_log_end(2, 0, -1)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))


def test_lacking_replica_that_restarts_is_trusted_until_it_refuses_again() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.leader_changes_isr(TP, 1)
    refuse(cluster, 1)
    assert cluster.state().leader == NO_LEADER
    cluster.come(broker(1, 99))
    cluster.settle()
    assert cluster.state().leader == 1, "the lost disk may be back"
    refuse(cluster, 1)
    assert cluster.state().leader == NO_LEADER
