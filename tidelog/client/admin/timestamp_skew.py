"""Report what makes look-ups by time surprising, by rules over the time spans of a topic's partitions. No I/O.

An instant means the same in all partitions only under three conditions: timestamps are in order, none is in the future,
and all partitions reach back about equally far (the reasons are those of KIP-33, and of look-ups by file times).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidelog.client.admin.topic_time_spans import PartitionTimes
from tidelog.quantities import first_of, format_duration, format_size, plural
from tidelog.records import RecordTime
from tidelog.timestamps import format_time

_SECOND_MS = 1_000
_HOUR_MS = 3_600 * _SECOND_MS
#: Producers' clocks differ and their batches overtake each other, so that smaller differences are normal.
TOLERATED_DISORDER_MS = _SECOND_MS
TOLERATED_FUTURE_MS = 300 * _SECOND_MS
#: Distances between partitions' starts or ends are reported from an hour on, if they are a tenth of the whole span.
TOLERATED_DISTANCE_MS = _HOUR_MS
_DISTANT_SHARE = 10
#: Sizes are reported if they differ by this factor and the largest partition is not small.
UNEVEN_FACTOR = 10
_UNEVEN_FROM_BYTES = 1 << 20
_MOST_NAMED = 3


class SkewKind(StrEnum):
    """The kind of a finding about timestamps or sizes.

    OUT_OF_ORDER   of the records that were sampled, a later offset has an earlier timestamp, by a second or more
    FUTURE         the largest timestamp is five minutes or more ahead of this machine's clock
    FAR_APART      partitions begin later, or end earlier, than another by more than an hour, and by more than a tenth
                   of the span of all partitions
    UNEVEN         the largest partition has 1 MiB or more, and is more than ten times as large as the smallest
    """

    OUT_OF_ORDER = "out_of_order"
    FUTURE = "future"
    FAR_APART = "far_apart"
    UNEVEN = "uneven"


@dataclass(frozen=True, slots=True)
class Skew:
    """One finding about the partitions of these numbers, with a text of one line."""

    kind: SkewKind
    partitions: tuple[int, ...]
    text: str


def find_skew(partitions: Sequence[PartitionTimes], now_ms: int) -> list[Skew]:
    """Return all findings about the sampled records and the sizes, by kind in the order of SkewKind.

    now_ms   the present time on the wall clock
    """
    return [
        *(skew for each in partitions if (skew := _disorder(each))),
        *(skew for each in partitions if (skew := _future(each, now_ms))),
        *_far_apart(partitions),
        *_uneven(partitions),
    ]


def _disorder(each: PartitionTimes) -> Skew | None:
    known = sorted({*each.samples, *([each.newest] if each.newest else [])})
    worst: tuple[int, RecordTime, RecordTime] | None = None
    highest: RecordTime | None = None
    for record in known:
        if highest is not None and (back_ms := highest.timestamp - record.timestamp) > (worst[0] if worst else 0):
            worst = back_ms, highest, record
        if highest is None or record.timestamp > highest.timestamp:
            highest = record
    if worst is None or worst[0] < TOLERATED_DISORDER_MS:
        return None
    back_ms, before, behind = worst
    text = (
        f"partition {each.partition}: timestamps are out of order: the record at offset {behind.offset} is "
        f"{format_duration(back_ms)} older than the one at {before.offset}; a reader that starts from a time also "
        "reads older records"
    )
    return Skew(SkewKind.OUT_OF_ORDER, (each.partition,), text)


def _future(each: PartitionTimes, now_ms: int) -> Skew | None:
    if each.newest is None or (ahead_ms := each.newest.timestamp - now_ms) < TOLERATED_FUTURE_MS:
        return None
    text = (
        f"partition {each.partition}: the record at offset {each.newest.offset} is {format_duration(ahead_ms)} ahead "
        "of this machine's clock: check the producer's clock, and message.timestamp.after.max.ms"
    )
    return Skew(SkewKind.FUTURE, (each.partition,), text)


def _far_apart(partitions: Iterable[PartitionTimes]) -> Iterator[Skew]:
    filled = [
        (each, each.oldest.timestamp, each.newest.timestamp) for each in partitions if each.oldest and each.newest
    ]
    if not filled:
        return
    whole_ms = max(end for _, _, end in filled) - min(start for _, start, _ in filled)
    least_ms = max(TOLERATED_DISTANCE_MS, whole_ms // _DISTANT_SHARE)
    first, last = min(start for _, start, _ in filled), max(end for _, _, end in filled)
    late = [(start, each.partition) for each, start, _ in filled if start - first > least_ms]
    if late:
        yield Skew(
            SkewKind.FAR_APART,
            tuple(number for _, number in late),
            f"{_named(late)} {plural(len(late), 'begins', 'begin')} later than others: "
            f"from {format_time(first)} to {format_time(max(late)[0])} "
            "some partitions have no record, and a reader starts with their oldest record (before_log_start)",
        )
    early = [(end, each.partition) for each, _, end in filled if last - end > least_ms]
    if early:
        yield Skew(
            SkewKind.FAR_APART,
            tuple(number for _, number in early),
            f"{_named(early)} {plural(len(early), 'ends', 'end')} earlier than others: "
            f"from {format_time(min(early)[0])} to {format_time(last)} "
            "some partitions have no record, and a reader starts at their end (past_end)",
        )


def _uneven(partitions: Iterable[PartitionTimes]) -> Iterator[Skew]:
    sizes = [(each.size_bytes, each.partition) for each in partitions if each.size_bytes is not None]
    if len(sizes) < 2:
        return
    (least, smallest), (most, largest) = min(sizes), max(sizes)
    if most >= _UNEVEN_FROM_BYTES and most > UNEVEN_FACTOR * least:
        text = (
            f"partition {largest} has {format_size(most)} and partition {smallest} has {format_size(least)}: "
            "check by which keys the producers choose partitions"
        )
        yield Skew(SkewKind.UNEVEN, (smallest, largest), text)


def _named(found: Sequence[tuple[int, int]]) -> str:
    return f"{plural(len(found), 'partition')} {first_of([str(number) for _, number in found], _MOST_NAMED)}"
