"""The names of the files of a log directory and of its logs.

Those of a log begin with the offset that they stand for in twenty digits, so that they sort as the offsets do.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

#: Of a log directory, besides its checkpoints.
LOCK, BOOT_ID, SESSION_ID, CLEAN_SHUTDOWN = ".lock", "boot.id", "session.id", ".kafka_cleanshutdown"
FOUND_EMPTY = "found-empty"

LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX = ".log", ".index", ".timeindex"
#: Of a segment too, but only Kafka writes one: which transactions were aborted there.
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
#: After the others: a segment that was taken out of its log, one that is being cleaned, and one that was.
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"
#: What a log lost to damage that a crash does not explain; `….log.stray`, and where that is taken, `….log.1.stray`.
STRAY_SUFFIX = ".stray"

_DIGITS = 20
_MARK = re.compile(r"\.(deleted|cleaned|swap|([0-9]+\.)?stray)\Z")


def file_name(offset: int, suffix: str) -> str:
    """For a segment the first offset that it may hold, for a snapshot the first that it does not cover."""
    return f"{offset:0{_DIGITS}d}{suffix}"


def stray_name(offset: int, taken: Container[str]) -> str:
    """A name that is not `taken` for what the log had from this offset on."""
    name, number = file_name(offset, LOG_SUFFIX) + STRAY_SUFFIX, 0
    while name in taken:
        number += 1
        name = file_name(offset, f"{LOG_SUFFIX}.{number}{STRAY_SUFFIX}")
    return name


def mark_of(name: str) -> str:
    """What follows the suffix of a file that is not, or not yet, part of its log; empty for one that is."""
    found = _MARK.search(name)
    return found[0] if found is not None else ""


def offsets_named(names: Iterable[str], suffix: str) -> list[int]:
    """The offsets of the names with this suffix, increasing; other names are passed over."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(offset for stem in stems if (offset := offset_of(stem)) is not None)


def offset_of(stem: str) -> int | None:
    """What a name without its suffix stands for; None where it is none of these names."""
    return int(stem) if len(stem) == _DIGITS and stem.isascii() and stem.isdecimal() else None
