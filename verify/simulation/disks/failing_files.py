"""A wrapper around any `Files` that makes calls fail on command, for the whole disk or for some paths.

    files = FailingFiles(RealFiles())            # or CrashableFiles(), UnsyncedFiles() …
    files.fail(Fault.FULL, tmp_path)             # from now on, for this path and everything below it
    files.fail(Fault.SYNC_ERROR, log_path, after=2)      # the third call of the kind fails, and all later ones
    files.fail(Fault.WRITE_ERROR, matching=lambda path: path.suffix == ".timeindex")
    files.heal()                                 # end all faults; calls that failed remain failed

Faults:

- FULL         ENOSPC: a write stores half of its bytes, new files and drafts none. Removing, truncating and syncing
               work.
- WRITE_ERROR  EIO from every write, after half of the bytes, and from every truncation and `replace`
- SYNC_ERROR   EIO from every sync. Over CrashableFiles the bytes of this sync are lost, as with Linux: a later sync
               succeeds but does not write them.
- READ_ERROR   EIO from every read
- READ_ONLY    EROFS from every call that changes something
- VANISHED     the directory is missing: no names, no files, ENOENT from every call that needs it

`tear` ends the process in the middle of a write (PowerCut).

`watch` is called with ("write" | "truncate" | "sync" | "replace" | "rename" | "remove" | "create", path) before each
call that changes something, so that a test can observe the order of calls or run other code between them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from storage.files import File, Files, Lock
from tidelog.errors import StorageError
from tidelog.model import Buffer
from verify.simulation.disks.crashable_files import CrashableFiles, PowerCut

_CHANGES = frozenset({"write", "truncate", "sync", "replace", "rename", "remove", "create"})


class Fault(Enum):
    """A fault: its error number and the calls that fail."""

    FULL = (errno.ENOSPC, frozenset({"write", "replace", "create"}))
    WRITE_ERROR = (errno.EIO, frozenset({"write", "truncate", "replace"}))
    SYNC_ERROR = (errno.EIO, frozenset({"sync"}))
    READ_ERROR = (errno.EIO, frozenset({"read"}))
    READ_ONLY = (errno.EROFS, _CHANGES)
    VANISHED = (errno.ENOENT, _CHANGES | {"read"})

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def calls(self) -> frozenset[str]:
        return self.value[1]


@dataclass(slots=True)
class _Rule:
    fault: Fault
    covers: Callable[[Path], bool]
    spared: int

    def hits(self, call: str, path: Path) -> bool:
        if call not in self.fault.calls or not self.covers(path):
            return False
        self.spared -= 1
        return self.spared < 0


class FailingFiles:
    """The wrapper, with the interface `Files`. `failed` lists (call, path) of each failed call in order.

    like   another wrapper of the same disk that shares its faults with this one
    """

    def __init__(
        self,
        inner: Files,
        *,
        like: FailingFiles | None = None,
        watch: Callable[[str, Path], object] = lambda call, path: None,
    ) -> None:
        self.inner = inner
        self.failed: list[tuple[str, Path]] = []
        self.watch = watch
        self._rules: list[_Rule] = [] if like is None else like._rules
        self._tear: tuple[float, Callable[[], object]] | None = None
        self._locks: list[Lock] = []
        self._ended = False

    def fail(
        self,
        fault: Fault,
        under: Path | None = None,
        *,
        matching: Callable[[Path], bool] | None = None,
        after: int = 0,
    ) -> None:
        """Begin a fault for a path and everything below it (or everywhere), after `after` calls of its kind succeeded.

        `matching` restricts the fault to paths for which it returns True. VANISHED hides names and files at once,
        whatever `after` is.
        """

        def covers(path: Path) -> bool:
            inside = under is None or path == under or under in path.parents
            return inside and (matching is None or matching(path))

        self._rules.append(_Rule(fault, covers, after))

    def tear(self, share: float, cut: Callable[[], object]) -> None:
        """Write only that share of the bytes of the next write to a log; then `cut` is called, and the write raises
        PowerCut.
        """
        self._tear = (share, cut)

    def torn(self, path: Path, size: int) -> tuple[int, Callable[[], object]] | None:
        """Return the number of bytes of this write to keep and the function that ends the writer, or None.

        Only one write is torn, and only one to a file named `*.log`.
        """
        if self._tear is None or path.suffix != ".log":
            return None
        (share, cut), self._tear = self._tear, None
        return int(share * size), cut

    def heal(self) -> None:
        """End all faults."""
        self._rules.clear()
        self._tear = None

    def end(self) -> None:
        """End the process that uses this wrapper: release its locks. Later reads and changes raise PowerCut."""
        self._ended = True
        for lock in self._locks:
            lock.release()

    def ask(self, call: str, path: Path) -> None:
        """Begin a call: raise StorageError if it is to fail, with the effects of `refusal`."""
        number = self.refusal(call, path)
        if number:
            raise refused(path, number)

    def refusal(self, call: str, path: Path) -> int:
        """Return the error number with which the call is to fail, or 0. Raise PowerCut if the process has ended.

        `watch` is called first if the call changes something. A failed call is added to `failed`.
        """
        if self._ended:
            raise PowerCut
        if call in _CHANGES:
            self.watch(call, path)
        for rule in self._rules:
            if rule.hits(call, path):
                self.failed.append((call, path))
                if call == "sync" and isinstance(self.inner, CrashableFiles):
                    self.inner.lose(path)
                return rule.fault.number
        return 0

    # --- Files ---------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = True) -> File:
        return FailingFile(self, path, create=create)

    def exists(self, path: Path) -> bool:
        return not self._gone(path) and self.inner.exists(path)

    def is_directory(self, path: Path) -> bool:
        return not self._gone(path) and self.inner.is_directory(path)

    def names(self, directory: Path) -> list[str]:
        if self._gone(directory):
            return []
        self.ask("read", directory)
        return self.inner.names(directory)

    def read(self, path: Path) -> bytes | None:
        if self._gone(path):
            return None
        self.ask("read", path)
        return self.inner.read(path)

    def replace(self, path: Path, data: bytes, *, fsync: bool = True) -> None:
        self.ask("replace", path)
        if fsync:
            self.ask("sync", path)
        self.inner.replace(path, data, fsync=fsync)

    def rename(self, old: Path, new: Path) -> None:
        self.ask("rename", old)
        self.inner.rename(old, new)

    def remove(self, path: Path) -> None:
        if not self._gone(path):
            self.ask("remove", path)
            self.inner.remove(path)

    def remove_directory(self, path: Path) -> None:
        if not self._gone(path):
            self.ask("remove", path)
            self.inner.remove_directory(path)

    def make_directory(self, path: Path) -> None:
        if not self.inner.exists(path) or self._gone(path):
            self.ask("create", path)
        self.inner.make_directory(path)

    def fsync_directory(self, path: Path) -> None:
        self.ask("sync", path)
        self.inner.fsync_directory(path)

    def try_lock(self, path: Path) -> Lock | None:
        if not self.inner.exists(path) or self._gone(path):
            self.ask("create", path)
        lock = self.inner.try_lock(path)
        if lock is not None:
            self._locks.append(lock)
        return lock

    def _gone(self, path: Path) -> bool:
        return any(rule.fault is Fault.VANISHED and rule.covers(path) for rule in self._rules)


class FailingFile:
    """A file of FailingFiles, with the interface `File`."""

    def __init__(self, files: FailingFiles, path: Path, *, create: bool = True) -> None:
        self.path = path
        self._files = files
        self._create = create
        self._inner = files.inner.open(path, create=create)
        self._exists = False

    def size(self) -> int:
        return self._ready("read").size()

    def modified_ms(self) -> int:
        return self._ready("read").modified_ms()

    def set_modified_ms(self, timestamp_ms: int) -> None:
        self._ready("truncate").set_modified_ms(timestamp_ms)

    def read(self, position: int, count: int) -> bytes:
        return self._ready("read").read(position, count)

    def send(self, position: int, count: int, socket: int) -> int:
        return self._ready("read").send(position, count, socket)

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        inner = self._ready("")
        number = self._files.refusal("write", self.path)
        if number:
            data = b"".join(parts)
            if number != errno.EROFS and number != errno.ENOENT:
                inner.write(position, (data[: len(data) // 2],))
            raise refused(self.path, number)
        if (torn := self._files.torn(self.path, sum(map(len, parts)))) is not None:
            kept, cut = torn
            inner.write(position, (b"".join(parts)[:kept],))
            cut()
            raise PowerCut
        inner.write(position, parts)

    def truncate(self, size: int) -> None:
        self._ready("truncate").truncate(size)

    def fsync(self) -> None:
        self._files.ask("sync", self.path)
        self._inner.fsync()

    def close(self) -> None:
        self._exists = False
        self._inner.close()

    def _ready(self, call: str) -> File:
        """Return the inner file. The first use creates it, so that the creation can fail too."""
        if call:
            self._files.ask(call, self.path)
        if self._create and not self._exists and not self._files.inner.exists(self.path):
            self._files.ask("create", self.path)
        self._exists = True
        return self._inner


def refused(path: Path, number: int) -> StorageError:
    """Return the error of a call that fails with this error number."""
    return StorageError(f"{path}: {os.strerror(number)}")


_: Files = FailingFiles(CrashableFiles())
