"""Slices of a log: the batches that a read returns, without their bytes."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from socket import socketpair

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.log import Log
from storage.log.log_reader import LEAST_SLICE_BYTES
from tests.storage.logs import NOW, batch, open_log
from tidelog.errors import CorruptMessageError, StorageError
from tidelog.records import iter_headers

_SMALL, _LARGE = 100, 16 * 1024
#: The value of a batch's one record: small batches are not sliced.
_SIZES = st.sampled_from([_SMALL, _LARGE - 500, _LARGE, 3 * _LARGE, 6 * _LARGE])


def failures() -> tuple[list[StorageError], object]:
    seen: list[StorageError] = []
    return seen, seen.append


def filled(directory: Path, sizes: list[int], **config: object) -> Log:
    log = open_log(directory, **config)
    for number, size in enumerate(sizes):
        log.append_as_leader(batch(NOW, value=bytes([number % 256]) * size), 1 + number // 5, NOW)
    return log


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(_SIZES, min_size=1, max_size=20),
    reads=st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 25 * _LARGE), st.integers(0, 21), st.booleans()), max_size=20
    ),
)
def test_a_slice_holds_the_bytes_that_a_read_returns(sizes: list[int], reads: list[tuple[int, int, int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = filled(Path(directory), sizes, segment_bytes=200_000, index_interval_bytes=40_000)
        for offset, limit, bound, forget in reads:
            if offset > log.log_end_offset:
                continue
            if forget:
                log._reader.forget()
            seen, report = failures()
            found = log.slice(offset, limit, bound, report)
            expected = log.read(offset, limit, bound)
            if found is not None:
                assert (found.read(), len(found), found.read(70)) == (expected, len(expected), expected[70:])
            headers = [header for _, header in iter_headers(expected)]
            is_worth_it = LEAST_SLICE_BYTES <= len(expected) <= limit and headers[0].size_bytes > _LARGE
            assert (found is not None) == is_worth_it
            assert seen == []
        log.close()


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_a_slice_ends_at_its_upper_bound(tmp_path: Path, bound: int) -> None:
    log = filled(tmp_path, [5 * _LARGE] * 4)
    found = log.slice(0, 1 << 30, bound, print)
    assert found is not None
    assert [header.base_offset for _, header in iter_headers(found.read())] == list(range(bound))
    assert log.slice(bound, 1 << 30, bound, print) is None


def test_a_slice_has_a_bounded_number_of_batches(tmp_path: Path) -> None:
    log = filled(tmp_path, [_LARGE, *[_SMALL] * 300, *[_LARGE] * 300])
    few = log.slice(0, 1 << 20, 1_000, print)
    assert few is None, "one large batch among many small ones is read"
    many = log.slice(301, 1 << 30, 1_000, print)
    assert many is not None
    offsets = [header.base_offset for _, header in iter_headers(many.read())]
    assert offsets == list(range(301, 301 + 256))
    assert log.read(301 + 256, 1, 1_000), "the next read goes on after the slice"


def test_a_slice_ends_before_a_batch_of_another_epoch_than_the_log_has(tmp_path: Path) -> None:
    log = filled(tmp_path, [5 * _LARGE] * 4)
    path = next(tmp_path.glob("*.log"))
    data = bytearray(path.read_bytes())
    starts = [header.size_bytes for _, header in iter_headers(data)]
    assert [a == b for a, b in pairwise(starts)] == [True] * 3
    data[2 * starts[0] + 15] = 9  # the leader epoch of the third batch, which the CRC does not cover
    path.write_bytes(data)
    found = log.slice(0, 1 << 30, 4, print)
    assert found is not None
    assert [header.base_offset for _, header in iter_headers(found.read())] == [0, 1]
    assert log.slice(2, 1 << 30, 4, print) is None, "a read decides, and raises the error"


@pytest.mark.parametrize("left", [2.5, 2.0001], ids=["in the records", "in the header"])
def test_a_read_decides_about_a_file_that_was_cut_off_before(tmp_path: Path, left: float) -> None:
    log = filled(tmp_path, [5 * _LARGE] * 4)
    size = next(tmp_path.glob("*.log")).stat().st_size // 4
    with next(tmp_path.glob("*.log")).open("r+b") as file:
        file.truncate(int(left * size))
    seen, report = failures()
    assert log.slice(0, 1 << 30, 4, report) is None
    assert len(log.read(0, 1 << 30, 4)) == 2 * size
    assert log.slice(2, 1 << 30, 4, report) is None
    with pytest.raises(CorruptMessageError):
        log.read(2, 1 << 30, 4)
    assert seen == [], "the disk has not failed"


def test_a_slice_of_a_file_that_has_lost_bytes_is_a_storage_error(tmp_path: Path) -> None:
    log = filled(tmp_path, [5 * _LARGE] * 2)
    seen, report = failures()
    found = log.slice(0, 1 << 30, 2, report)
    assert found is not None
    with next(tmp_path.glob("*.log")).open("r+b") as file:
        file.truncate(1_000)
    with pytest.raises(StorageError, match="the file ends before position"):
        found.read()
    ours, theirs = socketpair()
    with ours, theirs, pytest.raises(StorageError, match="the file ends before position 1000"):
        found.send(ours.fileno(), 1_000)
    assert len(seen) == 2, "the replica's disk is reported as failed"
