"""Inspects the indexes of a segment: their order, and their agreement with the `.log` if it exists.

Trailing zeros are no damage in the index of an active segment. Kafka creates the file with its maximum size and
truncates it only when the segment is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from storage.inspection.batches import Batch, walk
from storage.inspection.damaged_file_reader import DamagedFileReader
from storage.inspection.findings import Damage, Fact, Finding
from storage.segments.offset_index import LAYOUT as OFFSET_ENTRY
from storage.segments.time_index import LAYOUT as TIME_ENTRY
from tidelog.errors import CorruptMessageError, UnsupportedForMessageFormatError
from tidelog.model import NO_TIMESTAMP
from tidelog.records import HEADER_BYTES, read_header

#: Kafka's `.txnindex`: version 0, then producer id, first and last offset of an aborted transaction, last stable offset
_ABORTED = Struct(">hqqqq")


def inspect_offset_index(
    source: DamagedFileReader, base_offset: int, log: DamagedFileReader | None, *, active: bool
) -> Iterator[Finding]:
    """Yield each entry, and after a damaged one its Damage. `active`: no segment follows.

    `log` is the segment's `.log`; None if it is missing, so that only the order of the entries is checked.
    """
    last = (-1, -1)
    for position, (relative, place) in source.entries(OFFSET_ENTRY):
        if (relative, place) == (0, 0) and source.zeros_from(position):
            yield _padding(source, position, active)
            return
        offset = base_offset + relative
        yield Fact("entry", {"position": position, "offset": offset, "log_position": place})
        if relative <= last[0] or place <= last[1]:
            yield Damage(position, f"the entry of offset {offset} at position {place} is not above the one before it")
        elif log is not None and (contradiction := _contradiction(log, offset, place)):
            yield Damage(position, contradiction)
        last = relative, place
    yield from _rest(source, OFFSET_ENTRY)


def _contradiction(log: DamagedFileReader, offset: int, place: int) -> str | None:
    if not 0 <= place < log.size:
        return f"offset {offset} at position {place}, but the .log has only {log.size} bytes"
    try:
        header = read_header(log.read(place, HEADER_BYTES))
    except (CorruptMessageError, UnsupportedForMessageFormatError):
        return f"offset {offset} at position {place}, but no batch begins there in the .log"
    if header.last_offset != offset:
        return f"offset {offset} at position {place}, but the batch there ends with offset {header.last_offset}"
    return None


def inspect_time_index(
    source: DamagedFileReader, base_offset: int, log: DamagedFileReader | None, *, active: bool
) -> Iterator[Finding]:
    """Yield as `inspect_offset_index`, for a time index."""
    maxima = _Maxima(log) if log is not None else None
    last = (NO_TIMESTAMP, -1)
    for position, (timestamp, relative) in source.entries(TIME_ENTRY):
        # A single such entry may be valid, for a first record of the year 1970.
        if (timestamp, relative) == (0, 0) and source.size > TIME_ENTRY.size and source.zeros_from(position):
            yield _padding(source, position, active)
            return
        offset = base_offset + relative
        yield Fact("entry", {"position": position, "timestamp": timestamp, "offset": offset})
        if timestamp <= last[0] or relative <= last[1]:
            yield Damage(
                position, f"the entry of timestamp {timestamp} and offset {offset} is not above the one before it"
            )
        elif maxima is not None and (contradiction := maxima.contradiction(timestamp, offset)):
            yield Damage(position, contradiction)
        last = timestamp, relative
    yield from _rest(source, TIME_ENTRY)


class _Maxima:
    """The running maximum of a `.log`'s timestamps, computed along with the entries of its time index."""

    def __init__(self, log: DamagedFileReader) -> None:
        self._batches = walk(log)
        self._reached = NO_TIMESTAMP
        self._broken = False

    def contradiction(self, timestamp: int, offset: int) -> str | None:
        """Return the contradiction between an entry and the `.log`; None if there is none.

        The offsets of successive calls must increase. None also if the `.log` is damaged before the offset, because the
        `.log` then proves nothing.
        """
        for batch in self._batches:
            if not isinstance(batch, Batch):
                self._broken = True
                break
            header = batch.header
            before, self._reached = self._reached, max(self._reached, header.max_timestamp)
            if header.last_offset < offset:
                continue
            if header.last_offset == offset and header.max_timestamp == timestamp > before:
                return None
            return (
                f"timestamp {timestamp} of offset {offset}, but the batch that ends with offset {header.last_offset} "
                f"has {header.max_timestamp}, and the batches before it reach {before}"
            )
        return None if self._broken else f"timestamp {timestamp} of offset {offset}, but the .log has no such offset"


def inspect_aborted(source: DamagedFileReader) -> Iterator[Finding]:
    """Yield the findings of Kafka's index of aborted transactions. Tidelog never writes one."""
    for position, (version, producer_id, first, last, stable) in source.entries(_ABORTED):
        yield Fact(
            "aborted",
            {"producer_id": producer_id, "first_offset": first, "last_offset": last, "last_stable_offset": stable},
        )
        if version != 0:
            yield Damage(position, f"version {version} instead of 0")
    yield from _rest(source, _ABORTED)


def _padding(source: DamagedFileReader, position: int, active: bool) -> Finding:
    size = source.size - position
    if active:
        return Fact("padding", {"position": position, "size_bytes": size})
    return Damage(position, f"{size} bytes of zeros to the end of the file")


def _rest(source: DamagedFileReader, layout: Struct) -> Iterator[Damage]:
    if rest := source.size % layout.size:
        yield Damage(source.size - rest, f"{rest} bytes at the end are not a whole entry")
