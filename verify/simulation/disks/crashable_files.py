"""A file system in memory that distinguishes the disk from the page cache.

    files = CrashableFiles()
    log = Log.open(Path("/data/orders-0"), config(), files, recovery_point=0, clean=False)
    ...
    after = files.crash(Random(7))      # power loss: a new file system with a possible content of the disk
    after = files.crash(FORGOTTEN)      # power loss: every unsynced byte is lost
    after = files.crash(KEPT)           # the process was killed: the page cache survives

`crash` decides separately for each file and each directory. It takes a `random.Random` (a seeded one, or `st.randoms()`
of hypothesis), and may be called many times. To cut the power at every boundary of some work:

    for cut in itertools.count():
        files = CrashableFiles(cut=cut)
        try:
            work(files)
        except PowerCut:
            check(files.crash(random))
        else:
            break                       # `cut` is past the last call that changes something

The following is much faster, because the work is done once:

    files.boundary = lambda: images.append(files.crash(random))    # called within every such call

The call number `cut` (from 0) among the calls that change something does not return, and neither does any later call of
any thread. Any part of its work may be on the disk. `PowerCut` is no Exception, so that error handlers do not catch it.
A `replace` has one boundary for each of its steps.

`verify.simulation.disks.page_cache` describes the possible contents of the disk.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from storage.files import File, Files, Lock
from tidelog.errors import StorageError
from tidelog.model import Buffer
from verify.simulation.disks.page_cache import Change, Content, Directory, Fate


class PowerCut(BaseException):
    """The power of the machine is cut: the calling process has ended, and no error handler may catch this."""


class CrashableFiles:
    """The files in memory, with the interface `Files`. `cut` is the number of the first call that does not return, or
    None.
    """

    def __init__(self, cut: int | None = None) -> None:
        self.cut = cut
        #: The calls so far that changed something, as "verb name". A cut hits one of them.
        self.mutations: list[str] = []
        #: Called within each such call, when its work is in the page cache but not synced yet.
        self.boundary: Callable[[], object] = lambda: None
        self._root = Directory()
        self._locked: set[Path] = set()
        self._mutex = threading.RLock()

    def crash(self, choice: Random | Fate) -> CrashableFiles:
        """Return a file system with what may be on the disk after a power loss. The present one stays as it is."""
        after = CrashableFiles()
        with self._mutex:
            after._root = self._root.after_crash(choice)
        return after

    def lose(self, path: Path) -> None:
        """Handle a failed sync of the file: readers may still see its unsynced writes, but no later sync writes them to
        the disk.
        """
        content = self._entry(path)
        if isinstance(content, Content):
            content.lost = len(content.changes)

    def flip(self, path: Path, position: int, bits: int = 1) -> None:
        """Flip bits of a byte, whether synced or not. Raise StorageError if the file does not exist, and ValueError if
        it ends before the byte.
        """
        with self._mutex:
            content = self.content(path, create=False)
            if position >= len(content.seen):
                raise ValueError(f"{path} ends before byte {position}")
            content.flip(position, bits)

    def paths(self, directory: Path = Path("/")) -> list[Path]:
        """Return all files below the directory at any depth, sorted by name. Directories are left out."""
        found: list[Path] = []
        for name in self.names(directory):
            path = directory / name
            found += self.paths(path) if self.is_directory(path) else [path]
        return found

    def unsynced(self, path: Path) -> bool:
        """Return whether a power loss could change the content of the file; False if there is no such file."""
        content = self._entry(path)
        return isinstance(content, Content) and bool(content.changes)

    def mutate(self, verb: str, path: Path) -> None:
        """Begin a call that changes something: count it, and raise PowerCut if an earlier call was cut."""
        self.alive()
        self.mutations.append(f"{verb} {path.name}")

    def alive(self) -> None:
        """Raise PowerCut if a call was cut."""
        if self.cut is not None and len(self.mutations) > self.cut:
            raise PowerCut

    def finish(self) -> None:
        """End a call that changes something, whose work is in the page cache: call `boundary`, unless this call is cut.

        The call that is cut gets PowerCut.
        """
        self.alive()
        self.boundary()

    # --- Files ---------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = True) -> File:
        return CrashableFile(self, path, create=create)

    def exists(self, path: Path) -> bool:
        with self._mutex:
            self.alive()
            return self._entry(path) is not None

    def is_directory(self, path: Path) -> bool:
        with self._mutex:
            self.alive()
            return isinstance(self._entry(path), Directory)

    def names(self, directory: Path) -> list[str]:
        with self._mutex:
            self.alive()
            entry = self._entry(directory)
            return sorted(entry.names) if isinstance(entry, Directory) else []

    def read(self, path: Path) -> bytes | None:
        with self._mutex:
            self.alive()
            entry = self._entry(path)
            if isinstance(entry, Directory):
                raise _error(path, errno.EISDIR)
            return bytes(entry.seen) if entry is not None else None

    def replace(self, path: Path, data: bytes, *, fsync: bool = True) -> None:
        with self._mutex:
            draft = path.with_name(path.name + ".tmp")
            file = CrashableFile(self, draft)
            file.truncate(0)
            file.write(0, (data,))
            if fsync:
                file.fsync()
            self.rename(draft, path)
            if fsync:
                self.fsync_directory(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        assert old.parent == new.parent, "the model knows no renames from one directory to another"
        with self._mutex:
            self.mutate("rename", new)
            directory = self._directory(old.parent)
            entry = directory.names.get(old.name)
            if entry is None:
                raise _error(old, errno.ENOENT)
            target = directory.names.get(new.name)
            if isinstance(target, Directory) and target.names:
                raise _error(old, errno.ENOTEMPTY)
            del directory.names[old.name]
            directory.names[new.name] = entry
            directory.changed(len(self.mutations))
            self.finish()

    def remove(self, path: Path) -> None:
        with self._mutex:
            self.mutate("remove", path)
            parent = self._entry(path.parent)
            if isinstance(parent, Directory) and path.name in parent.names:
                del parent.names[path.name]
                parent.changed(len(self.mutations))
            self.finish()

    def remove_directory(self, path: Path) -> None:
        with self._mutex:
            entry = self._entry(path)
            if not isinstance(entry, Directory):
                return
            for name, child in sorted(entry.names.items()):
                if isinstance(child, Directory):
                    self.remove_directory(path / name)
                else:
                    self.remove(path / name)
            self.remove(path)

    def make_directory(self, path: Path) -> None:
        with self._mutex:
            self.alive()
            if isinstance(self._entry(path), Directory):
                return
            if path.parent != path:
                self.make_directory(path.parent)
            self.mutate("mkdir", path)
            parent = self._directory(path.parent)
            if path.name in parent.names:
                raise _error(path, errno.EEXIST)
            parent.names[path.name] = Directory()
            parent.changed(len(self.mutations))
            self.finish()

    def fsync_directory(self, path: Path) -> None:
        with self._mutex:
            self.mutate("sync", path)
            directory, order = self._directory(path), len(self.mutations)
            began = len(directory.states)
            self.finish()
            directory.sync(order, began)

    def try_lock(self, path: Path) -> Lock | None:
        with self._mutex:
            self.content(path)
            if path in self._locked:
                return None
            self._locked.add(path)
            return _CrashableLock(self._locked, path)

    # --- inside --------------------------------------------------------------------------------------

    def content(self, path: Path, *, create: bool = True) -> Content:
        """Return the file at this path. Create a missing file, or raise StorageError without `create`.

        StorageError also if the path is a directory, or its directory is missing.
        """
        self.alive()
        directory = self._directory(path.parent)
        entry = directory.names.get(path.name)
        if isinstance(entry, Directory):
            raise _error(path, errno.EISDIR)
        if entry is None and not create:
            raise _error(path, errno.ENOENT)
        if entry is None:
            self.mutate("create", path)
            entry = directory.names[path.name] = Content()
            directory.changed(len(self.mutations))
            self.finish()
        return entry

    def _directory(self, path: Path) -> Directory:
        entry = self._entry(path)
        if not isinstance(entry, Directory):
            raise _error(path, errno.ENOENT)
        return entry

    def _entry(self, path: Path) -> Content | Directory | None:
        entry: Content | Directory | None = self._root
        for part in path.parts[1:] if path.is_absolute() else path.parts:
            if not isinstance(entry, Directory):
                return None
            entry = entry.names.get(part)
        return entry


class CrashableFile:
    """A file of CrashableFiles, with the interface `File`. An open file keeps its content when its name is reused."""

    def __init__(self, files: CrashableFiles, path: Path, *, create: bool = True) -> None:
        self.path = path
        self._files = files
        self._create = create
        self._content: Content | None = None

    def size(self) -> int:
        with self._files._mutex:
            return len(self._opened().seen)

    def modified_ms(self) -> int:
        with self._files._mutex:
            return self._opened().modified_ms

    def set_modified_ms(self, timestamp_ms: int) -> None:
        with self._files._mutex:
            self._opened().modified_ms = timestamp_ms

    def read(self, position: int, count: int) -> bytes:
        with self._files._mutex:
            return bytes(self._opened().seen[position : position + count])

    def send(self, position: int, count: int, socket: int) -> int:
        data = self.read(position, count)
        if not data:
            raise StorageError(f"{self.path}: the file ends before position {position}")
        try:
            return os.write(socket, data)
        except BlockingIOError:
            return 0

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        with self._files._mutex:
            content = self._opened()
            self._files.mutate("write", self.path)
            content.change(Change(position, b"".join(parts)))
            self._files.finish()

    def truncate(self, size: int) -> None:
        with self._files._mutex:
            content = self._opened()
            if size == len(content.seen):
                return
            self._files.mutate("truncate", self.path)
            content.change(Change(size, None, len(self._files.mutations)))
            self._files.finish()

    def fsync(self) -> None:
        with self._files._mutex:
            self._files.mutate("sync", self.path)
            # by its name, like the real one: a file that was removed is not synced
            content = self._files._entry(self.path)
            began = len(content.changes) if isinstance(content, Content) else 0
            self._files.finish()
            if isinstance(content, Content):
                content.sync(began)

    def close(self) -> None:
        self._content = None

    def _opened(self) -> Content:
        self._files.alive()
        if self._content is None:
            self._content = self._files.content(self.path, create=self._create)
        return self._content


class _CrashableLock:
    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


def _error(path: Path, number: int) -> StorageError:
    return StorageError(f"{path}: {os.strerror(number)}")


_: Files = CrashableFiles()
