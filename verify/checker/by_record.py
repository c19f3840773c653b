"""Store one number per record id.

Producers count their records, so ids come in runs. A dict of ints would cost a look-up and a hundred bytes per record.
Here a run costs one copy of memory, and a record eight bytes of a page.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from tidelog.history.columns import Column, as_array

#: The value for a missing number. No time and no offset has this value.
ABSENT: Final = -1 << 63

#: The size of a page in bits. Pages are small, because ids may also be far apart.
_BITS: Final = 8
_SIZE: Final = 1 << _BITS
_EMPTY: Final = array("q", [ABSENT]) * _SIZE


class ByRecord:
    """One stored number for each record id, such as a time or an offset.

    A column of ids that is a range (`columns.consecutive`) is stored at once; others cost one step per record.

    `[id]` returns `ABSENT` for an id without a number, and `get` None.
    """

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._pages)

    def __contains__(self, record_id: int) -> bool:
        return self.get(record_id) is not None

    def __getitem__(self, record_id: int) -> int:
        page = self._pages.get(record_id >> _BITS, _EMPTY)
        return page[record_id % _SIZE]

    def get(self, record_id: int) -> int | None:
        number = self[record_id]
        return None if number == ABSENT else number

    def items(self) -> Iterator[tuple[int, int]]:
        """Yield (id, number) of each stored number, in the order of ids if the ids were stored in order."""
        for key, page in self._pages.items():
            if page != _EMPTY:
                for record_id, number in enumerate(page, key << _BITS):
                    if number != ABSENT:
                        yield record_id, number

    def put(self, ids: Column, numbers: Column) -> None:
        """Store a number for each id, replacing earlier ones; `ABSENT` removes the number. Both columns have the same
        length.
        """
        if isinstance(ids, range):
            numbers = as_array(numbers)
            for key, places, part in _on_pages(ids):
                self._page(key)[places] = numbers[part]
        else:
            for record_id, number in zip(ids, numbers, strict=True):
                self._page(record_id >> _BITS)[record_id % _SIZE] = number

    def numbers(self, ids: Column) -> array[int]:
        """Return the number of each id in the order of `ids`, or `ABSENT` for an id without one."""
        pages = self._pages
        if not isinstance(ids, range):
            return array("q", [pages.get(each >> _BITS, _EMPTY)[each % _SIZE] for each in ids])
        found = array("q")
        for key, places, _ in _on_pages(ids):
            found += pages.get(key, _EMPTY)[places]
        return found

    def has_all(self, ids: Column) -> bool:
        """Return whether a number is stored for every one of these ids; True for an empty column."""
        return ABSENT not in self.numbers(ids)

    def has_any(self, ids: Column) -> bool:
        """Return whether a number is stored for at least one of these ids; False for an empty column."""
        return self.numbers(ids).count(ABSENT) < len(ids)

    def take(self, ids: Column) -> array[int]:
        """Remove the numbers of these ids, and return them as `numbers` does."""
        found = self.numbers(ids)
        self.put(ids, array("q", [ABSENT]) * len(ids))
        return found

    def _page(self, key: int) -> array[int]:
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = _EMPTY[:]
        return page


def _on_pages(ids: range) -> Iterator[tuple[int, slice, slice]]:
    """Split a range by pages: yield the page's key, the slice of the page, and the slice of the range."""
    start = ids.start
    while start < ids.stop:
        first, done = start % _SIZE, start - ids.start
        count = min(_SIZE - first, ids.stop - start)
        yield start >> _BITS, slice(first, first + count), slice(done, done + count)
        start += count
