"""A file of entries of one size: what both indexes of a segment are made of."""

from __future__ import annotations

from struct import Struct

from storage.files import File
from tidelog.errors import StorageError


class EntryFile:
    """Entries of fixed layout, appended at the end and read in any order.

    It is a sequence in the sense of `bisect`: a search reads O(log n) entries, each with one call, and never the
    whole file. Bytes after the last whole entry are no entry; `ragged` says that there are some.
    """

    __slots__ = ("_file", "_layout", "_size", "_unsynced", "count", "ragged")

    def __init__(self, file: File, layout: Struct) -> None:
        self._file = file
        self._layout = layout
        self._size = layout.size
        self._unsynced = True
        size = file.size()
        self.count = size // self._size
        self.ragged = size % self._size != 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, slot: int) -> tuple[int, int]:
        if not 0 <= slot < self.count:
            raise IndexError(slot)
        data = self._file.read(slot * self._size, self._size)
        if len(data) < self._size:
            raise StorageError(f"{self._file.path}: entry {slot} of {self.count} is gone")
        first, second = self._layout.unpack(data)
        return first, second

    def append(self, first: int, second: int) -> None:
        """The entry counts only if all of it was written, so a failed write leaves the file's meaning as it was."""
        self._file.write(self.count * self._size, (self._layout.pack(first, second),))
        self.count += 1
        self._unsynced = True

    def truncate(self, count: int) -> None:
        """Keeps the first `count` entries."""
        self._file.truncate(count * self._size)
        self.count = count
        self.ragged = False
        self._unsynced = True

    def sync(self) -> None:
        if self._unsynced:
            # Lowered first: an append on the other thread raises it again and is synced the next time.
            self._unsynced = False
            self._file.sync()

    def close(self) -> None:
        self._file.close()
