"""A look-up by time whose log changes between its steps answers as a look-up that begins after the last change."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log import timestamp_lookup
from storage.log.log import Log
from storage.segments import index_lookup, timestamp_search
from storage.segments.timestamp_search import TimestampOffset
from storage.steps import SteppedWork, Steps, call
from tests.storage.log_twin import CaseCounts, LogWithTwin, changes_between_steps, compacted, step_sequences, timestamps
from tests.storage.logs import NOW, UnsyncedFiles, append, config, open_log
from tidelog.errors import StorageError


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the upper bound of each start of a look-up. Each batch, header and search is a step."""
    return make_steps_small(monkeypatch)


def make_steps_small(patched: pytest.MonkeyPatch) -> list[int]:
    patched.setattr(timestamp_lookup, "BATCHES_PER_STEP", 1)
    patched.setattr(index_lookup, "HEADERS_PER_STEP", 1)
    patched.setattr(timestamp_search, "MAX_QUICK_RECORDS", 1)
    bounds: list[int] = []

    def noted(begin: Callable[..., Steps[Any]]) -> Callable[..., Steps[Any]]:
        def begin_and_note(*arguments: Any) -> Steps[Any]:
            bounds.append(arguments[-1])
            return begin(*arguments)

        return begin_and_note

    for name in ("offset_for_timestamp", "offset_of_max_timestamp"):
        patched.setattr(timestamp_lookup, name, noted(getattr(timestamp_lookup, name)))
    return bounds


def look_up_amid(changes: Iterator[Callable[[], object]], steps: Steps[TimestampOffset | None]) -> SteppedWork[Any]:
    """Run the look-up to its end. Before each of its steps, one change is made as long as there are any."""
    work = SteppedWork(steps)
    work.resume()
    while not work.finished:
        next(changes, int)()
        work.resume(call(work.step))
    return work


@settings(max_examples=60)
@given(step_sequences, st.lists(changes_between_steps, min_size=1, max_size=8), timestamps, st.floats(0, 1))
def _look_up_answers_as_a_later_one(
    counts: CaseCounts, story: list[tuple[str, object]], changes: list[tuple[str, object]], target: int, fraction: float
) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patched:
        both = LogWithTwin(Path(directory), counts)
        for step, value in story:
            both.run(step, value)
        log, bounds = both.log, make_steps_small(patched)

        def make(step: str, value: object) -> None:
            begun, end = len(bounds), log.log_end_offset
            both.run(step, value)
            counts.add(f"{step} between two steps")
            counts.add("the log grew", len(bounds) == begun and log.log_end_offset > end)

        for by_time in (True, False):
            bounds.clear()
            end = log.log_end_offset
            bound = end if fraction > 0.5 else int(end * 2 * fraction)
            remaining = (lambda change=change: make(*change) for change in changes)
            if by_time:
                found = look_up_amid(remaining, log.offset_for_timestamp_steps(target, bound)).result
                assert found == both.first_at_or_after(target, bounds[-1])
            else:
                found = look_up_amid(remaining, log.offset_of_max_timestamp_steps(bound)).result
                assert found == both.largest(bounds[-1])
            counts.add("started again", len(bounds) > 1)
            counts.add("an answer", found)
        log.abandon()


def test_look_up_amid_changes_answers_as_a_later_one() -> None:
    CaseCounts().run_until_reached(
        _look_up_answers_as_a_later_one,
        "started again",
        "an answer",
        "the log grew",
        "truncate between two steps",
        "trim between two steps",
        "compact between two steps",
        "retain between two steps",
        "roll between two steps",
        "rebuild between two steps",
        least=5,
    )


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return a log of three segments. The record with the largest timestamp of the first one is trimmed."""
    log = open_log(tmp_path, index_interval_bytes=100, retention_ms=-1)
    for segment in range(3):
        append(log, NOW + 50)
        for number in range(9):
            append(log, NOW + segment, NOW + number)
        log.roll(NOW)
    log.raise_log_start(1)
    return log


def delete_oldest(log: Log) -> None:
    log.config = config(retention_bytes=sum(segment.size for segment in log.segments[1:]), retention_ms=-1)
    for segment in log.delete_old_segments(NOW, log.log_end_offset):
        segment.delete()


def compact_oldest(log: Log) -> None:
    old = log.segments[:1]
    cleaned = compacted(old, UnsyncedFiles(), log.directory, lambda offset: True, set())
    assert log.replace_segments(cleaned, old)
    old[0].delete()


@pytest.mark.parametrize(
    ("change", "starts"),
    [
        pytest.param(lambda log: log.truncate_to(30), 2, id="truncation"),
        pytest.param(delete_oldest, 2, id="deletion of the oldest segment"),
        pytest.param(compact_oldest, 2, id="compaction"),
        pytest.param(lambda log: log.truncate_fully_and_start_at(5), 2, id="reset"),
        pytest.param(lambda log: log.raise_log_start(25), 2, id="deletion of the answer"),
        pytest.param(lambda log: log.raise_log_start(15), 1, id="deletion of records before the answer"),
        pytest.param(lambda log: append(log, NOW + 99), 1, id="append"),
        pytest.param(lambda log: append(log, NOW + 99) and log.roll(NOW), 1, id="roll"),
        pytest.param(lambda log: log.segments[0].rebuild_indexes(), 1, id="rebuilt indexes"),
    ],
)
def test_look_up_starts_again_only_if_its_segments_changed(
    log: Log, bounds: list[int], change: Callable[[Log], object], starts: int
) -> None:
    end = log.log_end_offset
    changes = iter([lambda: None, lambda: change(log)])
    found = look_up_amid(changes, log.offset_for_timestamp_steps(NOW + 40, end)).result
    assert len(bounds) == starts
    assert found == log.offset_for_timestamp(NOW + 40, bounds[-1])
    assert bounds[0] == end


def test_look_up_ends_once_the_log_has_failed(log: Log) -> None:
    steps = log.offset_for_timestamp_steps(NOW + 40, log.log_end_offset)
    with pytest.MonkeyPatch.context() as patched, pytest.raises(StorageError, match="is offline: no space"):
        make_steps_small(patched)
        look_up_amid(iter([lambda: log.fail(StorageError("no space"))]), steps)
