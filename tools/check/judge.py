"""Finds the files of logs, and determines in which of them the tool finds faults."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.check.dump import Reading

KINDS = (".log", ".index", ".timeindex", ".snapshot")

# Linux gives one argument at most 128 KiB.
_LIST_BYTES = 100_000
_MOST_FAULTS = 10
_MOST_READS = 3

_LOG_FILE = re.compile(r"\d{20}(\.log|\.index|\.timeindex|\.snapshot)")
_PARTNERS = {".index": (".log",), ".timeindex": (".log", ".index")}

# Runs the tool over files of one directory.
Dump = Callable[[Path, Sequence[str]], Reading]


class Fault(NamedTuple):
    path: Path
    complaints: list[str]


class Verdict:
    """The counts and faults of all files that were judged so far.

    files           the number of files, by kind (".log")
    counts          as in `Reading`, of files without faults
    stopped_early   whether so many faults were found that the other files are not read
    """

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.faults: list[Fault] = []

    @property
    def stopped_early(self) -> bool:
        return len(self.faults) >= _MOST_FAULTS


def log_files(directory: Path) -> dict[Path, list[str]]:
    """Return the files of logs below `directory`, sorted, by the directory to which their paths are relative.

    The tool takes a comma-separated list of paths. A file whose path contains a comma is therefore read from its own
    directory. Directories of logs that are being deleted are skipped.
    """
    found: dict[Path, list[str]] = {}
    for path in sorted(directory.rglob("*")):
        if _LOG_FILE.fullmatch(path.name) and not path.parent.name.endswith("-delete"):
            start = path.parent if "," in str(path.relative_to(directory)) else directory
            found.setdefault(start, []).append(str(path.relative_to(start)))
    return found


def judge(directory: Path, files: Sequence[str], dump: Dump, verdict: Verdict) -> None:
    """Run `dump` over `files`, which are relative to `directory`, and add counts and faults to `verdict`.

    An index without a file that the tool needs beside it is a fault. A file that is deleted meanwhile is skipped.
    Nothing more is read after ten faults.
    """
    for name in files:
        verdict.files[Path(name).suffix] += 1
    readable = []
    for name in files:
        if missing := _missing_partner(directory / name):
            verdict.faults.append(Fault(directory / name, [f"there is no {missing} beside it"]))
        else:
            readable.append(name)
    for part in _parts(readable):
        _narrow_down(directory, part, dump, verdict)


def _narrow_down(directory: Path, files: Sequence[str], dump: Dump, verdict: Verdict) -> None:
    """Add the counts or faults of these files to `verdict`; halve the list until each fault belongs to one file.

    The tool stops at a file that it cannot read, and does not name every file that is wrong.
    """
    if verdict.stopped_early:
        return
    reading = _read_stable(directory, files, dump)
    if reading is None:
        return
    if not reading.complaints:
        verdict.counts += reading.counts
    elif len(files) == 1:
        verdict.faults.append(Fault(directory / files[0], reading.complaints))
    else:
        middle = len(files) // 2
        _narrow_down(directory, files[:middle], dump, verdict)
        _narrow_down(directory, files[middle:], dump, verdict)


def _read_stable(directory: Path, files: Sequence[str], dump: Dump) -> Reading | None:
    """Return what the tool reads, or None if all files were deleted.

    A single file whose segment changed during a faulty read is read again, at most three times.
    """
    reading = None
    for _ in range(_MOST_READS if len(files) == 1 else 1):
        present = [name for name in files if (directory / name).exists()]
        if not present:
            return None
        before = _states(directory, present)
        try:
            reading = dump(directory, present)
        except FileNotFoundError:
            continue
        if not reading.complaints or before == _states(directory, present):
            break
    return reading or Reading(Counter(), ["the file disappears and reappears"])


def _states(directory: Path, files: Sequence[str]) -> list[tuple[int, int]]:
    """Return the sizes and modification times of these files, and of all `KINDS` of files beside them by the same name.

    The result differs after a broker has written to one of them.
    """
    segments = {directory / name for name in files}
    segments |= {path.with_suffix(kind) for path in tuple(segments) for kind in KINDS}
    return [(path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(segments) if path.exists()]


def _missing_partner(path: Path) -> str | None:
    """Return the name of a missing file that the tool needs beside this index, or None.

    Without that file the tool would create an index of its own.
    """
    partners = (path.with_suffix(kind) for kind in _PARTNERS.get(path.suffix, ()))
    return next((partner.name for partner in partners if path.exists() and not partner.exists()), None)


def _parts(files: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names in consecutive lists, each of which fits into one argument of a command line."""
    lengths = itertools.accumulate(len(name.encode()) + 1 for name in files)
    numbered = zip(files, lengths, strict=True)
    for _, part in itertools.groupby(numbered, lambda pair: pair[1] // _LIST_BYTES):
        yield [name for name, _ in part]
