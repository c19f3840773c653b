"""Remove the records of aborted transactions from fetched batches, for consumers that read committed records only.

A fetch answer names the aborted transactions that have records in it, each by its producer id and first offset. The
records of such a transaction end at its marker, a control batch of the same producer id. A producer id has one
transaction at a time, but may have several aborted ones in one answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.records.control import MarkerKind, decode_control_batch
from tidelog.records.header import iter_headers


class AbortedTransaction(NamedTuple):
    """An aborted transaction, with the offset of its first record in the partition."""

    producer_id: int
    first_offset: int


def without_aborted(records: memoryview, aborted: Iterable[AbortedTransaction]) -> memoryview:
    """Return the whole batches without those of aborted transactions; control batches stay.

    The result is `records` itself if no batch is removed, else a copy. Raises CorruptMessageError if a marker of an
    aborted transaction cannot be read.
    """
    later = deque(sorted(aborted, key=lambda each: each.first_offset))
    open_ids: set[int] = set()
    kept: list[memoryview] = []
    begin = end = 0
    for at, header in iter_headers(records):
        end = at + header.size_bytes
        while later and later[0].first_offset <= header.last_offset:
            open_ids.add(later.popleft().producer_id)
        if header.producer_id not in open_ids:
            continue
        if header.is_control:
            marker = decode_control_batch(records, at)
            if marker is not None and marker.kind is MarkerKind.ABORT:
                open_ids.remove(header.producer_id)
        elif header.is_transactional:
            kept.append(records[begin:at])
            begin = end
    if not begin:
        return records
    return memoryview(b"".join([*kept, records[begin:end]]))
