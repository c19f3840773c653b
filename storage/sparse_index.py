"""What the two indexes of a segment have in common."""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from storage.entry_file import EntryFile
from storage.files import File


class SparseIndex:
    """Entries of a segment's batches, increasing in both fields, with what the last of them says at hand."""

    __slots__ = ("_base_offset", "_entries")

    #: Of one entry.
    ENTRY_BYTES: ClassVar[int]

    def __init__(self, file: File, layout: Struct, base_offset: int) -> None:
        self._base_offset = base_offset
        self._entries = EntryFile(file, layout)
        self._refresh()

    def __len__(self) -> int:
        return self._entries.count

    @property
    def ragged(self) -> bool:
        """Whether bytes follow the last whole entry."""
        return self._entries.ragged

    @property
    def size_bytes(self) -> int:
        """With what waits to be written."""
        return self._entries.count * self.ENTRY_BYTES

    def keep(self, count: int) -> None:
        """Drops all but the first `count` entries."""
        self._entries.truncate(count)
        self._refresh()

    def write_out(self) -> None:
        """Brings into the file what still waits for its page to fill."""
        self._entries.write_out()

    def sync(self) -> None:
        self._entries.sync()

    def close(self) -> None:
        self._entries.close()

    def _refresh(self) -> None:
        """The last entry is another one."""
        raise NotImplementedError
