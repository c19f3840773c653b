"""Work for many items on a few threads: each item is tried once, and the first error is raised."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.parallel import run_parallel


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_each_item_is_worked_on_once(threads: int) -> None:
    done: list[int] = []
    run_parallel(threads, done.append, range(1000))
    assert sorted(done) == list(range(1000))


def test_items_are_shared_by_the_threads() -> None:
    """Each thread waits until all of them have an item."""
    barrier = threading.Barrier(3, timeout=10)
    run_parallel(3, lambda item: barrier.wait(), range(3))


@pytest.mark.parametrize("threads", [1, 4])
def test_error_is_raised(threads: int) -> None:
    def work(item: int) -> None:
        if item == 3:
            raise ValueError(item)

    with pytest.raises(ValueError, match="3"):
        run_parallel(threads, work, range(10))


@pytest.mark.parametrize("threads", [1, 2, 4])
@given(st.lists(st.booleans(), max_size=12))
def test_each_item_is_tried_and_the_first_error_is_raised(threads: int, fails: list[bool]) -> None:
    tried: list[int] = []
    errors: list[ValueError] = []

    def work(item: int) -> None:
        tried.append(item)
        if fails[item]:
            errors.append(ValueError(item))
            raise errors[-1]

    raised = None
    try:
        run_parallel(threads, work, range(len(fails)))
    except ValueError as error:
        raised = error
    assert sorted(tried) == list(range(len(fails)))
    assert (raised is None) == (not errors)
    if raised is not None:
        assert raised in (errors if threads > 1 else errors[:1]), "threads may note their errors in another order"


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, MemoryError])
def test_interrupt_ends_the_work_of_its_thread(threads: int, interrupt: type[BaseException]) -> None:
    done: list[int] = []

    def work(item: int) -> None:
        if item == 0:
            raise interrupt
        done.append(item)

    with pytest.raises(interrupt):
        run_parallel(threads, work, range(3))
    assert sorted(done) == ([] if threads == 1 else [1, 2])
