"""Compare formatted quantities with the numbers that they represent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tidelog.cli
from tidelog.quantities import (
    count_of,
    first_of,
    first_texts,
    format_count,
    format_duration,
    format_rate,
    format_size,
    format_size_rate,
    plural,
    ranges_of,
)

UNITS = {
    "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50, "EiB": 2**60,
    "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "years": 31_557_600_000,
}  # fmt: skip
TEXT = re.compile(r"-?\d{1,3}(,\d{3})*(\.\d{1,2})? [A-Za-z]+")
#: A size, a duration in milliseconds, or an amount that a clock or a division gave.
AMOUNTS = st.integers(0, 2**63 - 1) | st.floats(0, 2.0**63)


def meaning(text: str) -> float:
    number, unit = text.split()
    return float(number.replace(",", "")) * UNITS[unit]


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (10_000, "9.77 KiB"),
        (2**20 - 1, "1 MiB"),
        (1234567, "1.18 MiB"),
        (123456789, "118 MiB"),
        (5 * 2**40, "5 TiB"),
        (2**63 - 1, "8 EiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_a_size_has_the_largest_unit_that_fits(size_bytes: int, shown: str) -> None:
    assert format_size(size_bytes) == shown


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [
        (0, "0 ms"),
        (0.4, "0.4 ms"),
        (250, "250 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (60_000, "60 s"),
        (119_000, "119 s"),
        (119_999, "2 min"),
        (3_600_000, "60 min"),
        (36 * 3_600_000, "36 h"),
        (7 * 86_400_000, "7 d"),
        (20_800 * 86_400_000, "56.9 years"),
        (10**15, "31,688 years"),
        (2**63 - 1, "292,271,023 years"),
        (-3_000, "-3 s"),
    ],
)
def test_a_duration_has_the_largest_unit_that_fits(duration_ms: float, shown: str) -> None:
    assert format_duration(duration_ms) == shown


@pytest.mark.parametrize(
    ("number", "one", "many", "shown"),
    [
        (0, "record", "", "0 records"),
        (1, "record", "", "1 record"),
        (-1, "record", "", "-1 record"),
        (2, "record", "", "2 records"),
        (1_234_567, "record", "", "1,234,567 records"),
        (2, "entry", "", "2 entries"),
        (2, "day", "", "2 days"),
        (2, "batch", "", "2 batches"),
        (1, "in-sync replica is", "in-sync replicas are", "1 in-sync replica is"),
        (3, "in-sync replica is", "in-sync replicas are", "3 in-sync replicas are"),
    ],
)
def test_a_count_agrees_with_its_noun(number: int, one: str, many: str, shown: str) -> None:
    assert count_of(number, one, many) == shown


def test_a_list_that_is_too_long_ends_with_the_number_of_the_others() -> None:
    assert first_of(["a", "b"], 2) == "a, b"
    assert first_of(["a", "b", "c"], 2) == "a, b and 1 more"
    assert first_of([str(number) for number in range(2_002)], 2) == "0, 1 and 2,000 more"
    assert first_of([], 2) == ""


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([], ""),
        ([0, 1, 2], "0, 1, 2"),
        ([0, 1, 2, 3], "0–3"),
        ([0, 1, 4, 9998, 9999], "0–1, 4, 9998–9999"),
        ([*range(0, 10_000, 2)], "0, 2, 4 and 4,997 more"),
        ([*range(100), 200, 300, *range(400, 5_400)], "0–99, 200, 300 and 5,000 more"),
    ],
)
def test_many_numbers_are_shown_as_ranges(numbers: list[int], shown: str) -> None:
    assert ranges_of(numbers, 3) == shown


def test_a_verb_agrees_with_its_number() -> None:
    assert (plural(1, "goes", "go"), plural(2, "goes", "go")) == ("goes", "go")


def test_a_rate_counts_by_the_second() -> None:
    assert format_rate(62_000, 2_000, "record") == "31,000 records/s"
    assert format_rate(1, 1_000, "record") == "1 record/s"
    assert format_rate(1, 4_000, "batch") == "0.25 batches/s"
    assert format_size_rate(3 << 20, 2_000) == "1.5 MiB/s"


def test_a_rate_of_an_empty_duration_is_a_number() -> None:
    assert format_rate(5, 0, "record") == "5,000 records/s"
    assert format_size_rate(1024, 0) == "1,000 KiB/s"


@given(AMOUNTS)
@example(1e22)
def test_no_quantity_is_in_scientific_notation(amount: float) -> None:
    for text in (format_size(amount), format_duration(amount), format_size(-amount)):
        assert TEXT.fullmatch(text), text
    for text in (format_rate(amount, 7, "record"), format_size_rate(amount, 7)):
        assert TEXT.fullmatch(text.removesuffix("/s")), text


@given(AMOUNTS, AMOUNTS)
def test_a_larger_quantity_never_reads_as_a_smaller_one(one: float, other: float) -> None:
    smaller, larger = sorted((one, other))
    assert meaning(format_size(smaller)) <= meaning(format_size(larger))
    assert meaning(format_duration(smaller)) <= meaning(format_duration(larger))


@given(AMOUNTS)
def test_formatted_quantity_is_accurate_to_one_percent(amount: float) -> None:
    for text in (format_size(amount), format_duration(amount)):
        assert abs(meaning(text) - amount) <= max(amount, 1) / 100


@given(st.integers(-(2**63), 2**63))
def test_only_one_thing_is_singular(number: int) -> None:
    assert count_of(number, "record").endswith(" record") == (abs(number) == 1)
    assert int(format_count(number).replace(",", "")) == number


@given(st.floats(0, 1e12), st.integers(1, 10**9))
def test_a_rate_is_singular_only_where_its_number_reads_one(number: float, duration_ms: int) -> None:
    text = format_rate(number, duration_ms, "record")
    assert text.startswith("1 ") == text.endswith(" record/s")


#: A unit, a plural or a float format in an f-string, which `tidelog.quantities` should print.
BY_HAND = re.compile(r":[,.\d]*[gfe]\}|/ 1e\d|/ 1000\}|'' if [^}]* == 1|'s' if|\} (bytes|KiB|MiB|GiB|ms|min)\b")
#: Allowed: a stopwatch in its own column, and a number that is typed again as an argument.
NOT_FOR_READING = ("self._began:5.0f} s  ", "--seconds {request.seconds:g}")
COMMANDS = Path(tidelog.cli.__file__).parent
PRINTED_BY_COMMANDS = [
    *COMMANDS.rglob("*.py"),
    *(COMMANDS.parent / "client/diagnosis").glob("*.py"),
    COMMANDS.parent / "client/admin/timestamp_skew.py",
]


@pytest.mark.parametrize("module", PRINTED_BY_COMMANDS, ids=lambda module: str(module.stem))
def test_commands_print_quantities_through_this_module(module: Path) -> None:
    by_hand = [line for line in module.read_text().splitlines() if BY_HAND.search(line)]
    assert [line for line in by_hand if not any(allowed in line for allowed in NOT_FOR_READING)] == []


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        ([], ""),
        (["a", "b"], "a; b"),
        (["a", "b", "c"], "a; b; and 1 more group"),
        (["a", "b", *"c" * 1_000], "a; b; and 1,000 more groups"),
    ],
)
def test_first_texts_are_shown_and_the_others_counted(texts: list[str], shown: str) -> None:
    assert first_texts(texts, 2, "group") == shown
