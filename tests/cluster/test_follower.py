"""Aligning two logs by their epochs, compared with a brute-force comparison of the logs themselves."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.backoff import MAX_BACKOFF_MS, MIN_BACKOFF_MS
from cluster.replication.follower import Following, Phase, RestartAt, TruncateTo, decide_truncation
from tidelog.errors import FencedLeaderEpochError, OffsetOutOfRangeError


@dataclass
class EpochLog:
    """A log of record epochs only, with `epochs[i]` at offset `start + i`; `led` are epochs begun as leader."""

    epochs: list[int] = field(default_factory=list)
    start: int = 0
    led: dict[int, int] = field(default_factory=dict)

    @property
    def log_start_offset(self) -> int:
        return self.start

    @property
    def log_end_offset(self) -> int:
        return self.start + len(self.epochs)

    @property
    def latest_epoch(self) -> int | None:
        return max([*self.epochs, *self.led], default=None)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        starts = dict(self.led)
        for index, known in enumerate(self.epochs):
            starts.setdefault(known, self.start + index)
        if not starts:
            return None
        known_epochs = sorted(starts)
        position = bisect_right(known_epochs, epoch)
        end = starts[known_epochs[position]] if position < len(known_epochs) else self.log_end_offset
        return (known_epochs[position - 1] if position else epoch), end

    def truncate_to(self, offset: int) -> None:
        del self.epochs[max(0, offset - self.start) :]
        self.led = {epoch: start for epoch, start in self.led.items() if start < offset}


def align(follower: EpochLog, leader: EpochLog, epoch: int = 99) -> int:
    """Ask and truncate until aligned; return the number of requests."""
    following = Following(epoch, follower)
    questions = 0
    while following.phase is Phase.ALIGNING:
        answer = leader.end_offset_for_epoch(following.asked_epoch)
        assert answer is not None
        decision = following.epoch_answered(follower, *answer, now_ms=0)
        assert decision is not None
        follower.truncate_to(decision.offset)
        following.truncated(decision, follower)
        questions += 1
        assert questions < 50
    return questions


def log_of(*runs: tuple[int, int]) -> EpochLog:
    """Return a log of `(epoch, number of records)` runs."""
    return EpochLog([epoch for epoch, count in runs for _ in range(count)])


def test_unreplicated_records_are_truncated_below_the_high_watermark() -> None:
    """KIP-101, scenario 1: both replicas have committed 2 records. The follower restarts and must not lose the
    second.
    """
    follower, leader = log_of((0, 2)), log_of((0, 2))
    assert align(follower, leader) == 1
    assert follower.epochs == [0, 0]


def test_diverging_logs_of_the_same_length_are_truncated() -> None:
    """KIP-101, scenario 2: both replicas lost power, and the other one wrote record 1 in a new epoch."""
    follower, leader = log_of((0, 2)), log_of((0, 1), (1, 1))
    align(follower, leader)
    assert follower.epochs == [0]


def test_epoch_unknown_to_the_leader_takes_a_second_request() -> None:
    """KIP-279: the logs diverged more than one epoch ago."""
    follower, leader = log_of((1, 10), (3, 15)), log_of((1, 5), (2, 15), (4, 10))
    assert align(follower, leader) == 2
    assert follower.epochs == [1] * 5


def test_a_leader_without_a_single_record_empties_the_follower() -> None:
    follower, leader = log_of((3, 10)), EpochLog(led={5: 0})
    align(follower, leader)
    assert follower.epochs == []


def test_follower_keeps_records_up_to_a_later_leader_log_start() -> None:
    follower, leader = log_of((1, 10)), EpochLog([4] * 5, start=8)
    align(follower, leader)
    assert follower.epochs == [1] * 8


def test_log_below_the_leaders_start_restarts_at_the_first_fetch() -> None:
    """The leader has no epochs for that range, so that the follower's log may be another history."""
    log = log_of((1, 8))
    following = Following(3, log)
    assert following.restart_if_below_leader_start(8, log) == RestartAt(8)
    assert following.restart_if_below_leader_start(7, log) is None, "the end of it was compared"
    assert following.restart_if_below_leader_start(8, EpochLog(start=8)) is None, "there is nothing"
    following.fetched()
    assert following.restart_if_below_leader_start(8, log) is None
    following.realign(log)
    assert following.restart_if_below_leader_start(8, log) == RestartAt(8)


def test_an_empty_log_is_aligned() -> None:
    assert Following(3, EpochLog()).phase is Phase.FETCHING


def test_unknown_epoch_answer_truncates_nothing_and_is_asked_again() -> None:
    log = log_of((1, 5))
    assert decide_truncation(log, -1, -1) is None
    following = Following(3, log)
    assert following.epoch_answered(log, -1, -1, now_ms=100) is None
    assert following.is_delayed(100)
    assert not following.is_delayed(100 + MIN_BACKOFF_MS)


def test_a_log_of_only_younger_epochs_has_nothing_in_common() -> None:
    assert decide_truncation(EpochLog([5, 5], start=3), 4, 4) == TruncateTo(3, aligned=True)


def test_delays_grow_to_a_bound_and_success_resets_them() -> None:
    log = EpochLog()
    following = Following(3, log)
    delays = []
    for _ in range(10):
        following.failed(FencedLeaderEpochError(), -1, log, now_ms=0)
        delays.append(following.delayed_until_ms)
    assert delays[0] == MIN_BACKOFF_MS
    assert delays == sorted(delays)
    assert delays[-1] == MAX_BACKOFF_MS
    following.fetched()
    following.failed(FencedLeaderEpochError(), -1, log, now_ms=0)
    assert following.delayed_until_ms == MIN_BACKOFF_MS


@pytest.mark.parametrize(("leader_start", "expected"), [(20, RestartAt(20)), (5, None), (-1, None)])
def test_out_of_range_begins_anew_behind_the_leaders_start_and_else_aligns(
    leader_start: int, expected: RestartAt | None
) -> None:
    log = log_of((1, 10))
    following = Following(3, log)
    following.phase = Phase.FETCHING
    assert following.failed(OffsetOutOfRangeError(), leader_start, log, now_ms=0) == expected
    assert following.phase is (Phase.FETCHING if expected else Phase.ALIGNING)


def test_empty_log_past_the_leaders_end_restarts_at_its_log_start() -> None:
    trimmed = EpochLog(start=100)
    following = Following(3, trimmed)
    assert following.phase is Phase.FETCHING
    assert following.failed(OffsetOutOfRangeError(), 0, trimmed, now_ms=0) == RestartAt(0)
    assert following.failed(OffsetOutOfRangeError(), -1, trimmed, now_ms=0) is None, (
        "the leader did not report its log start"
    )


def common_prefix(one: list[int], other: list[int]) -> list[int]:
    """Return how far two logs agree. A (epoch, offset) pair names one record, so equal epochs mean equal records."""
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["elect", "append", "follow"]), st.integers(0, 2), st.integers(0, 2), st.integers(1, 4)
        ),
        max_size=40,
    )
)
def test_in_any_history_aligning_finds_where_the_logs_part(steps: list[tuple[str, int, int, int]]) -> None:
    """Three logs under unclean elections. The twin compares record by record."""
    logs = [EpochLog() for _ in range(3)]
    leader, epoch = 0, 0
    logs[0].led[0] = 0
    for step, who, _, count in steps:
        if step == "elect":
            leader, epoch = who, epoch + 1
            logs[leader].led[epoch] = logs[leader].log_end_offset
        elif step == "append":
            logs[leader].epochs += [epoch] * count
        elif who != leader:
            expected = common_prefix(logs[who].epochs, logs[leader].epochs)
            align(logs[who], logs[leader], epoch)
            assert logs[who].epochs == expected
            logs[who].epochs += logs[leader].epochs[len(expected) :][:count]
            # Two logs whose (epoch, offset) agree anywhere agree before it.
            assert logs[who].epochs == logs[leader].epochs[: len(logs[who].epochs)]
