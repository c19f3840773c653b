"""Finds the start and end offsets of `tidelog consume` in each partition, and notes where they differ from the request.

A start offset that a partition has deleted, or that is past the end of all partitions, is an error. A start past the
end of only some partitions is a note on standard error, because the others are read. An end that no partition has, and
a span without records, are notes too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.cli.terminal.times import SMALLEST_BARE_TIME_MS, At, Beginning, End, Position, future_text
from tidelog.cli.topics.partition_notes import SUMMED_UP_FROM, empty_text, partitions_text
from tidelog.client.consumer.seek_to_time import OlderRecords, StartingPoint, StartReason
from tidelog.model import TopicPartition
from tidelog.quantities import plural
from tidelog.timestamps import format_time

if TYPE_CHECKING:
    from tidelog.client.consumer.consumer import Consumer

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets to read in each partition: from its start to its end (exclusive); `ends` is None with --follow.

    notes   sentences about partitions that start elsewhere or end earlier than requested, or have no record to read
    """

    starts: Offsets
    ends: Offsets | None
    notes: tuple[str, ...] = ()

    @property
    def unread(self) -> Offsets:
        """The partitions whose start is before their end, with their starts; all partitions if `ends` is None."""
        if self.ends is None:
            return self.starts
        return {tp: start for tp, start in self.starts.items() if start < self.ends[tp]}


def refuse_reversed(start: Position, end: Position | None) -> None:
    """Raise UsageError if the end comes before the start, as far as the two positions alone show it.

    Only offsets are compared with offsets, times with times, and `end` with `beginning`. An `end` of None (the current
    end) is not compared.
    """
    match start, end:
        case (int(first), int(last)) if last < first:
            raise click.UsageError(f"--until {last} comes before --from {first}: nothing lies between them")
        case (At(first), At(last)) if last < first:
            raise click.UsageError(
                f"--until {format_time(last)} comes before --from {format_time(first)}: nothing lies between them"
            )
        case (End(), Beginning()):
            raise click.UsageError("--until beginning comes before --from end: nothing lies between them")


def resolve_span(
    consumer: Consumer,
    partitions: list[TopicPartition],
    start: Position,
    end: Position | None,
    *,
    follow: bool,
    exact: bool,
    now_ms: int,
) -> Span:
    """Return the span, from the offsets that the leaders report; assign the partitions to the consumer.

    The ends are at most the current ends of the logs, and a partition without a record at or after a time starts at its
    end.

    start   the position at which to start (--from)
    end     the position before which to stop (--until); None: the current end
    exact   whether each partition must have the start, because the user has named the partitions

    Raises ClickException if a partition has deleted the start offset, or if the offset is past the end of all
    partitions, or of one that must have it; with `follow` each must have it.
    """
    present_ends = consumer.end_offsets(partitions)
    begins = consumer.beginning_offsets(partitions)
    consumer.assign(partitions)
    notes: list[str] = []
    if isinstance(start, At):
        points = consumer.seek_to_time(start.timestamp_ms)
        starts = {tp: point.offset for tp, point in points.items()}
        notes += _time_notes(points, start.timestamp_ms, now_ms)
    else:
        starts = _resolve(consumer, partitions, start, begins, present_ends)
        if isinstance(start, int):
            _refuse_missing_offset(start, begins, present_ends, each_must_have_it=exact or follow)
            notes += _offset_notes(start, present_ends)
    if follow:
        return Span(starts, None, tuple(notes))
    wanted_ends = _resolve(consumer, partitions, End() if end is None else end, begins, present_ends)
    notes += _end_notes(end, present_ends)
    ends = {tp: min(wanted_ends[tp], present_ends[tp]) for tp in partitions}
    span = Span(starts, ends, tuple(notes))
    end_hides_records = any(starts[tp] < present_ends[tp] for tp in partitions)
    if not span.unread and (not notes or end_hides_records):
        return Span(starts, ends, (*notes, _why_nothing(span, start, end, begins, present_ends)))
    return span


def resolve_ends(
    consumer: Consumer, partitions: list[TopicPartition], end: Position | None
) -> tuple[Offsets, tuple[str, ...]]:
    """Return the end offset of each partition, at most its current end, and the notes about the ends.

    For a reading that begins at a group's committed offsets. None as `end` means the current end.
    """
    begins, present_ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    ends = _resolve(consumer, partitions, End() if end is None else end, begins, present_ends)
    return {tp: min(ends[tp], present_ends[tp]) for tp in partitions}, tuple(_end_notes(end, present_ends))


def _end_notes(end: Position | None, present_ends: Offsets) -> Iterator[str]:
    if isinstance(end, int) and end > (farthest := max(present_ends.values())):
        yield f"--until {end} is past the end of {_every(list(present_ends))}, at {farthest}"


def _refuse_missing_offset(start: int, begins: Offsets, present_ends: Offsets, *, each_must_have_it: bool) -> None:
    """Raise ClickException if the offset is missing: deleted in a partition, or past the end of too many.

    Too many are all partitions, or one if each must have the offset.
    """
    topic = next(iter(begins)).topic
    beyond = [tp for tp in begins if start > present_ends[tp]]
    next_step = f"{_NEXT_STEP}{_if_a_time_was_meant(start)}"
    if len(beyond) == len(begins) > 1:
        farthest = max(present_ends.values())
        raise click.ClickException(
            f"offset {start} is past the end of all {len(begins)} partitions of {topic!r}, the farthest of which ends "
            f"at {farthest}{next_step}"
        )
    if beyond and (each_must_have_it or len(begins) == 1):
        first = beyond[0]
        raise click.ClickException(
            f"offset {start} is past the end of partition {first.partition} of {topic!r}, which ends at "
            f"{present_ends[first]}{next_step}"
        )
    if deleted := [tp for tp in begins if start < begins[tp]]:
        first = deleted[0]
        raise click.ClickException(
            f"offset {start} is no longer in partition {first.partition} of {topic!r}, which starts at {begins[first]}"
            "; --from beginning reads the remaining records"
        )


_NEXT_STEP = "; --from beginning reads all records, --from end --follow waits for new ones"


def _offset_notes(start: int, present_ends: Offsets) -> Iterator[str]:
    """Yield one note about all partitions that end before the offset; nothing if there are none."""
    if beyond := [tp for tp in present_ends if start > present_ends[tp]]:
        which = partitions_text([tp.partition for tp in beyond], len(present_ends))
        farthest = max(present_ends[tp] for tp in beyond)
        ends = f"which ends at {farthest}" if len(beyond) == 1 else f"the farthest of which ends at {farthest}"
        yield f"offset {start} is past the end of {which}, {ends}"


def _time_notes(points: Mapping[TopicPartition, StartingPoint], target_ms: int, now_ms: int) -> Iterator[str]:
    """Yield a note for each partition that starts elsewhere than at the time; several with one reason share a note.

    The first note says so if the time is in the future.
    """
    if future := future_text(target_ms, now_ms):
        yield f"--from {future}"
    for reason in (StartReason.BEFORE_LOG_START, StartReason.PAST_END, StartReason.EMPTY):
        those = {tp: point for tp, point in sorted(points.items()) if point.reason is reason}
        if len(those) >= SUMMED_UP_FROM:
            yield f"{reason}: {_summed_up(reason, those, len(points))}"
        else:
            for tp, point in those.items():
                yield f"{tp}: {reason}: {_in_detail(point, target_ms)}"


def _summed_up(reason: StartReason, those: Mapping[TopicPartition, StartingPoint], total: int) -> str:
    numbers = [tp.partition for tp in those]
    gone = [tp.partition for tp, point in those.items() if point.older is OlderRecords.GONE]
    which = "" if len(gone) == len(those) else f" of {partitions_text(gone, total)}"
    match reason:
        case StartReason.BEFORE_LOG_START:
            before = f"older ones{which} are gone" if gone else "there was never an older one"
            return f"{partitions_text(numbers, total)} start with their oldest record, which is newer; {before}"
        case StartReason.PAST_END:
            return f"{partitions_text(numbers, total)} start at their end, because every record is older"
        case _:
            before = f"all records{which} are gone" if gone else "nothing was ever written"
            return f"{empty_text(numbers, total)}; {before}"


def _in_detail(point: StartingPoint, target_ms: int) -> str:
    match point.reason:
        case StartReason.BEFORE_LOG_START:
            assert point.timestamp is not None
            before = "older ones are gone" if point.older is OlderRecords.GONE else "there was never an older one"
            return f"starts with its oldest record, offset {point.offset} of {format_time(point.timestamp)}; {before}"
        case StartReason.PAST_END:
            return f"every record is older than {format_time(target_ms)}; starts at its end, offset {point.offset}"
        case _:
            before = "all records are gone" if point.older is OlderRecords.GONE else "nothing was ever written"
            return f"{before}; starts at its end, offset {point.offset}"


def _why_nothing(span: Span, start: Position, end: Position | None, begins: Offsets, present_ends: Offsets) -> str:
    """Return the note that says why a span without records has nothing to read, as a sentence for the user."""
    partitions = list(span.starts)
    topic = partitions[0].topic
    if all(begins[tp] == present_ends[tp] for tp in partitions):
        return f"nothing to read: {empty_text([tp.partition for tp in partitions], len(partitions))}"
    if isinstance(start, End) and not isinstance(end, Beginning):
        return "nothing to read: --from end is where the records end now; --follow waits for more"
    if isinstance(start, int) and end is None:
        verb = plural(len(partitions), "ends", "end")
        return f"nothing to read: {_every(partitions)} of {topic!r} {verb} at {start}; --follow waits for more"
    assert span.ends is not None
    if all(span.ends[tp] < span.starts[tp] for tp in partitions):
        return f"nothing to read: in {_every(partitions)} of {topic!r} --until comes before --from"
    return (
        f"nothing to read: {_every(partitions)} of {topic!r} {plural(len(partitions), 'has', 'have')} no record there"
    )


def _every(partitions: Sequence[TopicPartition]) -> str:
    return partitions_text([tp.partition for tp in partitions], len(partitions))


def _if_a_time_was_meant(offset: int) -> str:
    if offset < SMALLEST_BARE_TIME_MS // 1000:
        return ""
    return f"; a time is written as @{offset} in milliseconds or @{offset * 1000} if these are seconds"


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
            # A partition without a record that late gets its end, because later records will be appended there.
            return {tp: ends[tp] if (answer := found[tp]) is None else answer.offset for tp in partitions}
        case int(offset):
            return dict.fromkeys(partitions, offset)
