"""Work for many items on a few threads: each item once, and errors are raised."""

from __future__ import annotations

import threading

import pytest

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


def test_other_threads_go_on_after_an_error() -> None:
    done: list[int] = []
    failed = threading.Event()

    def work(item: int) -> None:
        if item == 0:
            failed.set()
            raise ValueError(item)
        assert failed.wait(10)
        done.append(item)

    with pytest.raises(ValueError, match="0"):
        run_parallel(2, work, range(5))
    assert done == [1, 2, 3, 4]
