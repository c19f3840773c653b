"""No more files are open than allowed, and their owners do not notice."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.configs.log_config import LogConfig
from storage.files import File, RealFiles
from storage.log_manager import LogManager
from storage.open_files import OpenFiles
from tests.storage.logs import NOW, append, read_all
from tidelog.errors import StorageError
from tidelog.model import TopicPartition
from tidelog.records import iter_headers

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def open_paths() -> set[Path]:
    """Return the paths of all files that this process has open."""
    return set(_open_paths_with_repetitions())


def _open_paths_with_repetitions() -> list[Path]:
    return [Path(link) for link in _links() if link.startswith("/")]


def _links() -> Iterator[str]:
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            yield str(entry.readlink())


def opened_in(directory: Path) -> set[str]:
    return {path.name for path in open_paths() if path.parent == directory}


@pytest.fixture
def pair(tmp_path: Path) -> RealFiles:
    """Files of which two may be open."""
    return RealFiles(OpenFiles(2))


def filled(files: RealFiles, directory: Path, *names: str) -> list[File]:
    """Write each name into a file of that name."""
    written = [files.open(directory / name) for name in names]
    for file, name in zip(written, names, strict=True):
        file.write(0, (name.encode(),))
    return written


def test_file_not_used_lately_is_closed_for_another(tmp_path: Path, pair: RealFiles) -> None:
    a, _, c = filled(pair, tmp_path, "a", "b", "c")
    assert opened_in(tmp_path) == {"b", "c"}
    assert a.read(0, 9) == b"a"
    assert opened_in(tmp_path) == {"a", "c"}, "b was used before c"
    c.write(1, (b"c",))
    assert c.read(0, 9) == b"cc"


def test_file_used_again_outlives_one_opened_later(tmp_path: Path, pair: RealFiles) -> None:
    a, *_ = filled(pair, tmp_path, "a", "b", "c", "d")
    assert opened_in(tmp_path) == {"c", "d"}
    a.read(0, 1)  # the search clears the marks of c and d, and closes c
    assert opened_in(tmp_path) == {"a", "d"}
    a.read(0, 1)
    filled(pair, tmp_path, "e")
    assert opened_in(tmp_path) == {"a", "e"}, "a was used since the last search, and d was not"


def test_closed_file_counts_no_longer(tmp_path: Path, pair: RealFiles) -> None:
    a, b, *_ = filled(pair, tmp_path, "a", "b")
    a.close()
    filled(pair, tmp_path, "c")
    assert opened_in(tmp_path) == {"b", "c"}
    b.close()
    assert opened_in(tmp_path) == {"c"}


def test_removed_file_is_missing_and_not_created_empty(tmp_path: Path, pair: RealFiles) -> None:
    a, _, _ = filled(pair, tmp_path, "a", "b", "c")
    (tmp_path / "a").unlink()
    with pytest.raises(StorageError, match="a: No such file"):
        a.read(0, 1)
    assert not (tmp_path / "a").exists()


def test_file_that_its_owner_has_closed_may_be_created_again(tmp_path: Path, pair: RealFiles) -> None:
    a, _, _ = filled(pair, tmp_path, "a", "b", "c")
    a.close()
    (tmp_path / "a").rename(tmp_path / "d")
    a.write(0, (b"new",))
    assert (a.read(0, 9), (tmp_path / "d").read_bytes()) == (b"new", b"a")


def test_file_in_use_by_another_thread_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = RealFiles(OpenFiles(1))
    (a,) = filled(files, tmp_path, "a")
    inside, may_read, read = threading.Event(), threading.Event(), os.pread

    def held_read(*arguments: int) -> bytes:
        inside.set()
        assert may_read.wait(30)
        return read(*arguments)

    monkeypatch.setattr(os, "pread", held_read)
    found: list[bytes] = []
    reading = threading.Thread(target=lambda: found.append(a.read(0, 1)))
    reading.start()
    assert inside.wait(30)
    b, c = filled(files, tmp_path, "b", "c")
    a.close()  # as its owner may do at any time
    assert opened_in(tmp_path) == {"a", "c"}
    may_read.set()
    reading.join(30)
    assert found == [b"a"]
    assert opened_in(tmp_path) == {"c"}
    assert (a.size(), b.size(), c.size()) == (1, 1, 1)


def test_failed_close_of_a_displaced_file_fails_its_later_uses(
    tmp_path: Path, pair: RealFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush must not confirm bytes whose loss the close has reported."""
    a, _ = filled(pair, tmp_path, "a", "b")
    close = os.close

    def refused(number: int) -> None:
        close(number)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "close", refused)
    filled(pair, tmp_path, "c")  # closes a
    monkeypatch.undo()
    for use in (lambda: a.read(0, 1), a.fsync, a.size, a.close):
        with pytest.raises(StorageError, match="a: Disk quota exceeded"):
            use()
    assert a.read(0, 1) == b"a"


def test_failed_open_keeps_no_user(tmp_path: Path) -> None:
    files = RealFiles(OpenFiles(1))
    late = files.open(tmp_path / "late", create=False)
    with pytest.raises(StorageError):
        late.read(0, 1)
    (tmp_path / "late").write_bytes(b"x")
    assert late.read(0, 1) == b"x"
    filled(files, tmp_path, "a", "b")
    assert opened_in(tmp_path) == {"b"}, "the file that could not be opened at first is not in use"


def test_file_opened_by_two_threads_keeps_one_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_files = OpenFiles()
    (a,) = filled(RealFiles(open_files), tmp_path, "a")
    a.close()
    both, opening = threading.Barrier(2), os.open

    def held_open(*arguments: Any, **options: Any) -> int:
        both.wait(30)
        return opening(*arguments, **options)

    monkeypatch.setattr(os, "open", held_open)
    found: list[bytes] = []
    readers = [threading.Thread(target=lambda: found.append(a.read(0, 1))) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(30)
    monkeypatch.undo()
    assert found == [b"a", b"a"]
    assert len(open_files) == 1
    assert [path.name for path in _open_paths_with_repetitions() if path.parent == tmp_path] == ["a"]


def test_threads_read_their_own_bytes_while_files_are_displaced(tmp_path: Path) -> None:
    names = [str(number) for number in range(8)]
    files = filled(RealFiles(OpenFiles(2)), tmp_path, *names)
    wrong: list[tuple[str, object]] = []

    def read_all_files() -> None:
        for _ in range(200):
            for file, name in zip(files, names, strict=True):
                try:
                    content: object = file.read(0, 9)
                except StorageError as error:
                    content = error
                if content != name.encode():
                    wrong.append((name, content))

    readers = [threading.Thread(target=read_all_files) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert wrong == []
    assert len(opened_in(tmp_path)) <= 2 + len(readers)


def test_many_logs_share_few_descriptors(tmp_path: Path) -> None:
    limit = 8
    manager = LogManager.open([tmp_path], RealFiles(OpenFiles(limit)), 1, "c", None)
    logs = [manager.get_or_create(TopicPartition("orders", number), TOPIC_ID, LogConfig()) for number in range(40)]
    for _ in range(3):
        for number, log in enumerate(logs):
            append(log, NOW + number)
    open_logs = {path for path in open_paths() if path.parent.parent == tmp_path}
    assert len(open_logs) <= limit
    for number, log in enumerate(logs):
        found = [header.max_timestamp for _, header in iter_headers(read_all(log))]
        assert found == [NOW + number] * 3
    manager.close()


Step = tuple[str, int]
_STEPS = st.lists(st.tuples(st.sampled_from(("write", "read", "size", "truncate", "close")), st.integers(0, 4)))


@given(most=st.integers(1, 5), steps=_STEPS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bounded_files_behave_as_unbounded_ones(
    tmp_path_factory: pytest.TempPathFactory, most: int, steps: list[Step]
) -> None:
    root = tmp_path_factory.mktemp("twins")
    open_files = OpenFiles(most)
    bounded, plain = RealFiles(open_files), RealFiles()
    pairs = [(bounded.open(root / f"b{n}"), plain.open(root / f"p{n}")) for n in range(5)]
    try:
        for number, (name, index) in enumerate(steps):
            outcomes = [_perform(name, file, number) for file in pairs[index]]
            assert outcomes[0] == outcomes[1]
            assert len(open_files) <= most
    finally:
        for file in (each for both in pairs for each in both):
            file.close()
    assert len(open_files) == 0


def _perform(name: str, file: File, number: int) -> object:
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: file.write(number, (b"%d" % number,)),
        "read": lambda: file.read(0, 1_000),
        "size": file.size,
        "truncate": lambda: file.truncate(number // 2),
        "close": file.close,
    }
    return calls[name]()
