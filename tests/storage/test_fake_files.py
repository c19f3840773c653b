"""The file systems of other tests: each behaves like the real one until a fault is injected."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.files import Files
from tests.storage.logs import UnsyncedFiles
from tidelog.errors import StorageError
from verify.simulation.disks.crashable_files import CrashableFiles, PowerCut
from verify.simulation.disks.failing_files import FailingFiles, Fault
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT

ROOT = Path("/data")
NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.integers(0, 30), st.binary(max_size=20)),
        st.tuples(st.just("truncate"), NAMES, st.integers(0, 30)),
        st.tuples(st.just("read"), NAMES, st.integers(0, 30), st.integers(0, 30)),
        st.tuples(st.sampled_from(["size", "fsync", "remove", "whole", "close"]), NAMES),
        st.tuples(st.just("replace"), NAMES, st.binary(max_size=20)),
        st.tuples(st.just("rename"), NAMES, NAMES),
    ),
    max_size=30,
)


def observed(files: Files, directory: Path, steps: list[tuple[object, ...]]) -> list[object]:
    """Return the results of these steps as a caller sees them."""
    files.make_directory(directory)
    opened = {name: files.open(directory / name, create=name != "c") for name in "abc"}
    seen: list[object] = []
    for verb, name, *rest in steps:
        file, path = opened[str(name)], directory / str(name)
        try:
            match verb:
                case "write":
                    file.write(rest[0], (rest[1][:3], rest[1][3:]))  # type: ignore[arg-type,index]
                case "whole":
                    seen.append(files.read(path))
                case "replace":
                    files.replace(path, rest[0])  # type: ignore[arg-type]
                case "rename":
                    if rest[0] != name:
                        files.rename(path, directory / str(rest[0]))
                case "remove":
                    files.remove(path)
                case _:
                    seen.append(getattr(file, str(verb))(*rest))
        except StorageError:
            seen.append("error")
        seen.append(files.names(directory))
    return seen


@settings(max_examples=150)
@given(STEPS)
def test_fake_files_behave_like_the_real_ones(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        expected = observed(UnsyncedFiles(), Path(name), steps)
    assert observed(CrashableFiles(), ROOT, steps) == expected
    assert observed(FailingFiles(CrashableFiles()), ROOT, steps) == expected


def test_fsynced_data_survives_every_crash_and_other_data_may_not() -> None:
    files = CrashableFiles()
    files.make_directory(ROOT)
    files.fsync_directory(Path("/"))
    named, unnamed = files.open(ROOT / "named"), files.open(ROOT / "unnamed")
    named.write(0, (b"x" * 600,))
    named.fsync()
    files.fsync_directory(ROOT)
    unnamed.write(0, (b"y",))
    unnamed.fsync()
    named.write(600, (b"z" * 1000,))
    # `unnamed` was opened before, but only its first use created its file
    contents = set()
    for seed in range(300):
        after = files.crash(Random(seed))
        content = after.read(ROOT / "named")
        assert content is not None
        assert content[:600] == b"x" * 600
        assert set(content[600:]) <= set(b"z\0")
        contents.add((len(content), content.count(b"z"), after.exists(ROOT / "unnamed")))
    assert {size for size, _, _ in contents} >= {600, 1600}
    assert any(size == 1600 and not kept for size, kept, _ in contents), "grown, but without its content"
    assert any(size == 1600 and 0 < kept < 1000 for size, kept, _ in contents), "with some sectors of it"
    assert any(600 < size < 1600 and size % 512 and kept == size - 600 for size, kept, _ in contents), "torn at a byte"
    assert {named for _, _, named in contents} == {True, False}
    assert files.crash(FORGOTTEN).read(ROOT / "named") == b"x" * 600
    assert files.crash(KEPT).read(ROOT / "named") == b"x" * 600 + b"z" * 1000


def test_changes_of_names_survive_in_their_order() -> None:
    files = CrashableFiles()
    files.make_directory(ROOT)
    for name in ("a", "b"):
        files.replace(ROOT / name, name.encode())
    files.fsync_directory(Path("/"))
    files.rename(ROOT / "a", ROOT / "c")
    files.remove(ROOT / "b")
    assert {tuple(files.crash(Random(seed)).names(ROOT)) for seed in range(50)} == {("a", "b"), ("b", "c"), ("c",)}


def test_crash_can_hit_every_changing_call_and_no_later_call_returns() -> None:
    outcomes = []
    for cut in count():
        files = CrashableFiles(cut)
        try:
            files.make_directory(ROOT)
            files.fsync_directory(Path("/"))
            files.replace(ROOT / "a", b"new")
        except PowerCut:
            with pytest.raises(PowerCut):
                files.read(ROOT / "a")
            outcomes.append(files.crash(FORGOTTEN).read(ROOT / "a"))
        else:
            break
    # create, fsync, create the temporary file, write it, fsync it, rename it, fsync the name
    assert outcomes == [None] * 7
    assert files.crash(FORGOTTEN).read(ROOT / "a") == b"new"


def test_failed_fsync_drops_the_dirty_pages() -> None:
    disk = CrashableFiles()
    files = FailingFiles(disk)
    files.make_directory(ROOT)
    file = files.open(ROOT / "a")
    file.write(0, (b"one",))
    files.fail(Fault.SYNC_ERROR, ROOT)
    with pytest.raises(StorageError, match=r"/data/a: Input/output error"):
        file.fsync()
    files.heal()
    file.write(3, (b"two",))
    file.fsync()
    files.fsync_directory(ROOT)
    files.fsync_directory(Path("/"))
    assert files.read(ROOT / "a") == b"onetwo"
    assert disk.crash(Random(1)).read(ROOT / "a") == b"\0\0\0two"


def test_each_fault_refuses_its_calls_where_it_is_and_nowhere_else() -> None:
    disk = CrashableFiles()
    files = FailingFiles(disk)
    for name in ("sick", "well"):
        files.make_directory(ROOT / name)
        files.open(ROOT / name / "f").write(0, (b"0123",))
    works: dict[str, list[bool]] = {}
    for fault in Fault:
        files.fail(fault, ROOT / "sick")
        for name in ("sick", "well"):
            file = files.open(ROOT / name / "f")
            for call in (
                lambda: file.write(0, (b"0123",)),  # noqa: B023
                lambda: file.read(0, 4),  # noqa: B023
                lambda: file.fsync(),  # noqa: B023
                lambda: files.replace(ROOT / name / "g", b"", fsync=False),  # noqa: B023
            ):
                try:
                    call()
                    works.setdefault(f"{fault.name} {name}", []).append(True)
                except StorageError:
                    works.setdefault(f"{fault.name} {name}", []).append(False)
        files.heal()
    assert all(all(works[f"{fault.name} well"]) for fault in Fault)
    assert {name: made for name, made in works.items() if "sick" in name} == {
        "FULL sick": [False, True, True, False],
        "WRITE_ERROR sick": [False, True, True, False],
        "SYNC_ERROR sick": [True, True, False, True],
        "READ_ERROR sick": [True, False, True, True],
        "READ_ONLY sick": [False, True, False, False],
        "VANISHED sick": [False, False, False, False],
    }
    assert disk.read(ROOT / "sick" / "f") == b"0123"
