"""The choice of a partition's next state: elections, unclean recovery, reassignments and requested elections.

All functions are pure: values go in, and a decision comes out. `Controller` carries the decision out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cluster.controller.decision import (
    Ask,
    Awaited,
    ConfirmRemoval,
    Decision,
    EndRequest,
    Nothing,
    Question,
    Reason,
    Wait,
    Write,
)
from cluster.controller.election import initial_state, next_state, preferred_state, renewed_state
from cluster.controller.liveness import Liveness
from cluster.controller.partition_context import REGISTRATION_DELAY_MS, BrokerSets, PartitionContext
from cluster.controller.replicas.reassignment import state_without_removed_replicas
from cluster.controller.timer import Timer
from cluster.controller.unclean_recovery import GONE, LogEnd, LogEndQuery, choose_recovery_leader
from cluster.state import PartitionState, VersionedState
from tidelog.model import NO_LEADER
from tidelog.protocol.partition_messages import ElectionType


def decide(partition: PartitionContext, brokers: BrokerSets, liveness: Liveness, now_ms: int) -> Decision:
    """Return what to do for a partition that has no write in flight. `review` has been applied to it.

    The cases, in the order of their priority:
    A. There is no state yet: write the first one when a replica is alive.
    B. ISR members are lost, and no other member has proved that it is alive since: keep the ISR. When a registration
       has waited for REGISTRATION_DELAY_MS, begin a new leader epoch with this ISR, so that the broker can go online.
    C. Elect from the ISR, remove lost members from the ISR, or give the leader a new epoch.
    D. There is no leader, the topic allows unclean elections, and every suspect ISR member online has lost records:
       elect the live replica whose log reaches farthest.
    E. Every live ISR member is suspect: elect the one whose log reaches farthest (unclean recovery).
    F. A reassignment is in progress: announce it, remove replicas, or confirm the removal.
    G. An election was requested: carry it out, or drop the request if nothing is left to do for it.
    H. Otherwise the state is right.

    If one of the cases D to G has to wait, the cases after it are still tried. A wait of case B ends the decision,
    because all later cases depend on the records that B protects.
    """
    if partition.known is None:
        live = partition.online(brokers) - brokers.shutting_down
        first = initial_state(partition.replicas, live, partition.policy.controller_epoch)
        return Wait(Awaited.LIVE_REPLICA) if first is None else Write(first, Reason.NEW_PARTITION)  # A
    selection = _Selection(partition, partition.known, brokers, liveness, now_ms)
    if selection.must_wait_for_liveness():
        return selection.while_waiting_for_liveness()  # B
    waits: list[Wait] = []
    for case in (
        selection.elect_from_isr,  # C
        selection.elect_unclean_if_allowed,  # D
        selection.recover,  # E
        selection.reassign,  # F
        selection.elect_as_requested,  # G
    ):
        decision = case()
        if isinstance(decision, Wait):
            waits.append(decision)
        elif decision is not None:
            return decision
    return waits[0] if waits else Nothing()  # H


def review(partition: PartitionContext, brokers: BrokerSets, liveness: Liveness) -> PartitionContext:
    """Return the partition without the work, the questions and the waits that its state has made obsolete.

    A question is dropped as soon as its purpose is gone, so that an old answer proves nothing for a later purpose.
    """
    if partition.known is None:
        return partition
    known, state, query = partition.known, partition.known.state, partition.log_end_query
    if state.leader == NO_LEADER and partition.epoch_bump:
        # Without a leader, no request in flight can be accepted any more.
        partition = replace(partition, epoch_bump=False)
    if query is not None and state.leader != NO_LEADER:
        partition = replace(partition, log_end_query=None)
    elif query is not None:
        # An answer to a question from before the last loss is void, because its broker may have been lost too.
        current = query.without_requests_before(liveness.last_loss(partition.holders))
        partition = replace(partition, log_end_query=current)
    partition = _review_suspects(partition, state, brokers)
    return _review_questions(partition, known, brokers, liveness)


def election_candidates(partition: PartitionContext, state: PartitionState) -> tuple[int, ...]:
    """Return the replicas that may have what ISR members lost: the ISR and the eligible leader replicas.

    Other replicas are excluded, because a former leader may have records of its own in a later epoch than the ISR's.
    If unclean elections are allowed, only the ISR counts, except during a reassignment.
    """
    move = partition.reassignment
    if move is None or move.confirmed:
        present = () if partition.policy.allows_unclean else partition.replicas
    else:
        present = partition.holders
    return (*state.isr, *(each for each in state.eligible if each in present))


def _review_suspects(partition: PartitionContext, state: PartitionState, brokers: BrokerSets) -> PartitionContext:
    """Return the partition without suspects if none of them is in the ISR, or if only one candidate is left.

    While a trusted ISR member is online nothing is waited for, so the wait starts again when the last one goes.
    """
    suspects = partition.suspects
    if suspects is None:
        return partition
    if len(election_candidates(partition, state)) == 1 or suspects.members.isdisjoint(state.isr):
        return replace(partition, suspects=None)
    if not partition.trusted(brokers).isdisjoint(state.isr):
        return replace(partition, suspects=replace(suspects, timer=Timer()))
    return partition


def _review_questions(
    partition: PartitionContext, known: VersionedState, brokers: BrokerSets, liveness: Liveness
) -> PartitionContext:
    """Return the partition without the questions that have lost their purpose.

    The question to the leader is dropped if no other broker is to lead, and the one to remaining members if no replica
    is to go. The remaining members must answer after the leader has answered, because the records will depend on these
    members.
    """
    move = partition.reassignment
    if partition.handoff is None and (move is None or not move.remaining):
        return partition
    selection = _Selection(partition, known, brokers, liveness, now_ms=0)
    removal = selection.removal()
    successors = [each.leader for each in (removal, selection.preferred()) if each is not None]
    if all(leader == known.state.leader for leader in successors) or not selection.handoff_is_current():
        partition = replace(partition, handoff=None)
    if move is not None and not move.removed and (removal is None or selection.ask_old_leader(removal) is not None):
        return replace(partition, reassignment=move.without_request())
    return partition


class _Selection:
    """The cases of `decide` for one partition that has a state. Each returns None if the case does not apply.

    online    the live brokers whose replica is not on a failed disk, including brokers without a replica
    trusted   those of them whose replica is not suspect and has reported no loss
    """

    __slots__ = ("_brokers", "_liveness", "_now_ms", "_partition", "_policy", "_state", "online", "trusted")

    def __init__(
        self,
        partition: PartitionContext,
        known: VersionedState,
        brokers: BrokerSets,
        liveness: Liveness,
        now_ms: int,
    ) -> None:
        self._partition, self._state, self._policy = partition, known.state, partition.policy
        self._brokers, self._liveness, self._now_ms = brokers, liveness, now_ms
        self.online, self.trusted = partition.online(brokers), partition.trusted(brokers)

    # --- B -------------------------------------------------------------------------------------------

    def must_wait_for_liveness(self) -> bool:
        """Return whether an ISR member must first prove that it is alive.

        Some ISR members are lost, and the others are registered but may have died since. If the lost ones were removed
        in favour of dead ones, their records would be lost.
        """
        leaving = self._brokers.shutting_down if self._partition.evict_shutting_down else frozenset()
        kept = self.trusted.intersection(self._state.isr) - leaving
        lost = set(self._state.isr) - kept
        return bool(kept and lost) and not self._liveness.any_alive_since_loss(kept, lost)

    def while_waiting_for_liveness(self) -> Decision:
        """Return the wait, or the write of a new leader epoch after REGISTRATION_DELAY_MS if a registering broker needs
        one.

        The ISR stays. The leader stays if it is trusted; otherwise the partition has no leader.
        """
        state, timer = self._state, self._partition.liveness_wait or Timer()
        wait = Wait(Awaited.LIVENESS, timer.since_ms)
        if not timer.is_over(self._now_ms, REGISTRATION_DELAY_MS):
            return wait
        epoch_bump, controller_epoch = self._partition.epoch_bump, self._policy.controller_epoch
        if state.leader in self.trusted:
            overdue = renewed_state(state, controller_epoch) if epoch_bump else None
        elif epoch_bump or state.leader in self._brokers.registering:
            overdue = state.rewritten(NO_LEADER, state.isr, controller_epoch)
        else:
            overdue = None
        return wait if overdue is None else Write(overdue, Reason.LIVENESS_OVERDUE)

    # --- C, D, E -------------------------------------------------------------------------------------

    def elect_from_isr(self) -> Write | None:
        """Return the write that elects from the ISR, shrinks the ISR or renews the leader's epoch; None if the state
        stays.
        """
        wanted = next_state(
            self._state,
            self._partition.replicas,
            self.trusted,
            self._policy.controller_epoch,
            shutting_down=self._brokers.shutting_down,
            evict_shutting_down=self._partition.evict_shutting_down,
            renew=self._partition.epoch_bump,
        )
        return None if wanted is None else Write(wanted, Reason.ELECTION)

    def elect_unclean_if_allowed(self) -> Write | Ask | Wait | None:
        """Hold an unclean election if there is no leader, the topic allows it, and no suspect ISR member online may
        have all records.
        """
        if self._state.leader != NO_LEADER or not self._policy.allows_unclean or self._suspects_without_loss():
            return None
        return self._elect_unclean()

    def recover(self) -> Write | Ask | Wait | None:
        """Elect the candidate whose log reaches farthest, alone in the ISR; first ask for the log ends and wait for
        them.

        None if no ISR member is suspect, or if none is online. A trusted ISR member online was elected by case C.
        """
        partition, state, suspects = self._partition, self._state, self._partition.suspects
        if suspects is None or self.online.isdisjoint(state.isr):
            return None
        candidates = election_candidates(partition, state)
        if self._any_registering(candidates):
            return Wait(Awaited.REGISTRATION)
        timeout_ms = self._policy.recovery_timeout_ms
        choice = choose_recovery_leader(
            state.isr,
            candidates,
            partition.log_end_query or LogEndQuery(),
            self.online,
            absent_overdue=suspects.timer.is_over(self._now_ms, timeout_ms),
            answers_overdue=self._answers_overdue(),
        )
        return choice if isinstance(choice, Ask | Wait) else self._write_led_alone(state, choice, Reason.RECOVERY)

    def _elect_unclean(self) -> Write | Ask | Wait:
        """Elect the live replica whose log reaches farthest, alone in the ISR, even if its log is empty.

        Wait while a replica is registering, and for at most the recovery timeout while one has not answered the log end
        query. A single live replica is not asked.
        """
        partition, state = self._partition, self._state
        query = partition.log_end_query or LogEndQuery()
        present = [replica for replica in partition.holders if replica in self.online]
        if not present:
            return Wait(Awaited.LIVE_REPLICA)
        if self._any_registering(partition.holders):
            return Wait(Awaited.REGISTRATION)
        if len(present) > 1:
            if not_asked := query.not_asked(present):
                return Ask(Question.LOG_ENDS, not_asked)
            if len(query.answered(present)) < len(present) and not self._answers_overdue():
                return Wait(Awaited.LOG_ENDS, query.timer.since_ms)

        def worth(replica: int) -> tuple[LogEnd, bool, bool, bool]:
            lacks = query.reported_loss(replica) or replica in partition.with_loss
            stays = replica not in self._brokers.shutting_down
            return query.ends.get(replica, GONE), not lacks, replica in state.isr, stays

        leader = max(present, key=worth)
        alone = replace(state, isr=(leader,), eligible=())  # the other replicas no longer count
        return self._write_led_alone(alone, leader, Reason.UNCLEAN_ELECTION)

    def _write_led_alone(self, state: PartitionState, leader: int, why: Reason) -> Write:
        return Write(state.rewritten(leader, (leader,), self._policy.controller_epoch), why)

    def _suspects_without_loss(self) -> set[int]:
        """Return the suspect ISR members that are online and have not reported a loss.

        While there are any, no unclean election takes place, because they may have all records.
        """
        partition, query = self._partition, self._partition.log_end_query
        members = partition.suspects.members if partition.suspects else frozenset()
        return {
            each
            for each in members.intersection(self._state.isr, self.online)
            if each not in partition.with_loss and not (query and query.reported_loss(each))
        }

    def _any_registering(self, replicas: Collection[int]) -> bool:
        """Return whether one of these replicas is on a broker that has registered and is not online yet.

        An election waits for such a replica, even if the wait for absent replicas is over. Its log may reach farther
        than all others, and its broker is online within moments.
        """
        return not self._brokers.registering.isdisjoint(replicas)

    def _answers_overdue(self) -> bool:
        """Return whether the log end query has waited for the recovery timeout since its last request."""
        query = self._partition.log_end_query
        return query is not None and query.timer.is_over(self._now_ms, self._policy.recovery_timeout_ms)

    # --- F, G ----------------------------------------------------------------------------------------

    def reassign(self) -> Write | Ask | Wait | ConfirmRemoval | None:
        """Return the next step of a reassignment (`cluster.controller.replicas.reassignment`); None without a leader or
        a next step.
        """
        move = self._partition.reassignment
        if move is None or self._state.leader == NO_LEADER:
            return None
        if (removal := self.removal()) is not None:
            unproven = self.ask_old_leader(removal) or self._ask_remaining_members(removal)
            return unproven or Write(removal, Reason.REPLICAS_REMOVED)
        if move.removed and not move.confirmed:
            return self._ask_remaining_members(self._state) or ConfirmRemoval()
        if move.announced:
            return None
        return Write(renewed_state(self._state, self._policy.controller_epoch), Reason.REASSIGNMENT_ANNOUNCED)

    def elect_as_requested(self) -> Write | Ask | Wait | EndRequest | None:
        """Carry out a requested election; EndRequest if the election has nothing to do.

        An unclean election has nothing to do if there is a leader, or if no replica is online.
        """
        requested = self._partition.requested_election
        if requested is None:
            return None
        if requested is ElectionType.UNCLEAN:
            has_replica = not self.online.isdisjoint(self._partition.holders)
            return self._elect_unclean() if self._state.leader == NO_LEADER and has_replica else EndRequest()
        if (preferred := self.preferred()) is None:
            return EndRequest()
        return self.ask_old_leader(preferred) or Write(preferred, Reason.REQUEST)

    def removal(self) -> PartitionState | None:
        """Return the state without the replicas that a reassignment removes.

        None while it is too early, when it is done already, and without a reassignment or a leader.
        """
        partition, move = self._partition, self._partition.reassignment
        if move is None or move.removed or not partition.assigned.moving or self._state.leader == NO_LEADER:
            return None
        return state_without_removed_replicas(
            self._state,
            partition.assigned,
            self.trusted,
            self._brokers.shutting_down,
            self._policy.min_insync_replicas,
            self._policy.controller_epoch,
        )

    def preferred(self) -> PartitionState | None:
        """Return the state that a requested preferred election leads to; None if none is requested or the election has
        nothing to do.
        """
        if self._partition.requested_election is not ElectionType.PREFERRED:
            return None
        live = self.trusted - self._brokers.shutting_down
        return preferred_state(self._state, self._partition.replicas, live, self._policy.controller_epoch)

    def handoff_is_current(self) -> bool:
        """Return whether the leader of the current epoch was asked."""
        handoff = self._partition.handoff
        return handoff is not None and handoff.leader_epoch == self._state.leader_epoch

    def ask_old_leader(self, wanted: PartitionState) -> Ask | Wait | None:
        """Return the question to the leader before it is replaced, or the wait for its answer.

        None if the leader has answered in this leader epoch, stays in `wanted`, or does not exist. The answer shows
        that the leader will learn of its successor. A leader that reaches ZooKeeper but not the controller would keep
        telling clients that records are committed. Such a leader may lead until it answers, because it works correctly
        otherwise.
        """
        leader, handoff = self._state.leader, self._partition.handoff
        if leader in (NO_LEADER, wanted.leader):
            return None
        if handoff is None or not self.handoff_is_current():
            return Ask(Question.OLD_LEADER, (leader,))
        return None if self._liveness.any_alive_since((leader,), handoff.asked) else Wait(Awaited.OLD_LEADER)

    def _ask_remaining_members(self, state: PartitionState) -> Ask | Wait | None:
        """Return the question to the remaining members, or the wait for an answer; None if one of them has answered.

        Only members that are trusted and in this ISR count. If no member that counts was asked, all of them are asked.
        """
        move, members = self._partition.reassignment, self.trusted.intersection(state.isr)
        assert move is not None
        if members and members.isdisjoint(move.remaining):
            return Ask(Question.REMAINING_MEMBERS, members)
        if self._liveness.any_alive_since(members & move.remaining, move.asked):
            return None
        return Wait(Awaited.REMAINING_MEMBERS)
