"""The common part of a segment's two indexes."""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from storage.files import File
from storage.segments.fixed_entry_file import EntryFile


class SparseIndex(EntryFile):
    """Entries for batches of a segment, increasing in both fields. Subclasses keep the values of the last entry."""

    __slots__ = ("_base_offset",)

    ENTRY: ClassVar[Struct]

    def __init__(self, file: File, base_offset: int) -> None:
        super().__init__(file, self.ENTRY)
        self._base_offset = base_offset
        self._refresh()

    @property
    def size_bytes(self) -> int:
        """Return the size of the index in bytes, including unwritten entries."""
        return self.count * self.ENTRY.size

    def keep(self, count: int) -> None:
        super().keep(count)
        self._refresh()

    def _refresh(self) -> None:
        """Set the attributes that the subclass derives from the last entry, after the file was opened or cut.

        An append does not call this method, because it sets the attributes itself.
        """
        raise NotImplementedError
