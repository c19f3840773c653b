"""The choice of a partition's next state: elections, unclean recovery, reassignments and requested elections."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from cluster.controller.controller_context import ControllerContext
from cluster.controller.election import election_refusal, initial_state, next_state, preferred_state, renewed_state
from cluster.controller.liveness import Liveness
from cluster.controller.reassignment import ReassignmentProgress, state_without_removed_replicas
from cluster.controller.unclean_recovery import (
    GONE,
    LivenessWait,
    LogEnd,
    LogEndQuery,
    SuspectReplicas,
    choose_recovery_leader,
)
from cluster.state import BrokerRegistration, PartitionState
from tidelog.errors import BrokerError
from tidelog.model import NO_LEADER, TopicPartition

#: How long a registering broker waits for an ISR member to prove that it is alive. Then it is brought online without an
#: election.
REGISTRATION_DELAY_MS = 1000

UNCLEAN_ELECTION = "unclean.leader.election.enable"
MIN_INSYNC_REPLICAS = "min.insync.replicas"


class LeaderHandoff(NamedTuple):
    """A leader that is to be replaced: the leader epoch that ends, and the liveness epoch in which the leader was
    asked.
    """

    leader_epoch: int
    asked: int


class LeaderSelector(ControllerContext):
    """Chooses partition states and writes nothing; its subclass `Controller` writes them.

    requested_elections   elections that a request asked for; True: unclean ones
    registering           registered brokers that are brought online once their previous registration is dealt with
    liveness              the brokers that have answered since other brokers were lost
    suspects              partitions with ISR members that may have lost records
    log_end_queries       the known log ends of partitions without a leader
    waiting_for_liveness  partitions whose ISR stays until one of its members has proved that it is alive
    epoch_bumps           partitions whose leader needs a new epoch even if it stays, so that its requests in flight are
                          refused
    log_end_requests      the partitions whose log ends to ask for, by broker
    to_probe              brokers to ask whether they are alive, because other replicas are to be removed in their
                          favour
    handoffs              partitions whose leader is asked whether it is alive, because another replica is to lead after
                          a requested election or a reassignment
    to_delete             partitions whose removed replicas may now be deleted
    """

    def __init__(
        self,
        controller_id: int,
        epoch: int,
        *,
        unclean_by_default: bool,
        min_insync_by_default: int,
        recovery_timeout_ms: int,
    ) -> None:
        super().__init__()
        self.controller_id = controller_id
        self.epoch = epoch
        self.registering: dict[int, BrokerRegistration] = {}
        self.liveness = Liveness(controller_id)
        self.waiting_for_liveness: dict[TopicPartition, LivenessWait] = {}
        self.requested_elections: dict[TopicPartition, bool] = {}
        self.suspects: dict[TopicPartition, SuspectReplicas] = {}
        self.log_end_queries: dict[TopicPartition, LogEndQuery] = {}
        self.epoch_bumps: set[TopicPartition] = set()
        self.log_end_requests: dict[int, list[TopicPartition]] = {}
        self.to_probe: set[int] = set()
        self.handoffs: dict[TopicPartition, LeaderHandoff] = {}
        self.to_delete: list[TopicPartition] = []
        self._recovery_timeout_ms = recovery_timeout_ms
        self._unclean = "true" if unclean_by_default else "false"
        self._min_insync = str(min_insync_by_default)

    def next_state_for(self, tp: TopicPartition, *, evict_shutting_down: bool = False) -> PartitionState | None:
        """Return the state to write, or None if the current state is right as far as is known.

        The cases are tried in this order: wait for liveness, elect from the ISR, recover from suspect replicas,
        reassign, and perform a requested election. This method also drops what the current state has made obsolete.
        """
        known = self.states.get(tp)
        if known is None:
            return initial_state(self.replicas(tp), self.online(tp) - self.shutting_down, self.epoch)
        state = known.state
        if state.leader == NO_LEADER:
            # Without a leader, no request in flight can be accepted any more, so that no epoch bump is needed.
            self.epoch_bumps.discard(tp)
        else:
            self.log_end_queries.pop(tp, None)
        self._review_suspects(tp, state)
        handoff = self.handoffs.pop(tp, None)  # put back if the leader is still to be replaced
        wait = self.waiting_for_liveness.pop(tp, None) or LivenessWait()
        wait.evict_shutting_down = wait.evict_shutting_down or evict_shutting_down
        if self._must_wait_for_liveness(tp, state, evict_shutting_down=wait.evict_shutting_down):
            self.waiting_for_liveness[tp] = wait
            return self._state_while_waiting(tp, state)
        return (
            self._elected_state(
                tp, state, evict_shutting_down=wait.evict_shutting_down, unclean=self._allows_unclean(tp)
            )
            or self._recovered_state(tp, state)
            or self._reassigned_state(tp, state, handoff)
            or self._requested_state(tp, state, handoff)
        )

    def election_refusal(self, tp: TopicPartition, *, unclean: bool) -> BrokerError | None:
        """Return why a requested election would have no effect at present, or None."""
        if unclean:
            return election_refusal(self.states[tp].state, self.holders(tp), self.online(tp), unclean=True)
        live = self.trusted_replicas(tp) - self.shutting_down
        return election_refusal(self.states[tp].state, self.replicas(tp), live, unclean=False)

    def leaders_restarted_unnoticed(self) -> set[TopicPartition]:
        """Return the partitions whose leader registered after their state was written.

        Such a leader restarted while there was no controller.
        """
        led = ((tp, known.mzxid, self.brokers.get(known.state.leader)) for tp, known in self.states.items())
        return {tp for tp, mzxid, leader in led if leader is not None and -1 < mzxid < leader.epoch}

    def expired_waits(self, now_ms: int) -> set[TopicPartition]:
        """Return the partitions with a wait that has now lasted long enough."""
        unresolved = [(tp, suspect) for tp, suspect in self.suspects.items() if not suspect.trusted_member_online]
        waits = [*unresolved, *self.log_end_queries.items()]
        late = {tp for tp, wait in waits if wait.time_out(now_ms, self._recovery_timeout_ms)}
        return late | {
            tp for tp, wait in self.waiting_for_liveness.items() if wait.time_out(now_ms, REGISTRATION_DELAY_MS)
        }

    def mark_suspect(self, broker_id: int, tps: Collection[TopicPartition] | None = None) -> None:
        """Mark a broker whose logs (of these partitions, or all) may be short as suspect where it is in the ISR.

        Other ISR members lead as long as one of them is trusted.
        """
        hosted = self.hosted.get(broker_id, set())
        for tp in hosted if tps is None else hosted.intersection(tps):
            if tp in self.states and broker_id in self.states[tp].state.isr:
                self.suspects.setdefault(tp, SuspectReplicas()).members.add(broker_id)

    def trusted_replicas(self, tp: TopicPartition) -> set[int]:
        """Return the online replicas that know of no loss of their own and are not suspect."""
        suspect = self.suspects.get(tp)
        members = suspect.members if suspect else ()
        return {
            each for each in self.online(tp) if each not in members and tp not in self.replicas_with_loss.get(each, ())
        }

    def _review_suspects(self, tp: TopicPartition, state: PartitionState) -> None:
        """Drop the suspicion when no suspect replica is in the ISR, or when a suspect is the only candidate."""
        suspect = self.suspects.get(tp)
        if suspect is None:
            return
        if len(self._candidates(tp, state)) == 1 or suspect.members.isdisjoint(state.isr):
            del self.suspects[tp]
        else:
            suspect.set_trusted_member_online(not self.trusted_replicas(tp).isdisjoint(state.isr))

    def _candidates(self, tp: TopicPartition, state: PartitionState) -> tuple[int, ...]:
        """Return the replicas that may have what ISR members lost: the ISR and the eligible leader replicas.

        Other replicas are excluded, because a former leader may have records of its own in a later epoch than the
        ISR's. If unclean elections are allowed, only the ISR counts, except during a reassignment.
        """
        move = self.reassignments.get(tp)
        if move is None or move.confirmed:
            present = () if self._allows_unclean(tp) else self.replicas(tp)
        else:
            present = self.holders(tp)
        return (*state.isr, *(each for each in state.eligible if each in present))

    def must_delay_registration(self, tp: TopicPartition, broker_id: int) -> bool:
        """Return whether a registering broker must wait, because a state still counts on its previous registration."""
        return tp in self.epoch_bumps or (tp in self.waiting_for_liveness and self.states[tp].state.leader == broker_id)

    def _must_wait_for_liveness(self, tp: TopicPartition, state: PartitionState, *, evict_shutting_down: bool) -> bool:
        """Return whether an ISR member must first prove that it is alive.

        Some ISR members are lost, and the others are registered but may have died since. If the lost ones were removed
        in favour of dead ones, their records would be lost.
        """
        keep = (
            self.trusted_replicas(tp)
            .intersection(state.isr)
            .difference(self.shutting_down if evict_shutting_down else ())
        )
        lost = set(state.isr) - keep
        return bool(keep and lost) and not self.liveness.any_alive_since_loss(keep, lost)

    def _state_while_waiting(self, tp: TopicPartition, state: PartitionState) -> PartitionState | None:
        """Return the state with the same ISR, or None.

        A state is written only when a registering broker has waited long enough. The leader stays if it is trusted;
        otherwise the partition has no leader.
        """
        if not self.waiting_for_liveness[tp].overdue:
            return None
        if state.leader in self.trusted_replicas(tp):
            return renewed_state(state, self.epoch) if tp in self.epoch_bumps else None
        if tp in self.epoch_bumps or state.leader in self.registering:
            return state.rewritten(NO_LEADER, state.isr, self.epoch)
        return None

    def _elected_state(
        self, tp: TopicPartition, state: PartitionState, *, unclean: bool, evict_shutting_down: bool
    ) -> PartitionState | None:
        """Return the state after an election from the ISR, or after an unclean election if that is allowed and
        needed.
        """
        wanted = next_state(
            state,
            self.replicas(tp),
            self.trusted_replicas(tp),
            self.epoch,
            shutting_down=self.shutting_down,
            evict_shutting_down=evict_shutting_down,
            renew=tp in self.epoch_bumps,
        )
        if wanted is not None or state.leader != NO_LEADER or not unclean or self._suspects_without_loss(tp, state):
            return wanted
        return self._unclean_state(tp, state)

    def _suspects_without_loss(self, tp: TopicPartition, state: PartitionState) -> set[int]:
        """Return the suspect ISR members that are online and have not reported a loss.

        While there are any, no unclean election takes place, because they may have all records.
        """
        suspect, poll = self.suspects.get(tp), self.log_end_queries.get(tp)
        present = suspect.members.intersection(state.isr, self.online(tp)) if suspect else set()
        return {
            each
            for each in present
            if tp not in self.replicas_with_loss.get(each, ()) and not (poll and poll.reported_loss(each))
        }

    def _unclean_state(self, tp: TopicPartition, state: PartitionState) -> PartitionState | None:
        """Return the state led by the live replica whose log reaches farthest, alone in the ISR, even if its log is
        empty.

        Return None while a replica is registering or has not answered the log end query.
        """
        online, holders = self.online(tp), self.holders(tp)
        present = [replica for replica in holders if replica in online]
        if not present or self._any_registering(holders):
            return None
        poll = self._log_end_query(tp)
        if len(present) > 1:
            if not_asked := poll.not_asked(present):
                self._request_log_ends(tp, poll, not_asked)
                return None
            if len(poll.answered(present)) < len(present) and not poll.overdue:
                return None

        def worth(replica: int) -> tuple[LogEnd, bool, bool, bool]:
            lacks = poll.reported_loss(replica) or tp in self.replicas_with_loss.get(replica, ())
            return poll.ends.get(replica, GONE), not lacks, replica in state.isr, replica not in self.shutting_down

        leader = max(present, key=worth)
        alone = replace(state, isr=(leader,), eligible=())  # the other replicas no longer count
        chosen = self._state_led_alone(tp, alone, leader)
        self.unclean_epochs[tp] = chosen.leader_epoch
        return chosen

    def _recovered_state(self, tp: TopicPartition, state: PartitionState) -> PartitionState | None:
        """Return the state led by the best suspect ISR member, if every live ISR member is suspect and the best one is
        known.
        """
        suspect, online = self.suspects.get(tp), self.online(tp)
        if suspect is None or online.isdisjoint(state.isr):
            return None
        candidates = self._candidates(tp, state)
        if self._any_registering(candidates):
            return None
        poll = self._log_end_query(tp)
        choice = choose_recovery_leader(state.isr, candidates, poll, online, overdue=suspect.overdue)
        self._request_log_ends(tp, poll, choice.ask)
        return None if choice.leader is None else self._state_led_alone(tp, state, choice.leader)

    def _any_registering(self, replicas: Collection[int]) -> bool:
        """Return whether one of these replicas is on a broker that has registered and is not online yet.

        An election waits for such a replica, even if the wait for absent replicas is over. Its log may reach farther
        than all others, and its broker is online within moments.
        """
        return not self.registering.keys().isdisjoint(replicas)

    def _log_end_query(self, tp: TopicPartition) -> LogEndQuery:
        """Return the partition's log end query without the answers that a later loss made void."""
        poll = self.log_end_queries.setdefault(tp, LogEndQuery())
        poll.discard_before(self.liveness.last_loss(self.holders(tp)))
        return poll

    def _request_log_ends(self, tp: TopicPartition, poll: LogEndQuery, broker_ids: Collection[int]) -> None:
        poll.ask(broker_ids, self.liveness.epoch)
        for broker_id in broker_ids:
            self.log_end_requests.setdefault(broker_id, []).append(tp)

    def _state_led_alone(self, tp: TopicPartition, state: PartitionState, leader: int) -> PartitionState:
        """Return the state with this leader alone in the ISR, although the leader may lack records.

        A reassignment that is not confirmed starts again, so that no replica is removed in favour of this leader yet.
        """
        chosen = state.rewritten(leader, (leader,), self.epoch)
        if (suspect := self.suspects.get(tp)) is not None:
            suspect.recovery_state = chosen
        if (move := self.reassignments.get(tp)) is not None and not move.confirmed:
            self.reassignments[tp] = ReassignmentProgress()
        return chosen

    def _reassigned_state(
        self, tp: TopicPartition, state: PartitionState, handoff: LeaderHandoff | None
    ) -> PartitionState | None:
        """Return the state of the next step of a reassignment, or None if no step is due."""
        move = self.reassignments.get(tp)
        if move is None or state.leader == NO_LEADER:
            return None
        assigned = self.topics[tp.topic].assigned(tp.partition)
        if assigned.moving and not move.removed:
            least = int(self.setting(tp, MIN_INSYNC_REPLICAS, self._min_insync))
            without_removed = state_without_removed_replicas(
                state, assigned, self.trusted_replicas(tp), self.shutting_down, least, self.epoch
            )
            if without_removed is not None and not self._old_leader_has_answered(tp, state, without_removed, handoff):
                move.remaining = frozenset()  # asked after the old leader, because the records depend on them
                return None
            if without_removed is not None and not self._remaining_member_is_alive(tp, move, without_removed):
                return None
            move.remaining, move.removal_state = frozenset(), without_removed
            if without_removed is not None:
                return without_removed
        if move.removed and not move.confirmed and self._remaining_member_is_alive(tp, move, state):
            move.remaining, move.confirmed = frozenset(), True
            self.to_delete.append(tp)
        return None if move.announced else renewed_state(state, self.epoch)

    def _remaining_member_is_alive(self, tp: TopicPartition, move: ReassignmentProgress, state: PartitionState) -> bool:
        """Return whether a remaining member, still trusted and in this ISR, has been alive since the members were
        asked.

        If none of the asked members is, all current ones are asked.
        """
        whole = self.trusted_replicas(tp).intersection(state.isr)
        if whole and whole.isdisjoint(move.remaining):
            move.remaining, move.asked = frozenset(whole), self.liveness.new_epoch()
            self.to_probe |= whole
        return self.liveness.any_alive_since(whole & move.remaining, move.asked)

    def _requested_state(
        self, tp: TopicPartition, state: PartitionState, handoff: LeaderHandoff | None
    ) -> PartitionState | None:
        """Return the state after a requested election, or None. Drop the request when nothing is left to do for it."""
        unclean = self.requested_elections.get(tp)
        if unclean is None:
            return None
        if unclean and state.leader == NO_LEADER and not self.online(tp).isdisjoint(self.holders(tp)):
            return self._unclean_state(tp, state)
        live = self.trusted_replicas(tp) - self.shutting_down
        wanted = None if unclean else preferred_state(state, self.replicas(tp), live, self.epoch)
        if wanted is None:
            del self.requested_elections[tp]
            return None
        return wanted if self._old_leader_has_answered(tp, state, wanted, handoff) else None

    def _old_leader_has_answered(
        self, tp: TopicPartition, state: PartitionState, wanted: PartitionState, handoff: LeaderHandoff | None
    ) -> bool:
        """Return whether the old leader has answered since it is to be replaced, so that it will learn of its
        successor.

        A leader that reaches ZooKeeper but not the controller would keep telling clients that records are committed.
        Such a leader may lead until it answers, because it works correctly otherwise.
        """
        if state.leader in (NO_LEADER, wanted.leader):
            return True
        if handoff is None or handoff.leader_epoch != state.leader_epoch:
            handoff = LeaderHandoff(state.leader_epoch, self.liveness.new_epoch())
            self.to_probe.add(state.leader)
        self.handoffs[tp] = handoff
        return self.liveness.any_alive_since((state.leader,), handoff.asked)

    def _allows_unclean(self, tp: TopicPartition) -> bool:
        """Return whether the topic's records may be given up so that the partition has a leader."""
        return self.setting(tp, UNCLEAN_ELECTION, self._unclean).lower() == "true"
