"""The rules of compaction at their limits, over facts of segments."""

from __future__ import annotations

from storage.compaction.cleaning_rules import SealedSegment, cleanable, first_dirty_offset, grouped
from tests.storage.logs import NOW, config

LIMIT = 2**31 - 1


def sealed(
    base: int, end: int, *, largest: int = NOW, size: int = 100, index: int = 8, times: int = 12
) -> SealedSegment:
    return SealedSegment(base, end, size, index, times, largest, lambda: largest, lambda: largest)


def test_minimal_lag_does_not_apply_to_clean_segments() -> None:
    young, old = sealed(0, 10, largest=NOW), sealed(10, 20, largest=NOW - 1000)
    lagging = config(min_compaction_lag_ms=1000)
    assert cleanable([young, old], 10, 20, lagging, NOW).segments == (young, old)
    assert cleanable([young, old], 9, 20, lagging, NOW).segments == ()
    assert cleanable([young, old], 10, 19, lagging, NOW).segments == (young,)
    assert cleanable([young, old], 10, 20, config(min_compaction_lag_ms=1001), NOW).segments == (young,)


def test_neighbours_become_one_segment_up_to_each_limit_and_not_beyond() -> None:
    two = [sealed(5, 10), sealed(10, 20)]
    for settings, fits in (
        ({"segment_bytes": 200}, True),
        ({"segment_bytes": 199}, False),
        ({"segment_index_bytes": 24}, True),
        ({"segment_index_bytes": 23}, False),
    ):
        assert (len(grouped(two, config(**settings))) == 1) is fits, settings
    assert len(grouped([sealed(5, 10, index=30, times=1), sealed(10, 20)], config(segment_index_bytes=37))) == 2
    for end, groups in ((5 + LIMIT + 1, 1), (5 + LIMIT + 2, 2)):
        assert len(grouped([sealed(5, 10), sealed(10, end)], config())) == groups


def test_cleaner_offset_outside_the_log_is_ignored() -> None:
    assert [first_dirty_offset(recorded, 3, 9) for recorded in (2, 3, 9, 10)] == [3, 3, 9, 3]
