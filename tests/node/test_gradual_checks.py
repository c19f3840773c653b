"""Very many operations are checked a few at a time, and none is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from node.purgatory.delayed_response import DelayedResponse
from node.purgatory.gradual_checks import LONGEST_TURN_NS, GradualChecks
from node.purgatory.purgatory import DelayedOperation, Purgatory
from node.replication.delayed_produce import DelayedProduce
from node.replication.purgatories import Purgatories
from tests.node.client_requests import TP
from tidelog.model import TopicPartition

#: The number of checks in one turn, each of which takes CHECK_NS.
IN_A_TURN = 25
CHECK_NS = LONGEST_TURN_NS // IN_A_TURN


class SlowClock:
    """A clock that only checks and answers move."""

    def __init__(self) -> None:
        self.time_ns = 0

    def now_ns(self) -> int:
        return self.time_ns


class Counted(DelayedOperation):
    """An operation that counts its checks. `completes` is called when it completes."""

    __slots__ = ("_clock", "checks", "completes", "is_true")

    def __init__(self, clock: SlowClock, is_true: bool = False) -> None:
        super().__init__(1000)
        self._clock = clock
        self.checks = 0
        self.is_true = is_true
        self.completes: Callable[[], None] = lambda: None

    def is_satisfied(self) -> bool:
        self._clock.time_ns += CHECK_NS
        self.checks += 1
        return self.is_true and self.checks > 1  # it has to wait first

    def on_complete(self) -> None:
        self.completes()

    def on_expiration(self) -> None:
        self._clock.time_ns += CHECK_NS


class Stage:
    def __init__(self) -> None:
        self.clock = SlowClock()
        self.purgatory: Purgatory[str, Counted] = Purgatory()
        self.checks = GradualChecks(self.purgatory, self.clock.now_ns)

    def watch(self, count: int, *keys: str) -> list[Counted]:
        operations = [Counted(self.clock) for _ in range(count)]
        for each in operations:
            self.purgatory.try_complete_else_watch(each, keys)
        return operations

    def finish(self) -> None:
        while self.checks:
            self.checks.run_due()


def checked(operations: list[Counted]) -> int:
    """Return the number of checks since the operations began to wait."""
    return sum(each.checks - 1 for each in operations)


def test_operations_are_checked_once_each_a_few_at_a_time() -> None:
    stage = Stage()
    operations = stage.watch(1_000, "a")
    stage.checks.changed("a")
    for turn in range(1_000 // IN_A_TURN):
        assert checked(operations) == turn * IN_A_TURN
        assert stage.checks
        stage.checks.run_due()
    assert {each.checks for each in operations} == {2}
    assert not stage.checks


def test_key_without_operations_needs_no_check() -> None:
    stage = Stage()
    stage.checks.changed("a")
    assert not stage.checks


def test_operations_of_another_key_do_not_wait_for_those_of_a_crowded_one() -> None:
    stage = Stage()
    crowd, few, many = stage.watch(1_000, "a"), stage.watch(1, "b"), stage.watch(2 * IN_A_TURN, "c")
    for key in ("a", "b", "c"):
        stage.checks.changed(key)
    stage.checks.run_due()
    assert (checked(crowd), checked(few), checked(many)) == (IN_A_TURN // 2, 1, IN_A_TURN // 2)
    stage.checks.run_due()
    assert abs(checked(crowd) - checked(many)) <= 1


def test_bound_holds_for_all_changed_keys_together() -> None:
    stage = Stage()
    keys = [f"key {number}" for number in range(2 * IN_A_TURN)]
    crowds = [stage.watch(3, key) for key in keys]
    for key in keys:
        stage.checks.changed(key)
    for turns in range(1, 7):
        stage.checks.run_due()
        assert sum(map(checked, crowds)) == turns * IN_A_TURN
        assert {checked(crowd) for crowd in crowds} <= {(turns - 1) // 2, (turns + 1) // 2}
    assert not stage.checks


def test_operations_that_watch_many_changed_keys_are_checked_once() -> None:
    stage = Stage()
    keys = [f"key {number}" for number in range(100)]
    operations = stage.watch(2 * IN_A_TURN, *keys)
    for key in keys:
        stage.checks.changed(key)
    stage.finish()
    assert {each.checks for each in operations} == {2}


def test_operations_checked_before_a_further_change_are_checked_again() -> None:
    stage = Stage()
    operations = stage.watch(2 * IN_A_TURN, "a")
    stage.checks.changed("a")
    stage.checks.run_due()
    operations[0].is_true = True
    stage.checks.changed("a")
    stage.checks.changed("a")
    operations += stage.watch(1, "a")
    stage.finish()
    assert operations[0].completed
    before, after = operations[:IN_A_TURN], operations[IN_A_TURN:]
    assert {each.checks for each in before} == {3}
    assert {each.checks for each in after} == {2}, "one check after the last change is enough"


def test_change_during_a_check_makes_checked_operations_due_again() -> None:
    """The answer of a fetch may find a failed disk, which ends the wait of others."""
    stage = Stage()
    first, second = stage.watch(2, "a")
    second.is_true = True

    def end_the_wait_of_the_first() -> None:
        first.is_true = True
        stage.checks.changed("a")

    second.completes = end_the_wait_of_the_first
    stage.checks.changed("a")
    stage.finish()
    assert first.completed and second.completed


def test_operation_that_has_ended_meanwhile_is_not_checked() -> None:
    stage = Stage()
    operations = stage.watch(3, "a")
    stage.checks.changed("a")
    stage.purgatory.force_complete_operation(operations[0])
    stage.purgatory.drop(operations[1])
    stage.finish()
    assert [each.checks for each in operations] == [1, 1, 2]


class Turns:
    """Purgatories, and the turns of their event loop."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.clock = SlowClock()
        self.purgatories = Purgatories(self.due.append, self.clock.now_ns)

    def watch(self, tp: TopicPartition, operations: list[Counted]) -> None:
        for each in operations:
            self.purgatories.consumer_fetches.try_complete_else_watch(cast(DelayedResponse, each), [tp])


def test_produce_to_many_partitions_is_checked_once_in_a_turn() -> None:
    turns = Turns()
    produce = Counted(turns.clock)
    tps = [TopicPartition("wide", number) for number in range(100)]
    turns.purgatories.produces.try_complete_else_watch(cast(DelayedProduce, produce), tps)
    for tp in tps:
        turns.purgatories.high_watermark_rose(tp)
    [complete_ready] = turns.due
    complete_ready()
    assert produce.checks == 2, "one check when it arrives, and one after all changes"


@pytest.mark.parametrize(
    "change", [Purgatories.high_watermark_rose, Purgatories.records_deleted, Purgatories.epoch_ended]
)
def test_fetches_of_a_crowded_partition_are_checked_in_later_turns(
    change: Callable[[Purgatories, TopicPartition], None],
) -> None:
    turns, other = Turns(), TopicPartition("other", 0)
    crowd, few = [Counted(turns.clock) for _ in range(3 * IN_A_TURN)], [Counted(turns.clock)]
    turns.watch(TP, crowd)
    turns.watch(other, few)
    change(turns.purgatories, TP)
    change(turns.purgatories, other)
    counts = []
    while turns.due:
        turns.due.pop(0)()
        counts.append((checked(crowd), checked(few)))
    assert counts == [(IN_A_TURN - 1, 1), (2 * IN_A_TURN - 1, 1), (3 * IN_A_TURN - 1, 1), (3 * IN_A_TURN, 1)]


def test_failed_check_does_not_stop_those_behind_it() -> None:
    class Failing(Counted):
        def is_satisfied(self) -> bool:
            if super().is_satisfied() or self.checks > 1:
                raise KeyError("planted")
            return False

    turns = Turns()
    crowd = [Failing(turns.clock), *(Counted(turns.clock, is_true=True) for _ in range(IN_A_TURN))]
    turns.watch(TP, crowd)
    turns.purgatories.high_watermark_rose(TP)
    failures = 0
    while turns.due:
        try:
            turns.due.pop(0)()
        except KeyError:
            failures += 1
    assert failures == 1
    assert all(each.completed for each in crowd[1:])


def test_requests_that_end_at_the_same_time_expire_a_few_at_a_time() -> None:
    turns = Turns()
    crowd = [Counted(turns.clock) for _ in range(2 * IN_A_TURN + 1)]
    turns.watch(TP, crowd)
    ended = []
    while (deadline_ms := turns.purgatories.next_deadline_ms()) is not None:
        turns.purgatories.expire(deadline_ms)
        ended.append(sum(each.completed for each in crowd))
    assert ended == [IN_A_TURN, 2 * IN_A_TURN, 2 * IN_A_TURN + 1]
