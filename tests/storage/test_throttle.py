"""A background thread that works in short steps and keeps to its rate, on a fake clock."""

from __future__ import annotations

from storage.compaction.throttle import Throttle


class Time:
    def __init__(self) -> None:
        self.now_ns = 5_000_000_000
        self.slept_ns: list[int] = []

    def sleep(self, seconds: float) -> None:
        self.slept_ns.append(round(seconds * 1e9))
        self.now_ns += self.slept_ns[-1]

    def throttle(self, bytes_per_second: int) -> Throttle:
        return Throttle(bytes_per_second, lambda: self.now_ns, self.sleep)


def test_throttle_sleeps_after_each_millisecond_of_work() -> None:
    time = Time()
    throttle = time.throttle(2**63 - 1)
    for _ in range(40):
        time.now_ns += 250_000
        throttle(16_384)
    assert time.slept_ns == [500_000] * 10


def test_throttle_keeps_to_its_rate() -> None:
    time = Time()
    throttle = time.throttle(1_000_000)
    start_ns = time.now_ns
    for _ in range(50):
        time.now_ns += 100_000
        throttle(20_000)
    assert 0.999e9 <= time.now_ns - start_ns <= 1.002e9, "a megabyte takes a second"


def test_throttle_allows_no_burst_after_a_pause() -> None:
    time = Time()
    throttle = time.throttle(1_000_000)
    throttle(100_000)
    time.now_ns += 60_000_000_000
    throttle(100_000)
    start_ns = time.now_ns
    throttle(100_000)
    throttle(100_000)
    assert time.now_ns - start_ns >= 190_000_000
