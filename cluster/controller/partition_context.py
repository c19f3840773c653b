"""The controller's knowledge of one partition."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from cluster.controller.decision import (
    Ask,
    Awaited,
    ConfirmRemoval,
    Decision,
    EndRequest,
    Question,
    Reason,
    Wait,
    Write,
)
from cluster.controller.replicas.reassignment import ReassignmentProgress
from cluster.controller.timer import Timer
from cluster.controller.unclean_recovery import LogEndQuery, SuspectReplicas
from cluster.state import ReplicaAssignment, VersionedState
from tidelog.frozen_dataclass import frozen
from tidelog.model import TopicPartition
from tidelog.protocol.partition_messages import ElectionType

#: How long a registering broker waits for an ISR member to prove that it is alive. Then it is brought online without an
#: election.
REGISTRATION_DELAY_MS = 1000

_NO_BROKERS: frozenset[int] = frozenset()


class LeaderHandoff(NamedTuple):
    """A leader that is to be replaced: the leader epoch that ends, and the liveness epoch in which the leader was
    asked.
    """

    leader_epoch: int
    asked: int


@frozen
class ElectionPolicy:
    """The settings that govern the decisions about the partitions of one topic.

    controller_epoch      the epoch of the controller that decides
    allows_unclean        `unclean.leader.election.enable`
    min_insync_replicas   `min.insync.replicas`
    recovery_timeout_ms   how long an unclean recovery waits for absent replicas, and then for their log ends
    """

    controller_epoch: int
    allows_unclean: bool = False
    min_insync_replicas: int = 1
    recovery_timeout_ms: int = 300_000


@frozen
class BrokerSets:
    """The registered brokers at the moment of a decision.

    online          brokers that have a channel; the live brokers
    shutting_down   those of them in a controlled shutdown
    registering     registered brokers that get a channel once their previous registration is dealt with
    """

    online: frozenset[int] = frozenset()
    shutting_down: frozenset[int] = frozenset()
    registering: frozenset[int] = frozenset()


@frozen
class PartitionContext:
    """Holds what the controller knows of one partition, has to do, asks, and waits for. The value is replaced whole.

    Known facts:
    assigned        the replicas, by the topic's znode
    policy          the settings of the topic
    known           the last known state and its version; None before the first one is written
    offline         the brokers whose replica is on a failed disk
    with_loss       the brokers whose replica has lost committed records; never in sync, whatever the state says
    unclean_epoch   the leader epoch that the last unclean election began; None without one. Its leader leads even if
                    its replica has a loss

    One write at a time:
    in_flight        the write whose outcome is unknown. Nothing else is decided until the outcome is known
    read_meanwhile   a state read while a write is in flight. The state may be later than the write, and no other
                     notification follows

    Work to do:
    epoch_bump            the leader needs a new epoch even if it stays, so that its requests in flight are refused
    evict_shutting_down   brokers that shut down are to leave the ISR
    requested_election    an election that a request asked for
    reassignment          the progress of the move to other replicas; None without a reassignment

    Questions and waits:
    suspects        the ISR members that may have lost records
    log_end_query   the log ends that were asked for while the partition has no leader
    liveness_wait   the ISR stays until one of its members has proved that it is alive
    handoff         the leader was asked whether it is alive, because another replica is to lead
    """

    topic_partition: TopicPartition
    assigned: ReplicaAssignment
    policy: ElectionPolicy
    known: VersionedState | None = None
    offline: frozenset[int] = frozenset()
    with_loss: frozenset[int] = frozenset()
    unclean_epoch: int | None = None
    in_flight: Write | None = None
    read_meanwhile: VersionedState | None = None
    epoch_bump: bool = False
    evict_shutting_down: bool = False
    requested_election: ElectionType | None = None
    reassignment: ReassignmentProgress | None = None
    suspects: SuspectReplicas | None = None
    log_end_query: LogEndQuery | None = None
    liveness_wait: Timer | None = None
    handoff: LeaderHandoff | None = None

    # --- facts ---------------------------------------------------------------------------------------

    @property
    def replicas(self) -> tuple[int, ...]:
        """Return the assigned replicas in order, without those whose removal a reassignment has written."""
        move = self.reassignment
        return self.assigned.target if move is not None and move.removed else self.assigned.replicas

    @property
    def holders(self) -> tuple[int, ...]:
        """Return the brokers that may have a log of the partition.

        Replicas that a reassignment removes are included until they are requested to delete their logs.
        """
        move = self.reassignment
        return self.assigned.target if move is not None and move.confirmed else self.assigned.replicas

    @property
    def waits(self) -> bool:
        """Return whether the partition waits for an answer of a broker, a timeout, or a new leader epoch.

        Outcomes of writes and changes of the ISR do not count.
        """
        return bool(
            self.epoch_bump
            or self.suspects
            or self.log_end_query
            or self.liveness_wait
            or self.handoff
            or (self.reassignment and self.reassignment.remaining)
        )

    def online(self, brokers: BrokerSets) -> frozenset[int]:
        """Return the live brokers, except those whose replica is on a failed disk. Brokers without a replica are
        included.
        """
        return brokers.online - self.offline

    def trusted(self, brokers: BrokerSets) -> frozenset[int]:
        """Return the live brokers, except those whose replica is offline, suspect, or has reported a loss.

        Brokers without a replica are included.
        """
        return (
            brokers.online - self.offline - self.with_loss - (self.suspects.members if self.suspects else _NO_BROKERS)
        )

    def must_delay_registration(self, broker_id: int) -> bool:
        """Return whether a registering broker must wait, because the state still counts on its previous registration.

        True while a write is in flight or a new leader epoch is due. True also while a partition that the broker led
        waits for a proof of liveness.
        """
        if self.in_flight is not None or self.epoch_bump:
            return True
        return self.liveness_wait is not None and self.known is not None and self.known.state.leader == broker_id

    def waits_for_answer_of(self, broker_id: int) -> bool:
        """Return whether a proof that this broker is alive may change the decision."""
        state, move = self.known.state if self.known else None, self.reassignment
        if state is None:
            return False
        return (
            (self.liveness_wait is not None and broker_id in state.isr)
            or (move is not None and broker_id in move.remaining)
            or (self.handoff is not None and broker_id == state.leader)
        )

    def is_suspect(self, broker_id: int) -> bool:
        """Return whether this broker is an ISR member that may have lost records."""
        return self.suspects is not None and broker_id in self.suspects.members

    # --- events --------------------------------------------------------------------------------------

    def after(self, decision: Decision, liveness_epoch: int) -> PartitionContext:
        """Return the value when the controller has acted on the decision.

        `liveness_epoch` is the current one, in which a question is asked (`cluster.controller.liveness`). The wait for
        liveness and the removal of brokers that shut down end with a write, or with a final decision that does not
        wait for liveness. The old leader is asked anew after each write and each wait for liveness, because the leader
        may have become unreachable since its answer.
        """
        match decision:
            case Wait(Awaited.LIVENESS):
                return replace(self, liveness_wait=self.liveness_wait or Timer(), handoff=None)
            case Write(_, Reason.LIVENESS_OVERDUE):
                return replace(self, in_flight=decision, epoch_bump=False, handoff=None)
            case Write():
                return replace(
                    self,
                    in_flight=decision,
                    epoch_bump=False,
                    reassignment=self._reassignment_after(decision.why),
                    liveness_wait=None,
                    evict_shutting_down=False,
                    handoff=None,
                )
            case Ask(Question.LOG_ENDS, asked):
                query = self.log_end_query or LogEndQuery()
                return replace(self, log_end_query=query.with_request(asked, liveness_epoch))
            case Ask(Question.OLD_LEADER) if self.known is not None:
                return replace(self, handoff=LeaderHandoff(self.known.state.leader_epoch, liveness_epoch))
            case Ask(Question.REMAINING_MEMBERS, asked) if self.reassignment is not None:
                return replace(self, reassignment=self.reassignment.with_request(asked, liveness_epoch))
            case ConfirmRemoval() if self.reassignment is not None:
                return replace(self, reassignment=self.reassignment.with_confirmation())
            case EndRequest():
                return replace(self, requested_election=None)
        if self.liveness_wait is None and not self.evict_shutting_down:
            return self
        return replace(self, liveness_wait=None, evict_shutting_down=False)

    def _reassignment_after(self, why: Reason) -> ReassignmentProgress | None:
        """Return the progress of a reassignment when a state is written for this reason; None without a reassignment.

        A reassignment that is not confirmed starts again if a replica that may lack records is elected, so that no
        replica is removed in favour of that leader yet.
        """
        move = self.reassignment
        if move is None:
            return None
        if why in (Reason.UNCLEAN_ELECTION, Reason.RECOVERY) and not move.confirmed:
            return ReassignmentProgress()
        return move.with_removal_in_flight() if why is Reason.REPLICAS_REMOVED else move

    def written(self, partition_epoch: int) -> PartitionContext:
        """Return the value when the write in flight succeeded; `partition_epoch` is the state's new version.

        There must be a write in flight. A later state that was read meanwhile becomes the known one.
        """
        write = self.in_flight
        assert write is not None
        state, before, move = write.state, self.known, self.reassignment
        if move is not None and (before is None or state.leader_epoch > before.state.leader_epoch):
            move = move.with_new_epoch()
        leads_alone = write.why in (Reason.UNCLEAN_ELECTION, Reason.RECOVERY)
        unclean_epoch = state.leader_epoch if write.why is Reason.UNCLEAN_ELECTION else self.unclean_epoch
        leads_uncleanly = state.leader_epoch == unclean_epoch
        return replace(
            self,
            in_flight=None,
            read_meanwhile=None,
            known=_later(VersionedState(state, partition_epoch), self.read_meanwhile),
            reassignment=move,
            suspects=None if leads_alone else self.suspects,
            unclean_epoch=unclean_epoch,
            # A leader of an unclean election leads despite its loss.
            with_loss=self.with_loss - {state.leader} if leads_uncleanly else self.with_loss,
        )

    def refused(self, actual: VersionedState | None) -> PartitionContext:
        """Return the value when the write in flight was refused; `actual` is the state found (None: there is none).

        A later state that was read meanwhile becomes the known one, if a state was found.
        """
        move = self.reassignment.without_removal_in_flight() if self.reassignment else None
        if actual is None:
            # The state of an existing topic has vanished. A new state of epoch 0 could not fence old leaders.
            return replace(
                self,
                in_flight=None,
                read_meanwhile=None,
                known=None,
                liveness_wait=None,
                evict_shutting_down=False,
                reassignment=move,
            )
        known = _later(actual, self.read_meanwhile)
        return replace(self, in_flight=None, read_meanwhile=None, known=known, reassignment=move)

    def read(self, state: VersionedState) -> PartitionContext:
        """Return the value with a state that was read; the same value if that state is not newer.

        While a write is in flight, the state is kept in `read_meanwhile`.
        """
        known = self.read_meanwhile or self.known
        if known is not None and state.partition_epoch <= known.partition_epoch:
            return self
        return replace(self, known=state) if self.in_flight is None else replace(self, read_meanwhile=state)

    def reported(self, broker_id: int, *, online: bool, offline: bool, lacks: bool) -> PartitionContext:
        """Return the value after a broker's report that its replica is offline, lacks committed records, or is online.

        `online` ends earlier reports of the two failures, except of one that is reported again.
        """
        return replace(
            self,
            offline=_changed(self.offline, broker_id, add=offline, remove=online),
            with_loss=_changed(self.with_loss, broker_id, add=lacks, remove=online),
        )

    def with_suspect(self, broker_id: int) -> PartitionContext:
        """Return the value with a broker marked as suspect; the same value if the broker is not in the ISR."""
        if self.known is None or broker_id not in self.known.state.isr:
            return self
        suspects = self.suspects or SuspectReplicas()
        return replace(self, suspects=replace(suspects, members=suspects.members | {broker_id}))

    def without_reports_of(self, broker_id: int) -> PartitionContext:
        """Return the value without a broker's reports, and log end requests to it, because its registration ended.

        Return the same value if there are none.
        """
        gone, query = {broker_id}, self.log_end_query
        asked = query.asked if query else ()
        if broker_id not in self.offline and broker_id not in self.with_loss and broker_id not in asked:
            return self
        return replace(
            self,
            log_end_query=query.without(gone) if query else None,
            offline=self.offline - gone,
            with_loss=self.with_loss - gone,
        )

    def without_work(self) -> PartitionContext:
        """Return the value for a topic that is being deleted: the facts and the write in flight are left."""
        return PartitionContext(
            self.topic_partition,
            self.assigned,
            self.policy,
            self.known,
            self.offline,
            self.with_loss,
            self.unclean_epoch,
            self.in_flight,
            self.read_meanwhile,
        )

    # --- time ----------------------------------------------------------------------------------------

    def with_timers_started(self, now_ms: int, brokers: BrokerSets) -> PartitionContext:
        """Return the value with the timers of all its waits running.

        Suspect replicas are waited for only while no trusted ISR member is online.
        """
        suspects, query, wait = self.suspects, self.log_end_query, self.liveness_wait
        isr = self.known.state.isr if self.known else ()
        if suspects is not None and self.trusted(brokers).isdisjoint(isr):
            suspects = replace(suspects, timer=suspects.timer.started(now_ms))
        if query is not None:
            query = replace(query, timer=query.timer.started(now_ms))
        if wait is not None:
            wait = wait.started(now_ms)
        return replace(self, suspects=suspects, log_end_query=query, liveness_wait=wait)

    def timeouts(self) -> list[tuple[Timer, int]]:
        """Return the timers of the waits that can time out, each with its timeout (ms); some may not have started.

        The waits are for suspects, for log ends, and for a proof of liveness.
        """
        recovery = [each.timer for each in (self.suspects, self.log_end_query) if each is not None]
        timeouts = [(timer, self.policy.recovery_timeout_ms) for timer in recovery]
        return timeouts + ([(self.liveness_wait, REGISTRATION_DELAY_MS)] if self.liveness_wait else [])


def _later(state: VersionedState, other: VersionedState | None) -> VersionedState:
    return other if other is not None and other.partition_epoch > state.partition_epoch else state


def _changed(members: frozenset[int], broker_id: int, *, add: bool, remove: bool) -> frozenset[int]:
    if add:
        return members | {broker_id}
    return members - {broker_id} if remove else members
