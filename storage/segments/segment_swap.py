"""Replaces segments by the cleaned segment made from them. A crash leaves the old state, or the next start finishes.

    00000000000000000000.log.cleaned    being written, with its two indexes; ignored by a start
    00000000000000000000.log.swap       complete and flushed; from now on it counts, whatever other files exist
    00000000000000000000.log.deleted    a replaced segment; removed later, or at the next start

1. Rename the cleaned segment, which is flushed, from `.cleaned` to `.swap`; its `.log` last.
2. Rename the old segments to `.deleted`.
3. Rename the cleaned segment to its final name; the `.log` last again.
A crash before the `.log.swap` exists leaves the old segments. After a later crash the next start finishes the swap
(`recover`). All steps are renames in one directory, which file systems keep in order.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from storage.file_names import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, file_name, offsets_named
from storage.files import File, Files
from storage.segments.scan import scan_headers
from storage.segments.segment import Segment
from storage.segments.segment_files import SegmentFiles
from tidelog.errors import CorruptMessageError

_LOG = logging.getLogger(__name__)


def swap(cleaned: Segment, old: Sequence[Segment]) -> None:
    """Run the three steps of the module. `cleaned` is flushed, with `.cleaned` names and the base offset of `old[0]`.

    After a StorageError the log must not be used any more, and only `recover` can repair the directory.
    """
    cleaned.rename(SWAP_SUFFIX)
    for segment in old:
        segment.retire()
    cleaned.rename("")


def recover(directory: Path, files: Files, names: list[str]) -> list[str]:
    """Finish the swaps that a crash interrupted, and remove the cleaned segments that were not complete.

    `names`: the names in the directory. Return the names that are left. A damaged `.log.swap` is removed if an old
    segment with its base offset exists; otherwise the swap is finished.
    """
    swaps = offsets_named(names, LOG_SUFFIX + SWAP_SUFFIX)
    for base_offset in swaps:
        _finish(directory, files, base_offset)
    left = files.names(directory) if swaps else names
    leftovers = [name for name in left if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))]
    for name in leftovers:
        files.remove(directory / name)
    return [name for name in left if name not in leftovers]


def _finish(directory: Path, files: Files, base_offset: int) -> None:
    final = directory / file_name(base_offset, LOG_SUFFIX)
    try:
        end_offset = _end_offset(files.open(_with_suffix(final, SWAP_SUFFIX)), base_offset)
    except CorruptMessageError as error:
        if files.exists(final):
            _LOG.error("%s: a cleaned segment is damaged; the old segments stay: %s", directory.name, error)
            files.remove(_with_suffix(final, SWAP_SUFFIX))
            return
        end_offset = base_offset  # there is no other copy; opening the log keeps the batches that are valid
    for old in offsets_named(files.names(directory), LOG_SUFFIX):
        if base_offset < old < end_offset:
            SegmentFiles(directory, old, files).delete()
    SegmentFiles(directory, base_offset, files).remove_transactions()
    SegmentFiles(directory, base_offset, files, SWAP_SUFFIX).rename("")
    _LOG.info("%s: finished the swap of the segments from %d to %d", directory.name, base_offset, end_offset)


def _end_offset(log: File, base_offset: int) -> int:
    end_offset = base_offset
    try:
        for _, header in scan_headers(log, 0, log.size()):
            end_offset = header.next_offset
    finally:
        log.close()
    if end_offset == base_offset:
        raise CorruptMessageError(f"{log.path}: the file holds no batch")
    return end_offset


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
