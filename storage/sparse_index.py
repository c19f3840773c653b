"""What the two indexes of a segment have in common."""

from __future__ import annotations

from struct import Struct

from storage.entry_file import EntryFile
from storage.files import File


class SparseIndex:
    """Entries of a segment's batches, increasing in both fields, with what the last of them says at hand."""

    __slots__ = ("_base_offset", "_entries", "_entry_bytes")

    def __init__(self, file: File, layout: Struct, base_offset: int) -> None:
        self._base_offset = base_offset
        self._entries = EntryFile(file, layout)
        self._entry_bytes = layout.size
        self._refresh()

    def __len__(self) -> int:
        return self._entries.count

    @property
    def ragged(self) -> bool:
        """Whether bytes follow the last whole entry."""
        return self._entries.ragged

    @property
    def size_bytes(self) -> int:
        return self._entries.count * self._entry_bytes

    def keep(self, count: int) -> None:
        """Drops all but the first `count` entries."""
        self._entries.truncate(count)
        self._refresh()

    def sync(self) -> None:
        self._entries.sync()

    def close(self) -> None:
        self._entries.close()

    def _refresh(self) -> None:
        """The last entry is another one."""
        raise NotImplementedError
