"""A file of entries compared with a list: searched, written, truncated and closed in any order."""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.files import RealFile
from storage.segments.fixed_entry_file import PAGE, EntryFile
from tests.storage.logs import UnsyncedFile
from tidelog.errors import StorageError
from verify.simulation.disks.crashable_files import CrashableFiles

LAYOUT = Struct(">qi")
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 2 * PAGE + 3)),
    st.tuples(st.just("truncate"), st.floats(0, 1)),
    st.tuples(st.sampled_from(["write out", "close", "flush", "look", "reopen"]), st.just(0)),
)


@settings(max_examples=80)
@given(st.lists(STEPS, max_size=12))
def test_entry_file_equals_the_list_of_appended_entries(steps: list[tuple[str, float]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "entries"
        file, twin = EntryFile(UnsyncedFile(path), LAYOUT), list[tuple[int, int]]()
        for step, size in steps:
            match step:
                case "append":
                    for _ in range(int(size)):
                        first, second = twin[-1] if twin else (-1, 0)
                        twin.append((first + 3, second + 2))
                        file.put(*twin[-1])
                case "truncate":
                    del twin[int(size * len(twin)) :]
                    file.keep(len(twin))
                case "write out":
                    file.write_out()
                    assert path.read_bytes() == b"".join(LAYOUT.pack(*entry) for entry in twin)
                case "close":
                    file.close()
                    del twin[len(file) :]
                case "flush":
                    file.flush()
                case "reopen":
                    file.write_out()
                    file = EntryFile(UnsyncedFile(path), LAYOUT)
                case "look":
                    assert_same(file, twin)
            # The file never has more entries than the list: later entries overwrite or truncate the rest.
            assert not path.exists() or path.stat().st_size <= len(twin) * LAYOUT.size
        assert_same(file, twin)


def total_size(file: EntryFile) -> int:
    """Return the bytes of the objects that the file's attributes refer to."""
    return sum(map(sys.getsizeof, gc.get_referents(file)))


def assert_same(file: EntryFile, twin: list[tuple[int, int]]) -> None:
    assert [file[slot] for slot in range(len(file))] == twin
    for field in (0, 1):
        for target in {-1, 0, *(entry[field] + step for entry in twin[:: PAGE // 2] for step in (-1, 0, 1))}:
            assert file.rank(field, target) == sum(entry[field] < target for entry in twin), (field, target)
    for slot in (-1, len(twin)):
        with pytest.raises(IndexError):
            file[slot]


def test_a_search_reads_one_page_however_long_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = EntryFile(UnsyncedFile(tmp_path / "entries"), LAYOUT)
    for number in range(100 * PAGE):
        file.put(number, number)
    file.rank(0, 0)
    sizes = []
    read = RealFile.read
    monkeypatch.setattr(RealFile, "read", lambda *call: sizes.append(call[2]) or read(*call))
    for target in (10, 50 * PAGE + 7, 99 * PAGE - 1):
        assert file.rank(1, target) == target
        assert [file[target - 1], file[target]] == [(target - 1, target - 1), (target, target)]
    assert sizes == [PAGE * LAYOUT.size] * 3


def test_search_of_an_empty_file_reads_and_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = EntryFile(UnsyncedFile(tmp_path / "entries"), LAYOUT)
    kept = total_size(file)
    monkeypatch.setattr(RealFile, "read", lambda *_: pytest.fail("the file was read"))
    assert (file.rank(0, 1), file.rank(1, 1)) == (0, 0)
    assert total_size(file) == kept


def test_an_append_writes_only_full_pages(tmp_path: Path) -> None:
    path = tmp_path / "entries"
    file = EntryFile(UnsyncedFile(path), LAYOUT)
    sizes = []
    for number in range(2 * PAGE + 1):
        sizes.append(path.stat().st_size // LAYOUT.size)
        file.put(number, number)
    assert sorted(set(sizes)) == [0, PAGE, 2 * PAGE]


def test_flush_writes_waiting_entries_before_the_fsync() -> None:
    files = CrashableFiles()
    path = Path("/data/entries")
    files.make_directory(path.parent)
    file = EntryFile(files.open(path), LAYOUT)
    file.put(1, 1)
    file.flush()
    assert files.read(path) == LAYOUT.pack(1, 1)
    assert not files.unsynced(path)


def test_unwritten_entries_of_a_closed_file_are_never_written(tmp_path: Path) -> None:
    path = tmp_path / "entries"
    file = EntryFile(UnsyncedFile(path), LAYOUT)
    for number in range(PAGE + 5):
        file.put(number, number)
    file.close()
    path.unlink()
    file.flush()
    assert not path.exists()


def test_another_thread_may_flush_during_appends(tmp_path: Path) -> None:
    path = tmp_path / "entries"
    file = EntryFile(UnsyncedFile(path), LAYOUT)
    done = threading.Event()

    def sync_on() -> None:
        while not done.is_set():
            file.flush()

    flusher = threading.Thread(target=sync_on)
    flusher.start()
    twin = []
    for number in range(60 * PAGE):
        twin.append((number, number))
        file.put(number, number)
        if number % 97 == 0:
            del twin[-30:]
            file.keep(len(twin))
    done.set()
    flusher.join()
    file.write_out()
    assert path.read_bytes() == b"".join(LAYOUT.pack(*entry) for entry in twin)


def test_file_that_lost_entries_raises_a_storage_error(tmp_path: Path) -> None:
    path = tmp_path / "entries"
    file = EntryFile(UnsyncedFile(path), LAYOUT)
    for number in range(3 * PAGE):
        file.put(number, number)
    path.write_bytes(path.read_bytes()[: PAGE * LAYOUT.size])
    with pytest.raises(StorageError, match="is shorter than"):
        file.rank(0, 2 * PAGE)
    with pytest.raises(StorageError, match="is shorter than"):
        file[2 * PAGE]
