"""When more bytes may pass a rate limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.runtime.rate_limit import RateLimit
from storage.configs.parsers import INT64_MAX

KB, MB = 1_000, 1_000_000


class Rate:
    """A rate that the test changes."""

    def __init__(self, rate: int) -> None:
        self.rate = rate

    def __call__(self) -> int:
        return self.rate


def test_pause_lasts_until_the_rate_has_worked_off_the_bytes() -> None:
    limit = RateLimit(Rate(4 * MB))
    assert limit.pause_ms(1000) == 0
    limit.record(10 * MB, 1000)
    assert [limit.pause_ms(now_ms) for now_ms in (1000, 2000, 3499, 3500, 9999)] == [2500, 1500, 1, 0, 0]


def test_idle_time_allows_no_later_burst() -> None:
    limit = RateLimit(Rate(MB))
    limit.record(MB, 1_000_000)
    assert limit.pause_ms(1_000_000) == 1000


def test_time_of_the_work_itself_counts_once() -> None:
    limit = RateLimit(Rate(MB))
    limit.record(MB, since_ms=1000)
    assert limit.pause_ms(1600) == 400
    limit.record(MB, since_ms=1200)  # work at the same time
    assert limit.pause_ms(1600) == 1400


def test_changed_rate_changes_the_present_pause() -> None:
    rate = Rate(MB)
    limit = RateLimit(rate)
    limit.record(10 * MB, 0)
    assert limit.pause_ms(0) == 10_000
    rate.rate = 10 * MB
    assert limit.pause_ms(0) == 1000
    rate.rate = INT64_MAX
    assert limit.pause_ms(0) == 0


def test_bytes_that_pass_without_a_pause_lengthen_it_only_up_to_its_limit() -> None:
    limit = RateLimit(Rate(MB), longest_ms=11_000)
    for now_ms in range(0, 60_000, 100):
        limit.record(MB, now_ms)
        assert limit.pause_ms(now_ms) <= 11_000
    assert limit.pause_ms(60_000 + 10_900) == 0


def test_rate_of_0_never_allows_bytes() -> None:
    rate = Rate(0)
    limit = RateLimit(rate, longest_ms=11_000)
    assert (limit.pause_ms(0), limit.pause_ms(10**9), limit.allowance(10**9)) == (11_000, 11_000, 0)
    rate.rate = 1
    assert limit.allowance(10**9) == 1


def test_allowance_is_the_bytes_of_100_ms_unless_a_pause_is_needed() -> None:
    limit = RateLimit(Rate(4 * MB))
    assert limit.allowance(0) == 400 * KB
    limit.record(4 * KB, 0)
    assert limit.allowance(0) == 0
    assert limit.allowance(1) == 400 * KB
    limit.record(3 * KB, 1)
    assert limit.allowance(1) == 400 * KB, "less than 1 ms"
    limit.record(KB, 1)
    assert limit.allowance(1) == 0, "the rest was not forgotten"


def test_limit_is_set_unless_its_rate_is_the_default() -> None:
    assert RateLimit(Rate(0)).is_set and RateLimit(Rate(INT64_MAX - 1)).is_set
    assert not RateLimit(Rate(INT64_MAX)).is_set


@given(
    rate=st.integers(1, 10**9),
    steps=st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 20_000)), min_size=1, max_size=50),
)
def test_bytes_that_wait_for_the_pause_keep_to_the_rate(rate: int, steps: list[tuple[int, int]]) -> None:
    """Only the last piece may exceed the bytes of the elapsed time, because its size is known afterwards."""
    limit, now_ms, passed = RateLimit(Rate(rate)), 0, 0
    for size, idle_ms in steps:
        now_ms += limit.pause_ms(now_ms) + idle_ms
        assert passed <= rate * (now_ms + 1) / 1000
        limit.record(size, now_ms)
        passed += size
