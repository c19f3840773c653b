"""The contract of `Files`, for every implementation: production files, files in memory, and files that fail.

The production file layer is judged by its system calls (`tests.storage.system_calls`). A model derives from them which
bytes and names are on the disk. All implementations therefore answer one question: if the power fails within this call,
does the file have its old content, its new content, or neither?
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from socket import socketpair
from typing import NamedTuple

import pytest

from storage.files import Files, RealFiles
from tests.storage.disks import DURABLE, SEEDS, Disk, disk_of
from tests.storage.logs import UnsyncedFiles
from tests.storage.system_calls import SystemCalls
from tests.storage.test_recovery_point import HeldFiles
from tests.storage.test_storage_errors import FailingFiles as RefusingFiles
from tidelog.errors import StorageError
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT

#: The implementations without fsync, for tests that end processes and not machines.
FORGETFUL: dict[str, Callable[[], Files]] = {
    "unsynced": UnsyncedFiles,
    "held": HeldFiles,
    "refusing": RefusingFiles,
}


@pytest.fixture(params=DURABLE)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    yield from disk_of(DURABLE[request.param], tmp_path)


@pytest.fixture(params=[*DURABLE, *FORGETFUL])
def any_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    yield from disk_of((DURABLE | FORGETFUL)[request.param], tmp_path)


# --- what a caller sees ------------------------------------------------------------------------------


def test_file_returns_the_bytes_written_at_each_position(any_disk: Disk) -> None:
    file = any_disk.files.open(any_disk.root / "a")
    file.write(0, (b"one", b"", b"two"))
    file.write(3, (memoryview(b"TWO"), bytearray(b"three")))
    file.write(13, (b"x",))
    assert file.size() == 14
    assert file.read(0, 100) == b"oneTWOthree\0\0x"
    assert (file.read(3, 3), file.read(13, 5), file.read(14, 5), file.read(99, 5)) == (b"TWO", b"x", b"", b"")


def test_send_gives_the_bytes_at_a_position_to_a_socket(any_disk: Disk) -> None:
    file = any_disk.files.open(any_disk.root / "a")
    file.write(0, (bytes(range(256)) * 16,))
    ours, theirs = socketpair()
    with ours, theirs:
        ours.setblocking(False)
        assert file.send(3, 5, ours.fileno()) == 5
        assert theirs.recv(100) == bytes(range(3, 8))
        assert file.send(4_090, 100, ours.fileno()) == 6, "fewer bytes at the end of the file"
        assert theirs.recv(100) == bytes(range(250, 256))
        with pytest.raises(StorageError, match="the file ends before position 4096"):
            file.send(4_096, 5, ours.fileno())
        for _ in range(10_000):
            if not file.send(0, 4_096, ours.fileno()):
                break
        else:
            pytest.fail("the socket is never full")
        theirs.close()
        with pytest.raises(ConnectionError):
            file.send(0, 10, ours.fileno())


def test_write_takes_more_parts_than_one_system_call_does(any_disk: Disk) -> None:
    parts = [b"%05d" % number for number in range(3_000)]
    file = any_disk.files.open(any_disk.root / "a")
    file.write(0, parts)
    assert file.read(0, 20_000) == b"".join(parts)


def test_truncate_shortens_and_extends_with_zeros(any_disk: Disk) -> None:
    file = any_disk.files.open(any_disk.root / "a")
    file.write(0, (b"abcdef",))
    file.truncate(2)
    file.truncate(4)
    assert (file.size(), file.read(0, 9)) == (4, b"ab\0\0")


def test_closed_file_opens_again_on_its_next_use(any_disk: Disk) -> None:
    file = any_disk.files.open(any_disk.root / "a")
    file.write(0, (b"abc",))
    file.close()
    file.close()
    file.write(3, (b"d",))
    assert file.read(0, 9) == b"abcd"


def test_file_that_may_not_be_created_is_an_error_in_each_use(any_disk: Disk) -> None:
    file = any_disk.files.open(any_disk.root / "a", create=False)
    for use in (file.size, lambda: file.read(0, 1), lambda: file.write(0, (b"a",)), lambda: file.truncate(0)):
        with pytest.raises(StorageError, match="data/a"):
            use()  # type: ignore[operator]
    assert any_disk.files.names(any_disk.root) == []


def test_modification_time_of_a_replaced_file_can_be_kept(any_disk: Disk) -> None:
    file = any_disk.files.open(any_disk.root / "a")
    file.write(0, (b"a",))
    file.set_modified_ms(1_700_000_000_123)
    assert file.modified_ms() == 1_700_000_000_123


def test_replace_leaves_the_new_content_and_no_other_file(any_disk: Disk) -> None:
    path = any_disk.root / "a"
    for data in (b"old and longer", b"new", b""):
        any_disk.files.replace(path, data)
        assert any_disk.files.read(path) == data
        any_disk.files.replace(path, data + b"!", fsync=False)
        assert any_disk.files.read(path) == data + b"!"
    assert any_disk.files.names(any_disk.root) == ["a"]


def test_names_are_those_of_files_and_directories_in_order(any_disk: Disk) -> None:
    files, root = any_disk.files, any_disk.root
    files.make_directory(root / "c" / "d")
    files.make_directory(root / "c" / "d")
    files.replace(root / "b", b"")
    files.open(root / "a")  # the first use creates it
    assert (files.names(root), files.names(root / "c"), files.names(root / "none")) == (["b", "c"], ["d"], [])
    assert (files.exists(root / "b"), files.exists(root / "a"), files.exists(root / "c")) == (True, False, True)
    assert (files.is_directory(root / "c"), files.is_directory(root / "b")) == (True, False)
    assert files.read(root / "none") is None


def test_removed_files_and_directories_are_gone_and_may_be_removed_again(any_disk: Disk) -> None:
    files, root = any_disk.files, any_disk.root
    files.make_directory(root / "c" / "d")
    files.replace(root / "c" / "d" / "a", b"a")
    files.replace(root / "b", b"b")
    for _ in range(2):
        files.remove(root / "b")
        files.remove_directory(root / "c")
        assert files.names(root) == []


def test_rename_puts_one_file_in_the_place_of_another(any_disk: Disk) -> None:
    files, root = any_disk.files, any_disk.root
    files.replace(root / "a", b"a")
    files.replace(root / "b", b"b")
    files.rename(root / "a", root / "b")
    assert (files.names(root), files.read(root / "b")) == (["b"], b"a")
    with pytest.raises(StorageError, match="data/a"):
        files.rename(root / "a", root / "b")


def test_lock_is_held_by_one_until_it_is_released(any_disk: Disk) -> None:
    path = any_disk.root / ".lock"
    lock = any_disk.files.try_lock(path)
    assert lock is not None
    assert any_disk.files.try_lock(path) is None
    lock.release()
    again = any_disk.files.try_lock(path)
    assert again is not None
    again.release()


def test_fsync_of_a_removed_file_returns(any_disk: Disk) -> None:
    file = any_disk.files.open(any_disk.root / "a")
    file.write(0, (b"a",))
    any_disk.files.remove(any_disk.root / "a")
    file.fsync()
    assert any_disk.files.names(any_disk.root) == []


# --- what a power failure leaves ---------------------------------------------------------------------


def test_unflushed_bytes_and_names_may_be_lost(disk: Disk) -> None:
    """Prove that the model loses unflushed data, because the tests below rely on it."""
    named = disk.files.open(disk.root / "named")
    named.write(0, (b"synced",))
    named.fsync()
    disk.files.fsync_directory(disk.root)
    named.write(6, (b"unsynced",))
    disk.files.open(disk.root / "unnamed").write(0, (b"a",))
    assert disk.after().read(disk.root / "named") == b"synced"
    assert disk.after().names(disk.root) == ["named"]
    assert disk.after(KEPT).read(disk.root / "named") == b"syncedunsynced"
    assert disk.after(KEPT).names(disk.root) == ["named", "unnamed"]


def test_fsync_writes_the_bytes_of_every_handle(disk: Disk) -> None:
    one, other = disk.files.open(disk.root / "a"), disk.files.open(disk.root / "a", create=False)
    one.write(0, (b"one", b"two"))
    disk.files.fsync_directory(disk.root)
    other.write(6, (b"three",))
    one.truncate(9)
    one.close()
    other.fsync()
    for choice in (FORGOTTEN, KEPT, *map(Random, SEEDS)):
        assert disk.after(choice).read(disk.root / "a") == b"onetwothr"


def test_each_fsync_writes_everything_since_the_previous_one(disk: Disk) -> None:
    file = disk.files.open(disk.root / "a")
    file.write(0, (b"",))
    disk.files.fsync_directory(disk.root)
    for number in range(4):
        file.write(number, (b"%d" % number,))
        file.fsync()
        assert disk.after().read(disk.root / "a") == b"0123"[: number + 1]


def test_truncation_survives_once_it_is_flushed(disk: Disk) -> None:
    file = disk.files.open(disk.root / "a")
    file.write(0, (b"abcdef",))
    file.fsync()
    disk.files.fsync_directory(disk.root)
    file.truncate(2)
    file.write(2, (b"X",))
    file.fsync()
    for choice in (FORGOTTEN, *map(Random, SEEDS)):
        assert disk.after(choice).read(disk.root / "a") == b"abX"


@pytest.mark.parametrize("old", [None, b"old " * 400], ids=["a new file", "a file that is there"])
def test_replace_leaves_old_or_new_content_at_any_power_failure(disk: Disk, old: bytes | None) -> None:
    path, new = disk.root / "a", b"new!" * 300
    if old is not None:
        disk.files.replace(path, old)
    found = {image.read(path) for image in disk.images(lambda: disk.files.replace(path, new))}
    assert found == {old, new}
    for choice in (FORGOTTEN, *map(Random, SEEDS)):
        assert disk.after(choice).read(path) == new


def test_unflushed_replace_is_atomic_if_the_process_ends(disk: Disk) -> None:
    path = disk.root / "a"
    disk.files.replace(path, b"old")
    work = disk.images(lambda: disk.files.replace(path, b"new" * 300, fsync=False), process_only=True)
    assert {image.read(path) for image in work} == {b"old", b"new" * 300}


def test_replace_over_a_draft_of_a_crash_leaves_nothing_of_it(disk: Disk) -> None:
    disk.files.open(disk.root / "a.tmp").write(0, (b"a longer draft of an earlier process",))
    disk.files.replace(disk.root / "a", b"new")
    assert disk.after().read(disk.root / "a") == b"new"
    assert disk.after().names(disk.root) == ["a"]


@pytest.mark.parametrize("target", [False, True], ids=["to a new name", "over another file"])
def test_rename_is_atomic_and_survives_once_flushed(disk: Disk, target: bool) -> None:
    files, old, new = disk.files, disk.root / "a", disk.root / "b"
    files.replace(old, b"a")
    if target:
        files.replace(new, b"b")
    before, after = (b"a", b"b" if target else None), (None, b"a")
    images = disk.images(lambda: (files.rename(old, new), files.fsync_directory(disk.root)))
    assert {(image.read(old), image.read(new)) for image in images} == {before, after}
    assert (disk.after().read(old), disk.after().read(new)) == after


def test_removal_survives_once_the_directory_is_flushed(disk: Disk) -> None:
    files = disk.files
    files.replace(disk.root / "a", b"a")
    files.remove(disk.root / "a")
    assert {disk.after(choice).exists(disk.root / "a") for choice in (FORGOTTEN, KEPT)} == {True, False}
    files.fsync_directory(disk.root)
    for choice in (FORGOTTEN, *map(Random, SEEDS)):
        assert not disk.after(choice).exists(disk.root / "a")


def test_directory_is_on_the_disk_once_each_parent_is_flushed(disk: Disk) -> None:
    disk.files.make_directory(disk.root / "b" / "c")
    disk.files.replace(disk.root / "b" / "c" / "a", b"a")
    assert not disk.after().exists(disk.root / "b" / "c" / "a")
    disk.files.fsync_directory(disk.root / "b")
    disk.files.fsync_directory(disk.root)
    assert disk.after().read(disk.root / "b" / "c" / "a") == b"a"


def test_fsync_of_a_missing_directory_is_an_error(disk: Disk) -> None:
    with pytest.raises(StorageError, match="none"):
        disk.files.fsync_directory(disk.root / "none")


# --- the system calls of production ------------------------------------------------------------------


class Operation(NamedTuple):
    """One call of the file layer on a directory with the files `a` ("old") and `b`, and its system calls."""

    run: Callable[[RealFiles, Path], object]
    calls: str


OPERATIONS = {
    "write": Operation(lambda files, root: files.open(root / "a").write(0, (b"ne", b"w")), "open a, pwritev a"),
    "read a part": Operation(lambda files, root: files.open(root / "a").read(1, 2), "open a, pread a"),
    "read": Operation(lambda files, root: files.read(root / "a"), "open file a"),
    "size": Operation(lambda files, root: files.open(root / "a").size(), "open a, fstat a"),
    "modified": Operation(lambda files, root: files.open(root / "a").modified_ms(), "stat a"),
    "set modified": Operation(lambda files, root: files.open(root / "a").set_modified_ms(1), "open a, utime a"),
    "truncate": Operation(lambda files, root: files.open(root / "a").truncate(1), "open a, ftruncate a"),
    "sync": Operation(lambda files, root: files.open(root / "a").fsync(), "open a, fsync a, close a"),
    "replace": Operation(
        lambda files, root: files.replace(root / "a", b"new"),
        "open a.tmp, pwrite a.tmp, fsync a.tmp, close a.tmp, open data, replace a.tmp, fsync data, close data",
    ),
    "replace without sync": Operation(
        lambda files, root: files.replace(root / "a", b"new", fsync=False),
        "open a.tmp, pwrite a.tmp, close a.tmp, replace a.tmp",
    ),
    "rename": Operation(lambda files, root: files.rename(root / "a", root / "c"), "rename a"),
    "remove": Operation(lambda files, root: files.remove(root / "a"), "unlink a"),
    "sync directory": Operation(lambda files, root: files.fsync_directory(root), "open data, fsync data, close data"),
    "make directory": Operation(lambda files, root: files.make_directory(root / "c"), "mkdir c"),
    "names": Operation(lambda files, root: files.names(root), "listdir data"),
    "exists": Operation(lambda files, root: files.exists(root / "a"), "stat a"),
    "is directory": Operation(lambda files, root: files.is_directory(root), "stat data"),
    "lock": Operation(lambda files, root: files.try_lock(root / ".lock"), "open .lock, flock .lock"),
}
ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EINTR)


@pytest.fixture
def production(tmp_path: Path) -> Iterator[tuple[RealFiles, Path, SystemCalls]]:
    files, root = RealFiles(), tmp_path / "data"
    with SystemCalls(tmp_path) as calls:
        files.make_directory(root)
        files.replace(root / "a", b"old")
        files.replace(root / "b", b"b")
        files.fsync_directory(tmp_path)
        calls.made.clear()
        yield files, root, calls


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_makes_these_system_calls_in_this_order(
    name: str, production: tuple[RealFiles, Path, SystemCalls]
) -> None:
    files, root, calls = production
    OPERATIONS[name].run(files, root)
    assert ", ".join(map(str, calls.made)) == OPERATIONS[name].calls


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, made in OPERATIONS.items() for number in range(len(made.calls.split(", ")))],
)
@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.__getitem__)
def test_refused_system_call_is_a_storage_error_and_is_not_tried_again(
    name: str, number: int, error: int, production: tuple[RealFiles, Path, SystemCalls]
) -> None:
    files, root, calls = production
    calls.refuse = lambda call: error if len(calls.made) == number + 1 else 0
    with pytest.raises(StorageError, match=str(root)):
        OPERATIONS[name].run(files, root)
    calls.refuse = lambda call: 0
    made = OPERATIONS[name].calls.split(", ")
    assert [str(call) for call in calls.made].count(made[number]) == 1
    if name.startswith("replace"):
        renamed = number > made.index("replace a.tmp")
        assert files.read(root / "a") == (b"new" if renamed else b"old")
        assert calls.crash(FORGOTTEN).read(root / "a") == (b"new" if made[number] == "close data" else b"old")


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.__getitem__)
def test_refused_close_of_a_file_is_a_storage_error(
    error: int, production: tuple[RealFiles, Path, SystemCalls]
) -> None:
    files, root, calls = production
    file = files.open(root / "a")
    file.write(0, (b"new",))
    calls.refuse = lambda call: error if call.name == "close" else 0
    with pytest.raises(StorageError, match=str(root / "a")):
        file.close()
    calls.refuse = lambda call: 0
    file.close()
    assert file.read(0, 3) == b"new", "it opens again"


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.__getitem__)
def test_removal_of_a_directory_raises_the_error_of_each_system_call(
    error: int, production: tuple[RealFiles, Path, SystemCalls]
) -> None:
    """Count the calls of a removal first, because they depend on the interpreter."""
    files, root, calls = production

    def made() -> int:
        files.make_directory(root / "c")
        files.replace(root / "c" / "file", b"")
        return len(calls.made)

    before = made()
    files.remove_directory(root / "c")
    count = len(calls.made) - before
    assert count >= 2, "a file and its directory are removed"
    for number in range(1, count + 1):
        refused = made() + number
        calls.refuse = lambda call, refused=refused: error if len(calls.made) == refused else 0  # type: ignore[misc]
        with pytest.raises(StorageError, match=str(root / "c")):
            files.remove_directory(root / "c")
        calls.refuse = lambda call: 0


def test_replace_beside_a_directory_named_like_its_temporary_file(
    production: tuple[RealFiles, Path, SystemCalls],
) -> None:
    files, root, calls = production
    files.make_directory(root / "a.tmp")
    files.open(root / "a.1.tmp").write(0, (b"a longer draft of an earlier process",))
    files.replace(root / "a", b"new")
    assert files.read(root / "a") == calls.crash(FORGOTTEN).read(root / "a") == b"new"


def test_read_of_a_whole_file_that_fails_half_way_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="/proc/self/mem: Input/output error"):
        RealFiles().read(Path("/proc/self/mem"))


@pytest.mark.parametrize("most", [1, 2, 5])
def test_short_writes_and_reads_continue_until_complete(
    most: int, production: tuple[RealFiles, Path, SystemCalls]
) -> None:
    files, root, calls = production
    calls.shorten = lambda call: min(call.count, most)
    file = files.open(root / "a")
    file.write(0, (b"first ", b"", b"second ", b"third"))
    assert file.read(0, 99) == b"first second third"
    assert file.read(6, 6) == b"second"
    files.replace(root / "b", b"0123456789")
    assert files.read(root / "b") == calls.crash(FORGOTTEN).read(root / "b") == b"0123456789"


@pytest.mark.parametrize("stop", [0, 4], ids=["at once", "after some bytes"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, 0], ids=["ENOSPC", "EIO", "without an error"])
def test_write_that_stays_short_is_a_storage_error(
    stop: int, error: int, production: tuple[RealFiles, Path, SystemCalls]
) -> None:
    files, root, calls = production
    written = {"pwritev": 0, "pwrite": 0, "write": 0}

    def shorten(call: object) -> int:
        name, count = call.name, call.count  # type: ignore[attr-defined]
        if name not in written:
            return int(count)
        left = stop - sum(written.values())
        if left <= 0 and error:
            raise OSError(error, "stop")
        written[name] += min(count, max(left, 0))
        return min(count, max(left, 0))

    calls.shorten = shorten
    with pytest.raises(StorageError, match=str(root / "a")):
        files.open(root / "a").write(0, (b"0123", b"456789"))
    written.update(pwritev=0, pwrite=0, write=0)
    with pytest.raises(StorageError, match=str(root / "b")):
        files.replace(root / "b", b"0123456789")
    calls.shorten = lambda call: call.count
    assert files.read(root / "b") == calls.crash(FORGOTTEN).read(root / "b") == b"b"
