"""From where to where `tidelog consume` reads each partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.cli.times import At, Beginning, End, Position
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.consumer import Consumer

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Span:
    """First offset (inclusive) and last (exclusive) of each partition; without `ends` there is no last."""

    starts: Offsets
    ends: Offsets | None

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
    """Asks the leaders. `exact`: a first offset behind the end is an error, not just nothing to read.

    ClickException names the offsets that there are.
    """
    present_ends = consumer.end_offsets(partitions)
    begins = consumer.beginning_offsets(partitions)
    starts = _resolve(consumer, partitions, start, begins, present_ends)
    for tp in partitions:
        beyond = starts[tp] > present_ends[tp] and (exact or follow)
        if starts[tp] < begins[tp] or beyond:
            raise click.ClickException(
                f"offset {starts[tp]} is not in partition {tp.partition} of {tp.topic!r}: it holds "
                + (f"{begins[tp]} to {present_ends[tp] - 1}" if present_ends[tp] > begins[tp] else "nothing")
                + "; --from beginning takes what there is"
            )
    if follow:
        return Span(starts, None)
    ends = _resolve(consumer, partitions, End() if end is None else end, begins, present_ends)
    return Span(starts, {tp: min(ends[tp], present_ends[tp]) for tp in partitions})


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
