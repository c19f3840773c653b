"""Very many operations that watch one key are checked a few at a time, and none is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from node.purgatory.delayed_response import DelayedResponse
from node.purgatory.gradual_checks import MOST_AT_ONCE, GradualChecks
from node.purgatory.purgatory import DelayedOperation, Purgatory
from node.replication.purgatories import Purgatories
from tests.node.client_requests import TP
from tidelog.model import TopicPartition


class Counted(DelayedOperation):
    """An operation that counts its checks."""

    __slots__ = ("checks", "is_true")

    def __init__(self, is_true: bool = False) -> None:
        super().__init__(1000)
        self.checks = 0
        self.is_true = is_true

    def is_satisfied(self) -> bool:
        self.checks += 1
        return self.is_true and self.checks > 1  # it has to wait first

    def on_complete(self) -> None:
        pass


class Stage:
    def __init__(self) -> None:
        self.purgatory: Purgatory[str, Counted] = Purgatory()
        self.checks = GradualChecks(self.purgatory)

    def watch(self, key: str, count: int) -> list[Counted]:
        operations = [Counted() for _ in range(count)]
        for each in operations:
            self.purgatory.try_complete_else_watch(each, [key])
        return operations


def checked(operations: list[Counted]) -> int:
    """Return the number of checks since the operations began to wait."""
    return sum(each.checks - 1 for each in operations)


def test_few_operations_are_checked_when_their_key_changes() -> None:
    stage = Stage()
    operations = stage.watch("a", MOST_AT_ONCE)
    stage.checks.changed("a")
    assert checked(operations) == MOST_AT_ONCE
    assert not stage.checks


def test_many_operations_are_checked_once_each_a_few_at_a_time() -> None:
    stage = Stage()
    operations = stage.watch("a", 10_000)
    stage.checks.changed("a")
    for turn in range(10_000 // MOST_AT_ONCE):
        assert checked(operations) == turn * MOST_AT_ONCE
        assert stage.checks
        stage.checks.go_on()
    assert {each.checks for each in operations} == {2}
    assert not stage.checks


def test_operations_of_another_key_do_not_wait_for_those_of_a_crowded_one() -> None:
    stage = Stage()
    crowd, few, many = stage.watch("a", 10_000), stage.watch("b", 1), stage.watch("c", 2 * MOST_AT_ONCE)
    for key in ("a", "b", "c"):
        stage.checks.changed(key)
    assert (checked(crowd), checked(few)) == (0, 1)
    for _ in range(4):
        stage.checks.go_on()
    assert checked(crowd) == checked(many) == 4 * (MOST_AT_ONCE // 2)


def test_more_crowded_keys_than_checks_take_turns() -> None:
    stage = Stage()
    keys = [f"key {number}" for number in range(2 * MOST_AT_ONCE)]
    crowds = [stage.watch(key, MOST_AT_ONCE + 1) for key in keys]
    for key in keys:
        stage.checks.changed(key)
    stage.checks.go_on()
    stage.checks.go_on()
    assert [checked(crowd) for crowd in crowds] == [1] * len(keys)


def test_key_that_changes_during_its_checks_is_checked_once_more() -> None:
    stage = Stage()
    operations = stage.watch("a", 2 * MOST_AT_ONCE)
    stage.checks.changed("a")
    stage.checks.go_on()
    operations[0].is_true = True
    stage.checks.changed("a")
    stage.checks.changed("a")
    operations += stage.watch("a", 1)
    while stage.checks:
        stage.checks.go_on()
    assert operations[0].completed
    assert {each.checks for each in operations[:-1]} == {3}
    assert operations[-1].checks == 2


def test_operation_that_has_ended_meanwhile_is_not_checked() -> None:
    stage = Stage()
    operations = stage.watch("a", MOST_AT_ONCE + 2)
    stage.checks.changed("a")
    stage.purgatory.force_complete_operation(operations[0])
    stage.purgatory.drop(operations[1])
    while stage.checks:
        stage.checks.go_on()
    assert [each.checks for each in operations[:3]] == [1, 1, 2]


def test_fetches_of_a_crowded_partition_are_checked_in_later_turns() -> None:
    turns: list[Callable[[], None]] = []
    purgatories = Purgatories(turns.append)
    other = TopicPartition("other", 0)
    crowd, few = [Counted() for _ in range(3 * MOST_AT_ONCE)], [Counted()]
    for tp, operations in ((TP, crowd), (other, few)):
        for each in operations:
            purgatories.consumer_fetches.try_complete_else_watch(cast(DelayedResponse, each), [tp])
    purgatories.high_watermark_rose(TP)
    purgatories.high_watermark_rose(other)
    counts = []
    while turns:
        turns.pop(0)()
        counts.append((checked(crowd), checked(few)))
    assert counts == [(turn * MOST_AT_ONCE, 1) for turn in range(4)]


def test_failed_check_does_not_stop_those_behind_it() -> None:
    class Failing(Counted):
        def is_satisfied(self) -> bool:
            if super().is_satisfied() or self.checks > 1:
                raise KeyError("planted")
            return False

    turns: list[Callable[[], None]] = []
    purgatories = Purgatories(turns.append)
    crowd = [Failing(), *(Counted(is_true=True) for _ in range(MOST_AT_ONCE))]
    for each in crowd:
        purgatories.consumer_fetches.try_complete_else_watch(cast(DelayedResponse, each), [TP])
    purgatories.high_watermark_rose(TP)
    failures = 0
    while turns:
        try:
            turns.pop(0)()
        except KeyError:
            failures += 1
    assert failures == 1
    assert all(each.completed for each in crowd[1:])
