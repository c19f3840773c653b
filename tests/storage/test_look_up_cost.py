"""The cost of a look-up by time in a long log: counted, not timed."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from storage.files import RealFile
from storage.log.log import Log
from storage.segments import scan, timestamp_search
from storage.segments.timestamp_search import TimestampOffset
from tests.storage.logs import NOW, batch, open_log
from tidelog.records.header import HEADER, seal

PER_BATCH = 1_000
MANY, FEW = 10_000_000, 10_000
_BASE_TIMESTAMP, _MAX_TIMESTAMP = 7, 8  # fields of the header


@pytest.fixture(scope="module", params=[FEW, MANY], ids=lambda count: f"{count} records")
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """Return the timestamps of a batch: its number × 1,000 plus up to 999; the largest comes first, the others rise."""
    log = open_log(tmp_path_factory.mktemp("log"), segment_bytes=40 << 20, retention_ms=-1)
    data = bytearray(batch(*(NOW + stamp for stamp in (PER_BATCH - 1, *range(PER_BATCH - 1)))))
    fields = list(HEADER.unpack_from(data))
    for number in range(request.param // PER_BATCH):
        moved = fields.copy()
        moved[_BASE_TIMESTAMP] += number * PER_BATCH
        moved[_MAX_TIMESTAMP] += number * PER_BATCH
        HEADER.pack_into(data, 0, *moved)
        seal(data, 0, len(data))
        log.append_as_leader(bytes(data), 0, moved[_MAX_TIMESTAMP])
    yield log
    log.abandon()


class CountedEntries(Sequence[Any]):
    """Counts each access."""

    def __init__(self, entries: Sequence[Any], count: Callable[[], None]) -> None:
        self._entries = entries
        self._count = count

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, slot: Any) -> Any:
        self._count()
        return self._entries[slot]


class CountedLayout:
    """Counts each entry that is unpacked."""

    def __init__(self, layout: Any, count: Callable[[], None]) -> None:
        self._layout = layout
        self._count = count
        self.size = layout.size

    def unpack_from(self, data: Any, at: int) -> Any:
        self._count()
        return self._layout.unpack_from(data, at)


@pytest.fixture
def touched(log: Log, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts index entries, batches that are checked, batches that are decoded, reads and their bytes."""
    count: Counter[str] = Counter()

    def one(what: str) -> Callable[[], None]:
        return lambda: count.update((what,))

    def counted(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            count[what] += 1
            return function(*arguments, **options)

        return call

    read = RealFile.read

    def counted_read(self: RealFile, position: int, size: int) -> bytes:
        data = read(self, position, size)
        count.update(reads=1, bytes=len(data))
        return data

    for segment in log.segments:
        for index in (segment.offset_index, segment.time_index):
            index.rank(0, 0)  # the first entry of each page is in memory from then on
            assert index._fences is not None
            fences = tuple(CountedEntries(fence, one("entries")) for fence in index._fences)
            monkeypatch.setattr(index, "_fences", fences)
            monkeypatch.setattr(index, "_layout", CountedLayout(index._layout, one("entries")))
    monkeypatch.setattr(RealFile, "read", counted_read)
    monkeypatch.setattr(scan, "validate_batch", counted("checked", scan.validate_batch))
    decode = counted("decoded", timestamp_search.first_in_checked_batch)
    monkeypatch.setattr(timestamp_search, "first_in_checked_batch", decode)
    return count


def test_look_up_reads_few_index_entries_and_decodes_one_batch(log: Log, touched: Counter[str]) -> None:
    end, rng = log.log_end_offset, random.Random(7)
    batch_bytes = log.size_bytes // (end // PER_BATCH)
    for _ in range(200):
        number = rng.randrange(end // PER_BATCH)
        touched.clear()
        found = log.offset_for_timestamp(NOW + number * PER_BATCH + rng.randrange(PER_BATCH), end)
        largest = NOW + number * PER_BATCH + PER_BATCH - 1
        assert found == TimestampOffset(largest, number * PER_BATCH, 0)
        assert touched["decoded"] == 1
        assert touched["checked"] <= 2, "the second batch of a segment confirms the epoch of the first"
        # Each index is searched once, and a few entries are read.
        assert touched["entries"] <= 2 * math.log2(max(len(s.offset_index) for s in log.segments)) + 12, touched
        assert touched["reads"] <= 6
        assert touched["bytes"] <= 3 * batch_bytes + 20 * 1024


def test_look_up_decodes_two_batches_if_the_log_start_splits_the_first(log: Log, touched: Counter[str]) -> None:
    end = log.log_end_offset
    number = end // PER_BATCH // 2
    log.raise_log_start(number * PER_BATCH + 1)
    touched.clear()
    found = log.offset_for_timestamp(NOW + number * PER_BATCH + PER_BATCH - 1, end)
    assert found == TimestampOffset(NOW + (number + 2) * PER_BATCH - 1, (number + 1) * PER_BATCH, 0)
    assert touched["decoded"] == 2
    assert touched["entries"] <= 4 * math.log2(max(len(s.offset_index) for s in log.segments)) + 16, touched
