"""Bound the number of open files, so that it does not grow with the number of partitions.

A file is opened on its first use. If too many files are open then, files that were not used lately are closed, and each
of them is opened again on its next use. The clock algorithm chooses them, because a list in the order of use would have
to change with every read. A file that a thread uses at the moment stays open.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import OrderedDict

from storage.descriptor_reserve import NO_RESERVE, DescriptorReserve

_MODE = 0o644
_CLOSED = -1


class OpenFiles:
    """The open files of a process. Any thread may use them.

    most   how many files may be open; each thread may hold one more while it uses it
    """

    def __init__(self, most: int = sys.maxsize, reserve: DescriptorReserve = NO_RESERVE) -> None:
        self.reserve = reserve
        self._most = most
        #: Held for a few steps in memory and never while the system opens or closes a file.
        self._lock = threading.Lock()
        self._open: OrderedDict[Descriptor, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, descriptor: Descriptor) -> int:
        """Open the file unless it is open, close files beyond the limit, and return the number of the descriptor.

        The caller must have joined the users of the descriptor, so that the file stays open. OSError if it cannot be
        opened, or if an earlier close has failed.
        """
        descriptor.raise_failure()
        opened = self.reserve.obtain(os.open, descriptor.path, descriptor.flags, _MODE)
        with self._lock:
            if descriptor.number == _CLOSED:
                descriptor.number = opened
                # If the file is removed or renamed after it was displaced, the next use must not create it empty.
                descriptor.flags &= ~os.O_CREAT
                self._open[descriptor] = None
                displaced = self._displace()
            else:
                displaced = [(descriptor, opened)]  # another thread has opened the file meanwhile
            number = descriptor.number
        for other, surplus in displaced:
            try:
                os.close(surplus)
            except OSError as error:
                other.failure = error
        return number

    def close(self, descriptor: Descriptor) -> None:
        """Close the file, or let the last thread that uses it do so. The file is opened again on its next use.

        OSError if the system reports that bytes written earlier are lost.
        """
        with self._lock:
            descriptor.flags |= descriptor.creates  # the owner may have renamed the file, and may want it anew
            descriptor.is_closing = True  # before the users are read, so that a user that leaves later sees it
            number = self._detach(descriptor)
            failure, descriptor.failure = descriptor.failure, None
        if number != _CLOSED:
            os.close(number)
        if failure is not None:
            raise failure

    def _displace(self) -> list[tuple[Descriptor, int]]:
        """Remove descriptors beyond the limit from the table, and return them and the numbers to close."""
        displaced = []
        for _ in range(2 * len(self._open)):
            if len(self._open) <= self._most:
                break
            descriptor = next(iter(self._open))
            number = _CLOSED if descriptor.was_used else self._detach(descriptor)
            if number == _CLOSED:
                descriptor.was_used = False
                self._open.move_to_end(descriptor)
            else:
                displaced.append((descriptor, number))
        return displaced

    def _detach(self, descriptor: Descriptor) -> int:
        """Take the number of a descriptor that no thread uses, and return it; −1 if a thread uses it, or it is closed.

        A thread begins its use without the lock: it joins the users and then reads the number. This method therefore
        takes the number first and reads the users afterwards, because a thread that joins later finds no number and
        opens the file itself.
        """
        number, descriptor.number = descriptor.number, _CLOSED
        if descriptor.users:
            descriptor.number = number
            return _CLOSED
        descriptor.is_closing = False
        self._open.pop(descriptor, None)
        return number


class Descriptor:
    """Holds the descriptor of one file. `with descriptor as number:` opens the file if needed; OSError if that fails.

    flags        of the next open; `creates` is added again when the owner closes the file
    number       −1 if the file is not open; changes under the lock of `open_files`
    users        one entry for each thread that uses it at the moment. Threads add and remove their entries by one step
                 of the interpreter each, because a lock would double the time of a small read
    was_used     whether it was used since `OpenFiles` last considered to close it
    is_closing   whether the last user closes it
    failure      the error of a close that the owner did not call; each use raises it until the owner closes the file
    """

    __slots__ = ("_open_files", "creates", "failure", "flags", "is_closing", "number", "path", "users", "was_used")

    def __init__(self, open_files: OpenFiles, path: str, flags: int) -> None:
        self._open_files = open_files
        self.path = path
        self.flags = flags
        self.creates = flags & os.O_CREAT
        self.number = _CLOSED
        self.users: list[None] = []
        self.was_used = self.is_closing = False
        self.failure: OSError | None = None

    def __enter__(self) -> int:
        self.users.append(None)
        self.was_used = True
        number = self.number
        if number == _CLOSED:
            try:
                return self._open_files.open(self)
            except BaseException:
                self.users.pop()
                raise
        return number

    def __exit__(self, *_: object) -> None:
        self.users.pop()
        if self.is_closing:
            try:
                self.close()
            except OSError as error:
                self.failure = error  # the file's owner has called `close`, and not this thread

    def raise_failure(self) -> None:
        """Raise the error of a close that the owner did not call, if there was one."""
        failure = self.failure  # another thread may clear it
        if failure is not None:
            raise failure

    def close(self) -> None:
        self._open_files.close(self)
