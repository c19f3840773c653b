"""The names of the files in a log directory and in its logs.

Names of a log's files begin with an offset in twenty digits, so that they sort as the offsets do.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

#: Files of a log directory, besides its checkpoints.
LOCK, BOOT_ID, SESSION_ID, CLEAN_SHUTDOWN = ".lock", "boot.id", "session.id", ".kafka_cleanshutdown"
FOUND_EMPTY = "found-empty"

LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX = ".log", ".index", ".timeindex"
#: The aborted transactions of a segment. Only Kafka writes this file.
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
#: A second suffix: a segment removed from its log, a segment being cleaned, and a cleaned one being swapped in.
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"
#: Data that was removed because of damage that no crash explains: `….log.stray`, or `….log.1.stray` if that exists.
STRAY_SUFFIX = ".stray"

_DIGITS = 20
_MARK = re.compile(r"\.(deleted|cleaned|swap|([0-9]+\.)?stray)\Z")


def file_name(offset: int, suffix: str) -> str:
    """Return the name for an offset: a segment's base offset, or the first offset that a snapshot does not cover."""
    return f"{offset:0{_DIGITS}d}{suffix}"


def stray_name(offset: int, taken: Container[str]) -> str:
    """Return a name, not in `taken`, for data that the log held from this offset on."""
    name, number = file_name(offset, LOG_SUFFIX) + STRAY_SUFFIX, 0
    while name in taken:
        number += 1
        name = file_name(offset, f"{LOG_SUFFIX}.{number}{STRAY_SUFFIX}")
    return name


def mark_of(name: str) -> str:
    """Return the second suffix of a file that is not part of its log; "" for a file that is."""
    found = _MARK.search(name)
    return found[0] if found is not None else ""


def offsets_named(names: Iterable[str], suffix: str) -> list[int]:
    """Return the offsets of the names with this suffix, increasing; other names are ignored."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(offset for stem in stems if (offset := offset_of(stem)) is not None)


def offset_of(stem: str) -> int | None:
    """Return the offset in a name without its suffix; None if it is not a name of a log file."""
    return int(stem) if len(stem) == _DIGITS and stem.isascii() and stem.isdecimal() else None
