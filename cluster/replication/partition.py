"""The rules of one partition on one broker: who leads, how far the high watermark stands, who is in sync.

Pure: events and `now_ms` (monotonic) go in, facts come out, and the node acts on them. It wakes what waits, and it
carries a proposed ISR to ZooKeeper and brings the outcome back.

The rules (KIP-101, KIP-320, KIP-903, KAFKA-2729):
1. The high watermark moves only on acknowledgements in the leader's own epoch: what a follower's fetch of an
   earlier epoch said is forgotten when an epoch begins.
2. It is the least log end offset over the *maximal* ISR, which is the confirmed ISR and a proposed one together. Where
   an acknowledgement waits for the disk, this broker counts itself only up to what it has synced, and so does each
   follower, which fetches no further.
   `min.insync.replicas` counts the smaller of the two. So neither outcome of the compare-and-set can surprise.
3. Shrinking is always safe. A follower joins when its log end offset, reported by the registration of it that is
   live now, has reached the high watermark and the start of this epoch; and once the compare-and-set is accepted.
4. Below `min.insync.replicas` the high watermark stands still: a record that too few have is neither acknowledged to
   acks=all nor shown to a consumer (KAFKA-15583).
5. One proposal at a time. A conflict means that somebody wrote the state since: if that was still about this
   leader in this epoch it is adopted, else the leader stops, for it would never know its ISR again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum

from cluster.state import PartitionState, VersionedState
from tidelog.frozen_dataclass import frozen
from tidelog.model import NO_LEADER, TopicPartition

UNKNOWN_OFFSET = -1


class Role(Enum):
    """What this broker is to the partition. A stopped replica has a log and serves nobody."""

    STOPPED = "stopped"
    FOLLOWER = "follower"
    LEADER = "leader"


@frozen
class FollowerState:
    """What the leader knows of one follower in this epoch; replaced whole on every fetch.

    log_end_offset          the offset of its last fetch, which acknowledges everything before it; −1: none yet
    broker_epoch            the registration under which it fetched
    last_fetch_time_ms      when
    leader_end_offset       the leader's log end offset at that fetch: to reach it is to have been caught up then
    last_caught_up_time_ms  the latest time at which it had everything that the leader had
    log_start_offset        where its log begins, as it said last; −1: it has not said
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
        """The state after a fetch from `offset` while the leader's log ended at `leader_end_offset`."""
        caught_up_ms = self.last_caught_up_time_ms
        if offset >= leader_end_offset:
            caught_up_ms = max(caught_up_ms, now_ms)
        elif self.log_end_offset != UNKNOWN_OFFSET and offset >= self.leader_end_offset:
            caught_up_ms = max(caught_up_ms, self.last_fetch_time_ms)
        return FollowerState(offset, broker_epoch, now_ms, leader_end_offset, caught_up_ms, log_start_offset)

    def idle_until(self, until_ms: int) -> FollowerState:
        """The state after more fetches from the same offset, the last one then, while the leader's log was the same."""
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
        """It has everything, or had within the last `max_lag_ms`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_time_ms <= max_lag_ms


@frozen
class IsrProposal:
    """An ISR that the leader wants to write on top of `partition_epoch`. Pending until its outcome is known."""

    state: PartitionState
    partition_epoch: int


@frozen
class Facts:
    """What an event brought about.

    The high watermark rose; an ISR is to be proposed; the leader has stopped; a follower's log start rose.
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
    partition_epoch     the version of the state znode that `isr` was read from or written as; only rises
    isr                 confirmed by ZooKeeper
    pending             the one proposal whose outcome is not known
    high_watermark      exclusive end of what is committed. A leader starts from what it had as a follower
    min_insync_replicas the topic's setting; more than there are replicas asks for all of them
    durable_end         up to where this broker's own log is synced, where an acknowledgement waits for that; None: it
                        waits for no disk, and all that is in the log counts
    epoch_start_offset  where the log ended when this leader's epoch began; until the high watermark reaches it
                        the leader does not know how much was committed before it (KIP-207)
    """

    __slots__ = (
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
        self.controller_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = 0
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.pending: IsrProposal | None = None
        self.followers: dict[int, FollowerState] = {}
        self.live: Mapping[int, int] = {}

    # --- what it is ------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Everybody whose acknowledgement the high watermark must wait for."""
        pending = self.pending.state.isr if self.pending else ()
        return frozenset(self.isr).union(pending)

    @property
    def in_sync_count(self) -> int:
        """What `min.insync.replicas` is compared with: the smaller of the confirmed and the proposed ISR."""
        return min(len(self.isr), len(self.pending.state.isr)) if self.pending else len(self.isr)

    @property
    def is_at_least_min_isr(self) -> bool:
        """An acknowledgement of the whole ISR means as many copies as `min.insync.replicas` asks for."""
        return self.in_sync_count >= self.effective_min_isr

    @property
    def effective_min_isr(self) -> int:
        """Return how many in-sync replicas acks=all needs: `min.insync.replicas`, or all replicas if they are fewer."""
        return min(self.min_insync_replicas, len(self.replicas))

    @property
    def high_watermark_is_known(self) -> bool:
        """A leader may say how far the committed log reaches: its high watermark has reached its own epoch."""
        return self.high_watermark >= self.epoch_start_offset

    # --- becoming --------------------------------------------------------------------------------------------

    def make_leader(
        self,
        versioned: VersionedState,
        replicas: tuple[int, ...],
        live: Mapping[int, int],
        log_end_offset: int,
        now_ms: int,
    ) -> Facts:
        """Lead from now on. The same epoch again only brings a newer ISR, if it does.

        `live` maps each live broker to the epoch of its registration.
        """
        if versioned.state.leader_epoch > self.leader_epoch or self.role is not Role.LEADER:
            self.pending = None
            self._apply(versioned, replicas)
            self.role = Role.LEADER
            self.epoch_start_offset = log_end_offset
            self.followers = {}
            self._remember_followers(now_ms)
        elif versioned.partition_epoch > self.partition_epoch:
            # On an old version a proposal cannot be accepted any more, or it is what made this version.
            self._adopt(versioned, replicas, now_ms)
        elif versioned.partition_epoch == self.partition_epoch:
            self.replicas = replicas
            self._remember_followers(now_ms)
        return self.brokers_changed(live, log_end_offset, now_ms)

    def make_follower(self, versioned: VersionedState, replicas: tuple[int, ...]) -> bool:
        """Follow from now on, or wait for a leader where there is none. True where the leader or its epoch changed."""
        changed = self.role is not Role.FOLLOWER or versioned.state.leader_epoch > self.leader_epoch
        self._apply(versioned, replicas)
        self.role = Role.FOLLOWER
        self.pending = None
        self.followers = {}
        return changed

    def stop(self) -> None:
        """Serve nobody until the controller says otherwise: resigned, stopped, or the disk is gone."""
        self.role = Role.STOPPED
        self.pending = None
        self.followers = {}

    def _apply(self, versioned: VersionedState, replicas: tuple[int, ...]) -> None:
        self.leader = versioned.state.leader
        self.leader_epoch = versioned.state.leader_epoch
        self.controller_epoch = versioned.state.controller_epoch
        self.isr = versioned.state.isr
        self.partition_epoch = versioned.partition_epoch
        self.replicas = replicas

    def _adopt(self, versioned: VersionedState, replicas: tuple[int, ...], now_ms: int) -> None:
        """A newer version of the own epoch: somebody else changed the ISR, and no proposal is pending any more.

        Who was taken out has to ask again before it is let in again: what it asked last may have been its last.
        """
        removed = set(self.isr).difference(versioned.state.isr)
        self.pending = None
        self._apply(versioned, replicas)
        self._remember_followers(now_ms)
        for replica in removed & self.followers.keys():
            self.followers[replica] = replace(self.followers[replica], log_end_offset=UNKNOWN_OFFSET)

    def is_stale(self, versioned: VersionedState) -> bool:
        """A state older than what this broker knows: to be ignored, not applied."""
        known = (self.leader_epoch, self.partition_epoch)
        return (versioned.state.leader_epoch, versioned.partition_epoch) < known

    def _remember_followers(self, now_ms: int) -> None:
        # Members of the ISR get the whole interval to report; the others were never caught up as far as we know.
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
        """A follower asked, in this leader's epoch, for what follows `fetch_offset`: it has everything before that.

        Its log begins at `log_start_offset`. A fetch of an earlier registration than one already heard of says nothing
        (FAULTS F32).
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
        """Below it no live replica has anything; this leader's log begins at `log_start_offset`.

        −1 while a live follower has not said where its log begins.
        """
        starts = [known.log_start_offset for replica, known in self.followers.items() if replica in self.live]
        return min([log_start_offset, *starts])

    def follower_idle_until(self, replica: int, broker_epoch: int, until_ms: int) -> None:
        """Up to then a follower went on asking for what it had asked for last, which a fetch session says at once."""
        known = self.followers.get(replica)
        if known is not None and known.broker_epoch == broker_epoch:
            self.followers[replica] = known.idle_until(until_ms)

    def appended(self, log_end_offset: int, now_ms: int) -> bool:
        """The leader's own log grew. True where that alone moved the high watermark: nobody else is in sync."""
        return self._advance_high_watermark(log_end_offset, now_ms)

    def synced(self, flushed_offset: int | None, log_end_offset: int, now_ms: int) -> bool:
        """This broker's log is synced up to there, or need not be (None). True where that moved the high watermark."""
        self.flushed_offset = flushed_offset
        return self._advance_high_watermark(log_end_offset, now_ms)

    def brokers_changed(self, live: Mapping[int, int], log_end_offset: int, now_ms: int) -> Facts:
        """Other registrations are live. What an earlier registration of a follower reported is forgotten (KIP-903)."""
        self.live = live
        if self.role is not Role.LEADER:
            return NOTHING
        for replica, known in self.followers.items():
            registered = live.get(replica, -1)
            if registered > known.broker_epoch:
                self.followers[replica] = replace(
                    known, log_end_offset=UNKNOWN_OFFSET, broker_epoch=registered, log_start_offset=UNKNOWN_OFFSET
                )
        return Facts(self._advance_high_watermark(log_end_offset, now_ms))

    def tick(self, log_end_offset: int, now_ms: int) -> Facts:
        """Time has passed: whom the high watermark waited for may lag now. To be called twice in `max_lag_ms`."""
        if self.role is not Role.LEADER:
            return NOTHING
        proposal = self._propose_shrinking(log_end_offset, now_ms) or self.expansion_due(now_ms)
        return Facts(self._advance_high_watermark(log_end_offset, now_ms), proposal)

    def _propose_shrinking(self, log_end_offset: int, now_ms: int) -> IsrProposal | None:
        """The ISR without those that have not been caught up for `max_lag_ms`."""
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
        """The ISR with the first follower that may join: for one whose turn came while another was pending."""
        for replica in self.followers:
            if proposal := self._propose_expansion(replica, now_ms):
                return proposal
        return None

    def isr_accepted(self, proposal: IsrProposal, partition_epoch: int, log_end_offset: int, now_ms: int) -> Facts:
        """ZooKeeper has `proposal` as version `partition_epoch`. An answer that a newer state overtook is ignored."""
        if proposal is not self.pending:
            return NOTHING
        self.pending = None
        self.isr = proposal.state.isr
        self.partition_epoch = partition_epoch
        return Facts(self._advance_high_watermark(log_end_offset, now_ms), self.expansion_due(now_ms))

    def isr_conflict(
        self, proposal: IsrProposal, actual: VersionedState | None, log_end_offset: int, now_ms: int
    ) -> Facts:
        """Somebody else wrote the state: adopt it where this leader still leads in its epoch, else stop leading."""
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
        """So that a repetition of the state that was overtaken is recognised as old.

        Of a later epoch any version is news, also an earlier one than was found: the new leader may have changed the
        ISR before this broker is told of it.
        """
        if actual.state.leader_epoch > self.leader_epoch:
            self.leader_epoch = actual.state.leader_epoch
        else:
            self.partition_epoch = max(self.partition_epoch, actual.partition_epoch)

    # --- the follower's events -------------------------------------------------------------------------------

    def leader_reported(self, high_watermark: int, log_end_offset: int) -> bool:
        """The leader told its high watermark. A follower's never goes back within an epoch (FAULTS I11)."""
        reached = min(high_watermark, log_end_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def truncated(self, log_start_offset: int, log_end_offset: int) -> bool:
        """The log was cut. True where that took the high watermark down, which only an unclean election explains."""
        bounded = min(max(self.high_watermark, log_start_offset), log_end_offset)
        lowered = bounded < self.high_watermark
        self.high_watermark = bounded
        return lowered

    # --- rules -----------------------------------------------------------------------------------------------

    def _advance_high_watermark(self, log_end_offset: int, now_ms: int) -> bool:
        if self.role is not Role.LEADER or not self.is_at_least_min_isr:
            return False
        maximal_isr = self.maximal_isr
        least = log_end_offset if self.flushed_offset is None else min(self.flushed_offset, log_end_offset)
        for replica, known in self.followers.items():
            if known.log_end_offset >= least:
                continue
            if replica in maximal_isr or self._is_about_to_join(replica, known, log_end_offset, now_ms):
                least = known.log_end_offset
        if least <= self.high_watermark:
            return False
        self.high_watermark = least
        return True

    def _is_about_to_join(self, replica: int, known: FollowerState, log_end_offset: int, now_ms: int) -> bool:
        """The high watermark waits for one that keeps up, else under a steady load it would run away for ever.

        Waiting for more than the maximal ISR is always safe; it ends when the follower lags or its broker goes.
        """
        return self._reports_as_live(replica, known) and known.is_caught_up(log_end_offset, now_ms, self.max_lag_ms)

    def _reports_as_live(self, replica: int, known: FollowerState) -> bool:
        registered = self.live.get(replica)
        return known.log_end_offset != UNKNOWN_OFFSET and registered is not None and registered == known.broker_epoch

    def _propose_expansion(self, replica: int, now_ms: int) -> IsrProposal | None:
        if self.pending is not None or self.role is not Role.LEADER or replica in self.isr:
            return None
        known = self.followers[replica]
        # While the high watermark stands still, one that fell silent has still "reached" it: it must have asked lately.
        if not self._reports_as_live(replica, known) or now_ms - known.last_fetch_time_ms > self.max_lag_ms:
            return None
        if known.log_end_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        return self._propose((*self.isr, replica))

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        state = PartitionState(self.broker_id, self.leader_epoch, isr, self.controller_epoch)
        self.pending = IsrProposal(state, self.partition_epoch)
        return self.pending
