"""The rules of one partition on one broker: the leader, the high watermark and the ISR.

Pure: events and `now_ms` (monotonic) go in, facts come out, and the node acts on them. The node completes waiting
requests, writes a proposed ISR to ZooKeeper, and reports the outcome.

The rules (KIP-101, KIP-320, KIP-903, KAFKA-2729):
1. The high watermark advances only by acknowledgements in the leader's own epoch. A new epoch forgets what a follower
   fetched in an earlier one.
2. The high watermark is at most the least log end offset over the *maximal* ISR, which is the confirmed and the
   proposed ISR together, and `min.insync.replicas` counts the smaller of the two. Both outcomes of the compare-and-set
   are therefore safe. The high watermark also waits for live followers that are caught up and about to join. If
   acknowledgements wait for the disk, a broker counts itself only up to its flushed offset, and a follower fetches
   from there, because its fetch offset is its acknowledgement.
3. Shrinking is always safe. A follower joins when its live registration has fetched within `max_lag_ms`, from an offset
   at or above the high watermark and the start of this epoch. The compare-and-set must be accepted as well.
4. Below `min.insync.replicas` the high watermark does not advance. A record with too few copies is neither
   acknowledged to acks=all nor visible to consumers (KAFKA-15583).
5. There is one proposal at a time. After a conflict, the leader adopts the state found if that state is about this
   leader in this epoch. Otherwise the leader stops, because it no longer knows the ISR.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum

from cluster.state import LeaderAndEpoch, PartitionState, VersionedState
from tidelog.frozen_dataclass import frozen
from tidelog.model import NO_LEADER, TopicPartition

UNKNOWN_OFFSET = -1


class Role(Enum):
    """The role of this broker for the partition. A stopped replica has a log, and answers no requests."""

    STOPPED = "stopped"
    FOLLOWER = "follower"
    LEADER = "leader"


@frozen
class FollowerState:
    """The leader's knowledge of one follower in this epoch; replaced whole on every fetch.

    log_end_offset          the offset of its last fetch, which acknowledges everything before it; −1: no fetch yet in
                            this epoch, or none since it registered again or another broker removed it from the ISR
    broker_epoch            the registration under which it fetched
    last_fetch_time_ms      the time of that fetch
    leader_end_offset       the leader's log end offset at that fetch; a follower that reaches it was caught up then
    last_caught_up_time_ms  the latest time at which it had everything that the leader had
    log_start_offset        its log start offset as last reported; −1: not reported
    """

    log_end_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = -1
    last_fetch_time_ms: int = 0
    leader_end_offset: int = 0
    last_caught_up_time_ms: int = 0
    log_start_offset: int = UNKNOWN_OFFSET

    def fetched(
        self, offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int, log_start_offset: int
    ) -> FollowerState:
        """Return the state after a fetch from `offset` while the leader's log ended at `leader_end_offset`."""
        caught_up_ms = self.last_caught_up_time_ms
        if offset >= leader_end_offset:
            caught_up_ms = max(caught_up_ms, now_ms)
        elif self.log_end_offset != UNKNOWN_OFFSET and offset >= self.leader_end_offset:
            caught_up_ms = max(caught_up_ms, self.last_fetch_time_ms)
        return FollowerState(offset, broker_epoch, now_ms, leader_end_offset, caught_up_ms, log_start_offset)

    def idle_until(self, until_ms: int) -> FollowerState:
        """Return the state after repeated fetches from the same offset until that time, while the leader's log did not
        grow.
        """
        if until_ms <= self.last_fetch_time_ms or self.log_end_offset == UNKNOWN_OFFSET:
            return self
        caught_up_ms = self.last_caught_up_time_ms
        if self.log_end_offset >= self.leader_end_offset:
            caught_up_ms = max(caught_up_ms, until_ms)
        return FollowerState(
            self.log_end_offset,
            self.broker_epoch,
            until_ms,
            self.leader_end_offset,
            caught_up_ms,
            self.log_start_offset,
        )

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether the follower has the whole log, or had it within the last `max_lag_ms`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_time_ms <= max_lag_ms


@frozen
class IsrProposal:
    """A state with the ISR that the leader wants to write over version `partition_epoch`; pending until its outcome."""

    state: PartitionState
    partition_epoch: int


@frozen
class Facts:
    """The consequences of an event.

    high_watermark_advanced  the high watermark advanced
    proposal                 an ISR that the caller must write, and report by `isr_accepted` or `isr_conflict`
    resigned                 this broker has stopped leading, and answers no requests for the partition
    log_start_rose           a follower's log start advanced
    """

    high_watermark_advanced: bool = False
    proposal: IsrProposal | None = None
    resigned: bool = False
    log_start_rose: bool = False


NOTHING = Facts()
_ADVANCED = Facts(high_watermark_advanced=True)


class Partition:
    """One partition as this broker sees it.

    leader_epoch        of the last state applied; only rises
    announced           the leader of the latest epoch of which this broker was told, also before it has applied the
                        state. NO_LEADER if this broker has stopped leading and knows no successor
    partition_epoch     the version of the state znode that `isr` was read from or written as; only rises
    isr                 confirmed by ZooKeeper
    pending             the one proposal whose outcome is not known
    high_watermark      exclusive end of the committed records. A new leader starts with the one that it had as a
                        follower
    min_insync_replicas the topic's setting; if it exceeds the number of replicas, all replicas are required
    flushed_offset      up to where this broker's log is flushed, if acknowledgements wait for the disk; None: they do
                        not, and the whole log counts
    epoch_start_offset  the log end offset when this leader's epoch began. Until the high watermark reaches it, the
                        leader does not know how much was committed before (KIP-207)
    """

    __slots__ = (
        "announced",
        "broker_id",
        "controller_epoch",
        "epoch_start_offset",
        "flushed_offset",
        "followers",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "live",
        "max_lag_ms",
        "min_insync_replicas",
        "partition_epoch",
        "pending",
        "replicas",
        "role",
        "topic_partition",
    )

    def __init__(
        self, broker_id: int, topic_partition: TopicPartition, *, max_lag_ms: int, high_watermark: int = 0
    ) -> None:
        self.broker_id = broker_id
        self.topic_partition = topic_partition
        self.max_lag_ms = max_lag_ms
        self.min_insync_replicas = 1
        self.flushed_offset: int | None = None
        self.high_watermark = high_watermark
        self.role = Role.STOPPED
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.announced = LeaderAndEpoch(NO_LEADER, -1)
        self.controller_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = 0
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.pending: IsrProposal | None = None
        self.followers: dict[int, FollowerState] = {}
        self.live: Mapping[int, int] = {}

    # --- properties ------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Return all replicas whose acknowledgement the high watermark must wait for."""
        pending = self.pending.state.isr if self.pending else ()
        return frozenset(self.isr).union(pending)

    @property
    def in_sync_count(self) -> int:
        """Return the number to compare with `min.insync.replicas`: the size of the smaller of the confirmed and
        proposed ISR.
        """
        return min(len(self.isr), len(self.pending.state.isr)) if self.pending else len(self.isr)

    @property
    def is_at_least_min_isr(self) -> bool:
        """Return whether an acknowledgement of the whole ISR means as many copies as `min.insync.replicas` requires."""
        return self.in_sync_count >= self.effective_min_isr

    @property
    def effective_min_isr(self) -> int:
        """Return how many in-sync replicas acks=all needs: `min.insync.replicas`, or all replicas if they are fewer."""
        return min(self.min_insync_replicas, len(self.replicas))

    @property
    def high_watermark_is_known(self) -> bool:
        """Return whether the high watermark has reached this leader's epoch, so that it is the true end of committed
        records.
        """
        return self.high_watermark >= self.epoch_start_offset

    # --- role changes ----------------------------------------------------------------------------------------

    def make_leader(
        self,
        versioned: VersionedState,
        replicas: tuple[int, ...],
        live: Mapping[int, int],
        log_end_offset: int,
        now_ms: int,
    ) -> Facts:
        """Become the leader of a new epoch, or apply a newer ISR in the same epoch; then as `brokers_changed`.

        A new epoch begins at `log_end_offset`, without a proposal and without knowledge of the followers. An older
        version of the state changes nothing. `live` maps each live broker to the epoch of its registration.
        """
        if versioned.state.leader_epoch > self.leader_epoch or self.role is not Role.LEADER:
            self.pending = None
            self._apply(versioned, replicas)
            self.role = Role.LEADER
            self.epoch_start_offset = log_end_offset
            self.followers = {}
            self._remember_followers(now_ms)
        elif versioned.partition_epoch > self.partition_epoch:
            # A proposal on the old version is either refused, or it was the write that made this version.
            self._adopt(versioned, replicas, now_ms)
        elif versioned.partition_epoch == self.partition_epoch:
            self.replicas = replicas
            self._remember_followers(now_ms)
        return self.brokers_changed(live, log_end_offset, now_ms)

    def make_follower(self, versioned: VersionedState, replicas: tuple[int, ...]) -> bool:
        """Become a follower, also while there is no leader. The high watermark stays.

        Return whether this replica was no follower before, or the leader epoch is newer.
        """
        changed = self.role is not Role.FOLLOWER or versioned.state.leader_epoch > self.leader_epoch
        self._apply(versioned, replicas)
        self.role = Role.FOLLOWER
        self.pending = None
        self.followers = {}
        return changed

    def announce(self, leader: LeaderAndEpoch) -> None:
        """Note the leader of an epoch, unless the leader of a later epoch is known. The role does not change."""
        if leader.epoch >= self.announced.epoch:
            self.announced = leader

    def stop(self) -> None:
        """Answer no requests until the controller sends a new role: the replica has resigned, was stopped, or lost its
        disk.
        """
        if self.announced.leader == self.broker_id:
            self.announced = LeaderAndEpoch(NO_LEADER, self.announced.epoch)
        self.role = Role.STOPPED
        self.pending = None
        self.followers = {}

    def _apply(self, versioned: VersionedState, replicas: tuple[int, ...]) -> None:
        self.leader = versioned.state.leader
        self.leader_epoch = versioned.state.leader_epoch
        self.announce(LeaderAndEpoch(self.leader, self.leader_epoch))
        self.controller_epoch = versioned.state.controller_epoch
        self.isr = versioned.state.isr
        self.partition_epoch = versioned.partition_epoch
        self.replicas = replicas

    def _adopt(self, versioned: VersionedState, replicas: tuple[int, ...], now_ms: int) -> None:
        """Apply a newer version of the own epoch: another broker has changed the ISR, and no proposal is pending any
        more.

        A follower that was removed must fetch again before it can rejoin, because its last fetch may have been its very
        last.
        """
        removed = set(self.isr).difference(versioned.state.isr)
        self.pending = None
        self._apply(versioned, replicas)
        self._remember_followers(now_ms)
        for replica in removed & self.followers.keys():
            self.followers[replica] = replace(self.followers[replica], log_end_offset=UNKNOWN_OFFSET)

    def is_stale(self, versioned: VersionedState) -> bool:
        """Return whether a state is older than the known one, and must be ignored."""
        known = (self.leader_epoch, self.partition_epoch)
        return (versioned.state.leader_epoch, versioned.partition_epoch) < known

    def _remember_followers(self, now_ms: int) -> None:
        # ISR members get the whole interval to report. Other followers count as never caught up.
        known = self.followers
        long_ago_ms = now_ms - self.max_lag_ms - 1
        self.followers = {
            replica: known.get(replica)
            or FollowerState(last_caught_up_time_ms=now_ms if replica in self.isr else long_ago_ms)
            for replica in {*self.replicas, *self.isr}
            if replica != self.broker_id
        }

    # --- the leader's events ---------------------------------------------------------------------------------

    def follower_fetched(
        self,
        replica: int,
        fetch_offset: int,
        broker_epoch: int,
        log_end_offset: int,
        now_ms: int,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> Facts:
        """Apply a follower's fetch in this leader's epoch, which acknowledges all records before `fetch_offset`.

        The follower's log begins at `log_start_offset`. A fetch of an earlier registration than the known one is
        ignored, because a delayed request proves nothing about the live process.
        """
        known = self.followers.get(replica)
        if known is None or broker_epoch < known.broker_epoch:
            return NOTHING
        self.followers[replica] = known.fetched(fetch_offset, broker_epoch, log_end_offset, now_ms, log_start_offset)
        proposal = self._propose_expansion(replica, now_ms)
        advanced = known.log_end_offset != fetch_offset and self._advance_high_watermark(log_end_offset, now_ms)
        rose = log_start_offset > known.log_start_offset
        if proposal is None and not rose:
            return _ADVANCED if advanced else NOTHING
        return Facts(advanced, proposal, log_start_rose=rose)

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the offset below which no live replica has records; this leader's log begins at `log_start_offset`.

        Return −1 while a live follower has not reported its log start.
        """
        starts = [known.log_start_offset for replica, known in self.followers.items() if replica in self.live]
        return min([log_start_offset, *starts])

    def follower_idle_until(self, replica: int, broker_epoch: int, until_ms: int) -> None:
        """Note that a follower repeated its last fetch until that time, which a fetch session reports all at once.

        Ignored if the follower's last fetch came from another registration.
        """
        known = self.followers.get(replica)
        if known is not None and known.broker_epoch == broker_epoch:
            self.followers[replica] = known.idle_until(until_ms)

    def appended(self, log_end_offset: int, now_ms: int) -> bool:
        """Note that the leader's own log grew. Return whether the high watermark advanced.

        The high watermark advances at once only if no other member of the maximal ISR has to acknowledge.
        """
        return self._advance_high_watermark(log_end_offset, now_ms)

    def flushed(self, flushed_offset: int | None, log_end_offset: int, now_ms: int) -> bool:
        """Note how far this broker's log is flushed (None: it need not be). Return whether the high watermark
        advanced.
        """
        self.flushed_offset = flushed_offset
        return self._advance_high_watermark(log_end_offset, now_ms)

    def brokers_changed(self, live: Mapping[int, int], log_end_offset: int, now_ms: int) -> Facts:
        """Apply new live registrations. A follower's reports under an earlier registration are forgotten (KIP-903).

        The high watermark may advance, because it no longer waits for followers outside the ISR that failed.
        """
        self.live = live
        if self.role is not Role.LEADER:
            return NOTHING
        for replica, known in self.followers.items():
            registered = live.get(replica, -1)
            if registered > known.broker_epoch:
                self.followers[replica] = replace(
                    known, log_end_offset=UNKNOWN_OFFSET, broker_epoch=registered, log_start_offset=UNKNOWN_OFFSET
                )
        return _ADVANCED if self._advance_high_watermark(log_end_offset, now_ms) else NOTHING

    def tick(self, log_end_offset: int, now_ms: int) -> Facts:
        """Apply the passing of time: propose an ISR without lagging members, or else one with a follower that may join.

        The high watermark may advance, because a follower that it waited for may lag now. To be called twice per
        `max_lag_ms`. No effect unless this broker leads.
        """
        if self.role is not Role.LEADER:
            return NOTHING
        proposal = self._propose_shrinking(log_end_offset, now_ms) or self.expansion_due(now_ms)
        advanced = self._advance_high_watermark(log_end_offset, now_ms)
        return Facts(advanced, proposal) if advanced or proposal else NOTHING

    def _propose_shrinking(self, log_end_offset: int, now_ms: int) -> IsrProposal | None:
        """Propose the ISR without the members that have not been caught up for `max_lag_ms`.

        None if there are none, or if a proposal is pending.
        """
        if self.pending is not None:
            return None
        in_sync = tuple(
            replica
            for replica in self.isr
            if replica == self.broker_id
            or self.followers[replica].is_caught_up(log_end_offset, now_ms, self.max_lag_ms)
        )
        return self._propose(in_sync) if in_sync != self.isr else None

    def expansion_due(self, now_ms: int) -> IsrProposal | None:
        """Propose the ISR with the first follower that may join; None if there is none, or if a proposal is pending.

        A follower could not join while an earlier proposal was pending.
        """
        if len(self.isr) > len(self.followers):
            return None  # all replicas are in the ISR
        for replica in self.followers:
            if proposal := self._propose_expansion(replica, now_ms):
                return proposal
        return None

    def isr_accepted(self, proposal: IsrProposal, partition_epoch: int, log_end_offset: int, now_ms: int) -> Facts:
        """Note that ZooKeeper has `proposal` as version `partition_epoch`. The outcome of a superseded proposal is
        ignored.
        """
        if proposal is not self.pending:
            return NOTHING
        self.pending = None
        self.isr = proposal.state.isr
        self.partition_epoch = partition_epoch
        return Facts(self._advance_high_watermark(log_end_offset, now_ms), self.expansion_due(now_ms))

    def isr_conflict(
        self, proposal: IsrProposal, actual: VersionedState | None, log_end_offset: int, now_ms: int
    ) -> Facts:
        """Handle a state written by another broker (`actual` None: the partition has no state).

        Adopt it if this leader still leads in its epoch, otherwise stop leading. The outcome of a superseded proposal
        is ignored.
        """
        if proposal is not self.pending:
            return NOTHING
        mine = actual is not None and (actual.state.leader, actual.state.leader_epoch) == (
            self.broker_id,
            self.leader_epoch,
        )
        if actual is None or not mine:
            self.stop()
            if actual is not None:
                self._note_overtaken(actual)
            return Facts(resigned=True)
        self._adopt(actual, self.replicas, now_ms)
        return Facts(self._advance_high_watermark(log_end_offset, now_ms), self.expansion_due(now_ms))

    def _note_overtaken(self, actual: VersionedState) -> None:
        """Note the version found, so that a repetition of the old state is recognised as stale.

        In a later epoch any version is news, even an earlier one than the one found. The new leader may have changed
        the ISR before this broker learns of that epoch.
        """
        if actual.state.leader_epoch > self.leader_epoch:
            self.leader_epoch = actual.state.leader_epoch
            self.announce(LeaderAndEpoch(actual.state.leader, actual.state.leader_epoch))
        else:
            self.partition_epoch = max(self.partition_epoch, actual.partition_epoch)

    # --- the follower's events -------------------------------------------------------------------------------

    def leader_reported(self, high_watermark: int, log_end_offset: int) -> bool:
        """Apply the leader's high watermark, at most up to this log's end. Return whether this high watermark rose.

        A lower high watermark is ignored; only `truncated` lowers a follower's.
        """
        reached = min(high_watermark, log_end_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def truncated(self, log_start_offset: int, log_end_offset: int) -> bool:
        """Bound the high watermark by the truncated log. Return whether it went back, which only an unclean election
        explains.
        """
        bounded = min(max(self.high_watermark, log_start_offset), log_end_offset)
        lowered = bounded < self.high_watermark
        self.high_watermark = bounded
        return lowered

    # --- rules -----------------------------------------------------------------------------------------------

    def _advance_high_watermark(self, log_end_offset: int, now_ms: int) -> bool:
        """Raise the high watermark as far as rules 2 and 4 allow. Return whether it rose."""
        if self.role is not Role.LEADER or not self.is_at_least_min_isr:
            return False
        least = log_end_offset if self.flushed_offset is None else min(self.flushed_offset, log_end_offset)
        if least <= self.high_watermark:
            return False  # an idle partition, of which a broker may have thousands
        maximal_isr = self.maximal_isr
        for replica, known in self.followers.items():
            if known.log_end_offset >= least:
                continue
            if replica in maximal_isr or self._is_about_to_join(replica, known, log_end_offset, now_ms):
                least = known.log_end_offset
        if least <= self.high_watermark:
            return False
        self.high_watermark = least
        return True

    def awaits(self, replica: int, log_end_offset: int, now_ms: int) -> bool:
        """Return whether the high watermark waits for this follower, because it is in sync or about to join the ISR."""
        if replica in self.maximal_isr:
            return True
        known = self.followers.get(replica)
        return known is not None and self._is_about_to_join(replica, known, log_end_offset, now_ms)

    def _is_about_to_join(self, replica: int, known: FollowerState, log_end_offset: int, now_ms: int) -> bool:
        """Return whether a follower outside the ISR keeps up, so that the high watermark waits for it.

        Otherwise a steady load would always move the high watermark ahead of the follower. Waiting for more than the
        maximal ISR is always safe; it ends when the follower lags or its broker fails.
        """
        return self._reports_as_live(replica, known) and known.is_caught_up(log_end_offset, now_ms, self.max_lag_ms)

    def _reports_as_live(self, replica: int, known: FollowerState) -> bool:
        registered = self.live.get(replica)
        return known.log_end_offset != UNKNOWN_OFFSET and registered is not None and registered == known.broker_epoch

    def _propose_expansion(self, replica: int, now_ms: int) -> IsrProposal | None:
        """Propose the ISR with this follower if rule 3 lets it join; None if not, or if a proposal is pending."""
        if self.pending is not None or self.role is not Role.LEADER or replica in self.isr:
            return None
        known = self.followers[replica]
        # A silent follower still has "reached" a high watermark that does not advance, so it must also have fetched
        # lately.
        if not self._reports_as_live(replica, known) or now_ms - known.last_fetch_time_ms > self.max_lag_ms:
            return None
        if known.log_end_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        return self._propose((*self.isr, replica))

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        state = PartitionState(self.broker_id, self.leader_epoch, isr, self.controller_epoch)
        self.pending = IsrProposal(state, self.partition_epoch)
        return self.pending
