"""What the two indexes of a segment have in common."""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from storage.files import File
from storage.segments.fixed_entry_file import EntryFile


class SparseIndex(EntryFile):
    """Entries of a segment's batches, increasing in both fields, with what the last of them says at hand."""

    __slots__ = ("_base_offset",)

    ENTRY: ClassVar[Struct]

    def __init__(self, file: File, base_offset: int) -> None:
        super().__init__(file, self.ENTRY)
        self._base_offset = base_offset
        self._refresh()

    @property
    def size_bytes(self) -> int:
        """With what waits to be written."""
        return self.count * self.ENTRY.size

    def keep(self, count: int) -> None:
        super().keep(count)
        self._refresh()

    def _refresh(self) -> None:
        """The last entry is another one."""
        raise NotImplementedError
