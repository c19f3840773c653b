"""The controller by example: an event goes in, effects come out. No ZooKeeper, no sockets, no time.

`tests.cluster.controller_stage` plays ZooKeeper and the brokers.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.controller.controller import Controller
from cluster.controller.effects import SendLeaderAndIsr, SendMetadata, SendStopReplica
from cluster.controller.leader_selection import REGISTRATION_DELAY_MS
from cluster.state import PartitionState, TopicAssignment, VersionedState
from tests.cluster.controller_stage import LISTENERS, TP, Cluster, broker, short
from tidelog.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    PreferredLeaderNotAvailableError,
)
from tidelog.model import NO_LEADER, Endpoint, TopicPartition
from tidelog.protocol.control_messages import ANY_EPOCH


def test_new_topic_is_elected_and_then_sent_to_its_replicas() -> None:
    cluster = Cluster(1, 2, 3)
    assert cluster.news() == ["open 1@10", "open 2@20", "open 3@30"]
    cluster.create("t", (1, 2), (2, 3))
    assert cluster.news() == []
    cluster.settle()
    assert cluster.news() == [
        "tell 1: t-0 leader=1 isr=1,2",
        "tell 2: t-0 leader=1 isr=1,2",
        "tell 2: t-1 leader=2 isr=2,3",
        "tell 3: t-1 leader=2 isr=2,3",
    ]
    assert cluster.state() == PartitionState(1, 0, (1, 2), 1)


def test_failed_broker_loses_its_leaderships_and_isr_memberships() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3), (2, 1, 3), (3, 2))
    cluster.settle()
    cluster.news()
    cluster.die(1)
    assert cluster.news() == ["close 1"]
    cluster.settle()
    assert cluster.news() == [
        "tell 2: t-0 leader=2 isr=2,3",
        "tell 2: t-1 leader=2 isr=2,3",
        "tell 3: t-0 leader=2 isr=2,3",
        "tell 3: t-1 leader=2 isr=2,3",
    ]
    assert [cluster.state(TopicPartition("t", p)).leader_epoch for p in range(3)] == [1, 0, 0]
    assert [cluster.states[TopicPartition("t", p)].partition_epoch for p in range(3)] == [1, 1, 0]


def test_partitions_without_a_leader_are_written_first() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (2, 1, 3), (3, 1, 2), (1, 2, 3), (2, 1, 3), (1, 3, 2))
    cluster.settle()
    cluster.die(1)
    assert [write.tp.partition for write in cluster.waiting] == [2, 4, 0, 1, 3]


def test_a_broker_that_comes_back_gets_everything_it_hosts() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2), (2, 1))
    cluster.settle()
    cluster.die(1)
    cluster.settle()
    cluster.news()
    cluster.come(broker(1, 99))
    assert cluster.news() == ["open 1@99", "tell 1: t-0 leader=2 isr=2", "tell 1: t-1 leader=2 isr=2"]
    assert cluster.waiting == []


def test_broker_with_a_new_epoch_counts_as_failed_before_it_is_online() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.news()
    cluster.come(broker(1, 99))
    assert cluster.news() == ["close 1"], "the broker is not online before its previous registration is dealt with"
    cluster.settle()
    assert cluster.news() == ["tell 2: t-0 leader=2 isr=2", "open 1@99", "tell 1: t-0 leader=2 isr=2"]
    assert cluster.state() == PartitionState(2, 1, (2,), 1)


def test_changed_address_of_a_broker_is_sent_to_all_without_an_election() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.come(short(3, 30))
    cluster.settle()
    cluster.news()
    before = cluster.state()
    moved = {name: Endpoint("elsewhere", at.port) for name, at in LISTENERS.items()}
    changed = {**cluster.live, **{b: replace(cluster.live[b], listeners=moved) for b in (2, 3)}}
    effects = list(cluster.controller.brokers_changed(changed))
    cluster.play(effects)
    assert cluster.news() == ["move 2 to elsewhere:2", "move 3 to elsewhere:2"]
    assert [each.broker_ids for each in effects if isinstance(each, SendMetadata)] == [(1, 2, 3)]
    infos = {each.broker_id: each.replication_endpoint for each in cluster.context.live_brokers()}
    assert infos == {1: Endpoint("h", 2), 2: Endpoint("elsewhere", 2), 3: Endpoint("elsewhere", 2)}
    assert cluster.state() == before
    assert list(cluster.controller.brokers_changed(cluster.context.brokers)) == []


def test_address_that_changes_during_a_registration_is_used_from_the_start() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.news()
    cluster.come(short(2, 21))
    moved = replace(short(2, 21), listeners={name: Endpoint("elsewhere", at.port) for name, at in LISTENERS.items()})
    cluster.come(moved)
    cluster.settle()
    opened = [each for each in cluster.news() if each.startswith(("open", "move"))]
    assert opened == ["open 2@21"]
    assert cluster.context.brokers[2].replication_endpoint == Endpoint("elsewhere", 2)


def test_a_lonely_replica_that_restarts_leads_again_two_epochs_later() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1,))
    cluster.settle()
    cluster.come(broker(1, 99))
    cluster.settle()
    assert cluster.state() == PartitionState(1, 2, (1,), 1)
    assert [state.leader for _, state in cluster.history] == [1, NO_LEADER, 1]


def test_partition_has_no_leader_until_an_isr_member_is_back() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.leader_writes_isr(TP, 1, 2)
    cluster.play(cluster.controller.states_read({TP: cluster.states[TP]}, cluster.context.ids_of({TP.topic})))
    cluster.die(1, 2)
    cluster.settle()
    assert cluster.state() == PartitionState(NO_LEADER, 1, (1, 2), 1)
    cluster.come(broker(2, 99))
    cluster.settle()
    assert cluster.state() == PartitionState(2, 2, (2,), 1)


def test_a_reading_that_is_older_than_what_is_known_is_ignored() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    before = cluster.states[TP]
    cluster.leader_writes_isr(TP, 1, 2)
    cluster.play(cluster.controller.states_read({TP: cluster.states[TP]}, cluster.context.ids_of({TP.topic})))
    cluster.play(
        cluster.controller.states_read({TP: before}, cluster.context.ids_of({TP.topic}))
    )  # a stale notification
    assert cluster.context.partitions[TP].known == cluster.states[TP]


def test_an_unclean_election_is_a_setting_of_the_topic() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2), **{"unclean.leader.election.enable": "true"})
    cluster.settle()
    cluster.die(2)
    cluster.settle()
    cluster.come(broker(2, 99))
    cluster.die(1)
    cluster.settle()
    assert cluster.state() == PartitionState(2, 2, (2,), 1), "no other replica is alive, so that none is asked"
    assert cluster.asked == []


def test_only_changed_settings_are_sent_to_every_broker() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2))
    cluster.settle()
    effects = list(cluster.controller.configs_changed({"t": {"retention.ms": "5"}, "unknown": {"retention.ms": "6"}}))
    (sent,) = [effect for effect in effects if isinstance(effect, SendMetadata)]
    assert sent.broker_ids == (1, 2, 3)
    assert [(message.topic, message.partition, message.leader) for message in sent.partitions] == [("t", 0, 1)]
    (info,) = cluster.context.topic_infos(["t"])
    assert (info.configs, info.partition_count) == ({"retention.ms": "5"}, 1)
    assert list(cluster.controller.configs_changed({"t": {"retention.ms": "5"}})) == []


def test_settings_read_with_an_assignment_are_sent_at_their_notification() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2))
    cluster.settle()
    read = replace(cluster.topics["t"], version=1, configs={"retention.ms": "5"})
    cluster.play(cluster.controller.assignment_written(read))
    effects = list(cluster.controller.configs_changed({"t": {"retention.ms": "5"}}))
    assert [effect.broker_ids for effect in effects if isinstance(effect, SendMetadata)] == [(1, 2, 3)]
    (info,) = cluster.context.topic_infos(["t"])
    assert info.configs == {"retention.ms": "5"}


def test_an_unclean_election_that_is_allowed_now_takes_place_now() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.die(2)
    cluster.settle()
    cluster.die(1)
    cluster.come(broker(2, 99))
    cluster.settle()
    assert cluster.state().leader == NO_LEADER
    cluster.play(cluster.controller.configs_changed({"t": {"unclean.leader.election.enable": "true"}}))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))


def test_a_refused_write_is_chosen_again_from_the_isr_that_was_found() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.leader_writes_isr(TP, 1, 3)  # the controller has not been notified
    cluster.die(1)
    (attempt,) = cluster.waiting
    assert attempt.state.leader == 2
    cluster.settle()
    assert cluster.state() == PartitionState(3, 1, (3,), 1)


def test_isr_change_read_during_a_write_is_sent_after_its_outcome() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.die(1)
    (write,) = cluster.waiting
    cluster.waiting.clear()
    outcome = cluster.answer(write)
    cluster.leader_changes_isr(TP, 2)
    cluster.leader_changes_isr(TP, 2, 3)
    later = cluster.states[TP]
    cluster.leader_changes_isr(TP, 2)
    latest = cluster.states[TP]
    cluster.play(cluster.controller.states_read({TP: later}, cluster.context.ids_of({TP.topic})))  # stale
    assert cluster.news()[-1].startswith("close 1"), "the outcome of the write is not known yet"
    cluster.play(cluster.controller.states_written([outcome]))
    assert cluster.context.partitions[TP].known == latest
    assert cluster.news() == ["tell 2: t-0 leader=2 isr=2", "tell 3: t-0 leader=2 isr=2"]


def test_state_found_by_a_refused_write_counts_if_it_is_the_latest() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.die(1)
    cluster.leader_changes_isr(TP, 1, 2)
    cluster.leader_writes_isr(TP, 1, 3)
    (write,) = cluster.waiting
    cluster.waiting.clear()
    cluster.play(cluster.controller.states_written([cluster.answer(write)]))
    assert [(each.state.isr, each.expected) for each in cluster.waiting] == [((3,), 2)]


def test_a_death_during_a_write_is_dealt_with_after_it() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.die(1)
    cluster.die(2)
    assert len(cluster.waiting) == 1, "a partition has one write in flight at a time"
    cluster.settle()
    assert cluster.state() == PartitionState(3, 2, (3,), 1)


def test_a_vanished_state_is_not_made_up_again() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    del cluster.states[TP]
    cluster.die(1)
    cluster.settle()
    assert TP not in cluster.states


def test_changed_settings_make_up_no_vanished_state() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2), (2, 1))
    cluster.settle()
    cluster.die(1)
    del cluster.states[TP]
    cluster.settle()
    cluster.play(cluster.controller.configs_changed({"t": {"retention.ms": "5"}}))
    assert cluster.waiting == []


def test_vanished_state_ends_the_wait_for_liveness() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.silent.add(2)
    cluster.die(1)
    cluster.come(broker(1, 50))
    for now_ms in (0, REGISTRATION_DELAY_MS):
        cluster.play(cluster.controller.time_passed(now_ms))
    assert [write.state.leader for write in cluster.waiting] == [NO_LEADER]
    del cluster.states[TP]
    cluster.settle()
    cluster.resume_answers(2)
    assert cluster.context.partitions[TP].liveness_wait is None


def test_possibly_short_mark_stays_until_every_topic_is_read() -> None:
    """Without the mark, the broker would lead partitions whose records only others have, once those fail."""
    cluster = Cluster(2)
    odd = TopicAssignment("t", "id-t", {0: (2, 1)}, {}, version=0)
    cluster.states[TP] = VersionedState(PartitionState(2, 0, (2, 1), 1), 0)
    cluster.context.unreadable_topics = {"t"}
    cluster.come(short(1, 50))
    assert cluster.cleared_marks == []
    cluster.play(cluster.controller.topics_changed({"t": odd}, cluster.states))
    assert cluster.cleared_marks == [], "the suspect replica is in an ISR with a trusted one"
    cluster.settle()
    assert (cluster.state().isr, cluster.cleared_marks) == ((2,), [1])


def test_unreadable_topic_that_is_removed_makes_no_replica_suspect() -> None:
    cluster = Cluster(2)
    cluster.context.unreadable_topics = {"t"}
    cluster.come(short(1, 50))
    cluster.play(cluster.controller.topics_changed({}, {}))
    assert cluster.cleared_marks == [1]


def test_a_topic_without_live_replicas_waits_for_the_first() -> None:
    cluster = Cluster(1)
    cluster.create("t", (2, 3))
    assert cluster.waiting == []
    cluster.come(broker(3))
    cluster.settle()
    assert cluster.state() == PartitionState(3, 0, (3,), 1)


def test_broker_in_shutdown_leads_no_more_and_may_rejoin_the_isr() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3), (2, 1), (1,))
    cluster.settle()
    cluster.play(cluster.controller.shutdown_wanted(1))
    assert cluster.controller.has_pending_work(1)
    cluster.settle()
    assert not cluster.controller.has_pending_work(1)
    assert cluster.context.led_by(1) == [TopicPartition("t", 2)]
    assert cluster.state() == PartitionState(2, 1, (2, 3), 1)
    assert cluster.state(TopicPartition("t", 1)) == PartitionState(2, 0, (2,), 1), (
        "the leader that stays keeps its epoch"
    )
    assert [b.shutting_down for b in cluster.context.live_brokers()] == [True, False, False]
    cluster.leader_writes_isr(TP, 2, 3, 1)
    cluster.play(cluster.controller.states_read({TP: cluster.states[TP]}, cluster.context.ids_of({TP.topic})))
    assert cluster.waiting == []


def test_topic_is_removed_when_every_live_replica_is_deleted() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.news()
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    assert cluster.news() == ["stop 1: t-0", "stop 2: t-0", "stop 3: t-0"]
    cluster.play(cluster.controller.replicas_stopped(1, [TP]))
    cluster.die(2)
    assert cluster.news() == ["close 2"]
    assert cluster.waiting == [], "no leader is elected for a topic being deleted"
    cluster.play(cluster.controller.replicas_stopped(3, [TP]))
    assert cluster.news() == ["remove t"]
    cluster.play(cluster.controller.topic_removed("t"))
    assert cluster.context.topics == {}
    assert cluster.context.partitions == {}
    cluster.come(broker(1, 50))
    assert cluster.news() == ["close 1", "open 1@50"], "nothing of the topic delays the registration"


def test_deletion_of_a_topic_ends_its_elections_and_waits() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.leader_changes_isr(TP, 1, 2)
    cluster.silent = {1, 2}
    list(cluster.controller.shutdown_wanted(1))
    list(cluster.controller.elections_wanted([TP]))
    assert cluster.controller.has_pending_work(1) and cluster.controller.election_in_progress(TP)
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    assert not cluster.controller.has_pending_work(1) and not cluster.controller.election_in_progress(TP)


def test_deletion_waits_for_a_broker_that_is_registering() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.create("u", (2, 1))
    cluster.settle()
    cluster.news()
    cluster.come(broker(2, 99))
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    cluster.answer_stops()
    assert "remove t" not in cluster.news(), "broker 2 still has its replica"
    cluster.settle()
    assert "stop 2: t-0" in cluster.news()
    cluster.answer_stops()
    assert cluster.news() == ["remove t"]


def test_a_deletion_waits_for_the_write_that_is_under_way() -> None:
    cluster = Cluster(1)
    cluster.create("t", (1,))
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    cluster.play(cluster.controller.replicas_stopped(1, [TP]))
    assert "remove t" not in cluster.news()
    cluster.settle()
    assert cluster.news() == ["remove t"], "and no broker was sent a role in it"


def test_isr_change_of_a_topic_being_deleted_is_not_sent() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    cluster.leader_writes_isr(TP, 1)
    effects = cluster.controller.states_read({TP: cluster.states[TP]}, cluster.context.ids_of({TP.topic}))
    assert list(effects) == [], "nothing would make them forget it again"


def test_new_broker_gets_the_list_of_all_topics() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.create("u", (1, 2))
    cluster.settle()
    whole = [list(cluster.controller.begin(cluster.live, cluster.topics, cluster.states))]
    cluster.die(2)
    cluster.settle()
    whole.append(list(cluster.controller.brokers_changed(cluster.live | {2: broker(2, 99)})))
    sent = [[each.broker_ids for each in effects if isinstance(each, SendMetadata) and each.whole] for effects in whole]
    assert sent == [[(1, 2)], [(2,)]]
    cluster.context.unreadable_topics = {"odd"}
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    assert cluster.controller.every_topic() == {"u": "id-u", "odd": ""}, "no state of a topic being deleted stays"


def test_next_controller_sends_metadata_of_leaderless_partitions() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2), (2, 1))
    cluster.settle()
    del cluster.live[1]
    effects = list(Controller(2, 7).begin(cluster.live, cluster.topics, cluster.states))
    sent = [state for each in effects if isinstance(each, SendMetadata) for state in each.partitions]
    assert [(state.partition, state.leader) for state in sent] == [(0, 1), (1, 2)]
    assert not any(isinstance(each, SendLeaderAndIsr) for each in effects), "both are written first"


def test_request_to_delete_a_missing_topic_is_only_removed() -> None:
    cluster = Cluster(1)
    cluster.news()
    cluster.play(cluster.controller.deletions_wanted(["ghost"]))
    assert cluster.news() == ["remove ghost"]


def test_the_next_controller_finds_what_happened_while_there_was_none() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2), (3, 2))
    cluster.settle()
    del cluster.live[1]
    cluster.news()
    cluster.begin_term(2)
    assert cluster.news() == [
        "open 2@20",
        "open 3@30",
        "tell 2: t-1 leader=3 isr=3,2",
        "tell 3: t-1 leader=3 isr=3,2",
    ]
    cluster.settle()
    assert cluster.state() == PartitionState(2, 1, (2,), 2)


def test_leader_restarted_without_a_controller_leads_in_a_new_epoch() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2), (2, 3))
    cluster.settle()
    at_500 = {tp: VersionedState(known.state, known.partition_epoch, 500) for tp, known in cluster.states.items()}
    cluster.states = at_500
    cluster.live[1] = broker(1, 501)
    cluster.begin_term(2)
    cluster.settle()
    assert cluster.state() == PartitionState(1, 1, (1, 2), 2)
    assert cluster.state(TopicPartition("t", 1)) == PartitionState(2, 0, (2, 3), 1)


def test_unnoticed_restart_raises_the_epoch_even_if_the_isr_shrank() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.states[TP] = VersionedState(cluster.state(), 0, 500)
    cluster.live[1] = broker(1, 501)
    del cluster.live[3]
    cluster.begin_term(2)
    cluster.settle()
    assert cluster.state() == PartitionState(1, 1, (1, 2), 2)
    assert len(cluster.history) == 2, "in one write"


def test_a_leader_that_says_that_it_was_away_leads_in_a_new_epoch() -> None:
    """The leader restarted before a controller that died wrote a state, so that the next one cannot see it in the
    zxids.
    """
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2), (2, 3), (1, 3))
    cluster.settle()
    others = TopicPartition("t", 1), TopicPartition("t", 2)
    cluster.states[TP] = VersionedState(cluster.state(), 1, 502)
    cluster.live[1] = broker(1, 501)
    cluster.begin_term(2)
    cluster.settle()
    assert cluster.state() == PartitionState(1, 0, (1, 2), 1)
    cluster.play(cluster.controller.leadership_ended(1, {TP: 0, others[0]: 0, others[1]: 4, TopicPartition("u", 0): 0}))
    cluster.settle()
    assert cluster.state() == PartitionState(1, 1, (1, 2), 2)
    assert cluster.state(others[0]).leader_epoch == cluster.state(others[1]).leader_epoch == 0, (
        "only the partitions that the broker does not lead"
    )
    cluster.play(cluster.controller.leadership_ended(1, {TP: 0}))
    assert cluster.waiting == [], "said late, it says nothing"


def test_only_replica_that_may_be_short_gets_its_first_state() -> None:
    cluster = Cluster(1)
    cluster.create("t", (2,))
    cluster.come(short(2, 50))
    cluster.settle()
    assert cluster.state() == PartitionState(2, 0, (2,), 1)


def test_partition_without_a_state_is_sent_to_no_replica() -> None:
    cluster = Cluster(1)
    cluster.create("t", (2, 3))
    cluster.come(broker(2))
    cluster.news()
    assert list(cluster.controller.log_directory_failed({2})) == []
    cluster.settle()
    assert cluster.news() == ["tell 2: t-0 leader=2 isr=2"]


@pytest.mark.parametrize(("written", "read"), [("3", 3), ("\N{SUPERSCRIPT TWO}", 1), ("two", 1), ("-1", 1)])
def test_unreadable_min_insync_replicas_counts_as_the_default(written: str, read: int) -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1,), **{"min.insync.replicas": written})
    assert cluster.context.partitions[TP].policy.min_insync_replicas == read


def test_a_failed_disk_loses_what_it_led_and_its_places_and_gets_them_back() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3), (2, 1), (1, 3))
    cluster.settle()
    cluster.news()
    cluster.play(cluster.controller.log_directory_failed({1, 7}))
    assert cluster.news() == [f"tell 1: t-{n} leader={leader} isr={isr}" for n, leader, isr in
                              ((0, 1, "1,2,3"), (1, 2, "2,1"), (2, 1, "1,3"))]  # fmt: skip
    gone = {TP, TopicPartition("t", 1)}
    kept = TopicPartition("t", 2)
    cluster.play(cluster.controller.replicas_answered(1, {kept}, gone))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2, 3))
    assert cluster.state(TopicPartition("t", 1)).isr == (2,)
    assert cluster.state(kept) == PartitionState(1, 0, (1, 3), 1), "the other disk works"
    cluster.play(cluster.controller.replicas_answered(1, (), gone))
    cluster.play(cluster.controller.elections_wanted([TP]))
    assert cluster.waiting == [], "a known fact is not acted upon again"
    cluster.die(1)
    cluster.come(broker(1, 40))
    cluster.settle()
    assert not cluster.context.partitions[TP].offline, "a new process may have a new disk"


def test_only_replica_leads_again_when_its_disk_is_back() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1,))
    cluster.settle()
    cluster.play(cluster.controller.replicas_answered(1, (), {TP}))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (NO_LEADER, (1,))
    cluster.play(cluster.controller.replicas_answered(1, {TP}, ()))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (1, (1,))


def test_a_disk_that_fails_during_a_write_is_dealt_with_after_it() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.die(3)
    cluster.play(cluster.controller.replicas_answered(1, (), {TP}))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))


def test_broker_default_allows_unclean_elections_unless_the_topic_says() -> None:
    for by_default in (False, True):
        cluster = Cluster(1, 2)
        cluster.controller = Controller(9, 1, unclean_by_default=by_default)
        cluster.play(cluster.controller.begin(cluster.live, {}, {}))
        cluster.create("t", (1, 2))
        cluster.settle()
        cluster.die(2)
        cluster.settle()
        cluster.die(1)
        cluster.settle()
        cluster.come(broker(2, 50))
        cluster.settle()
        assert cluster.state().leader == (2 if by_default else NO_LEADER)


def test_preferred_leaders_are_given_back_what_they_are_in_sync_for() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.die(1)
    cluster.settle()
    cluster.come(broker(1, 99))
    cluster.play(cluster.controller.elections_wanted([TP]))
    assert cluster.waiting == []
    cluster.leader_writes_isr(TP, 2, 1)
    cluster.play(cluster.controller.states_read({TP: cluster.states[TP]}, cluster.context.ids_of({TP.topic})))
    cluster.play(cluster.controller.elections_wanted([TP]))
    cluster.settle()
    assert cluster.state() == PartitionState(1, 2, (2, 1), 1)


def led_by_another(cluster: Cluster) -> None:
    """Broker 2 leads, although the preferred leader 1 is in sync."""
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.die(1)
    cluster.settle()
    cluster.come(broker(1, 99))
    cluster.leader_changes_isr(TP, 2, 1)
    cluster.settle()


def test_requested_election_does_not_replace_a_leader_without_answer() -> None:
    """Such a leader would not learn of its successor, and go on telling clients that records are committed."""
    cluster = Cluster(1, 2)
    led_by_another(cluster)
    cluster.silent.add(2)
    cluster.play(cluster.controller.elections_wanted([TP]))
    cluster.settle()
    assert cluster.state().leader == 2 and cluster.controller.election_in_progress(TP)
    cluster.resume_answers(2)
    cluster.settle()
    assert cluster.state() == PartitionState(1, 2, (2, 1), 1)


def test_partition_of_a_silent_leader_is_elected_when_it_dies() -> None:
    cluster = Cluster(1, 2)
    led_by_another(cluster)
    cluster.silent.add(2)
    cluster.play(cluster.controller.elections_wanted([TP]))
    cluster.die(2)
    cluster.settle()
    assert cluster.state().leader == 1
    assert cluster.context.partitions[TP].handoff is None and not cluster.controller.election_in_progress(TP)


EVENTS = st.one_of(
    st.tuples(st.just("die"), st.integers(1, 4)),
    st.tuples(st.just("come"), st.integers(1, 4)),
    st.tuples(st.just("leave"), st.integers(1, 4)),
    st.tuples(st.just("settle"), st.just(0)),
    st.tuples(st.just("shrink"), st.integers(0, 2)),
    st.tuples(st.just("resume_answers"), st.integers(0, 2)),
    st.tuples(st.just("next_controller"), st.just(0)),
)


@settings(max_examples=200)
@given(st.lists(EVENTS, max_size=30))
def test_epochs_rise_and_leaders_come_from_the_isr_in_any_history(events: list[tuple[str, int]]) -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", (1, 2, 3), (2, 3, 4), (4, 1))
    cluster.settle()
    epoch = 100
    terms = 1
    in_sync = {tp: {tp_state.leader_epoch: set(tp_state.isr)} for tp, tp_state in cluster.history}

    for kind, number in events:
        tp = TopicPartition("t", number)
        seen = len(cluster.history)
        before = dict(cluster.states)
        match kind:
            case "die":
                cluster.die(number)
            case "come":
                epoch += 1
                cluster.come(broker(number, epoch))
            case "leave":
                cluster.play(cluster.controller.shutdown_wanted(number))
            case "settle":
                cluster.settle()
            case "shrink":
                state = cluster.state(tp)
                if state.leader != NO_LEADER:
                    cluster.leader_writes_isr(tp, state.leader)
            case "resume_answers":
                cluster.play(
                    cluster.controller.states_read({tp: cluster.states[tp]}, cluster.context.ids_of({tp.topic}))
                )
            case "next_controller":
                terms += 1
                cluster.begin_term(terms)
        last = {written_tp: known.state for written_tp, known in before.items()}
        for written_tp, written in cluster.history[seen:]:
            earlier = last[written_tp]
            leads_on = written.leader == earlier.leader and set(written.isr) < set(earlier.isr)
            assert written.leader_epoch == earlier.leader_epoch + (not leads_on)
            assert written.controller_epoch >= earlier.controller_epoch
            assert set(written.isr) <= set(earlier.isr)
            assert written.leader == NO_LEADER or written.leader in written.isr
            last[written_tp] = written
        assert in_sync.keys() == cluster.states.keys()

    cluster.settle()
    for tp, known in cluster.states.items():
        state = known.state
        # The controller may not know a leader's last change, but its view of live brokers must be right.
        if state.leader == NO_LEADER:
            staying = cluster.live.keys() - cluster.context.shutting_down
            assert not staying & set(state.isr) or cluster.context.partitions[tp].known != known
        else:
            assert state.leader in cluster.live
    assert cluster.context.brokers.keys() == cluster.live.keys()


def test_state_read_of_a_deleted_topic_is_not_applied_to_the_new_one() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    controller = cluster.controller
    before, known = controller.context.ids_of({TP.topic}), controller.context.partitions[TP].known
    late = {TP: VersionedState(PartitionState(2, 5, (2,), 1), 7)}
    controller.context.topics["t"] = replace(controller.context.topics["t"], topic_id="of the new one")
    assert list(controller.states_read(late, before)) == [] and controller.context.partitions[TP].known == known
    assert list(controller.states_read(late, controller.context.ids_of({TP.topic})))


def test_topic_is_deleted_in_any_epoch_but_removed_replicas_in_theirs() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    effects = list(cluster.controller.deletions_wanted(["t"]))
    stops = [stop for each in effects if isinstance(each, SendStopReplica) for stop in each.partitions]
    assert [stop.leader_epoch for stop in stops] == [ANY_EPOCH, ANY_EPOCH]
    moved = list(cluster.context.stop_replicas(2, [TP]))
    assert [stop.leader_epoch for each in moved if isinstance(each, SendStopReplica) for stop in each.partitions] == [0]


# --- topics that go, and the brokers that come meanwhile --------------------------------------------------------


def test_deletion_waits_for_a_broker_that_registers_after_it_has_begun() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.die(2)
    cluster.settle()
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    cluster.come(broker(2, 99))
    cluster.news()
    cluster.play(cluster.controller.replicas_stopped(1, [TP]))
    assert cluster.news() == [], "broker 2 still has its replica"
    cluster.play(cluster.controller.replicas_stopped(2, [TP]))
    assert cluster.news() == ["remove t"]


def test_deletion_that_is_wanted_twice_begins_once() -> None:
    cluster = Cluster(1)
    cluster.create("t", (1,))
    cluster.settle()
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    cluster.play(cluster.controller.replicas_stopped(1, [TP]))
    cluster.news()
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    assert cluster.news() == []


@pytest.mark.parametrize("lost", ["disk", "records"])
def test_new_topic_of_the_name_does_not_inherit_what_a_broker_has_lost(lost: str) -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    failed = {"offline": [TP]} if lost == "disk" else {"offline": [], "lacking": [TP]}
    cluster.play(cluster.controller.replicas_answered(1, [], **failed))
    cluster.settle()
    assert cluster.state().isr == (2,)
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    for broker_id in (1, 2):
        cluster.play(cluster.controller.replicas_stopped(broker_id, [TP]))
    cluster.states.clear()
    cluster.play(cluster.controller.topic_removed("t"))
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.play(cluster.controller.elections_wanted(cluster.controller.away_from_preferred(0)))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (1, (1, 2))


def test_topic_that_another_tool_has_deleted_is_forgotten() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.create("u", (1, 2))
    cluster.settle()
    del cluster.topics["t"]
    cluster.play(cluster.controller.topics_changed(cluster.topics, {}))
    assert cluster.controller.every_topic() == {"u": "id-u"}
    cluster.die(1)
    assert [write.tp.topic for write in cluster.waiting] == ["u"]


def test_deleted_topic_without_znodes_is_forgotten_after_its_removal() -> None:
    cluster = Cluster(1)
    cluster.create("t", (1,))
    cluster.settle()
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    cluster.play(cluster.controller.replicas_stopped(1, [TP]))
    cluster.play(cluster.controller.topics_changed({}, {}))
    assert cluster.context.ids_of({TP.topic}) == {"t": "id-t"}, "the next topic of the name must wait"
    cluster.play(cluster.controller.topic_removed("t"))
    assert cluster.context.ids_of({TP.topic}) == {}


# --- events that come late --------------------------------------------------------------------------------------


def test_topic_reported_as_created_twice_is_written_once() -> None:
    cluster = Cluster(1)
    cluster.create("t", (1,))
    cluster.play(cluster.controller.topics_created([cluster.topics["t"]]))
    assert len(cluster.waiting) == 1


def test_assignment_and_outcome_of_a_forgotten_topic_change_nothing() -> None:
    cluster = Cluster(1)
    cluster.create("t", (1,))
    (write,) = cluster.waiting
    cluster.play(cluster.controller.topics_changed({}, {}))
    assert list(cluster.controller.states_written([cluster.answer(write)])) == []
    assert list(cluster.controller.assignment_written(cluster.topics["t"])) == []
    assert cluster.context.partitions == {}


# --- why an election has no effect ------------------------------------------------------------------------------


def refusal(cluster: Cluster, *, unclean: bool = False) -> type | None:
    error = cluster.controller.election_refusal(TP, unclean=unclean)
    return None if error is None else type(error)


def test_preferred_election_is_refused_for_a_broker_that_cannot_lead() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    assert refusal(cluster) is ElectionNotNeededError
    cluster.play(cluster.controller.shutdown_wanted(1))
    cluster.settle()
    assert cluster.state().leader == 2
    cluster.leader_changes_isr(TP, 2, 1)
    assert refusal(cluster) is PreferredLeaderNotAvailableError, "broker 1 is in sync, and is leaving"
    cluster.come(broker(1, 50))
    cluster.settle()
    cluster.leader_changes_isr(TP, 2)
    assert refusal(cluster) is PreferredLeaderNotAvailableError, "broker 1 is not in sync"
    cluster.leader_changes_isr(TP, 2, 1)
    assert refusal(cluster) is None
    cluster.play(cluster.controller.replicas_answered(1, [], [TP]))
    assert refusal(cluster) is PreferredLeaderNotAvailableError, "broker 1's disk has failed"


def test_unclean_election_is_refused_if_a_leader_or_no_replica_lives() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    assert refusal(cluster, unclean=True) is ElectionNotNeededError
    cluster.leader_changes_isr(TP, 1)
    cluster.die(1)
    cluster.settle()
    assert refusal(cluster, unclean=True) is None
    cluster.die(2)
    assert refusal(cluster, unclean=True) is EligibleLeadersNotAvailableError


def test_preferred_election_never_elects_a_broker_that_is_shutting_down() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.play(cluster.controller.shutdown_wanted(1))
    cluster.settle()
    cluster.leader_changes_isr(TP, 2, 1)
    cluster.play(cluster.controller.elections_wanted([TP]))
    cluster.settle()
    assert cluster.state().leader == 2
    assert not cluster.controller.election_in_progress(TP)


def test_new_topic_has_no_leaving_broker_in_its_isr() -> None:
    cluster = Cluster(1, 2)
    cluster.play(cluster.controller.shutdown_wanted(1))
    cluster.create("t", (1, 2))
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))
