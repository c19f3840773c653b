"""The deadlines of groups in one heap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.groups.timers import Timers


def test_earlier_deadline_replaces_a_later_one() -> None:
    timers: Timers[str] = Timers()
    assert timers.set("g", 1_800_000) and timers.set("g", 6_000), "each deadline is the first of all"
    assert not timers.set("h", 7_000)
    assert timers.next_deadline_ms() == 6_000
    assert timers.take_due(6_000) == ["g"]
    assert timers.next_deadline_ms() == 7_000
    timers.drop("h")
    assert timers.next_deadline_ms() is None and timers.take_due(1_800_000) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 20), st.integers(0, 5)), max_size=40))
def test_each_deadline_is_due_once_and_never_late(steps: list[tuple[str, int | None, int]]) -> None:
    timers: Timers[str] = Timers()
    wanted: dict[str, int] = {}
    now_ms = 0
    for key, after_ms, passes_ms in steps:
        if after_ms is None:
            timers.drop(key)
            wanted.pop(key, None)
        else:
            timers.set(key, now_ms + after_ms)
            wanted[key] = min(now_ms + after_ms, wanted.get(key, now_ms + after_ms))
        assert timers.next_deadline_ms() == min(wanted.values(), default=None)
        now_ms += passes_ms
        due = sorted(timers.take_due(now_ms))
        assert due == sorted(each for each, deadline_ms in wanted.items() if deadline_ms <= now_ms)
        for each in due:
            del wanted[each]
