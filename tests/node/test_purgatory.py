"""The purgatory: an operation completes exactly once, and no reference to it stays behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.purgatory.purgatory import DelayedOperation, Purgatory


class Waiting(DelayedOperation):
    """An operation that waits for `condition` and records how it completed.

    A check makes the deadline as early as `limit_ms`.
    """

    __slots__ = ("answers", "condition", "limit_ms")

    def __init__(self, deadline_ms: int, condition: Callable[[], bool] = lambda: False) -> None:
        super().__init__(deadline_ms)
        self.condition = condition
        self.limit_ms = deadline_ms
        self.answers: list[str] = []

    def is_satisfied(self) -> bool:
        self.deadline_ms = min(self.deadline_ms, self.limit_ms)
        return self.condition()

    def on_complete(self) -> None:
        self.answers.append("complete")

    def on_expiration(self) -> None:
        self.answers.append("expired")


def test_satisfied_operation_completes_without_waiting() -> None:
    purgatory: Purgatory[str, Waiting] = Purgatory()
    operation = Waiting(100, lambda: True)
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.answers == ["complete"]
    assert len(purgatory) == 0
    assert purgatory.next_deadline_ms() is None


def test_check_of_a_key_completes_only_satisfied_operations() -> None:
    true = set[str]()
    purgatory: Purgatory[str, Waiting] = Purgatory()
    first = Waiting(100, lambda: "first" in true)
    second = Waiting(100, lambda: "second" in true)
    for operation in (first, second):
        assert not purgatory.try_complete_else_watch(operation, ["a", "b"])
    true.add("second")
    assert purgatory.check_and_complete("b") == 1
    assert (first.answers, second.answers) == ([], ["complete"])
    assert purgatory.check_and_complete("a") == 0
    assert len(purgatory) == 1


def test_key_named_twice_is_watched_once() -> None:
    purgatory: Purgatory[str, Waiting] = Purgatory()
    forced, late = Waiting(100), Waiting(100)
    for operation in (forced, late):
        assert not purgatory.try_complete_else_watch(operation, ["a", "b", "a"])
    assert purgatory.force_complete_operation(forced)
    assert purgatory.expire(100) == 1
    assert (forced.answers, late.answers) == (["complete"], ["expired"])
    assert purgatory.check_and_complete("a") == len(purgatory) == 0


def test_operation_that_watches_many_changed_keys_is_checked_once() -> None:
    purgatory: Purgatory[int, Waiting] = Purgatory()
    changed, checks = set[int](), list[int]()

    def all_changed() -> bool:
        checks.append(len(changed))
        return len(changed) == 3

    operation = Waiting(100, all_changed)
    assert not purgatory.try_complete_else_watch(operation, [1, 2, 3])
    changed.update((1, 2))
    assert purgatory.check_and_complete(1, 2) == 0
    changed.add(3)
    assert purgatory.check_and_complete(3, 2, 1, 4) == 1
    assert checks == [0, 2, 3]
    assert operation.answers == ["complete"]


def test_only_an_earlier_deadline_calls_on_earlier() -> None:
    calls = list[str]()
    purgatory: Purgatory[str, Waiting] = Purgatory(on_earlier=lambda: calls.append("earlier"))
    for deadline_ms, times in ((200, 1), (300, 1), (100, 2), (100, 2)):
        purgatory.try_complete_else_watch(Waiting(deadline_ms), ["a"])
        assert len(calls) == times


@pytest.mark.parametrize("check_alone", [False, True])
def test_check_may_make_a_deadline_earlier(check_alone: bool) -> None:
    calls = list[str]()
    purgatory: Purgatory[str, Waiting] = Purgatory(on_earlier=lambda: calls.append("earlier"))
    hastened, other = Waiting(300), Waiting(200)
    for operation in (hastened, other):
        purgatory.try_complete_else_watch(operation, ["a"])
    hastened.limit_ms = 100
    assert not (purgatory.check(hastened) if check_alone else purgatory.check_and_complete("a"))
    assert (len(calls), purgatory.next_deadline_ms()) == (3, 100)
    assert purgatory.expire(300) == purgatory.expired == 2
    assert (hastened.answers, other.answers) == (["expired"], ["expired"])


def test_heap_of_deadlines_drops_later_deadlines_of_an_operation() -> None:
    purgatory: Purgatory[str, Waiting] = Purgatory()
    operation = Waiting(30_000)
    purgatory.try_complete_else_watch(operation, ["a"])
    for operation.limit_ms in range(20_000, 10_000, -1):
        purgatory.check(operation)
    assert len(purgatory._deadlines) < 200
    assert purgatory.next_deadline_ms() == 10_001


def test_expire_completes_only_operations_that_are_due() -> None:
    purgatory: Purgatory[str, Waiting] = Purgatory()
    early, late = Waiting(100), Waiting(200)
    purgatory.try_complete_else_watch(late, ["a"])
    purgatory.try_complete_else_watch(early, ["a"])
    assert purgatory.next_deadline_ms() == 100
    assert purgatory.expire(99) == 0
    assert purgatory.expire(100) == 1
    assert (early.answers, late.answers) == (["expired"], [])
    assert purgatory.next_deadline_ms() == 200


def test_forced_operation_answers_once_and_is_removed() -> None:
    purgatory: Purgatory[str, Waiting] = Purgatory()
    operation = Waiting(100)
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.force_complete("b") == 1
    assert purgatory.force_complete("a") == 0
    assert not purgatory.force_complete_operation(operation)
    assert purgatory.expire(1000) == 0
    assert operation.answers == ["complete"]


def test_dropped_operation_never_answers_and_is_not_measured() -> None:
    purgatory: Purgatory[str, Waiting] = Purgatory()
    dropped, other = Waiting(100), Waiting(200)
    for operation in (dropped, other):
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.drop(dropped)
    assert not purgatory.drop(dropped)
    assert (len(purgatory), purgatory.next_deadline_ms()) == (1, 200)
    assert purgatory.force_complete("a") == 1
    assert not purgatory.drop(other)
    assert (dropped.answers, other.answers) == ([], ["complete"])
    assert (purgatory.expired, sum(purgatory.waits.counts)) == (0, 1)


def test_heap_of_deadlines_forgets_dropped_operations() -> None:
    purgatory: Purgatory[str, Waiting] = Purgatory()
    operations = [Waiting(30_000) for _ in range(10_000)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
    for operation in operations:
        purgatory.drop(operation)
    assert len(purgatory._deadlines) < 200
    assert not purgatory._watchers


def test_new_operation_expires_at_once_if_the_purgatory_is_full() -> None:
    purgatory: Purgatory[str, Waiting] = Purgatory(capacity=1)
    first, second = Waiting(100), Waiting(100)
    purgatory.try_complete_else_watch(first, ["a"])
    assert purgatory.try_complete_else_watch(second, ["a"])
    assert (first.answers, second.answers) == ([], ["expired"])


def test_answer_of_one_operation_may_complete_another() -> None:
    purgatory: Purgatory[str, Waiting] = Purgatory()
    neighbour = Waiting(100)

    class Waking(Waiting):
        __slots__ = ()

        def on_complete(self) -> None:
            super().on_complete()
            purgatory.force_complete("a")

    waking = Waking(100)
    purgatory.try_complete_else_watch(waking, ["a"])
    purgatory.try_complete_else_watch(neighbour, ["a"])
    assert purgatory.force_complete("a") == 1
    assert (waking.answers, neighbour.answers) == (["complete"], ["complete"])


def test_heap_of_deadlines_drops_completed_operations() -> None:
    purgatory: Purgatory[str, Waiting] = Purgatory()
    for _ in range(10_000):
        purgatory.try_complete_else_watch(Waiting(30_000), ["a"])
        purgatory.force_complete("a")
    assert len(purgatory._deadlines) < 200
    assert not purgatory._watchers
    assert not purgatory._keys


@given(
    st.lists(st.tuples(st.sampled_from(["watch", "true", "hasten", "force", "expire"]), st.integers(0, 3)), max_size=60)
)
def test_purgatory_agrees_with_a_plain_list(steps: list[tuple[str, int]]) -> None:
    """The twin keeps a flat list and checks each operation at each step."""
    purgatory: Purgatory[int, Waiting] = Purgatory()
    true: set[int] = set()
    now_ms = 0
    operations: list[tuple[Waiting, int, list[str]]] = []
    for step, key in steps:
        if step == "watch":
            operation = Waiting(now_ms + 1 + key, lambda key=key: key in true)  # type: ignore[misc]
            expected = ["complete"] if key in true else []
            purgatory.try_complete_else_watch(operation, [key, key + 1])
            operations.append((operation, key, expected))
        elif step == "true":
            true.add(key)
            purgatory.check_and_complete(key)
            for _, watched, expected in operations:
                if watched == key and not expected:
                    expected.append("complete")
        elif step == "hasten":
            for operation, watched, _ in operations:
                if key in (watched, watched + 1):
                    operation.limit_ms = now_ms + 1
            purgatory.check_and_complete(key)
        elif step == "force":
            purgatory.force_complete(key)
            for _, watched, expected in operations:
                if key in (watched, watched + 1) and not expected:
                    expected.append("complete")
        else:
            now_ms += 1
            purgatory.expire(now_ms)
            for operation, _, expected in operations:
                if operation.deadline_ms <= now_ms and not expected:
                    expected.append("expired")
        assert [operation.answers for operation, _, _ in operations] == [expected for _, _, expected in operations]
    assert len(purgatory) == sum(not expected for _, _, expected in operations)


def test_failed_answer_at_a_deadline_does_not_keep_the_others_waiting() -> None:
    class Failing(Waiting):
        def on_expiration(self) -> None:
            raise RuntimeError("cannot answer")

    purgatory: Purgatory[str, Waiting] = Purgatory()
    failing, other = Failing(100), Waiting(101)
    for each in (failing, other):
        purgatory.try_complete_else_watch(each, ["a"])
    with pytest.raises(RuntimeError, match="cannot answer"):
        purgatory.expire(101)
    assert (other.answers, purgatory.expired, len(purgatory)) == (["expired"], 2, 0)
