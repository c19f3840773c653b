"""All file-system calls of the broker's storage.

The rest of `storage` uses the protocols `Files` and `File`, so that a test can substitute a file system that fails on
command or forgets data that was never flushed. Positions and sizes are in bytes. Every error of a file becomes
a StorageError that names the path. Nothing here retries: after a failed fsync the kernel may have dropped the pages
already, so a later fsync that succeeds proves nothing. A lack of file descriptors is not a failure of the disk;
`storage.descriptor_reserve` keeps some for files, and OutOfDescriptorsError reports their lack.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from storage.descriptor_reserve import NONE_LEFT, OutOfDescriptorsError
from storage.open_files import Descriptor, OpenFiles
from tidelog.errors import StorageError
from tidelog.model import Buffer

#: The most parts of one write; the kernel refuses a system call with more.
_MOST_PARTS = os.sysconf("SC_IOV_MAX")
#: The errors of `os.sendfile` that are the connection's and not the file's.
_CONNECTION_LOST = {
    errno.EPIPE,
    errno.ECONNRESET,
    errno.ENOTCONN,
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
}


class File(Protocol):
    """A file that is read and written at positions; it is opened on first use."""

    @property
    def path(self) -> Path: ...

    def size(self) -> int: ...

    def modified_ms(self) -> int:
        """Return when the content was last changed, in ms by the machine's clock at that moment."""
        ...

    def set_modified_ms(self, timestamp_ms: int) -> None:
        """Set the time of the last change, for a file that replaces another file with content of that age."""
        ...

    def read(self, position: int, count: int) -> bytes:
        """Return `count` bytes from `position` on; fewer only at the end of the file."""
        ...

    def send(self, position: int, count: int, socket: int) -> int:
        """Send up to `count` bytes from `position` on to a socket's descriptor that does not block, uncopied.

        Return how many bytes the socket accepted, 0 if it takes none now. Raise StorageError if the file has no byte at
        `position`, and OSError if the connection is lost.
        """
        ...

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        """Write all parts at `position`, one after the other, without a flush.

        After an error any prefix of them may have been written.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None:
        """Flush the content to the disk (fsync). Do nothing if no file exists at the path.

        Another thread may call this beside the other methods.
        """
        ...

    def close(self) -> None:
        """Close the descriptor. A later call opens the file again."""
        ...


class Lock(Protocol):
    """A lock on a file, held until it is released or the process ends."""

    def release(self) -> None: ...


class Files(Protocol):
    """A file system."""

    def open(self, path: Path, *, create: bool = True) -> File:
        """Return a file, without a system call yet.

        The first use creates the file if it is missing, except `modified_ms` and `fsync`. Without `create`, every use
        of a missing file except `fsync` raises StorageError.
        """
        ...

    def exists(self, path: Path) -> bool: ...

    def is_directory(self, path: Path) -> bool: ...

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted; an empty list if the directory does not exist."""
        ...

    def read(self, path: Path) -> bytes | None:
        """Return the whole file; None if it does not exist."""
        ...

    def replace(self, path: Path, data: bytes, *, fsync: bool = True) -> None:
        """Replace a file so that it always has either the old or the new content, even if the process ends at any time.

        With `fsync` that holds for a power failure too, and the new content survives one once the call returns.
        """
        ...

    def rename(self, old: Path, new: Path) -> None: ...

    def remove(self, path: Path) -> None:
        """Remove a file, without a flush of the directory; no error if it does not exist."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove a directory with everything in it; no error if it does not exist."""
        ...

    def make_directory(self, path: Path) -> None:
        """Create a directory with its parents; no error if it exists."""
        ...

    def fsync_directory(self, path: Path) -> None:
        """Flush the names in a directory (fsync), because a new file survives a power failure only if its name does."""
        ...

    def try_lock(self, path: Path) -> Lock | None:
        """Lock a file exclusively and return the lock; None if the file is locked already.

        Create it if it is missing.
        """
        ...


class RealFile:
    """`File` over a descriptor of the operating system.

    The path is kept as a string, because a `Path` takes 200 bytes more and each replica has three files.
    """

    __slots__ = ("_descriptor", "_open_files")

    def __init__(self, path: Path, *, create: bool = True, open_files: OpenFiles | None = None) -> None:
        self._open_files = OpenFiles() if open_files is None else open_files
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._descriptor = Descriptor(self._open_files, str(path), flags)

    @property
    def path(self) -> Path:
        return Path(self._descriptor.path)

    def size(self) -> int:
        try:
            with self._descriptor as fd:
                return os.fstat(fd).st_size
        except OSError as error:
            raise _storage_error(self.path, error) from error

    def modified_ms(self) -> int:
        try:
            # By the path, so that a call for all segments of a log opens none of them.
            return os.stat(self._descriptor.path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise _storage_error(self.path, error) from error

    def set_modified_ms(self, timestamp_ms: int) -> None:
        try:
            with self._descriptor as fd:
                os.utime(fd, ns=(timestamp_ms * 1_000_000, timestamp_ms * 1_000_000))
        except OSError as error:
            raise _storage_error(self.path, error) from error

    def read(self, position: int, count: int) -> bytes:
        try:
            with self._descriptor as fd:
                return read_at(fd, count, position)
        except OSError as error:
            raise _storage_error(self.path, error) from error

    def send(self, position: int, count: int, socket: int) -> int:
        try:
            with self._descriptor as fd:
                sent = os.sendfile(socket, fd, position, count)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno in _CONNECTION_LOST:
                raise
            raise _storage_error(self.path, error) from error
        if not sent:
            raise StorageError(f"{self.path}: the file ends before position {position}")
        return sent

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        try:
            with self._descriptor as fd:
                written = os.pwritev(fd, parts, position) if len(parts) <= _MOST_PARTS else 0
                if written != sum(map(len, parts)):
                    _write_rest(fd, position, b"".join(parts), written)
        except OSError as error:
            raise _storage_error(self.path, error) from error

    def truncate(self, size: int) -> None:
        try:
            with self._descriptor as fd:
                os.ftruncate(fd, size)
        except OSError as error:
            raise _storage_error(self.path, error) from error

    def fsync(self) -> None:
        try:
            self._descriptor.raise_failure()
            # Not the shared descriptor, because its first use would create a missing file.
            fd = self._open_files.reserve.obtain(os.open, self._descriptor.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return  # removed meanwhile, so nothing needs a flush
        except OSError as error:
            raise _storage_error(self.path, error) from error

    def close(self) -> None:
        with _errors_of(self.path):
            self._descriptor.close()


class _FileLock:
    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with _errors_of(self._path):
                os.close(fd)


class RealFiles:
    """`Files` on the machine's own file system."""

    def __init__(self, open_files: OpenFiles | None = None) -> None:
        self._open_files = OpenFiles() if open_files is None else open_files
        self._reserve = self._open_files.reserve

    def open(self, path: Path, *, create: bool = True) -> File:
        return RealFile(path, create=create, open_files=self._open_files)

    def exists(self, path: Path) -> bool:
        with _errors_of(path):
            return path.exists()

    def is_directory(self, path: Path) -> bool:
        with _errors_of(path):
            return path.is_dir()

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(self._reserve.obtain(os.listdir, directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _storage_error(directory, error) from error

    def read(self, path: Path) -> bytes | None:
        try:
            return self._reserve.obtain(path.read_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _storage_error(path, error) from error

    def replace(self, path: Path, data: bytes, *, fsync: bool = True) -> None:
        with _errors_of(path):
            fd, draft = self._reserve.obtain(_open_draft, path)
            try:
                _write_rest(fd, 0, data, 0)
                if fsync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            if not fsync:
                os.replace(draft, path)
                return
            # The directory is opened before the rename, so that the old file stays if no descriptor is free.
            directory = self._open_directory(path.parent)
            try:
                os.replace(draft, path)
                with _errors_of(path.parent):
                    os.fsync(directory)
            finally:
                os.close(directory)

    def rename(self, old: Path, new: Path) -> None:
        with _errors_of(old):
            os.rename(old, new)

    def remove(self, path: Path) -> None:
        with _errors_of(path):
            path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        with _errors_of(path), contextlib.suppress(FileNotFoundError):
            self._reserve.obtain(shutil.rmtree, path)

    def make_directory(self, path: Path) -> None:
        with _errors_of(path):
            path.mkdir(parents=True, exist_ok=True)

    def fsync_directory(self, path: Path) -> None:
        with _errors_of(path):
            fd = self._open_directory(path)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _open_directory(self, path: Path) -> int:
        return self._reserve.obtain(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def try_lock(self, path: Path) -> Lock | None:
        with _errors_of(path):
            fd = self._reserve.obtain(os.open, path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            except OSError:
                os.close(fd)
                raise
        return _FileLock(path, fd)


def _open_draft(path: Path) -> tuple[int, Path]:
    """Open the temporary file of a replacement. If a directory has its name, use another name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    draft, other = (path.with_name(path.name + suffix) for suffix in (".tmp", ".1.tmp"))
    try:
        return os.open(draft, flags, 0o644), draft
    except IsADirectoryError:
        with _errors_of(other):
            return os.open(other, flags, 0o644), other


def read_at(fd: int, count: int, position: int) -> bytes:
    """Return `count` bytes from `position` on, or fewer if the file ends before. OSError.

    One system call may return a part of the bytes that are there. Only an empty result means the end of the file.
    """
    data = os.pread(fd, count, position)
    while 0 < len(data) < count:
        more = os.pread(fd, count - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def _write_rest(fd: int, position: int, data: bytes, written: int) -> None:
    """Write `data[written:]`, in as many system calls as are needed; `data` begins at `position`. OSError.

    One system call may write a part of the bytes without an error. The next one then fails with the cause, for example
    ENOSPC.
    """
    while written < len(data):
        count = os.pwrite(fd, memoryview(data)[written:], position + written)
        if not count:
            raise OSError(errno.EIO, f"only {written} of {len(data)} bytes were written")
        written += count


def _storage_error(path: Path, error: OSError) -> StorageError:
    kind = OutOfDescriptorsError if error.errno in NONE_LEFT else StorageError
    return kind(f"{path}: {error.strerror or error}")


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _storage_error(path, error) from error
