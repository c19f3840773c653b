"""The rules of one partition, by events on a leader (broker 1) with followers 2 and 3. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from cluster.replication.partition import Facts, Partition, Role
from cluster.state import LeaderAndEpoch, PartitionState, VersionedState
from tidelog.model import TopicPartition

MAX_LAG_MS = 1000
LIVE = {1: 101, 2: 102, 3: 103}
REPLICAS = (1, 2, 3)


def state(
    leader: int = 1, epoch: int = 5, isr: Iterable[int] = (1, 2, 3), version: int = 7, controller_epoch: int = 1
) -> VersionedState:
    return VersionedState(PartitionState(leader, epoch, tuple(isr), controller_epoch), version)


def leader(*, isr: Iterable[int] = (1, 2, 3), end: int = 10, high_watermark: int = 0, now_ms: int = 0) -> Partition:
    partition = Partition(1, TopicPartition("t", 0), max_lag_ms=MAX_LAG_MS, high_watermark=high_watermark)
    partition.make_leader(state(isr=isr), REPLICAS, LIVE, end, now_ms)
    return partition


def fetch(partition: Partition, replica: int, offset: int, end: int, now_ms: int = 0) -> Facts:
    return partition.follower_fetched(replica, offset, LIVE[replica], end, now_ms)


def test_the_high_watermark_is_the_least_log_end_offset_of_the_isr() -> None:
    partition = leader(end=10)
    assert not fetch(partition, 2, 8, 10).high_watermark_advanced
    assert fetch(partition, 3, 9, 10).high_watermark_advanced
    assert partition.high_watermark == 8
    assert fetch(partition, 2, 10, 10).high_watermark_advanced
    assert partition.high_watermark == 9


def test_a_leader_alone_commits_what_it_appends() -> None:
    partition = leader(isr=[1], end=10)
    assert partition.high_watermark == 10
    assert partition.appended(12, now_ms=0)
    assert partition.high_watermark == 12


def test_below_min_insync_replicas_nothing_more_is_committed() -> None:
    partition = leader(end=10)
    partition.min_insync_replicas = 2
    fetch(partition, 2, 10, 10)
    fetch(partition, 3, 10, 10)
    lagging = partition.tick(12, now_ms=MAX_LAG_MS + 1)
    assert lagging.proposal is not None and lagging.proposal.state.isr == (1,)
    accepted = partition.isr_accepted(lagging.proposal, 8, 12, now_ms=MAX_LAG_MS + 1)
    assert accepted == Facts() and partition.high_watermark == 10, "a silent follower does not rejoin"
    assert not partition.is_at_least_min_isr
    back = fetch(partition, 2, 12, 12, now_ms=MAX_LAG_MS + 2)
    assert back.proposal is not None and partition.high_watermark == 10
    assert partition.isr_accepted(back.proposal, 9, 12, now_ms=MAX_LAG_MS + 3).high_watermark_advanced
    assert partition.high_watermark == 12


def test_leader_counts_itself_only_up_to_its_flushed_offset() -> None:
    partition = leader(end=10)
    partition.flushed(8, 10, now_ms=0)
    for follower in (2, 3):
        fetch(partition, follower, 10, 10)
    assert partition.high_watermark == 8
    assert not partition.appended(12, now_ms=0)
    assert partition.flushed(12, 12, now_ms=0)
    assert partition.high_watermark == 10, "the followers have not asked for more yet"
    assert partition.flushed(None, 12, now_ms=0) is False
    for follower in (2, 3):
        fetch(partition, follower, 12, 12)
    assert partition.high_watermark == 12


def test_whole_log_counts_when_acknowledgements_skip_the_flush() -> None:
    partition = leader(isr=[1], end=0)
    partition.flushed(0, 0, now_ms=0)
    assert not partition.appended(5, now_ms=0)
    assert partition.flushed(None, 5, now_ms=0)
    assert partition.high_watermark == 5
    partition.flushed(0, 5, now_ms=0)
    assert partition.high_watermark == 5, "the high watermark never goes back"


def test_a_follower_that_syncs_leads_nothing_by_it() -> None:
    partition = Partition(2, TopicPartition("t", 0), max_lag_ms=MAX_LAG_MS)
    partition.make_follower(state(), REPLICAS)
    assert not partition.flushed(10, 10, now_ms=0)
    assert partition.high_watermark == 0


def test_topic_with_fewer_replicas_than_min_isr_requires_all_replicas() -> None:
    partition = leader(end=10)
    partition.min_insync_replicas = 5
    fetch(partition, 2, 10, 10)
    assert fetch(partition, 3, 10, 10).high_watermark_advanced
    assert partition.is_at_least_min_isr


def test_a_new_epoch_forgets_acknowledgements_of_the_old_one() -> None:
    partition = leader(end=10)
    fetch(partition, 2, 10, 10)
    fetch(partition, 3, 9, 10)
    partition.make_leader(state(epoch=6, version=8), REPLICAS, LIVE, 12, now_ms=5)
    assert partition.high_watermark == 9
    fetch(partition, 3, 12, 12)
    assert partition.high_watermark == 9, "2 has not fetched in epoch 6"
    assert not partition.high_watermark_is_known
    fetch(partition, 2, 12, 12)
    assert partition.high_watermark == 12
    assert partition.high_watermark_is_known


def test_proposed_member_counts_for_the_high_watermark_not_for_min_isr() -> None:
    partition = leader(isr=[1, 2], end=10)
    fetch(partition, 2, 10, 10)
    proposal = fetch(partition, 3, 10, 10).proposal
    assert proposal is not None
    assert proposal.state.isr == (1, 2, 3)
    assert proposal.partition_epoch == 7
    assert partition.maximal_isr == {1, 2, 3}
    assert partition.in_sync_count == 2
    fetch(partition, 2, 12, 12)
    assert partition.high_watermark == 10, "3 may be a member by now"
    partition.isr_accepted(proposal, 8, 12, now_ms=0)
    assert (partition.isr, partition.partition_epoch, partition.in_sync_count) == ((1, 2, 3), 8, 3)


def test_silent_proposed_member_counts_until_the_outcome_is_known() -> None:
    partition = leader(isr=[1, 2], end=10)
    fetch(partition, 2, 10, 10)
    proposal = fetch(partition, 3, 10, 10).proposal
    assert proposal is not None
    partition.brokers_changed({1: 101, 2: 102}, 10, 20)  # 3 has failed, and ZooKeeper may still have it in the ISR
    assert not fetch(partition, 2, 12, 12, now_ms=2 * MAX_LAG_MS).high_watermark_advanced
    assert partition.high_watermark == 10
    facts = partition.isr_conflict(proposal, state(isr=[1, 2], version=8), 12, now_ms=2 * MAX_LAG_MS)
    assert facts.high_watermark_advanced and partition.high_watermark == 12


def test_a_member_that_is_to_leave_counts_until_it_has_left() -> None:
    partition = leader(end=10)
    fetch(partition, 2, 10, 10)
    fetch(partition, 3, 8, 10)
    fetch(partition, 2, 10, 10, now_ms=1500)
    proposal = partition.tick(10, now_ms=1500).proposal
    assert proposal is not None
    assert proposal.state.isr == (1, 2)
    assert partition.tick(10, now_ms=3000).proposal is None, "only one proposal is pending"
    assert partition.high_watermark == 8
    assert partition.in_sync_count == 2
    assert partition.isr_accepted(proposal, 8, 10, now_ms=1500).high_watermark_advanced
    assert partition.high_watermark == 10


def test_a_follower_that_keeps_up_with_a_busy_leader_stays() -> None:
    """The follower never has everything, but each fetch reaches the leader's log end at the previous fetch."""
    partition = leader(end=0)
    for now_ms in range(0, 5000, 100):
        for replica in (2, 3):
            fetch(partition, replica, now_ms, now_ms + 100, now_ms)
        assert partition.tick(now_ms + 100, now_ms).proposal is None


def test_an_idle_follower_that_has_everything_stays_even_if_silent() -> None:
    partition = leader(end=10)
    for replica in (2, 3):
        fetch(partition, replica, 10, 10)
    assert partition.tick(10, now_ms=100_000).proposal is None
    proposal = partition.tick(11, now_ms=100_000).proposal
    assert proposal is not None
    assert proposal.state.isr == (1,)


def test_follower_joins_only_at_the_high_watermark_and_epoch_start() -> None:
    partition = leader(isr=[1, 2], end=10, high_watermark=4)
    assert fetch(partition, 3, 9, 10).proposal is None, "9 is above the high watermark 4 and below the epoch's start"
    fetch(partition, 2, 14, 14)
    assert fetch(partition, 3, 13, 14).proposal is None, "13 is above the start and below the high watermark 14"
    assert fetch(partition, 3, 14, 14).proposal is not None


def test_follower_joins_only_under_its_live_registration() -> None:
    partition = leader(isr=[1, 2], end=10)
    assert partition.follower_fetched(3, 10, 99, 10, 0).proposal is None
    assert partition.follower_fetched(3, 10, 104, 10, 0).proposal is None, "that registration is not known yet"
    partition.brokers_changed({**LIVE, 3: 104}, 10, 0)
    assert partition.follower_fetched(3, 10, 104, 10, 0).proposal is not None


def test_a_restarted_followers_old_acknowledgements_are_forgotten() -> None:
    partition = leader(end=10)
    fetch(partition, 2, 10, 10)
    fetch(partition, 3, 8, 10)
    partition.brokers_changed({**LIVE, 3: 113}, 10, 0)
    fetch(partition, 3, 10, 10)  # a fetch of the earlier registration that comes late
    assert partition.high_watermark == 8
    partition.follower_fetched(3, 9, 113, 10, 0)
    assert partition.high_watermark == 9


def test_restarted_follower_holds_the_high_watermark_until_it_fetches() -> None:
    """The follower's machine may have lost records that it had acknowledged."""
    partition = leader(end=10)
    fetch(partition, 3, 10, 10)
    fetch(partition, 2, 8, 10)
    assert partition.high_watermark == 8
    partition.brokers_changed({**LIVE, 3: 113}, 10, 0)
    fetch(partition, 2, 10, 10)
    assert partition.high_watermark == 8
    partition.follower_fetched(3, 9, 113, 10, 0)
    assert partition.high_watermark == 9


def test_outcome_of_an_overtaken_proposal_leaves_the_pending_one_alone() -> None:
    partition = leader(isr=[1], end=10)
    fetch(partition, 2, 10, 10)
    overtaken = partition.pending
    assert overtaken is not None
    partition.isr_conflict(overtaken, state(isr=[1], version=9), 10, 0)
    fetch(partition, 3, 10, 10)
    pending = partition.pending
    assert pending is not None and pending is not overtaken
    assert partition.isr_accepted(overtaken, 10, 10, 0) == Facts()
    assert (partition.pending, partition.isr) == (pending, (1,))


def test_leader_ignores_fetches_of_a_followers_earlier_registration() -> None:
    partition = leader(end=10)
    fetch(partition, 2, 10, 10)
    partition.follower_fetched(3, 10, LIVE[3] - 1, 10, 0)
    assert partition.high_watermark == 0
    fetch(partition, 3, 9, 10)
    assert partition.high_watermark == 9


def test_the_high_watermark_waits_for_one_that_is_about_to_join() -> None:
    partition = leader(isr=[1], end=10)
    fetch(partition, 2, 10, 10)
    pending = partition.pending
    assert pending is not None
    partition.isr_conflict(pending, state(isr=[1], version=9), 10, 0)  # another broker was faster; 2 is still outside
    partition.pending = None
    partition.appended(11, now_ms=10)
    assert partition.high_watermark == 10
    partition.brokers_changed({1: 101}, 11, 20)
    assert partition.high_watermark == 11, "the high watermark does not wait for a failed broker"


def test_next_isr_proposal_follows_the_outcome_of_the_pending_one() -> None:
    partition = leader(isr=[1], end=10)
    first = fetch(partition, 2, 10, 10).proposal
    assert first is not None
    assert fetch(partition, 3, 10, 10).proposal is None
    second = partition.isr_accepted(first, 8, 10, now_ms=0).proposal
    assert second is not None
    assert (second.state.isr, second.partition_epoch) == ((1, 2, 3), 8)


def test_a_conflict_in_the_own_epoch_is_adopted() -> None:
    partition = leader(isr=[1], end=10)
    proposal = fetch(partition, 2, 10, 10).proposal
    assert proposal is not None
    facts = partition.isr_conflict(proposal, state(isr=[1, 2], version=9), 10, now_ms=0)
    assert not facts.resigned
    assert (partition.isr, partition.partition_epoch, partition.pending) == ((1, 2), 9, None)


def test_any_other_conflict_ends_the_leadership() -> None:
    for actual in (state(leader=2, epoch=6, version=9), state(epoch=6, version=9), None):
        partition = leader(isr=[1], end=10)
        proposal = fetch(partition, 2, 10, 10).proposal
        assert proposal is not None
        assert partition.isr_conflict(proposal, actual, 10, now_ms=0).resigned
        assert partition.role is Role.STOPPED
        if actual is not None:
            assert partition.is_stale(state()), "a repetition of what was overtaken does not bring it back"
            assert not partition.is_stale(actual)


def test_announced_leader_of_the_latest_epoch_is_kept() -> None:
    partition = leader(isr=[1], end=10)
    assert partition.announced == (1, 5)
    partition.announce(LeaderAndEpoch(3, 7))
    partition.announce(LeaderAndEpoch(2, 6))
    partition.make_follower(state(leader=2, epoch=6, version=9), (1, 2, 3))
    assert (partition.announced, partition.leader) == ((3, 7), 2)


def test_resigned_leader_accepts_an_earlier_version_of_the_later_epoch() -> None:
    partition = leader(isr=[1], end=10)
    proposal = fetch(partition, 2, 10, 10).proposal
    assert proposal is not None
    partition.isr_conflict(proposal, state(leader=2, epoch=6, version=21), 10, now_ms=0)
    later = state(leader=2, epoch=6, version=20)
    assert not partition.is_stale(later)
    assert partition.make_follower(later, (1, 2)) and partition.role is Role.FOLLOWER


def test_an_outcome_that_a_newer_state_overtook_is_ignored() -> None:
    partition = leader(isr=[1], end=10)
    proposal = fetch(partition, 2, 10, 10).proposal
    assert proposal is not None
    partition.make_leader(state(isr=[1, 2, 3], version=9), REPLICAS, LIVE, 10, now_ms=0)
    partition.isr_accepted(proposal, 8, 10, now_ms=0)
    assert (partition.isr, partition.partition_epoch) == ((1, 2, 3), 9)
    assert not partition.isr_conflict(proposal, None, 10, now_ms=0).resigned


def test_an_outcome_that_comes_when_the_leader_follows_changes_nothing() -> None:
    for actual in (None, state(leader=2, epoch=6, isr=[2, 3], version=8)):
        partition = leader(isr=[1], end=10)
        proposal = fetch(partition, 2, 10, 10).proposal
        assert proposal is not None
        partition.make_follower(state(leader=2, epoch=6, isr=[2, 3], version=8), REPLICAS)
        assert not partition.isr_conflict(proposal, actual, 10, now_ms=0).resigned
        partition.isr_accepted(proposal, 9, 10, now_ms=0)
        assert (partition.role, partition.isr, partition.partition_epoch) == (Role.FOLLOWER, (2, 3), 8)


def test_an_older_version_of_the_own_epoch_does_not_bring_its_isr_back() -> None:
    partition = leader(isr=[1], end=10)
    proposal = fetch(partition, 2, 10, 10).proposal
    assert proposal is not None
    partition.isr_accepted(proposal, 8, 10, now_ms=0)
    partition.make_leader(state(isr=[1]), REPLICAS, LIVE, 10, now_ms=0)
    assert (partition.isr, partition.partition_epoch) == ((1, 2), 8)


def test_follower_joins_by_tick_if_its_registration_becomes_known_late() -> None:
    partition = leader(isr=[1], end=10)
    partition.brokers_changed({1: 101}, 10, 0)
    assert fetch(partition, 2, 10, 10, now_ms=5).proposal is None
    partition.brokers_changed(LIVE, 10, 6)
    proposal = partition.tick(10, now_ms=7).proposal
    assert proposal is not None and proposal.state.isr == (1, 2)


def test_the_same_epoch_again_keeps_what_was_acknowledged() -> None:
    partition = leader(end=10)
    fetch(partition, 2, 9, 10)
    fetch(partition, 3, 9, 10)
    partition.make_leader(state(), REPLICAS, LIVE, 12, now_ms=0)
    assert partition.epoch_start_offset == 10
    assert partition.followers[2].log_end_offset == 9


def test_leader_continues_after_the_controller_shrinks_its_isr() -> None:
    partition = leader(end=10)
    fetch(partition, 2, 10, 10)
    fetch(partition, 3, 8, 10)
    assert partition.high_watermark == 8
    facts = partition.make_leader(state(isr=[1, 2], version=8), REPLICAS, {1: 101, 2: 102}, 12, now_ms=5)
    assert facts.high_watermark_advanced and partition.high_watermark == 10
    assert (partition.leader_epoch, partition.epoch_start_offset) == (5, 10)
    assert partition.followers[2].log_end_offset == 10, "acknowledged records stay acknowledged"


def test_removed_isr_member_rejoins_only_after_another_fetch() -> None:
    """The member's registration may still be live, because only its disk failed or its death is not known yet."""
    partition = leader(isr=[1, 3], end=10)
    fetch(partition, 3, 10, 10)
    proposal = fetch(partition, 2, 10, 10).proposal
    assert proposal is not None
    found = partition.isr_conflict(proposal, state(isr=[1], version=8), 10, now_ms=1)
    assert found.proposal is not None and found.proposal.state.isr == (1, 2), "2 was on its way in, and is still"
    accepted = partition.isr_accepted(found.proposal, 9, 10, now_ms=2)
    assert accepted.proposal is None and partition.tick(10, now_ms=3).proposal is None
    fetch(partition, 2, 12, 12, now_ms=4)
    assert partition.high_watermark == 12, "a follower that has not fetched since is not waited for"
    again = fetch(partition, 3, 12, 12, now_ms=5).proposal
    assert again is not None and again.state.isr == (1, 2, 3)

    idle = leader(end=10)
    fetch(idle, 2, 10, 10)
    fetch(idle, 3, 10, 10)
    idle.make_leader(state(isr=[1, 2], version=8), REPLICAS, LIVE, 10, now_ms=5)
    assert idle.tick(10, now_ms=6).proposal is None


def test_follower_takes_the_high_watermark_only_up_to_its_log_end() -> None:
    partition = Partition(2, TopicPartition("t", 0), max_lag_ms=MAX_LAG_MS)
    assert partition.make_follower(state(), REPLICAS)
    assert not partition.make_follower(state(), REPLICAS)
    assert partition.leader_reported(10, log_end_offset=8)
    assert partition.high_watermark == 8
    assert not partition.leader_reported(5, log_end_offset=8)
    assert partition.high_watermark == 8
    assert partition.truncated(0, 6)
    assert partition.high_watermark == 6


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "fetch2", "fetch3", "tick", "accept", "conflict", "lose", "sync"]),
            st.integers(0, 9),
        ),
        max_size=80,
    ),
    st.booleans(),
)
def test_committed_records_are_always_held_by_the_maximal_isr(
    steps: list[tuple[str, int]], waits_for_disk: bool
) -> None:
    """Members hold the records that they acknowledge, ZooKeeper holds one ISR, and nothing else is guaranteed."""
    partition = leader(isr=[1, 2, 3], end=0)
    end, synced, now_ms = 0, 0, 0
    if waits_for_disk:
        partition.flushed(synced, end, now_ms)
    held = {2: 0, 3: 0}
    znode = state()
    for step, amount in steps:
        now_ms += 100 * amount
        before = partition.high_watermark
        if step == "append":
            end += amount
            partition.appended(end, now_ms)
        elif waits_for_disk and step == "sync":
            synced = min(end, synced + amount)
            partition.flushed(synced, end, now_ms)
        elif step.startswith("fetch"):
            replica = int(step[-1])
            fetch(partition, replica, held[replica], end, now_ms)
            held[replica] = min(end, held[replica] + amount)
        elif step == "tick":
            partition.tick(end, now_ms)
        elif partition.pending and step == "accept":
            znode = VersionedState(partition.pending.state, znode.partition_epoch + 1)
            partition.isr_accepted(partition.pending, znode.partition_epoch, end, now_ms)
        elif partition.pending and step == "conflict":
            partition.isr_conflict(partition.pending, znode, end, now_ms)
        elif partition.pending and step == "lose":
            # The write was done but its answer is late: what ZooKeeper has is one of the two sets.
            znode_isr = set(partition.pending.state.isr)
            assert all(held[replica] >= partition.high_watermark for replica in znode_isr - {1})
        assert partition.high_watermark >= before
        assert partition.high_watermark <= (synced if waits_for_disk else end)
        for replica in set(znode.state.isr) - {1}:
            assert held[replica] >= partition.high_watermark


# --- what a fetch session says at once for many fetches --------------------------------------------------------


def resting_follower(*, offset: int) -> Partition:
    """Broker 2 has fetched from `offset` at time 0, when the log ended at 10, and repeats that fetch until time
    5000.
    """
    partition = leader(isr=[1, 2], end=10)
    fetch(partition, 2, offset, 10, now_ms=0)
    partition.follower_idle_until(2, LIVE[2], until_ms=5000)
    return partition


def test_idle_follower_with_the_whole_log_stays_in_sync_as_it_grows() -> None:
    partition = resting_follower(offset=10)
    assert partition.tick(12, now_ms=5000 + MAX_LAG_MS).proposal is None
    late = partition.tick(12, now_ms=5000 + MAX_LAG_MS + 1).proposal
    assert late is not None and late.state.isr == (1,)


def test_resting_follower_behind_the_log_end_leaves_the_isr() -> None:
    partition = resting_follower(offset=9)
    late = partition.tick(10, now_ms=MAX_LAG_MS + 1).proposal
    assert late is not None and late.state.isr == (1,)


def test_rest_of_an_earlier_registration_says_nothing() -> None:
    partition = leader(isr=[1, 2], end=10)
    fetch(partition, 2, 10, 10, now_ms=0)
    partition.follower_idle_until(2, LIVE[2] - 1, until_ms=5000)
    partition.follower_idle_until(9, 109, until_ms=5000)
    late = partition.tick(12, now_ms=MAX_LAG_MS + 1).proposal
    assert late is not None and late.state.isr == (1,)


def test_rest_that_ended_before_the_last_fetch_says_nothing() -> None:
    partition = leader(isr=[1, 2], end=10)
    fetch(partition, 2, 10, 10, now_ms=500)
    partition.follower_idle_until(2, LIVE[2], until_ms=400)
    assert partition.tick(12, now_ms=500 + MAX_LAG_MS).proposal is None


# --- where live replicas begin ---------------------------------------------------------------------------------


def test_low_watermark_is_the_least_log_start_of_all_live_replicas() -> None:
    partition = leader(end=10)
    assert partition.low_watermark(7) == -1, "no follower has reported its log start"
    partition.follower_fetched(2, 10, LIVE[2], 10, 0, log_start_offset=5)
    assert partition.low_watermark(7) == -1, "broker 3 is live and has not reported"
    assert partition.follower_fetched(3, 10, LIVE[3], 10, 0, log_start_offset=6).log_start_rose
    assert (partition.low_watermark(7), partition.low_watermark(4)) == (5, 4)
    partition.brokers_changed({1: 101, 3: 103}, 10, 0)
    assert partition.low_watermark(7) == 6, "broker 2 is dead"
    partition.brokers_changed({1: 101, 2: 202, 3: 103}, 10, 0)
    assert partition.low_watermark(7) == -1, "broker 2 is back and has not reported"


def test_only_a_later_log_start_is_reported() -> None:
    partition = leader(end=10)
    assert partition.follower_fetched(2, 10, LIVE[2], 10, 0, log_start_offset=5).log_start_rose
    assert not partition.follower_fetched(2, 10, LIVE[2], 10, 0, log_start_offset=5).log_start_rose
    assert partition.follower_fetched(2, 10, LIVE[2], 10, 0, log_start_offset=6).log_start_rose


# --- branches of other rules -------------------------------------------------------------------------------------


def test_conflict_with_another_leader_makes_older_versions_stale() -> None:
    """ZooKeeper was restored to an earlier state."""
    partition = leader(isr=[1], end=10)
    proposal = fetch(partition, 2, 10, 10).proposal
    assert proposal is not None
    assert partition.isr_conflict(proposal, state(leader=2, version=9), 10, now_ms=0).resigned
    assert partition.is_stale(state(leader=2, version=8))
    assert not partition.is_stale(state(leader=2, version=9))


def test_follower_and_stopped_replica_take_no_event_of_a_leader() -> None:
    partition = leader(end=10)
    fetch(partition, 2, 10, 10)
    for become in (lambda: partition.make_follower(state(leader=2, epoch=6), REPLICAS), partition.stop):
        become()
        assert partition.tick(12, now_ms=9000) == Facts()
        assert partition.brokers_changed({1: 101}, 12, 9000) == Facts()
        assert fetch(partition, 2, 12, 12) == Facts()
        assert not partition.appended(12, now_ms=9000)


def test_same_version_of_the_own_epoch_brings_other_replicas() -> None:
    partition = leader(isr=[1, 2], end=10)
    partition.make_leader(state(isr=[1, 2]), (1, 2, 4), {**LIVE, 4: 104}, 10, now_ms=0)
    joins = partition.follower_fetched(4, 10, 104, 10, 0).proposal
    assert joins is not None and joins.state.isr == (1, 2, 4)
    assert fetch(partition, 3, 10, 10).proposal is None, "broker 3 is no replica any more"


def test_high_watermark_follows_a_truncation_down_and_a_log_start_up() -> None:
    partition = leader(isr=[1], end=10)
    assert partition.high_watermark == 10
    assert not partition.truncated(log_start_offset=0, log_end_offset=10)
    assert partition.truncated(log_start_offset=0, log_end_offset=8) and partition.high_watermark == 8
    assert not partition.truncated(log_start_offset=9, log_end_offset=9)
    assert partition.high_watermark == 9, "nothing below the log start is uncommitted"


def test_new_epoch_forgets_a_proposal_of_the_old_one() -> None:
    partition = leader(isr=[1], end=10)
    proposal = fetch(partition, 2, 10, 10).proposal
    assert proposal is not None
    partition.make_leader(state(epoch=6, isr=[1], version=8), REPLICAS, LIVE, 12, now_ms=0)
    assert (partition.pending, partition.high_watermark) == (None, 12)


def test_high_watermark_awaits_isr_members_and_followers_about_to_join() -> None:
    partition = leader(isr=[1, 2], end=10, now_ms=0)
    fetch(partition, 2, 10, 10)
    assert (partition.awaits(2, 10, 0), partition.awaits(3, 10, 0), partition.awaits(9, 10, 0)) == (True, False, False)
    fetch(partition, 3, 5, 10, now_ms=1)
    assert not partition.awaits(3, 10, 1), "the follower lags"
    joining = fetch(partition, 3, 10, 10, now_ms=2).proposal
    assert joining is not None and partition.awaits(3, 20, 2), "the larger ISR may be the confirmed one already"
    partition.isr_accepted(joining, 8, 20, now_ms=3)
    assert partition.awaits(3, 20, 3)


def test_high_watermark_awaits_a_caught_up_follower_while_another_joins() -> None:
    partition = leader(isr=[1], end=10, now_ms=0)
    assert fetch(partition, 2, 10, 10, now_ms=1).proposal is not None
    assert fetch(partition, 3, 10, 10, now_ms=1).proposal is None
    assert partition.awaits(3, 20, 2) and not partition.awaits(3, 20, 2 + MAX_LAG_MS)
