"""The events that change the controller's knowledge of one partition, one row or more for each event.

The partition has the replicas 1, 2 and 3, all in sync. Broker 1 leads in leader epoch 4, and the state has version 12.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

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
from cluster.controller.partition_context import (
    REGISTRATION_DELAY_MS,
    BrokerSets,
    ElectionPolicy,
    LeaderHandoff,
    PartitionContext,
)
from cluster.controller.replicas.reassignment import ReassignmentProgress
from cluster.controller.timer import Timer
from cluster.controller.unclean_recovery import LogEnd, LogEndQuery, SuspectReplicas
from cluster.state import PartitionState, ReplicaAssignment, VersionedState
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.partition_messages import ElectionType

TP = TopicPartition("t", 0)
NOW_MS, RECOVERY_MS, LIVENESS_EPOCH = 1_000_000, 5000, 8


def state(leader: int, *isr: int, leader_epoch: int = 4) -> PartitionState:
    return PartitionState(leader, leader_epoch, isr, 6)


def writing(*isr: int, leader: int = 2, leader_epoch: int = 5, why: Reason = Reason.ELECTION) -> Write:
    return Write(state(leader, *isr, leader_epoch=leader_epoch), why)


def asked(*broker_ids: int) -> LogEndQuery:
    """Return the query that these brokers were asked in liveness epoch 1 and have answered."""
    return LogEndQuery({each: LogEnd(3, 9) for each in broker_ids}, dict.fromkeys(broker_ids, 1))


LED = PartitionContext(
    TP,
    ReplicaAssignment((1, 2, 3)),
    ElectionPolicy(7, recovery_timeout_ms=RECOVERY_MS),
    VersionedState(state(1, 1, 2, 3), 12),
)
LEADERLESS = replace(LED, known=VersionedState(state(NO_LEADER, 1, 2), 12))
LATER = VersionedState(state(1, 1, 2), 14)
MOVE = replace(
    LED, assigned=ReplicaAssignment((1, 2, 3), (3,), (1,)), reassignment=ReassignmentProgress(announced=True)
)
REMAINING_ASKED = ReassignmentProgress(announced=True, remaining=frozenset({2, 3}), asked=1)
REMOVING = ReassignmentProgress(announced=True, removal_in_flight=True)
REMOVED = ReassignmentProgress(announced=True, removed=True)
WAITING = replace(LED, liveness_wait=Timer(5), evict_shutting_down=True)
SUSPECT = SuspectReplicas(frozenset({1}))


@pytest.mark.parametrize(
    ("before", "decision", "expected"),
    [
        pytest.param(LED, Nothing(), LED, id="nothing"),
        pytest.param(WAITING, Nothing(), LED, id="nothing ends the wait and the eviction"),
        pytest.param(WAITING, Wait(Awaited.OLD_LEADER), LED, id="so does another wait"),
        pytest.param(LED, Wait(Awaited.LIVENESS), replace(LED, liveness_wait=Timer()), id="a wait begins"),
        pytest.param(WAITING, Wait(Awaited.LIVENESS, 5), WAITING, id="a wait goes on"),
        pytest.param(
            replace(WAITING, handoff=LeaderHandoff(4, 1)),
            Wait(Awaited.LIVENESS, 5),
            WAITING,
            id="the old leader's answer does not outlast the loss of a member",
        ),
        pytest.param(
            replace(WAITING, epoch_bump=True, handoff=LeaderHandoff(4, 1)),
            writing(1, 2, 3, why=Reason.LIVENESS_OVERDUE),
            replace(WAITING, in_flight=writing(1, 2, 3, why=Reason.LIVENESS_OVERDUE)),
            id="nor an overdue wait",
        ),
        pytest.param(
            replace(LED, handoff=LeaderHandoff(4, 1)),
            writing(1, 2, leader=1, leader_epoch=4),
            replace(LED, in_flight=writing(1, 2, leader=1, leader_epoch=4)),
            id="nor a write",
        ),
        pytest.param(
            replace(LED, handoff=LeaderHandoff(4, 1)),
            Wait(Awaited.OLD_LEADER),
            replace(LED, handoff=LeaderHandoff(4, 1)),
            id="the old leader's answer is awaited",
        ),
        pytest.param(
            replace(WAITING, epoch_bump=True),
            writing(1, 2, 3, why=Reason.LIVENESS_OVERDUE),
            replace(WAITING, in_flight=writing(1, 2, 3, why=Reason.LIVENESS_OVERDUE)),
            id="an overdue wait goes on after its write",
        ),
        pytest.param(
            replace(WAITING, epoch_bump=True),
            writing(2, 3),
            replace(LED, in_flight=writing(2, 3)),
            id="a write ends the wait, the eviction and the need for a new epoch",
        ),
        pytest.param(
            replace(MOVE, reassignment=REMAINING_ASKED),
            writing(2, 3, why=Reason.REPLICAS_REMOVED),
            replace(
                MOVE, reassignment=replace(REMOVING, asked=1), in_flight=writing(2, 3, why=Reason.REPLICAS_REMOVED)
            ),
            id="the removal is in flight",
        ),
        pytest.param(
            replace(MOVE, reassignment=REMAINING_ASKED),
            writing(2, 3),
            replace(MOVE, reassignment=REMAINING_ASKED, in_flight=writing(2, 3)),
            id="an election keeps the progress of a reassignment",
        ),
        *(
            pytest.param(
                replace(MOVE, reassignment=REMOVED),
                writing(2, why=why),
                replace(MOVE, reassignment=ReassignmentProgress(), in_flight=writing(2, why=why)),
                id=f"an unconfirmed reassignment starts again: {why.name}",
            )
            for why in (Reason.UNCLEAN_ELECTION, Reason.RECOVERY)
        ),
        pytest.param(
            replace(MOVE, reassignment=replace(REMOVED, confirmed=True)),
            writing(2, why=Reason.RECOVERY),
            replace(MOVE, reassignment=replace(REMOVED, confirmed=True), in_flight=writing(2, why=Reason.RECOVERY)),
            id="a confirmed one does not",
        ),
        pytest.param(
            replace(LEADERLESS, evict_shutting_down=True, log_end_query=LogEndQuery({}, {1: 1}, Timer(5))),
            Ask(Question.LOG_ENDS, (2,)),
            replace(
                LEADERLESS, evict_shutting_down=True, log_end_query=LogEndQuery({}, {1: 1, 2: LIVENESS_EPOCH}, Timer())
            ),
            id="a question about log ends starts their wait again, and is not the final decision",
        ),
        pytest.param(
            replace(LED, handoff=LeaderHandoff(3, 1), evict_shutting_down=True),
            Ask(Question.OLD_LEADER, (1,)),
            replace(LED, handoff=LeaderHandoff(4, LIVENESS_EPOCH), evict_shutting_down=True),
            id="the old leader is asked",
        ),
        pytest.param(
            replace(MOVE, reassignment=REMAINING_ASKED),
            Ask(Question.REMAINING_MEMBERS, {2}),
            replace(MOVE, reassignment=replace(REMAINING_ASKED, remaining=frozenset({2}), asked=LIVENESS_EPOCH)),
            id="the remaining members are asked",
        ),
        pytest.param(
            replace(MOVE, reassignment=replace(REMAINING_ASKED, removed=True)),
            ConfirmRemoval(),
            replace(MOVE, reassignment=replace(REMOVED, asked=1, confirmed=True)),
            id="the removal is confirmed",
        ),
        pytest.param(
            replace(LED, requested_election=ElectionType.PREFERRED), EndRequest(), LED, id="the request is dropped"
        ),
    ],
)
def test_context_after_a_decision(before: PartitionContext, decision: Decision, expected: PartitionContext) -> None:
    assert before.after(decision, LIVENESS_EPOCH) == expected


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param(
            replace(LED, in_flight=writing(2, 3)),
            replace(LED, known=VersionedState(state(2, 2, 3, leader_epoch=5), 13)),
            id="the state is known",
        ),
        pytest.param(
            replace(LED, in_flight=writing(2, 3), read_meanwhile=LATER),
            replace(LED, known=LATER),
            id="a later state was read meanwhile",
        ),
        pytest.param(
            replace(LED, in_flight=writing(2, 3), read_meanwhile=replace(LATER, partition_epoch=13)),
            replace(LED, known=VersionedState(state(2, 2, 3, leader_epoch=5), 13)),
            id="the same version was read meanwhile",
        ),
        pytest.param(
            replace(
                LED, in_flight=writing(2, 3), suspects=SUSPECT, epoch_bump=True, requested_election=ElectionType.UNCLEAN
            ),
            replace(
                LED,
                known=VersionedState(state(2, 2, 3, leader_epoch=5), 13),
                suspects=SUSPECT,
                epoch_bump=True,
                requested_election=ElectionType.UNCLEAN,
            ),
            id="what came up meanwhile is kept",
        ),
        pytest.param(
            replace(LED, in_flight=writing(2, why=Reason.RECOVERY), suspects=SUSPECT, with_loss=frozenset({2})),
            replace(LED, known=VersionedState(state(2, 2, leader_epoch=5), 13), with_loss=frozenset({2})),
            id="a recovery ends the suspicion",
        ),
        pytest.param(
            replace(
                LED, in_flight=writing(2, why=Reason.UNCLEAN_ELECTION), suspects=SUSPECT, with_loss=frozenset({2, 3})
            ),
            replace(
                LED,
                known=VersionedState(state(2, 2, leader_epoch=5), 13),
                unclean_epoch=5,
                with_loss=frozenset({3}),
            ),
            id="the leader of an unclean election leads despite its loss",
        ),
        pytest.param(
            replace(
                LED, in_flight=writing(1, 2, leader=1, leader_epoch=4), unclean_epoch=4, with_loss=frozenset({1, 3})
            ),
            replace(LED, known=VersionedState(state(1, 1, 2), 13), unclean_epoch=4, with_loss=frozenset({3})),
            id="also when its ISR shrinks in that epoch",
        ),
        pytest.param(
            replace(LED, in_flight=writing(1, 2, leader=1), unclean_epoch=4, with_loss=frozenset({1})),
            replace(
                LED,
                known=VersionedState(state(1, 1, 2, leader_epoch=5), 13),
                unclean_epoch=4,
                with_loss=frozenset({1}),
            ),
            id="but not in a later epoch",
        ),
        pytest.param(
            replace(MOVE, reassignment=REMOVING, in_flight=writing(2, 3, why=Reason.REPLICAS_REMOVED)),
            replace(MOVE, reassignment=REMOVED, known=VersionedState(state(2, 2, 3, leader_epoch=5), 13)),
            id="the replicas are removed",
        ),
        pytest.param(
            replace(MOVE, reassignment=ReassignmentProgress(), in_flight=writing(2, 3)),
            replace(MOVE, known=VersionedState(state(2, 2, 3, leader_epoch=5), 13)),
            id="a new epoch announces the reassignment",
        ),
        pytest.param(
            replace(MOVE, reassignment=ReassignmentProgress(), in_flight=writing(1, 2, leader=1, leader_epoch=4)),
            replace(MOVE, reassignment=ReassignmentProgress(), known=VersionedState(state(1, 1, 2), 13)),
            id="an old one does not",
        ),
        pytest.param(
            replace(MOVE, reassignment=ReassignmentProgress(), known=None, in_flight=writing(1, leader_epoch=0)),
            replace(MOVE, known=VersionedState(state(2, 1, leader_epoch=0), 13)),
            id="the first one does",
        ),
    ],
)
def test_context_after_a_successful_write(before: PartitionContext, expected: PartitionContext) -> None:
    assert before.written(13) == expected


@pytest.mark.parametrize(
    ("before", "actual", "expected"),
    [
        pytest.param(replace(LED, in_flight=writing(2, 3)), LATER, replace(LED, known=LATER), id="the state found"),
        pytest.param(
            replace(LED, in_flight=writing(2, 3), read_meanwhile=LATER),
            replace(LATER, partition_epoch=13),
            replace(LED, known=LATER),
            id="a later state was read meanwhile",
        ),
        pytest.param(
            replace(LED, in_flight=writing(2, 3), read_meanwhile=replace(LATER, partition_epoch=13)),
            LATER,
            replace(LED, known=LATER),
            id="an earlier state was read meanwhile",
        ),
        pytest.param(
            replace(WAITING, in_flight=writing(1, 2, 3, why=Reason.LIVENESS_OVERDUE)),
            LATER,
            replace(WAITING, known=LATER),
            id="an overdue wait goes on",
        ),
        pytest.param(
            replace(
                LED,
                in_flight=writing(2, why=Reason.UNCLEAN_ELECTION),
                suspects=SUSPECT,
                unclean_epoch=3,
                with_loss=frozenset({2}),
            ),
            LATER,
            replace(LED, known=LATER, suspects=SUSPECT, unclean_epoch=3, with_loss=frozenset({2})),
            id="an unclean election that was not written has no effect",
        ),
        pytest.param(
            replace(MOVE, reassignment=REMOVING, in_flight=writing(2, 3, why=Reason.REPLICAS_REMOVED)),
            LATER,
            replace(MOVE, known=LATER),
            id="no replica is removed",
        ),
        pytest.param(
            replace(WAITING, in_flight=writing(1, 2, 3, why=Reason.LIVENESS_OVERDUE), read_meanwhile=LATER),
            None,
            replace(LED, known=None),
            id="the state has vanished, so that no wait for it is left",
        ),
        pytest.param(
            replace(MOVE, reassignment=REMOVING, in_flight=writing(2, 3, why=Reason.REPLICAS_REMOVED)),
            None,
            replace(MOVE, known=None),
            id="the state has vanished, and no replica is removed",
        ),
    ],
)
def test_context_after_a_refused_write(
    before: PartitionContext, actual: VersionedState | None, expected: PartitionContext
) -> None:
    assert before.refused(actual) == expected


@pytest.mark.parametrize(
    ("before", "found", "expected"),
    [
        pytest.param(LED, LATER, replace(LED, known=LATER), id="later"),
        pytest.param(LED, replace(LATER, partition_epoch=12), LED, id="the same version"),
        pytest.param(replace(LED, known=None), LATER, replace(LED, known=LATER), id="the first one"),
        pytest.param(
            replace(LED, in_flight=writing(2, 3)),
            LATER,
            replace(LED, in_flight=writing(2, 3), read_meanwhile=LATER),
            id="while a write is in flight",
        ),
        pytest.param(
            replace(LED, in_flight=writing(2, 3), read_meanwhile=LATER),
            replace(LATER, partition_epoch=13),
            replace(LED, in_flight=writing(2, 3), read_meanwhile=LATER),
            id="earlier than the state read meanwhile",
        ),
        pytest.param(
            replace(LED, in_flight=writing(2, 3)),
            replace(LATER, partition_epoch=12),
            replace(LED, in_flight=writing(2, 3)),
            id="the known version while a write is in flight",
        ),
    ],
)
def test_only_a_later_state_is_taken_over(
    before: PartitionContext, found: VersionedState, expected: PartitionContext
) -> None:
    assert before.read(found) == expected


@pytest.mark.parametrize(
    ("before", "online", "offline", "lacks", "expected"),
    [
        pytest.param(LED, True, False, False, LED, id="online as before"),
        pytest.param(LED, False, True, False, replace(LED, offline=frozenset({1})), id="offline"),
        pytest.param(LED, False, False, True, replace(LED, with_loss=frozenset({1})), id="with a loss"),
        pytest.param(
            replace(LED, offline=frozenset({1, 2}), with_loss=frozenset({1, 3})),
            True,
            False,
            False,
            replace(LED, offline=frozenset({2}), with_loss=frozenset({3})),
            id="online again",
        ),
        pytest.param(
            replace(LED, offline=frozenset({1}), with_loss=frozenset({1})),
            False,
            False,
            False,
            replace(LED, offline=frozenset({1}), with_loss=frozenset({1})),
            id="not mentioned",
        ),
    ],
)
def test_report_of_a_broker_concerns_only_its_own_replica(
    before: PartitionContext, online: bool, offline: bool, lacks: bool, expected: PartitionContext
) -> None:
    assert before.reported(1, online=online, offline=offline, lacks=lacks) == expected


@pytest.mark.parametrize(
    ("before", "broker_id", "expected"),
    [
        pytest.param(LED, 1, replace(LED, suspects=SUSPECT), id="the first suspect"),
        pytest.param(
            replace(LED, suspects=replace(SUSPECT, timer=Timer(5))),
            2,
            replace(LED, suspects=SuspectReplicas(frozenset({1, 2}), Timer(5))),
            id="another one",
        ),
        pytest.param(LEADERLESS, 3, LEADERLESS, id="not in sync"),
        pytest.param(replace(LED, known=None), 1, replace(LED, known=None), id="no state"),
    ],
)
def test_only_an_isr_member_becomes_suspect(
    before: PartitionContext, broker_id: int, expected: PartitionContext
) -> None:
    assert before.with_suspect(broker_id) == expected


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param(replace(LED, offline=frozenset({1, 2})), replace(LED, offline=frozenset({2})), id="offline"),
        pytest.param(replace(LED, with_loss=frozenset({1, 2})), replace(LED, with_loss=frozenset({2})), id="a loss"),
        pytest.param(
            replace(LEADERLESS, log_end_query=replace(asked(1, 2), timer=Timer(5))),
            replace(LEADERLESS, log_end_query=replace(asked(2), timer=Timer(5))),
            id="a log end",
        ),
        pytest.param(
            replace(LEADERLESS, log_end_query=LogEndQuery({}, {1: 1})),
            replace(LEADERLESS, log_end_query=LogEndQuery()),
            id="a question without an answer",
        ),
    ],
)
def test_reports_of_an_ended_registration_are_dropped(before: PartitionContext, expected: PartitionContext) -> None:
    assert before.without_reports_of(1) == expected
    assert expected.without_reports_of(1) is expected


def test_deleted_topic_keeps_facts_and_the_write_in_flight() -> None:
    facts = replace(
        MOVE,
        reassignment=None,
        offline=frozenset({1}),
        with_loss=frozenset({2}),
        unclean_epoch=4,
        in_flight=writing(2, 3),
        read_meanwhile=LATER,
    )
    everything = replace(
        facts,
        epoch_bump=True,
        evict_shutting_down=True,
        requested_election=ElectionType.UNCLEAN,
        reassignment=REMOVED,
        suspects=SUSPECT,
        log_end_query=asked(1),
        liveness_wait=Timer(5),
        handoff=LeaderHandoff(4, 1),
    )
    assert everything.without_work() == facts
    assert not facts.waits


@pytest.mark.parametrize(
    "work",
    [
        {"epoch_bump": True},
        {"reassignment": ReassignmentProgress(remaining=frozenset({2}))},
        {"suspects": SUSPECT},
        {"log_end_query": LogEndQuery()},
        {"liveness_wait": Timer()},
        {"handoff": LeaderHandoff(0, 0)},
    ],
    ids=lambda work: next(iter(work)),
)
def test_partition_with_a_question_or_work_waits(work: dict[str, object]) -> None:
    assert not LED.waits
    assert replace(LED, **work).waits


@pytest.mark.parametrize(
    "work",
    [
        {"in_flight": writing(2, 3)},
        {"evict_shutting_down": True},
        {"requested_election": ElectionType.PREFERRED},
        {"requested_election": ElectionType.UNCLEAN},
        {"reassignment": ReassignmentProgress()},
    ],
    ids=str,
)
def test_partition_that_depends_on_writes_only_does_not_wait(work: dict[str, object]) -> None:
    assert not replace(LED, **work).waits


@pytest.mark.parametrize(
    ("online", "runs"),
    [
        pytest.param({1, 3}, True, id="no trusted member is online"),
        pytest.param({1, 2, 3}, False, id="a trusted member is online"),
    ],
)
def test_suspects_are_waited_for_without_a_trusted_member(online: set[int], runs: bool) -> None:
    suspect = replace(LEADERLESS, suspects=SUSPECT).with_timers_started(NOW_MS, BrokerSets(frozenset(online)))
    assert suspect.suspects == replace(SUSPECT, timer=Timer(NOW_MS if runs else None))


def test_each_wait_has_a_timer_and_a_timeout() -> None:
    nobody = BrokerSets()
    waits = replace(LEADERLESS, suspects=SUSPECT, log_end_query=asked(1), liveness_wait=Timer())
    running = waits.with_timers_started(NOW_MS, nobody)
    assert running.with_timers_started(NOW_MS + 1, nobody) == running, "a running timer is not started again"
    started = Timer(NOW_MS)
    assert running.timeouts() == [(started, RECOVERY_MS), (started, RECOVERY_MS), (started, REGISTRATION_DELAY_MS)]
    assert LED.with_timers_started(NOW_MS, nobody) == LED
    assert LED.timeouts() == []


@pytest.mark.parametrize(
    ("partition", "awaited"),
    [
        pytest.param(LED, set(), id="no question"),
        pytest.param(replace(LEADERLESS, liveness_wait=Timer()), {1, 2}, id="the ISR members"),
        pytest.param(replace(MOVE, reassignment=REMAINING_ASKED), {2, 3}, id="the remaining members"),
        pytest.param(replace(LED, handoff=LeaderHandoff(4, 1)), {1}, id="the old leader"),
        pytest.param(
            replace(MOVE, known=None, reassignment=REMAINING_ASKED, liveness_wait=Timer()), set(), id="no state"
        ),
    ],
)
def test_answers_of_these_brokers_are_awaited(partition: PartitionContext, awaited: set[int]) -> None:
    assert {each for each in (1, 2, 3) if partition.waits_for_answer_of(each)} == awaited


@pytest.mark.parametrize(
    ("partition", "delayed"),
    [
        pytest.param(LED, set(), id="nothing is to be written"),
        pytest.param(replace(LED, in_flight=writing(2, 3)), {1, 2, 3}, id="a write is in flight"),
        pytest.param(replace(LED, epoch_bump=True), {1, 2, 3}, id="a new epoch is needed"),
        pytest.param(replace(LED, liveness_wait=Timer()), {1}, id="the leader is lost"),
        pytest.param(replace(LEADERLESS, liveness_wait=Timer()), set(), id="there is no leader"),
    ],
)
def test_these_registrations_are_delayed(partition: PartitionContext, delayed: set[int]) -> None:
    assert {each for each in (1, 2, 3) if partition.must_delay_registration(each)} == delayed


@pytest.mark.parametrize(
    ("progress", "replicas", "holders"),
    [
        pytest.param(ReassignmentProgress(announced=True), (1, 2, 3), (1, 2, 3), id="announced"),
        pytest.param(REMOVED, (2, 3), (1, 2, 3), id="removed"),
        pytest.param(replace(REMOVED, confirmed=True), (2, 3), (2, 3), id="confirmed"),
        pytest.param(None, (1, 2, 3), (1, 2, 3), id="not begun"),
    ],
)
def test_removed_replica_holds_a_log_until_the_removal_is_confirmed(
    progress: ReassignmentProgress | None, replicas: tuple[int, ...], holders: tuple[int, ...]
) -> None:
    partition = replace(MOVE, reassignment=progress)
    assert (partition.replicas, partition.holders) == (replicas, holders)
