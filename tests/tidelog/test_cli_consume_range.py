"""The offsets that `tidelog consume` reads, and its messages about starts and ends that do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
import pytest

from tests.tidelog.clients import in_memory, put
from tests.tidelog.fake_cluster import FakeCluster
from tidelog import Consumer, TopicPartition
from tidelog.cli.records.consume_range import Span, refuse_reversed, resolve_ends, resolve_span
from tidelog.cli.terminal.long_tables import Kind, Row
from tidelog.cli.terminal.times import At, Beginning, End, Position
from tidelog.cli.topics.partition_notes import show_partitions

NOW_MS = 10_000


@contextmanager
def a_topic(*sizes: int, first_offset: int = 0) -> Iterator[tuple[Consumer, list[TopicPartition]]]:
    """A consumer, and the partitions of a topic with so many records each, of the times 1,000, 1,001, …"""
    cluster = FakeCluster()
    for partition, size in zip(cluster.create("t", len(sizes)), sizes, strict=True):
        partition.first_offset = first_offset
        for number in range(size):
            put(partition, b"v", at_ms=1000 + number)
    with in_memory(Consumer, cluster, auto_offset_reset="none") as consumer:
        yield consumer, [TopicPartition("t", number) for number in range(len(sizes))]


def span_of(
    *sizes: int,
    start: Position,
    end: Position | None = None,
    follow: bool = False,
    exact: bool = False,
    first_offset: int = 0,
) -> Span:
    with a_topic(*sizes, first_offset=first_offset) as (consumer, tps):
        return resolve_span(consumer, tps, start, end, follow=follow, exact=exact, now_ms=NOW_MS)


# --- offsets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        ((10,), "^offset 11 is past the end of partition 0 of 't', which ends at 10; --from beginning"),
        ((10, 3, 0), "^offset 11 is past the end of all 3 partitions of 't', the farthest of which ends at 10; --from"),
    ],
)
def test_an_offset_that_no_partition_has_is_refused(sizes: tuple[int, ...], shown: str, follow: bool) -> None:
    with pytest.raises(click.ClickException, match=shown):
        span_of(*sizes, start=11, follow=follow)


def test_offset_missing_in_some_partitions_is_noted() -> None:
    span = span_of(10, 3, 0, start=5)
    assert span.unread == {("t", 0): 5}
    assert span.notes == ("offset 5 is past the end of 2 of 3 partitions (1, 2), the farthest of which ends at 3",)


@pytest.mark.parametrize("how", ["exact", "follow"])
def test_a_partition_that_was_named_or_is_followed_must_have_the_offset(how: str) -> None:
    with pytest.raises(click.ClickException, match="offset 5 is past the end of partition 1 of 't', which ends at 3"):
        span_of(10, 3, start=5, exact=how == "exact", follow=how == "follow")


def test_an_offset_whose_record_was_deleted_is_refused_with_the_log_start() -> None:
    with pytest.raises(click.ClickException, match="offset 5 is no longer in partition 0 of 't', which starts at 7"):
        span_of(3, start=5, first_offset=7)


def test_the_end_is_an_offset_to_start_at_with_nothing_to_read() -> None:
    span = span_of(10, start=10)
    assert (span.unread, span.notes) == (
        {},
        ("nothing to read: partition 0 of 't' ends at 10; --follow waits for more",),
    )
    assert span_of(10, start=10, follow=True) == Span({TopicPartition("t", 0): 10}, None)


def test_offset_that_looks_like_seconds_gets_a_hint_about_times() -> None:
    with pytest.raises(
        click.ClickException, match="; a time is written as @1550804131 in milliseconds or @15508041310"
    ):
        span_of(10, start=1_550_804_131)


def test_end_past_the_end_of_every_partition_is_noted() -> None:
    assert span_of(10, 3, start=8, end=100).notes[1:] == ("--until 100 is past the end of all 2 partitions, at 10",)
    assert span_of(10, 3, start=Beginning(), end=4).notes == ()


# --- nothing to read ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "start", "end", "shown"),
    [
        ((0,), Beginning(), None, "partition 0 is empty"),
        ((0, 0), Beginning(), None, "all 2 partitions are empty"),
        ((3,), End(), None, "--from end is where the records end now; --follow waits for more"),
        ((3,), 2, At(1000), "in partition 0 of 't' --until comes before --from"),
        ((3,), 2, 2, "partition 0 of 't' has no record there"),
        ((3, 3), At(1001), At(1001), "all 2 partitions of 't' have no record there"),
    ],
)
def test_a_span_without_records_says_why(
    sizes: tuple[int, ...], start: Position, end: Position | None, shown: str
) -> None:
    span = span_of(*sizes, start=start, end=end)
    assert (span.unread, span.notes) == ({}, (f"nothing to read: {shown}",))


def test_span_that_ends_before_the_log_says_that_it_is_empty() -> None:
    start_note, why = span_of(3, 3, start=At(1), end=At(2)).notes
    assert start_note.startswith("before_log_start: all 2 partitions start with their oldest record")
    assert why == "nothing to read: all 2 partitions of 't' have no record there"
    assert len(span_of(3, 0, start=At(1005), end=At(1006)).notes) == 2  # these notes already say so


@pytest.mark.parametrize(("start", "end"), [(5, 4), (At(5), At(4)), (End(), Beginning())])
def test_end_before_the_start_is_refused_without_a_request(start: Position, end: Position) -> None:
    with pytest.raises(click.UsageError, match=r"comes before --from .*: nothing lies between them"):
        refuse_reversed(start, end)
    refuse_reversed(end, start)
    refuse_reversed(start, start)
    refuse_reversed(start, None)


# --- times ----------------------------------------------------------------------------------------


def test_one_partition_that_starts_elsewhere_has_a_line_of_its_own() -> None:
    notes = span_of(3, 0, start=At(1002)).notes
    assert notes == ("t-1: empty: nothing was ever written; starts at its end, offset 0",)


@pytest.mark.parametrize(
    ("time_ms", "shown"),
    [
        (1, "before_log_start: 2 of 4 partitions (0, 1) start with their oldest record, which is newer; there was"),
        (1005, "past_end: 2 of 4 partitions (0, 1) start at their end, because every record is older"),
    ],
)
def test_partitions_that_start_elsewhere_for_one_reason_share_a_line(time_ms: int, shown: str) -> None:
    first, second = span_of(3, 2, 0, 0, start=At(time_ms)).notes
    assert first.startswith(shown)
    assert second == "empty: 2 of 4 partitions (2, 3) are empty; nothing was ever written"


def test_deleted_older_records_are_noted_for_all_partitions_at_once() -> None:
    (note,) = span_of(1, 1, start=At(1), first_offset=5).notes
    assert note.endswith("all 2 partitions start with their oldest record, which is newer; older ones are gone")


def test_time_in_the_future_is_noted_first() -> None:
    future, _ = span_of(3, start=At(NOW_MS + 60_000)).notes
    assert future == "--from 1970-01-01T00:01:10.000Z is 60 s in the future"
    assert "future" not in span_of(3, start=At(NOW_MS)).notes[0]


def test_ends_of_a_group_are_the_current_ends() -> None:
    with a_topic(3, 9) as (consumer, tps):
        ends, notes = resolve_ends(consumer, tps, 5)
        assert (list(ends.values()), notes) == ([3, 5], ())
        ends, notes = resolve_ends(consumer, tps, 10)
        assert (list(ends.values()), notes) == ([3, 9], ("--until 10 is past the end of all 2 partitions, at 9",))


# --- tables ---------------------------------------------------------------------------------------


NUMBERS = Kind(("n",))


@pytest.mark.parametrize(
    ("empty", "lines"),
    [
        ([], ["N", "0", "1", "2"]),
        ([1], ["N", "0", "1", "2"]),
        ([0, 2], ["N", "1", "2 of 3 partitions (0, 2) are empty"]),
        ([0, 1, 2], ["all 3 partitions are empty"]),
    ],
)
def test_several_empty_partitions_are_one_line_below_the_table(
    empty: list[int], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    show_partitions(NUMBERS, {number: Row((number,)) for number in range(3)}, empty, shows_all=False)
    assert capsys.readouterr().out.splitlines() == lines


def test_all_shows_a_row_for_each_empty_partition(capsys: pytest.CaptureFixture[str]) -> None:
    show_partitions(NUMBERS, {number: Row((number,)) for number in range(3)}, [0, 1, 2], shows_all=True)
    assert capsys.readouterr().out.splitlines() == ["N", "0", "1", "2"]


@pytest.mark.parametrize(
    ("empty", "named"),
    [
        (range(1, 9), "8 of 1,000 partitions (1, 2, 3, 4, 5, 6, 7, 8)"),
        (range(1, 1000), "999 of 1,000 partitions (1–999)"),
        (range(1, 1000, 2), "500 of 1,000 partitions (1, 3, 5, 7, 9, 11, 13, 15 and 492 more)"),
    ],
)
def test_a_line_names_eight_empty_partitions_or_ranges(
    empty: range, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_partitions(NUMBERS, {number: Row((number,)) for number in range(1000)}, empty, shows_all=True)
    assert len(capsys.readouterr().out.splitlines()) == 1001
    show_partitions(NUMBERS, {number: Row((number,)) for number in range(1000)}, empty, shows_all=False)
    (*_, line) = capsys.readouterr().out.splitlines()
    assert line == f"{named} are empty"
