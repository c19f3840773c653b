"""Runs the dump tool over many files and reads its output."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.supervised_process import KILL, supervised

# The tool silently skips an incomplete entry, and all entries after an entry of zeros.
ENTRY_BYTES = {".index": 8, ".timeindex": 12}

_HEADING = re.compile(r"(?:Non-consecutive offsets in |Found timestamp mismatch in :)(.*)")
_GAP = re.compile(r"(\d+) is followed by (\d+)")
_EMPTIED = re.compile(r"Index timestamp: \d+, log timestamp: -1")


class Reading(NamedTuple):
    """The numbers of entries or batches that the tool read, by kind of file (".log"), and of "records".

    `complaints` are the lines of the tool that show a fault; empty if everything is right.
    """

    counts: Counter[str]
    complaints: list[str]


def dump(command: Sequence[str], directory: Path, files: Sequence[str]) -> Reading:
    """Run the tool over `files`, which are relative to `directory`, and return what it read.

    `command` is the tool's command line. A complaint reliably belongs to a file only if there is a single file.
    """
    sizes = {name: (directory / name).stat().st_size for name in files}
    arguments = ["--deep-iteration", "--max-message-size", str(2**31 - 1), "--files", ",".join(files)]
    with tempfile.TemporaryFile() as errors:
        with supervised([*command, *arguments], KILL, cwd=directory, stdout=subprocess.PIPE, stderr=errors) as process:
            assert process.stdout is not None
            entries, counts, complaints = _read_output(process.stdout)
            process.wait()
        errors.seek(0)
        complaints += [line for line in map(_text, errors) if line and not _is_noise(line)]
    complaints = list(without_traces_of_compaction(complaints))
    if process.returncode and not complaints:
        complaints = [f"the tool ended with status {process.returncode}"]
    return Reading(counts, complaints or list(_unread(sizes, entries)))


def without_traces_of_compaction(complaints: Iterable[str]) -> Iterator[str]:
    """Yield all complaints except those that the tool makes about every compacted log, Kafka's own included.

    In a compacted log offsets are missing, and a batch that lost all its records has a timestamp only in its header. In
    other logs these are faults.
    """
    heading, compacted = "", False
    for line in complaints:
        found, gap = _HEADING.fullmatch(line), _GAP.fullmatch(line)
        trace = _EMPTIED.fullmatch(line) or (gap and int(gap[1]) < int(gap[2]))
        if heading and not (compacted and trace):
            yield heading
        if found:
            heading, compacted = line, _is_compacted(Path(found[1]).parent)
        else:
            heading = ""
            if not (compacted and trace):
                yield line
    if heading:
        yield heading


def _is_compacted(log: Path) -> bool:
    """Return whether the cleaner's checkpoint beside the log's directory lists this log, so that it was compacted."""
    topic, _, partition = log.name.rpartition("-")
    try:
        lines = (log.parent / "cleaner-offset-checkpoint").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith(f"{topic} {partition} ") for line in lines)


def _read_output(lines: Iterable[bytes]) -> tuple[Counter[str], Counter[str], list[str]]:
    """Return the entries by file, the counts by kind of file, and every line that shows a fault.

    A line that is not known to be harmless counts as a fault.
    """
    entries: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    complaints: list[str] = []
    name = kind = ""
    for line in lines:
        if line.startswith(b"| "):
            counts["records"] += 1
        elif line.startswith(b"baseOffset: ") and b" isvalid: true" in line:
            counts[".log"] += 1
        elif line.startswith((b"offset: ", b"timestamp: ", b"producerId: ")):
            entries[name] += 1
            counts[kind] += 1
        elif line.startswith(b"Dumping "):
            name = _text(line).removeprefix("Dumping ")
            kind = Path(name).suffix
            entries[name] += 0
        elif (text := _text(line)) and not text.startswith("Log starting offset: ") and text != f"{name} is empty.":
            complaints.append(text)
    return entries, counts, complaints


def _unread(sizes: dict[str, int], entries: Counter[str]) -> Iterable[str]:
    for name, size in sizes.items():
        entry_bytes = ENTRY_BYTES.get(Path(name).suffix)
        if name not in entries:
            yield f"{name}: the tool has not read it"
        elif entry_bytes and size % entry_bytes:
            yield f"{size} bytes are no multiple of {entry_bytes}"
        elif entry_bytes and entries[name] < size // entry_bytes:
            yield f"the tool reads only {entries[name]} of {size // entry_bytes} entries: the next is zero"


def _is_noise(line: str) -> bool:
    """Return whether a line is a remark of the JVM, or a line of a stack trace of Kafka."""
    return line.startswith(("Picked up ", "at ", "...")) or " VM warning: " in line


def _text(line: bytes) -> str:
    return line.decode(errors="replace").strip()
