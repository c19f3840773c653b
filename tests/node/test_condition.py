"""Checks of a condition for many items: cheap to call often, and right about all items when they return True."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.runtime.condition import holds_for_each

ITEMS = range(1000)


def test_check_without_items_holds_at_once() -> None:
    assert holds_for_each([], lambda _: False)()


def test_check_stops_at_the_first_item_that_does_not_hold() -> None:
    asked: list[int] = []
    check = holds_for_each(ITEMS, lambda item: bool(asked.append(item)))
    for _ in range(5):
        assert not check()
    assert len(asked) == 5


def test_all_checks_together_look_at_each_item_a_few_times() -> None:
    held: set[int] = set()
    asked = 0

    def condition(item: int) -> bool:
        nonlocal asked
        asked += 1
        return item in held

    check = holds_for_each(ITEMS, condition)
    for item in reversed(ITEMS):
        assert not check()
        held.add(item)
    assert check()
    assert asked <= 3 * len(ITEMS)


@given(st.lists(st.sets(st.integers(0, 5))))
def test_check_agrees_with_a_look_at_all_items(changes: list[set[int]]) -> None:
    """Items cease to hold too: a check that returns True has looked at all, and one that returns False found one."""
    held: set[int] = set()
    check = holds_for_each(range(6), lambda item: item in held)
    for change in changes:
        held ^= change
        assert check() == (held == set(range(6)))
