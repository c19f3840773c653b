"""A file of entries of one size, from which both indexes of a segment are built."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from struct import Struct

from storage.files import File
from tidelog.errors import StorageError

#: The number of entries that are read and written together.
PAGE = 64


class EntryFile:
    """Entries of two increasing numbers. Entries are appended at the end and searched by either number.

    Memory holds the first entry of each page, the last page, which is being filled, and the page that was read last.
    The first search reads the whole file. Every other one costs at most one read, however long the file is. An append
    writes to the file only when a page is full, or when `write_out` or `flush` is called. A crash loses unwritten
    entries, as it may lose unflushed ones.

    Bytes after the last whole entry are ignored; `has_partial_entry` says that there are some. Another thread may call
    `flush`.
    """

    __slots__ = (
        "_fences",
        "_file",
        "_layout",
        "_page",
        "_page_bytes",
        "_page_number",
        "_size",
        "_tail",
        "_tail_start",
        "_unflushed",
        "_writing",
        "_written",
        "count",
        "has_partial_entry",
    )

    def __init__(self, file: File, layout: Struct) -> None:
        self._file = file
        self._layout = layout
        self._size = layout.size
        self._page_bytes = PAGE * layout.size
        #: Held while the file is written and while the last page changes.
        self._writing = threading.Lock()
        self._unflushed = True
        size = file.size()
        self.has_partial_entry = size % self._size != 0
        self._begin_with(size // self._size)

    def _begin_with(self, count: int) -> None:
        """Forget what memory holds, because the file now has exactly `count` entries."""
        self.count = self._written = count
        self._tail_start = count - count % PAGE
        self._tail: bytearray | None = None
        self._page, self._page_number = b"", -1
        self._fences: tuple[array[int], array[int]] | None = None

    def __len__(self) -> int:
        return self.count

    # --- reading -------------------------------------------------------------------------------------

    def __getitem__(self, slot: int) -> tuple[int, int]:
        if not 0 <= slot < self.count:
            raise IndexError(slot)
        number, inside = divmod(slot, PAGE)
        first, second = self._layout.unpack_from(self._page_of(number), inside * self._size)
        return first, second

    def rank(self, field: int, target: int) -> int:
        """Return how many entries have a first (0) or second (1) field below `target`.

        That number is the slot of the first other entry.
        """
        if not self.count:
            return 0  # without `_load_fences`, because most indexes of a broker with many partitions are empty
        fences = self._fences if self._fences is not None else self._load_fences()
        number = bisect_left(fences[field], target) - 1
        if number < 0:
            return 0
        page, size, unpack = self._page_of(number), self._size, self._layout.unpack_from
        inside = bisect_left(range(len(page) // size), target, key=lambda slot: unpack(page, slot * size)[field])
        return number * PAGE + inside

    def _page_of(self, number: int) -> bytes | bytearray:
        if number * PAGE == self._tail_start:
            return self._tail if self._tail is not None else self._load_tail()
        if number != self._page_number:
            self._page, self._page_number = self._read(number * PAGE, PAGE), number
        return self._page

    def _load_tail(self) -> bytearray:
        tail = self._tail = bytearray(self._read(self._tail_start, self.count - self._tail_start))
        return tail

    def _load_fences(self) -> tuple[array[int], array[int]]:
        data = self._read(0, self._tail_start)
        fences = self._fences = (array("q"), array("q"))
        for at in range(0, len(data), self._page_bytes):
            self._add_fence(*self._layout.unpack_from(data, at))
        if self.count > self._tail_start:
            self._add_fence(*self[self._tail_start])
        return fences

    def _add_fence(self, first: int, second: int) -> None:
        if self._fences is not None:
            self._fences[0].append(first)
            self._fences[1].append(second)

    def _read(self, slot: int, count: int) -> bytes:
        data = self._file.read(slot * self._size, count * self._size)
        if len(data) < count * self._size:
            raise StorageError(f"{self._file.path}: the file is shorter than its {self.count} entries")
        return data

    # --- writing -------------------------------------------------------------------------------------

    def put(self, first: int, second: int) -> None:
        """Append an entry, which the caller has made larger in both fields; write the page to the file if it is full.

        After a StorageError the entries are as before.
        """
        tail = self._tail if self._tail is not None else self._load_tail()
        if not tail:
            self._add_fence(first, second)
        tail += self._layout.pack(first, second)
        self.count += 1
        self._unflushed = True
        if len(tail) == self._page_bytes:
            self._finish_page(tail)

    def _finish_page(self, tail: bytearray) -> None:
        with self._writing:
            try:
                self._write_waiting()
            except StorageError:
                del tail[-self._size :]
                self.count -= 1
                raise
            self._tail_start, self._tail = self.count, bytearray()

    def write_out(self) -> None:
        """Write all entries to the file, without a flush."""
        with self._writing:
            self._write_waiting()

    def _write_waiting(self) -> None:
        if self._tail is None:
            return
        # A copy, because the owner may append meanwhile.
        waiting = bytes(self._tail[(self._written - self._tail_start) * self._size :])
        if waiting:
            self._file.write(self._written * self._size, (waiting,))
            self._written += len(waiting) // self._size

    def keep(self, count: int) -> None:
        """Remove all entries but the first `count`, also from the file. Unwritten ones of the first `count` stay so."""
        with self._writing:
            written = min(count, self._written)
            self._file.truncate(written * self._size)
            self.has_partial_entry = False
            self._unflushed = True
            if self._tail is None or count < self._tail_start:
                self._begin_with(count)
                return
            del self._tail[(count - self._tail_start) * self._size :]
            self.count, self._written, self._fences = count, written, None

    def flush(self) -> None:
        if self._unflushed:
            # Cleared first: an append on the other thread sets it again and is flushed the next time.
            self._unflushed = False
            try:
                self.write_out()
                self._file.fsync()
            except StorageError:
                self._unflushed = True
                raise

    def continue_in(self, file: File) -> None:
        """Use this object of the same file from now on, because the file gets another path. Unwritten entries stay."""
        with self._writing:
            self._file.close()
            self._file = file

    def close(self) -> None:
        """Close the file and drop unwritten entries. All others are read again when needed.

        Otherwise a running `flush` could write the dropped entries into a file that was deleted or replaced.
        """
        with self._writing:
            self._file.close()
            self._begin_with(self._written)
