"""The file-system calls of the production file layer: recorded, refused on command, and applied to a model disk.

    calls = SystemCalls(tmp_path)
    with calls:
        RealFiles().replace(tmp_path / "checkpoint", b"new")
    calls.names                     # ["open checkpoint.tmp", "write checkpoint.tmp", "fsync checkpoint.tmp", …]
    calls.crash(FORGOTTEN)          # a `CrashableFiles` with the contents of the disk if the power fails now

    calls.refuse = lambda call: errno.EIO if call.name == "fsync" else 0
    calls.shorten = lambda call: call.count // 2 if call.name == "pwritev" else call.count

Each call below the directory is executed unless it is refused, and the model executes it too. The model therefore knows
which bytes and which names the calls have brought to the disk, in any order and through any descriptors. Calls outside
the directory are executed and not recorded.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, NamedTuple

from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.page_cache import Change, Content, Directory, Fate

#: Calls that take a path first, and those that take a descriptor first.
_BY_PATH = ("open", "replace", "rename", "unlink", "remove", "mkdir", "rmdir", "listdir", "stat", "truncate", "utime")
_BY_DESCRIPTOR = (
    "close",
    "fdatasync",
    "fstat",
    "fsync",
    "ftruncate",
    "posix_fallocate",
    "pread",
    "preadv",
    "pwrite",
    "pwritev",
    "read",
    "write",
    "writev",
)
_WRITES = frozenset({"pwrite", "pwritev", "write", "writev"})


class Call(NamedTuple):
    """One system call. `count`: the number of bytes to read or write, 0 for other calls."""

    name: str
    path: Path
    count: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.path.name}"


class _Opened:
    """A descriptor: its path, its object in the model, and the position of the next `write`."""

    def __init__(self, path: Path, entry: Content | Directory) -> None:
        self.path = path
        self.entry = entry
        self.position = 0


class SystemCalls:
    """Records the system calls below `root` while it is entered.

    made      the calls that were executed or refused, in order
    refuse    returns the error number that a call fails with, or 0
    shorten   returns how many of its bytes a call may read or write
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[Call] = []
        self.refuse: Callable[[Call], int] = lambda call: 0
        self.shorten: Callable[[Call], int] = lambda call: call.count
        self.disk = CrashableFiles()
        self.disk.make_directory(root)
        for each in root.parents:
            self.disk.fsync_directory(each)
        self._opened: dict[int, _Opened] = {}
        self._real = {name: getattr(os, name) for name in (*_BY_PATH, *_BY_DESCRIPTOR)}
        self._flock = fcntl.flock
        self._io_open = io.open
        self._one_at_a_time = threading.RLock()

    def __enter__(self) -> SystemCalls:
        for name in _BY_PATH:
            setattr(os, name, self._by_path(name))
        for name in _BY_DESCRIPTOR:
            setattr(os, name, self._by_descriptor(name, self._real[name]))
        fcntl.flock = self._by_descriptor("flock", self._flock)
        io.open = self._whole_file  # type: ignore[assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)
        fcntl.flock = self._flock
        io.open = self._io_open  # type: ignore[assignment]

    @property
    def names(self) -> list[str]:
        """Return the calls that change or fsync a file, as "name file"."""
        return [str(call) for call in self.made if call.name not in ("close", "fstat", "listdir", "stat", "open file")]

    @property
    def boundary(self) -> Callable[[], object]:
        """Set a function that is called within each changing call, before its fsync counts, as in `CrashableFiles`."""
        return self.disk.boundary

    @boundary.setter
    def boundary(self, take: Callable[[], object]) -> None:
        self.disk.boundary = take

    def crash(self, choice: Random | Fate) -> CrashableFiles:
        """Return the contents of the disk if the power fails now."""
        with self._one_at_a_time:
            return self.disk.crash(choice)

    # --- the calls -----------------------------------------------------------------------------------

    def _by_path(self, name: str) -> Callable[..., Any]:
        real, follow = self._real[name], getattr(self, f"_follow_{name}", None)

        def call(target: Any, *arguments: Any, **options: Any) -> Any:
            with self._one_at_a_time:
                path = self._path(target, options.get("dir_fd", options.get("src_dir_fd")))
                if path is None:
                    return real(target, *arguments, **options)
                self._ask(Call(name, path))
                result = real(target, *arguments, **options)
                if follow is not None:
                    follow(path, result, *arguments)
                return result

        return call

    def _by_descriptor(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        follow = getattr(self, f"_follow_{name}", None)

        def call(descriptor: int, *arguments: Any) -> Any:
            with self._one_at_a_time:
                opened = self._opened.get(descriptor)
                if opened is None:
                    return real(descriptor, *arguments)
                if name == "close":
                    del self._opened[descriptor]  # the kernel frees the number even if the call fails
                try:
                    self._ask(Call(name, opened.path))
                except OSError:
                    if name == "close":
                        real(descriptor)
                    if name in ("fsync", "fdatasync") and isinstance(opened.entry, Content):
                        opened.entry.lost = len(opened.entry.changes)
                    raise
                if name in ("pread", "read"):
                    return self._shortened_read(name, descriptor, opened, *arguments)
                if name in _WRITES:
                    return self._shortened_write(name, descriptor, opened, *arguments)
                result = real(descriptor, *arguments)
                if follow is not None:
                    follow(opened, *arguments)
                return result

        return call

    def _ask(self, call: Call) -> None:
        self.made.append(call)
        number = self.refuse(call)
        if number:
            raise OSError(number, os.strerror(number), str(call.path))

    def _path(self, target: Any, directory: int | None) -> Path | None:
        if isinstance(target, int):
            opened = self._opened.get(target)
            return opened.path if opened is not None else None
        if directory is not None:
            parent = self._opened.get(directory)
            return parent.path / target if parent is not None else None
        path = Path(os.fsdecode(target))
        return path if path == self.root or self.root in path.parents else None

    def _whole_file(self, target: Any, *arguments: Any, **options: Any) -> Any:
        """Replace `io.open`, with which `Path.read_bytes` reads."""
        if isinstance(target, (str, Path)) and (path := self._path(target, None)) is not None:
            self._ask(Call("open file", path))
        return self._io_open(target, *arguments, **options)

    def _shortened_read(self, name: str, descriptor: int, opened: _Opened, count: int, *position: int) -> bytes:
        data: bytes = self._real[name](descriptor, self.shorten(Call(name, opened.path, count)), *position)
        return data

    def _shortened_write(self, name: str, descriptor: int, opened: _Opened, data: Any, *position: int) -> int:
        parts: Sequence[Any] = data if name in ("pwritev", "writev") else (data,)
        limit = os.sysconf("SC_IOV_MAX")
        if len(parts) > limit:
            raise OSError(errno.EINVAL, f"{len(parts)} parts, of at most {limit}", str(opened.path))
        whole = b"".join(parts)
        kept = whole[: self.shorten(Call(name, opened.path, len(whole)))]
        at = position[0] if position else opened.position
        written: int = self._real["pwrite"](descriptor, kept, at) if kept else 0
        if not position:
            opened.position += written
        self._changed("write", opened.path, opened.entry, Change(at, kept[:written]))
        return written

    # --- the model -----------------------------------------------------------------------------------

    def _changed(self, verb: str, path: Path, entry: Content | Directory, change: Change) -> None:
        assert isinstance(entry, Content)
        self.disk.mutate(verb, path)
        entry.change(change._replace(order=len(self.disk.mutations)) if change.data is None else change)
        self.disk.finish()

    def _resized(self, path: Path, entry: Content | Directory, size: int) -> None:
        assert isinstance(entry, Content)
        if size != len(entry.seen):
            self._changed("truncate", path, entry, Change(size, None))

    def _follow_open(self, path: Path, descriptor: int, flags: int, mode: int = 0o777) -> None:
        entry: Content | Directory | None = self.disk._entry(path)
        if not isinstance(entry, Directory):
            entry = self.disk.content(path)
            if flags & os.O_TRUNC:
                self._resized(path, entry, 0)
        self._opened[descriptor] = _Opened(path, entry)

    def _follow_fsync(self, opened: _Opened) -> None:
        self.disk.mutate("sync", opened.path)
        entry, order = opened.entry, len(self.disk.mutations)
        began = len(entry.states if isinstance(entry, Directory) else entry.changes)
        self.disk.finish()
        if isinstance(entry, Directory):
            entry.sync(order, began)
        else:
            entry.sync(began)

    def _follow_fdatasync(self, opened: _Opened) -> None:
        self._follow_fsync(opened)

    def _follow_ftruncate(self, opened: _Opened, size: int) -> None:
        self._resized(opened.path, opened.entry, size)

    def _follow_posix_fallocate(self, opened: _Opened, position: int, size: int) -> None:
        assert isinstance(opened.entry, Content)
        self._resized(opened.path, opened.entry, max(position + size, len(opened.entry.seen)))

    def _follow_truncate(self, path: Path, result: None, size: int) -> None:
        self._resized(path, self.disk.content(path), size)

    def _follow_rename(self, path: Path, result: None, new: Any) -> None:
        self.disk.rename(path, Path(os.fsdecode(new)))

    def _follow_replace(self, path: Path, result: None, new: Any) -> None:
        self.disk.rename(path, Path(os.fsdecode(new)))

    def _follow_unlink(self, path: Path, result: None) -> None:
        self.disk.remove(path)

    def _follow_remove(self, path: Path, result: None) -> None:
        self.disk.remove(path)

    def _follow_rmdir(self, path: Path, result: None) -> None:
        self.disk.remove(path)

    def _follow_mkdir(self, path: Path, result: None, mode: int = 0o777) -> None:
        self.disk.make_directory(path)
