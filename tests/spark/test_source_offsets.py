from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from tidelog.arrow.offset_range import OffsetRange
from tidelog.errors import ConfigError
from tidelog.model import TopicPartition
from tidelog.spark.offsets import (
    from_json,
    ranges_between,
    rate_limit,
    split,
    to_json,
    total,
)

P = [TopicPartition("t", number) for number in range(12)]

offsets = st.integers(0, 1 << 62)
ranges = st.lists(st.tuples(offsets, st.integers(0, 5000)), min_size=1, max_size=12).map(
    lambda pairs: ({P[i]: low for i, (low, _) in enumerate(pairs)}, {P[i]: low + n for i, (low, n) in enumerate(pairs)})
)


@given(st.dictionaries(st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 20)), offsets))
def test_json_has_kafkas_form_and_round_trips(given_offsets: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(given_offsets)) == given_offsets


def test_json_sorts_partitions_so_that_equal_offsets_give_equal_texts() -> None:
    shuffled = to_json({TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3})
    assert str(shuffled) == "{'a': {'0': 3}, 'b': {'9': 2, '10': 1}}"


@given(
    st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x)))
)
def test_any_other_json_is_refused_or_read_exactly(shape: object) -> None:
    with contextlib.suppress(ConfigError):
        from_json(shape)


@given(ranges, st.integers(1, 20_000))
def test_limited_batch_takes_the_limit_and_starves_no_partition(
    pair: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], limit: int
) -> None:
    start, available = pair
    end = rate_limit(start, available, limit)
    taken = {partition: end[partition] - start[partition] for partition in start}
    waiting = {partition: available[partition] - start[partition] for partition in start}
    hungry = [partition for partition, size in waiting.items() if size]
    assert all(0 <= taken[partition] <= waiting[partition] for partition in start)
    assert all(taken[partition] >= 1 for partition in hungry)
    assert sum(taken.values()) == min(sum(waiting.values()), max(limit, len(hungry)))


@given(ranges, st.integers(1, 20_000))
def test_shares_are_proportional(pair: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], limit: int) -> None:
    start, available = pair
    end = rate_limit(start, available, limit)
    everything = total(ranges_between(start, available))
    if everything <= limit:
        assert end == available
        return
    for span in ranges_between(start, available):
        # Every partition first gets one record, which shifts a share by at most the number of partitions.
        assert abs(end[span.topic_partition] - span.start - limit * span.size / everything) <= len(start) + 1


def test_the_batches_of_a_limited_stream_cover_everything_once() -> None:
    at, available, batches = {P[0]: 0, P[1]: 0}, {P[0]: 1000, P[1]: 3}, 0
    while at != available:
        at, batches = rate_limit(at, available, 100), batches + 1
    assert batches == 11


def test_a_partition_whose_end_is_not_past_its_start_has_no_range() -> None:
    spans = ranges_between({P[0]: 5, P[1]: 5, P[2]: 5}, {P[0]: 5, P[1]: 4, P[2]: 6})
    assert spans == [OffsetRange(P[2], 5, 6)]


@given(ranges, st.one_of(st.none(), st.integers(1, 50)), st.one_of(st.none(), st.integers(1, 700)))
def test_tasks_cover_the_ranges_exactly(
    pair: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], parts: int | None, largest: int | None
) -> None:
    spans = ranges_between(*pair)
    pieces = split(spans, min_partitions=parts, max_records=largest)
    joined: dict[TopicPartition, OffsetRange] = {}
    for piece in pieces:
        assert piece.size >= 1
        assert largest is None or piece.size <= largest
        before = joined.get(piece.topic_partition)
        assert before is None or before.until == piece.start
        low = piece.start if before is None else before.start
        joined[piece.topic_partition] = OffsetRange(piece.topic_partition, low, piece.until)
    assert list(joined.values()) == spans
    assert len(pieces) >= min(parts or 1, total(spans))
