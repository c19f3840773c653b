"""The verdicts of these tests, held to what they must not let pass."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.state import PartitionState, VersionedState
from tests.processes.harness.history import check_states
from tests.processes.harness.look_ups import Replacement, is_outdated
from tests.processes.harness.replica_files import BatchOnDisk, check_epochs, check_replicas
from tests.processes.harness.witness import check_reading
from tests.processes.harness.workload import check_log
from tidelog import TopicPartition
from verify.checker.look_ups import Fault, LookUp, StoredRecord, Trim, Wrong

TP = TopicPartition("t", 0)
LOG = [(0, 10), (1, 11), (2, 12)]


def state(version: int, leader: int, epoch: int, isr: Sequence[int] = (1, 2, 3), controller: int = 1) -> VersionedState:
    return VersionedState(PartitionState(leader, epoch, tuple(isr), controller), version)


def batch(first: int, last: int, epoch: int = 0, digest: int = 7) -> BatchOnDisk:
    return BatchOnDisk(first, last, epoch, digest)


GOOD_STATES = [state(0, 1, 0), state(0, 1, 0), state(1, 2, 1, (2, 3)), state(4, -1, 2, (2,)), state(5, 2, 3, (2,))]
GOOD_REPLICA = [batch(0, 4), batch(5, 5), batch(6, 9, epoch=1)]


def test_healthy_states_pass() -> None:
    check_states(TP, GOOD_STATES)
    check_replicas(TP, {1: GOOD_REPLICA, 2: GOOD_REPLICA, 3: GOOD_REPLICA[1:]}, 10)
    check_epochs(TP, GOOD_REPLICA, [(0, 0), (1, 6)])
    for length in range(4):
        check_reading(TP, LOG[:length], LOG)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([state(0, 1, 0), state(0, 1, 0, (1, 2))], id="a version that stands for two states"),
        pytest.param([state(3, 1, 0), state(2, 1, 0, (1, 2))], id="a version that falls"),
        pytest.param([state(0, 1, 5), state(1, 1, 4)], id="a leader epoch that falls"),
        pytest.param([state(0, 1, 0, controller=2), state(1, 1, 1, controller=1)], id="a controller epoch that falls"),
        pytest.param([state(0, 1, 5), state(1, 2, 5)], id="an epoch with two leaders"),
        pytest.param([state(0, 1, 0, (2, 3))], id="a leader that is not in sync"),
        pytest.param([state(0, -1, 0, ())], id="no replica in sync"),
    ],
)
def test_impossible_states_are_found(history: list[VersionedState]) -> None:
    with pytest.raises(AssertionError):
        check_states(TP, history)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(GOOD_REPLICA[:-1], id="a tail that is missing"),
        pytest.param([batch(0, 4), batch(5, 5, digest=8), batch(6, 9, 1)], id="other bytes"),
        pytest.param([batch(0, 4), batch(5, 5, epoch=1), batch(6, 9, 1)], id="another epoch"),
        pytest.param([batch(0, 3), batch(4, 5), batch(6, 9, 1)], id="other batches"),
        pytest.param([batch(0, 4), batch(6, 9, 1)], id="a hole"),
    ],
)
def test_replicas_that_differ_are_found(other: list[BatchOnDisk]) -> None:
    for replicas in ({1: GOOD_REPLICA, 2: other}, {1: other, 2: GOOD_REPLICA}):
        with pytest.raises(AssertionError):
            check_replicas(TP, replicas, 10)


@pytest.mark.parametrize(
    "replica",
    [
        pytest.param([batch(0, 4), batch(6, 9)], id="a hole in all of them"),
        pytest.param([batch(0, 4, epoch=2), batch(5, 9, epoch=1)], id="an epoch that falls in all of them"),
        pytest.param([batch(0, 4)], id="less than was committed in all of them"),
    ],
)
def test_identically_wrong_replicas_are_found(replica: list[BatchOnDisk]) -> None:
    with pytest.raises(AssertionError):
        check_replicas(TP, {1: replica, 2: replica}, 10)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param([(0, 10), (1, 99)], id="a record that is not there any more"),
        pytest.param([(0, 10), (2, 12)], id="a record that was skipped"),
        pytest.param([(0, 10), (0, 10)], id="a record that was read twice"),
        pytest.param([*LOG, (3, 13)], id="a record behind the end"),
    ],
)
def test_reads_that_contradict_the_logs_are_found(seen: list[tuple[int, int]]) -> None:
    with pytest.raises(AssertionError):
        check_reading(TP, seen, LOG)


@pytest.mark.parametrize(
    "noted",
    [
        pytest.param([(0, 0)], id="an epoch that is not noted"),
        pytest.param([(0, 0), (1, 5)], id="an epoch that begins elsewhere"),
        pytest.param([(0, 0), (1, 6), (2, 8)], id="an epoch that no batch has"),
        pytest.param([], id="none"),
    ],
)
def test_checkpointed_epochs_missing_in_batches_are_found(noted: list[tuple[int, int]]) -> None:
    with pytest.raises(AssertionError):
        check_epochs(TP, GOOD_REPLICA, noted)


ACKNOWLEDGED = [(0, 10), (1, 11), (2, 12)]


@pytest.mark.parametrize(
    "found",
    [
        pytest.param([(0, 10), (1, 11)], id="a record that is lost"),
        pytest.param([(0, 10), (1, 12)], id="a record that is lost in the midst"),
        pytest.param([*ACKNOWLEDGED, (3, 12)], id="a record twice"),
        pytest.param([(0, 11), (1, 10), (2, 12)], id="another order"),
        pytest.param([(0, 10), (1, 11), (2, 99)], id="another record"),
    ],
)
def test_acknowledgements_that_contradict_the_logs_are_found(found: list[tuple[int, int]]) -> None:
    check_log(TP, ACKNOWLEDGED, ACKNOWLEDGED)
    with pytest.raises(AssertionError):
        check_log(TP, ACKNOWLEDGED, found)


@pytest.mark.parametrize(
    ("fault", "trimmed_at", "asked_at", "excused"),
    [
        pytest.param(Fault.TRIMMED, 12.0, 13.0, True, id="a trim of the successor"),
        pytest.param(Fault.TRIMMED, 9.0, 13.0, False, id="a trim before the replacement"),
        pytest.param(Fault.TRIMMED, 12.0, 21.0, False, id="a look-up after the old leader follows"),
        pytest.param(Fault.TOO_LATE, 12.0, 13.0, False, id="another fault"),
    ],
)
def test_outdated_answer_is_only_a_record_trimmed_by_the_successor(
    fault: Fault, trimmed_at: float, asked_at: float, *, excused: bool
) -> None:
    look_up = LookUp(50, asked_at, asked_at + 1, (5, 60, 0))
    wrong = Wrong(look_up, fault, StoredRecord(5, 60, 1.0, 2.0))
    trims = [Trim(5, 1.0, 2.0), Trim(6, trimmed_at - 1, trimmed_at), Trim(8, 14.0, 15.0)]
    assert is_outdated(wrong, trims, [Replacement(3.0, 4.0), Replacement(10.0, 20.0)]) is excused
