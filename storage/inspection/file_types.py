"""Recognises files by their names, and orders the files of a directory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from storage import partition_metadata
from storage.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from storage.directory import leadership_checkpoint, lost_logs, meta_properties
from storage.file_names import (
    BOOT_ID,
    CLEAN_SHUTDOWN,
    FOUND_EMPTY,
    INDEX_SUFFIX,
    LOCK,
    LOG_SUFFIX,
    SESSION_ID,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    mark_of,
    offset_of,
    offsets_named,
)
from storage.inspection import text_files
from storage.inspection.batches import inspect_batches
from storage.inspection.damaged_file_reader import DamagedFileReader
from storage.inspection.findings import Finding
from storage.inspection.indexes import inspect_aborted, inspect_offset_index, inspect_time_index
from storage.log.leader_epochs import FILE_NAME as LEADER_EPOCHS
from tidelog.errors import StorageError

_OFFSETS = functools.partial(text_files.inspect_checkpoint, parse=text_files.offset_entry)
_BY_NAME: dict[str, Callable[[DamagedFileReader], Iterator[Finding]]] = {
    RECOVERY_POINTS: _OFFSETS,
    HIGH_WATERMARKS: _OFFSETS,
    LOG_STARTS: _OFFSETS,
    CLEANER_OFFSETS: _OFFSETS,
    leadership_checkpoint.FILE_NAME: functools.partial(
        text_files.inspect_checkpoint, parse=text_files.leadership_entry
    ),
    lost_logs.FILE_NAME: functools.partial(text_files.inspect_checkpoint, parse=text_files.lost_entry),
    LEADER_EPOCHS: text_files.inspect_epochs,
    partition_metadata.FILE_NAME: text_files.inspect_partition_metadata,
    meta_properties.FILE_NAME: text_files.inspect_meta_properties,
    CLEAN_SHUTDOWN: text_files.inspect_clean_marker,
    BOOT_ID: text_files.inspect_line,
    SESSION_ID: text_files.inspect_line,
    LOCK: text_files.inspect_line,
    FOUND_EMPTY: text_files.inspect_line,
}
_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)


def inspect(path: Path, *, records: bool = False) -> Iterator[Finding]:
    """Return the findings of a file. StorageError at once if its name is not that of a file in a log or log directory.

    Iteration reads the file, with the errors of `DamagedFileReader`. With `records`, a `.log` also yields its records.
    """
    if path.name not in _BY_NAME and _parts(path)[1] not in _SUFFIXES:
        raise StorageError(f"{path}: not the name of a file in a log or a log directory")
    return _findings(path, records)


def _findings(path: Path, records: bool) -> Iterator[Finding]:
    stem, suffix, mark = _parts(path)
    by_name = _BY_NAME.get(path.name)
    base_offset = offset_of(stem)
    with ExitStack() as opened:
        source = opened.enter_context(DamagedFileReader(path))
        if by_name is not None:
            yield from by_name(source)
        elif suffix == LOG_SUFFIX:
            yield from inspect_batches(source, base_offset, records=records)
        elif suffix == SNAPSHOT_SUFFIX:
            yield from text_files.inspect_snapshot(source)
        elif suffix == TRANSACTION_INDEX_SUFFIX:
            yield from inspect_aborted(source)
        else:
            beside = path.with_name(stem + LOG_SUFFIX + mark)
            log = opened.enter_context(DamagedFileReader(beside)) if beside.exists() else None
            index = inspect_offset_index if suffix == INDEX_SUFFIX else inspect_time_index
            yield from index(source, base_offset or 0, log, active=_is_active(path, base_offset))


def files_below(path: Path) -> Iterator[Path]:
    """Yield the file itself, or the files of a directory: its own first, then those below it, segments by offset.

    Files of unknown names and links to directories are left out.
    """
    if not path.is_dir():
        yield path
        return
    below = sorted(path.iterdir(), key=_order)
    yield from (file for file in below if _is_known(file) and file.is_file())
    for directory in below:
        if directory.is_dir() and not directory.is_symlink():
            yield from files_below(directory)


def _order(path: Path) -> tuple[str, int, str]:
    stem, suffix, _ = _parts(path)
    return (stem, _SUFFIXES.index(suffix), path.name) if suffix in _SUFFIXES else (path.name, -1, path.name)


def _is_known(path: Path) -> bool:
    stem, suffix, _ = _parts(path)
    return path.name in _BY_NAME or (suffix in _SUFFIXES and offset_of(stem) is not None)


def _is_active(path: Path, base_offset: int | None) -> bool:
    if base_offset is None:
        return True
    return offsets_named((beside.name for beside in path.parent.iterdir()), LOG_SUFFIX)[-1:] <= [base_offset]


def _parts(path: Path) -> tuple[str, str, str]:
    """Split `00000000000000000000.log.deleted` into offset, suffix and second suffix."""
    name = path.name
    mark = mark_of(name)
    stem, dot, suffix = name.removesuffix(mark).rpartition(".")
    return stem, dot + suffix, mark
