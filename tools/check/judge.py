"""Which files there are to read, and which of them the tool finds fault with."""

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
_LOOKS = 3

_OURS = re.compile(r"\d{20}(\.log|\.index|\.timeindex|\.snapshot)")
_PARTNERS = {".index": (".log",), ".timeindex": (".log", ".index")}

# Has the tool read files of one directory.
Dump = Callable[[Path, Sequence[str]], Reading]


class Fault(NamedTuple):
    path: Path
    complaints: list[str]


class Verdict:
    """What was found below all directories so far."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.faults: list[Fault] = []

    @property
    def given_up(self) -> bool:
        return len(self.faults) >= _MOST_FAULTS


def log_files(directory: Path) -> dict[Path, list[str]]:
    """The files of logs below `directory`; all are relative to it but for those whose path has a comma in between.

    A log that is being deleted is nobody's any more. The tool takes a list of paths with commas between them, so it is
    started in a place from which no path has one.
    """
    found: dict[Path, list[str]] = {}
    for path in sorted(directory.rglob("*")):
        if _OURS.fullmatch(path.name) and not path.parent.name.endswith("-delete"):
            start = path.parent if "," in str(path.relative_to(directory)) else directory
            found.setdefault(start, []).append(str(path.relative_to(start)))
    return found


def judge(directory: Path, files: Sequence[str], dump: Dump, verdict: Verdict) -> None:
    """Adds to `verdict` what `dump` says of `files`."""
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
    """The tool ends at a file that it cannot read and does not name each that is wrong: halve until it is one."""
    if verdict.given_up:
        return
    reading = _look(directory, files, dump)
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


def _look(directory: Path, files: Sequence[str], dump: Dump) -> Reading | None:
    """None if the files went away. A single file that its broker writes to meanwhile gets further looks."""
    reading = None
    for _ in range(_LOOKS if len(files) == 1 else 1):
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
    return reading or Reading(Counter(), ["it comes and goes"])


def _states(directory: Path, files: Sequence[str]) -> list[tuple[int, int]]:
    """What changes when a broker writes to the files or to what lies beside them."""
    segments = {directory / name for name in files}
    segments |= {path.with_suffix(kind) for path in tuple(segments) for kind in KINDS}
    return [(path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(segments) if path.exists()]


def _missing_partner(path: Path) -> str | None:
    """The tool would make an index that it misses, and nobody wants that of a judge."""
    partners = (path.with_suffix(kind) for kind in _PARTNERS.get(path.suffix, ()))
    return next((partner.name for partner in partners if path.exists() and not partner.exists()), None)


def _parts(files: Sequence[str]) -> Iterator[list[str]]:
    """Lists that fit on one command line."""
    lengths = itertools.accumulate(len(name.encode()) + 1 for name in files)
    numbered = zip(files, lengths, strict=True)
    for _, part in itertools.groupby(numbered, lambda pair: pair[1] // _LIST_BYTES):
        yield [name for name, _ in part]
