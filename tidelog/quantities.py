"""Format quantities for people: counts with their nouns, sizes, durations, rates and lists that must stay short.

Every command uses these functions, so that the same quantity looks the same everywhere. `--json` prints raw numbers
instead, with the unit in the field's name. `tidelog.timestamps.format_time` prints points in time.

A size, a duration and a rate have one unit, and up to three significant digits: 9.77 KiB, 36 h. A number from 1,000 on
has all digits, in groups of thousands: 31,250 records/s. The text of a larger quantity never means less than that of a
smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence

#: (unit, its length, its smallest shown number): 90 min is more precise than 1.5 h.
_DURATIONS_MS = (
    ("years", 31_557_600_000, 2),
    ("d", 86_400_000, 2),
    ("h", 3_600_000, 2),
    ("min", 60_000, 2),
    ("s", 1_000, 1),
    ("ms", 1, 0),
)
_SIZES_BYTES = (
    ("EiB", 1 << 60, 1),
    ("PiB", 1 << 50, 1),
    ("TiB", 1 << 40, 1),
    ("GiB", 1 << 30, 1),
    ("MiB", 1 << 20, 1),
    ("KiB", 1 << 10, 1),
    ("B", 1, 0),
)
#: An error names at most this many partitions, groups or brokers, and says how many more there are.
MOST_NAMED = 5
#: An amount that three digits show as a whole unit counts as one.
_ALMOST = 0.9995
_ENDINGS_WITH_ES = ("s", "x", "ch", "sh")


def plural(number: float, one: str, many: str = "") -> str:
    """Return the form of a noun or a verb that follows the number: `one` for 1 and −1, else `many`.

    Without `many` the form is the regular English plural of the noun.
    """
    if abs(number) == 1:
        return one
    if many:
        return many
    if one.endswith("y") and one[-2:-1] not in "aeiou":
        return f"{one[:-1]}ies"
    return f"{one}{'es' if one.endswith(_ENDINGS_WITH_ES) else 's'}"


def format_count(number: int) -> str:
    """Return a whole number with groups of thousands: 1,234,567."""
    return f"{number:,}"


def count_of(number: int, one: str, many: str = "") -> str:
    """Return the number with its noun: 1 record, 2,000 records."""
    return f"{format_count(number)} {plural(number, one, many)}"


def first_of(names: Sequence[str], most: int) -> str:
    """Return the first `most` names, and how many others there are, if any: a, b and 3 more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {format_count(more)} more" if more > 0 else "")


def first_texts(texts: Sequence[str], most: int, noun: str) -> str:
    """Return the first `most` texts, and how many others there are, if any: a; b; and 3 more groups."""
    more = len(texts) - most
    return "; ".join(texts[:most]) + (f"; and {count_of(more, f'more {noun}')}" if more > 0 else "")


def ranges_of(numbers: Sequence[int], most: int) -> str:
    """Return ascending numbers of partitions: up to `most` one by one, more of them as ranges: 0–8, 12 and 40 more.

    At most `most` numbers and ranges are named. Their digits are not grouped, because users type these numbers.
    """
    if len(numbers) <= most:
        return ", ".join(map(str, numbers))
    runs: list[range] = []
    for number in numbers:
        if runs and number == runs[-1].stop:
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
    named = ", ".join(str(run.start) if len(run) == 1 else f"{run.start}–{run[-1]}" for run in runs[:most])
    more = sum(map(len, runs[most:]))
    return named + (f" and {format_count(more)} more" if more else "")


def format_size(size_bytes: float) -> str:
    """Return a number of bytes in the largest unit of which there is at least one: 512 B, 9.77 KiB, 1.5 GiB."""
    return _in_largest_unit(size_bytes, _SIZES_BYTES)


def format_duration(duration_ms: float) -> str:
    """Return a length of time in the largest unit of which there are two or more (s: one): 250 ms, 61 s, 36 h."""
    return _in_largest_unit(duration_ms, _DURATIONS_MS)


def format_rate(number: float, duration_ms: float, one: str, many: str = "") -> str:
    """Return how many of the noun there were in a second: 31,250 records/s. A duration below 1 ms counts as 1 ms."""
    text = _three_digits(_per_second(number, duration_ms))
    return f"{text} {plural(1 if text == '1' else 2, one, many)}/s"


def format_size_rate(size_bytes: float, duration_ms: float) -> str:
    """Return how many bytes there were in a second: 12.3 MiB/s. A duration below 1 ms counts as 1 ms."""
    return f"{format_size(_per_second(size_bytes, duration_ms))}/s"


def _per_second(amount: float, duration_ms: float) -> float:
    return amount * 1000 / max(duration_ms, 1)


def _in_largest_unit(amount: float, units: tuple[tuple[str, int, int], ...]) -> str:
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    for unit, length, least in units:
        if amount >= least * length * _ALMOST:
            return f"{sign}{_three_digits(amount / length)} {unit}"
    raise AssertionError("the smallest unit takes every amount")


def _three_digits(number: float) -> str:
    """Return the number rounded to two decimal places, from 10 on to one, and from 100 on to none."""
    places = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    text = f"{number:,.{places}f}"
    text = text.rstrip("0").rstrip(".") if places else text
    return "0" if text == "-0" else text
