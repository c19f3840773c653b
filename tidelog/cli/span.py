"""From where to where `tidelog consume` reads each partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.cli.times import SMALLEST_BARE_TIME_MS, At, Beginning, End, Position
from tidelog.model import TopicPartition
from tidelog.starting_points import OlderRecords, StartingPoint, StartReason
from tidelog.timestamps import format_time

if TYPE_CHECKING:
    from tidelog.consumer import Consumer

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Span:
    """First offset (inclusive) and last (exclusive) of each partition; without `ends` there is no last.

    notes   where it begins at a time, a line for each partition that begins at its log start or end
    """

    starts: Offsets
    ends: Offsets | None
    notes: tuple[str, ...] = ()

    @property
    def unread(self) -> Offsets:
        """The partitions in which there is something to read, with their first offsets."""
        if self.ends is None:
            return self.starts
        return {tp: start for tp, start in self.starts.items() if start < self.ends[tp]}


def resolve_span(
    consumer: Consumer,
    partitions: list[TopicPartition],
    start: Position,
    end: Position | None,
    *,
    follow: bool,
    exact: bool,
) -> Span:
    """Asks the leaders; the partitions are assigned then. `exact`: a first offset behind the end is an error, not just
    nothing to read.

    ClickException names the offsets that there are.
    """
    present_ends = consumer.end_offsets(partitions)
    begins = consumer.beginning_offsets(partitions)
    consumer.assign(partitions)
    if isinstance(start, At):
        points = consumer.seek_to_time(start.timestamp_ms)
        ends = _ends(consumer, partitions, end, begins, present_ends)
        starts = {tp: point.offset for tp, point in points.items()}
        return Span(starts, None if follow else ends, tuple(_notes(points, start.timestamp_ms)))
    starts = _resolve(consumer, partitions, start, begins, present_ends)
    for tp in partitions:
        beyond = starts[tp] > present_ends[tp] and (exact or follow)
        if starts[tp] < begins[tp] or beyond:
            raise click.ClickException(
                f"offset {starts[tp]} is not in partition {tp.partition} of {tp.topic!r}: it holds "
                + (f"{begins[tp]} to {present_ends[tp] - 1}" if present_ends[tp] > begins[tp] else "nothing")
                + "; --from beginning takes what there is"
                + _if_a_time_was_meant(starts[tp])
            )
    notes: tuple[str, ...] = ()
    if isinstance(start, int) and (hint := _if_a_time_was_meant(start)) and start > max(present_ends.values()):
        notes = (f"offset {start} lies behind the end of every partition{hint}",)
    return Span(starts, None if follow else _ends(consumer, partitions, end, begins, present_ends), notes)


def resolve_ends(consumer: Consumer, partitions: list[TopicPartition], end: Position | None) -> Offsets:
    """The ends of a span that begins wherever a group has committed."""
    begins, present_ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    return _ends(consumer, partitions, end, begins, present_ends)


def _ends(
    consumer: Consumer, partitions: list[TopicPartition], end: Position | None, begins: Offsets, present_ends: Offsets
) -> Offsets:
    ends = _resolve(consumer, partitions, End() if end is None else end, begins, present_ends)
    return {tp: min(ends[tp], present_ends[tp]) for tp in partitions}


def _notes(points: Mapping[TopicPartition, StartingPoint], target_ms: int) -> Iterator[str]:
    target = format_time(target_ms)
    for tp, point in sorted(points.items()):
        match point.reason:
            case StartReason.BEFORE_LOG_START:
                assert point.timestamp is not None
                before = "older ones are gone" if point.older is OlderRecords.GONE else "there was never an older one"
                told = (
                    f"starts with its oldest record, offset {point.offset} of {format_time(point.timestamp)}; {before}"
                )
            case StartReason.PAST_END:
                told = f"every record is older than {target}; starts at its end, offset {point.offset}"
            case StartReason.EMPTY:
                before = "all records are gone" if point.older is OlderRecords.GONE else "nothing was ever written"
                told = f"{before}; starts at its end, offset {point.offset}"
            case StartReason.FOUND:
                continue
        yield f"{tp}: {point.reason}: {told}"


def _if_a_time_was_meant(offset: int) -> str:
    if offset < SMALLEST_BARE_TIME_MS // 1000:
        return ""
    return f", and a time is written as @{offset} in milliseconds or @{offset * 1000} where these are seconds"


def _resolve(
    consumer: Consumer, partitions: list[TopicPartition], position: Position, begins: Offsets, ends: Offsets
) -> Offsets:
    match position:
        case Beginning():
            return begins
        case End():
            return ends
        case At(timestamp_ms):
            found = consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
            # Nothing that late yet: what is to come begins at the end.
            return {tp: ends[tp] if (answer := found[tp]) is None else answer.offset for tp in partitions}
        case int(offset):
            return dict.fromkeys(partitions, offset)
