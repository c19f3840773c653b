"""Offsets in the form of Spark's checkpoints, and the arithmetic of ranges. Pure.

`Offsets` maps partitions to offsets. The JSON has Kafka's form `{"topic": {"0": 23}}`, so that the checkpoints of both
sources have the same format. A range is [start, until).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tidelog.arrow.offset_range import OffsetRange
from tidelog.errors import ConfigError
from tidelog.model import TopicPartition

Offsets = Mapping[TopicPartition, int]

#: The largest partition number, and the largest offset or timestamp, that Kafka's formats can carry.
MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return the offsets in Kafka's form {"topic": {"0": 23}}, sorted, so that equal offsets give equal JSON text."""
    shaped: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        shaped.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return shaped


def from_json(shaped: Any, name: str = "offsets") -> dict[TopicPartition, int]:
    """Return the offsets of a JSON object or of its text, the inverse of `to_json`.

    Raises ConfigError, which begins with `name`, for another form, and for a number beyond 64 bits. Negative offsets
    are accepted.
    """
    if isinstance(shaped, str):
        try:
            shaped = json.loads(shaped, object_pairs_hook=unique_names)
        except ValueError as error:
            raise ConfigError(f"{name}: {shaped!r} is not JSON ({error})") from None
    offsets: dict[TopicPartition, int] = {}
    expected = f'{name}: expected {{"topic": {{"0": 23}}}}'
    if not isinstance(shaped, dict):
        raise ConfigError(f"{expected}, not {shaped!r}")
    for topic, partitions in shaped.items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"{expected}, but {topic!r} has {partitions!r}")
        for partition, offset in partitions.items():
            if not _is_partition(partition):
                raise ConfigError(f"{expected}, but {topic!r} has the partition {partition!r}")
            if not isinstance(offset, int) or isinstance(offset, bool) or abs(offset) > MAX_INT64:
                raise ConfigError(f"{expected}, but {topic}-{partition} has {offset!r}")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the (name, value) pairs of a JSON object as a dict, for `json.loads`.

    Raises ValueError for a repeated name, because only its last value would count.
    """
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"an object has the name {twice!r} twice")
    return dict(pairs)


def _is_partition(text: Any) -> bool:
    """Return whether the text is a partition number without leading zeros ("07" would name partition 7 again)."""
    is_number = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 10
    return is_number and int(text) <= MAX_INT32 and str(int(text)) == text


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return each partition's range from its start to its end offset, sorted by partition.

    A partition whose end is not after its start has no range. `start` must have every partition of `end`.
    """
    return [
        OffsetRange(partition, start[partition], until)
        for partition, until in sorted(end.items())
        if start[partition] < until
    ]


def total(ranges: Iterable[OffsetRange]) -> int:
    return sum(span.size for span in ranges)


def rate_limit(start: Offsets, available: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return the end offsets of a batch of at most `limit` offsets, divided in proportion to each partition's backlog.

    The backlog of a partition is the range from `start` to `available`. A partition with a backlog gets at least one
    offset, even if the batch then exceeds `limit`. Otherwise the batch has min(limit, the whole backlog) offsets. A
    partition without a backlog ends at `available`, also if that is before its start.
    """
    waiting = ranges_between(start, available)
    everything = total(waiting)
    if everything <= limit:
        return dict(available)
    shares = _proportional([span.size for span in waiting], limit, everything)
    end = dict(available)
    for span, share in zip(waiting, shares, strict=True):
        end[span.topic_partition] = span.start + share
    return end


def _proportional(sizes: Sequence[int], limit: int, everything: int) -> list[int]:
    spare = limit - len(sizes)
    if spare <= 0:
        return [1] * len(sizes)
    # Each partition first gets one record. The rest of the limit is in proportion to the rest of the sizes.
    rest = everything - len(sizes)
    shares = [1 + spare * (size - 1) // rest for size in sizes]
    missing = limit - sum(shares)
    by_remainder = sorted(range(len(sizes)), key=lambda index: (-(spare * (sizes[index] - 1) % rest), index))
    for index in by_remainder[:missing]:
        shares[index] += 1
    return shares


def split(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Return the ranges of Spark's tasks: the given ranges, cut into pieces if an option requires it.

    With `min_partitions`, ranges are cut by their size, so that there are at least so many tasks if there are enough
    offsets. With `max_records`, no task has more offsets. The pieces of a range differ by at most one offset.
    """
    pieces: list[OffsetRange] = []
    everything = total(ranges)
    for span in ranges:
        parts = 1
        if min_partitions is not None and everything:
            parts = -(-min_partitions * span.size // everything)
        if max_records is not None:
            parts = max(parts, -(-span.size // max_records))
        pieces += _cut(span, min(max(1, parts), max(1, span.size)))
    return pieces


def _cut(span: OffsetRange, parts: int) -> list[OffsetRange]:
    edges = [span.start + span.size * part // parts for part in range(parts + 1)]
    return [OffsetRange(span.topic_partition, low, high) for low, high in pairwise(edges)]
