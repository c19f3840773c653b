"""Changed bits in any file: wrong data is never returned, and nothing breaks.

Readers check the CRC of each batch (consumers and followers do; the broker does if it opens a batch itself, for a
look-up by time). A damaged batch may therefore be returned if its CRC shows the damage. The broker must check
everything that the CRC does not cover: the offset, the epoch, and the order of batches. Each read is right or raises a
TidelogError.

One change cannot be detected: a wrong epoch that is in order between its neighbours, if the cache was rebuilt from the
batches. The epoch only shows which of two leaders wrote a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from storage.directory import lost_logs
from storage.directory.directory_checkpoints import Committed
from storage.file_names import BOOT_ID, CLEAN_SHUTDOWN, SESSION_ID
from storage.files import Files
from storage.log.log import Log
from storage.log_manager import LogManager
from tests.storage.logs import NOW, batch, config, first_at_or_after, largest
from tests.storage.soundness import assert_sound, batches_of
from tidelog.errors import DataDirectoryError, TidelogError
from tidelog.model import TopicPartition
from tidelog.records import Codec, Record, decode_records, iter_headers, read_header, validate_batch
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.page_cache import KEPT

ROOT = Path("/data")
TP, LOST = TopicPartition("orders", 0), TopicPartition("gone", 3)
SMALL = config(segment_bytes=260, index_interval_bytes=100)
BATCHES = 8
_EPOCH = slice(12, 16)

#: A wrong index that changes no answer may stay as it is.
_INDEXES = (".index", ".timeindex")


def opened(files: Files) -> tuple[LogManager, Log]:
    manager = LogManager.open((ROOT,), files, 1, "c1", "boot")
    manager.open_logs(lambda topic: SMALL, hosted={TP: "A" * 22, LOST: "B" * 22})
    manager.read_session()
    return manager, manager.get_or_create(TP, "A" * 22, SMALL)


class Span(NamedTuple):
    """The whole log, for comparison after it is opened."""

    log_start_offset: int
    log_end_offset: int
    epochs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, log: Log) -> Span:
        return cls(log.log_start_offset, log.log_end_offset, log.epochs)


class Original:
    """A closed directory with a log of three epochs, trimmed inside its first segment, and its readable records."""

    def __init__(self) -> None:
        self.files = CrashableFiles()
        manager, log = opened(self.files)
        for number in range(BATCHES):
            stamps = (NOW + number * 5 % 17, NOW + number)
            codec = Codec.LZ4 if number == 4 else Codec.NONE
            data = batch(*stamps, producer_id=7, epoch=0, sequence=2 * number, codec=codec)
            log.append_as_leader(data, number * 3 // BATCHES, NOW)
        log.flush()
        self.batches = {read_header(data).base_offset: data for data in batches_of(log)}
        self.records: list[tuple[Record, int]] = [
            (record, header.partition_leader_epoch)
            for data in self.batches.values()
            for _, header in iter_headers(data)
            for record in decode_records(data)
        ]
        log.raise_log_start(1)
        self.end_offset = log.log_end_offset
        self.segments = log.segment_base_offsets
        self.epochs = log.epochs
        manager.checkpoint_high_watermarks({TP: Committed.of(log, self.end_offset)})
        manager.write_session("0x1000a9b8c")
        manager.close()
        lost_logs.write(self.files, ROOT, {LOST: "B" * 22})
        self.paths = sorted(self._walk(ROOT))

    def _walk(self, directory: Path) -> Iterator[Path]:
        for name in self.files.names(directory):
            if self.files.names(directory / name):
                yield from self._walk(directory / name)
            elif self.files.read(directory / name):
                yield directory / name

    def content(self, path: Path) -> bytes:
        return self.files.read(path) or b""

    def check(self, path: Path, content: bytes | None, *, clean: bool) -> str:
        """Return the effect on the directory: "refused", "cut", "reported" or "repaired"."""
        files = self.files.crash(KEPT)
        if not clean:
            files.remove(ROOT / CLEAN_SHUTDOWN)
        if content is None:
            files.remove(path)
        else:
            files.replace(path, content)
        try:
            return self._check(files, index=path.suffix in _INDEXES)
        except DataDirectoryError:
            with pytest.raises(DataDirectoryError):
                opened(files)
            return "refused"
        except Exception as error:
            raise AssertionError(f"{path.name}, {clean=}, {content!r}: {error!r}") from error

    def _check(self, files: CrashableFiles, *, index: bool) -> str:
        manager, log = opened(files)
        found = Span.of(log)
        assert found.log_end_offset <= self.end_offset
        reported = self._check_reads(log)
        reported |= self._check_times(log)
        if not (reported or index):
            assert_sound(log)
        manager.close(clean=False)
        manager, log = opened(files)
        # The second opening may find and remove damage that the first one did not have to read. Otherwise both agree.
        assert log.log_end_offset <= found.log_end_offset if reported else Span.of(log) == found
        found = Span.of(log)
        base_offset = log.append_as_leader(batch(NOW), 9, NOW).base_offset
        assert base_offset == found.log_end_offset
        assert read_header(log.read(base_offset, 1000)).base_offset == base_offset
        manager.close(clean=False)
        return "reported" if reported else "cut" if found.log_end_offset < self.end_offset else "repaired"

    def _check_reads(self, log: Log) -> bool:
        """Return whether any read was refused, or returned a batch with a wrong CRC."""
        reported = False
        for offset in range(log.log_start_offset, log.log_end_offset):
            log._reader.forget()
            reported |= self._read(log, offset, 1) is None
        ends = [*self.batches, self.end_offset]
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            following = self._read(log, offset, 200)
            reported |= following is None
            # A reader that detects a damaged batch skips all of it.
            offset = following if following is not None else min(each for each in ends if each > offset)
        return reported

    def _read(self, log: Log, offset: int, max_bytes: int) -> int | None:
        """Return the next offset of the reader; None if the reader gets an error."""
        try:
            data = log.read(offset, max_bytes)
            served = list(iter_headers(data))
            assert served, f"a reader at {offset} would wait forever"
            for position, header in served:
                validate_batch(data, position, header)
                assert header.base_offset <= offset <= header.last_offset, f"at {offset} records were skipped"
                self._assert_same(data[position : position + header.size_bytes], header.base_offset)
                offset = header.next_offset
        except TidelogError:
            return None
        return offset

    def _assert_same(self, served: bytes, base_offset: int) -> None:
        original = self.batches[base_offset]
        if served != original:
            assert served[: _EPOCH.start] == original[: _EPOCH.start]
            assert served[_EPOCH.stop :] == original[_EPOCH.stop :]
            offsets = sorted(self.batches)
            slot = offsets.index(base_offset)
            before, after = (
                read_header(self.batches[offsets[neighbour]]).partition_leader_epoch
                for neighbour in (max(slot - 1, 0), min(slot + 1, len(offsets) - 1))
            )
            assert before <= read_header(served).partition_leader_epoch <= after

    def _check_times(self, log: Log) -> bool:
        reported = False
        end = log.log_end_offset
        records = [each for each in self.records if log.log_start_offset <= each[0].offset < end]
        for target in (0, *range(NOW - 1, NOW + 18, 2), NOW + 10**6):
            try:
                found, expected = log.offset_for_timestamp(target, end), first_at_or_after(records, target, end)
                assert (found and found[:2]) == (expected and expected[:2])
            except TidelogError:
                reported = True
        try:
            found, expected = log.offset_of_max_timestamp(end), largest(records, end)
            assert (found and found[:2]) == (expected and expected[:2])
        except TidelogError:
            reported = True
        return reported


@pytest.fixture(scope="module")
def original() -> Original:
    return Original()


def test_damaged_log_example_covers_every_file(original: Original) -> None:
    assert len(original.segments) >= 3
    assert len(original.epochs) == 3
    assert any(read_header(data).codec == Codec.LZ4 for data in original.batches.values())
    assert {path.name for path in original.paths if path.parent == ROOT} == {
        "meta.properties",
        BOOT_ID,
        SESSION_ID,
        CLEAN_SHUTDOWN,
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        lost_logs.FILE_NAME,
    }
    kinds = Counter(path.suffix or path.name for path in original.paths if path.parent != ROOT)
    assert kinds.keys() == {".log", ".index", ".timeindex", ".snapshot", ".metadata", "leader-epoch-checkpoint"}
    assert min(kinds[suffix] for suffix in (".log", ".index", ".timeindex", ".snapshot")) >= 2


@pytest.mark.parametrize(
    "clean",
    [pytest.param(True, id="after a clean close", marks=pytest.mark.slow), pytest.param(False, id="after a crash")],
)
def test_a_flipped_bit_anywhere_in_any_file_is_repaired_or_reported(original: Original, clean: bool) -> None:
    outcomes: Counter[str] = Counter()
    for path in original.paths:
        whole = original.content(path)
        for at in range(0, len(whole), 3):  # `test_every_bit_of_every_byte` covers all of them
            outcomes[original.check(path, flipped(whole, at, at * 5 % 8), clean=clean)] += 1
    assert min(outcomes[outcome] for outcome in ("refused", "cut", "reported", "repaired")) > 10, outcomes


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean close", "after a crash"])
def test_every_bit_of_an_epoch_of_a_batch(original: Original, clean: bool) -> None:
    path = min(path for path in original.paths if path.suffix == ".log")
    whole = original.content(path)
    for position, _ in list(iter_headers(whole))[:2]:
        for bit in range((position + _EPOCH.start) * 8, (position + _EPOCH.stop) * 8):
            original.check(path, flipped(whole, bit // 8, bit % 8), clean=clean)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("clean", [True, False], ids=["after a clean close", "after a crash"])
def test_every_bit_of_every_byte(original: Original, clean: bool) -> None:
    for path in original.paths:
        whole = original.content(path)
        for bit in range(len(whole) * 8):
            original.check(path, flipped(whole, bit // 8, bit % 8), clean=clean)


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean close", "after a crash"])
def test_missing_zeroed_truncated_or_noisy_file_is_repaired_or_reported(original: Original, clean: bool) -> None:
    random = Random(2)
    for path in original.paths:
        whole = original.content(path)
        truncation_count = {random.randrange(len(whole)) for _ in range(4)}
        for content in (
            None,
            b"",
            bytes(len(whole)),
            random.randbytes(len(whole)),
            whole + bytes(20),
            whole + random.randbytes(20),
            *(whole[:cut] for cut in truncation_count),
            *(whole[:cut] + bytes(len(whole) - cut) for cut in truncation_count),
        ):
            if path.suffix == ".log" and path.stem == "0" * 20 and content is None:
                continue  # the log then begins later, as after retention
            original.check(path, content, clean=clean)


def test_partial_batch_at_the_end_costs_only_that_batch(original: Original) -> None:
    last = [path for path in original.paths if path.suffix == ".log"][-1]
    whole = original.content(last)
    ends = [position + header.size_bytes for position, header in iter_headers(whole)]
    for kept in range(len(whole)):
        files = original.files.crash(KEPT)
        files.remove(ROOT / CLEAN_SHUTDOWN)
        files.replace(last, whole[:kept])
        manager, log = opened(files)
        assert_sound(log)
        left = sum(end <= kept for end in ends)
        assert original.end_offset - log.log_end_offset == 2 * (len(ends) - left)
        manager.close(clean=False)
