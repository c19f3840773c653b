"""Checks the bounds of a read, so that planning reports wrong options, and no task takes them for lost records. Pure.

Three cases are mistakes, because the options alone or the options and the log contradict each other:

A   an offset lies past the end of its log, where no record is or ever was;
B   the starting offset is after the ending offset, or the starting time after the ending time;
C   an ending offset lies before the log, because all records of the read were deleted.

A starting offset before the log is no mistake: the records in between are lost, and the reader reports the loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.errors import ConfigError
from tidelog.model import TopicPartition
from tidelog.quantities import first_texts
from tidelog.spark.offsets import Offsets
from tidelog.spark.values import AtOffsets, AtTime, AtTimes, Bound, Position, option_of

#: An error names at most this many partitions, so that it fits on a screen.
_MAX_NAMED = 5


def check_order(starting: Position, ending: Position) -> None:
    """Raise ConfigError if the start comes after the end (B), as far as the options alone show it.

    Only offsets are compared with offsets, and times with times. Latest and earliest are not compared.
    """
    wrong: list[str] = []
    match starting, ending:
        case AtOffsets(), AtOffsets():
            wrong = _reversed(_explicit(starting), _explicit(ending))
        case AtTime(start), AtTime(end):
            wrong = [f"{start} is later than {end}"] if start > end else []
        case AtTime(start), AtTimes(times):
            wrong = _reversed(dict.fromkeys(times, start), times)
        case AtTimes(times), AtTime(end):
            wrong = _reversed(times, dict.fromkeys(times, end))
        case AtTimes(starts), AtTimes(ends):
            wrong = _reversed(starts, ends)
    if wrong:
        raise ConfigError(
            f"{option_of(starting, 'starting')} comes after {option_of(ending, 'ending')}, "
            f"so that no record would be read: {_listed(wrong)}"
        )


def past_end(position: Position, ends: Offsets) -> list[TopicPartition]:
    """Return the partitions whose offset in the option is greater than the end offset of their log (A), sorted.

    Codes for latest and earliest, and times, are never past the end. `ends` must have all partitions of the option.
    """
    return sorted(each for each, offset in _explicit(position).items() if offset > ends[each])


def before_log(position: Position, firsts: Offsets) -> list[TopicPartition]:
    """Return the partitions whose offset in the option is less than the first offset of their log (C), sorted.

    Codes for latest and earliest, and times, are never before it. `firsts` must have all partitions of the option.
    """
    return sorted(each for each, offset in _explicit(position).items() if offset < firsts[each])


def outside_log_error(position: Position, bound: Bound, firsts: Offsets, ends: Offsets) -> ConfigError:
    """Return the error for offsets in the option that lie outside their logs, without raising it.

    `firsts` and `ends` are the first and the end offsets of these partitions' logs. The text names at most
    five of the partitions.
    """
    offsets = _explicit(position)
    wrong = [
        f"{each}: {offsets[each]} lies {'past the end of' if offsets[each] > ends[each] else 'before'} the log, "
        f"which {_holds(firsts[each], ends[each])}"
        for each in sorted(firsts)
    ]
    return ConfigError(f"{option_of(position, bound)}: {_listed(wrong)}")


def _explicit(position: Position) -> dict[TopicPartition, int]:
    """Return the offsets that the option gives, without the codes for latest (−1) and earliest (−2)."""
    offsets = position.offsets if isinstance(position, AtOffsets) else {}
    return {partition: offset for partition, offset in offsets.items() if offset >= 0}


def _reversed(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[str]:
    both = sorted(starts.keys() & ends.keys())
    return [f"{each} from {starts[each]} to {ends[each]}" for each in both if starts[each] > ends[each]]


def _holds(first: int, end: int) -> str:
    return f"holds the offsets {first} to {end - 1}" if first < end else f"is empty and begins at {first}"


def _listed(wrong: Iterable[str]) -> str:
    return first_texts(list(wrong), _MAX_NAMED, "partition")
