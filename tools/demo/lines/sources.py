"""Opens the inputs: files, a stream such as standard input, or the logs of this machine."""

from __future__ import annotations

import heapq
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from tools.demo.lines.line_splitter import Line, LineSplitter, TooLong
from tools.demo.lines.line_time import LineTimes

#: A larger log file of the machine, or more log files together, would make the demo too long.
MAX_MACHINE_FILE_BYTES = 16 << 20
MAX_MACHINE_BYTES = 32 << 20

_CHUNK_BYTES = 1 << 16
_SAMPLE_BYTES = 8192
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")
_MAX_CONTROL_SHARE = 0.05
_UNSTAMPED_LEAD = 64


class InputError(Exception):
    """An input cannot be read. The message is one line and names the next step."""


class LineSource:
    """The lines of one input, with their own times. `name` is the name under which lines are counted."""

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self.name = name
        self._stream = stream
        self._splitter = LineSplitter(name)
        self._times = LineTimes()

    @property
    def too_long(self) -> list[TooLong]:
        return self._splitter.too_long

    @property
    def too_long_count(self) -> int:
        return self._splitter.too_long_count

    def lines(self) -> Iterator[Line]:
        """Read the input to its end, yield its lines, and close it. Call once. Raises InputError if reading fails."""
        try:
            with self._stream:
                # One read returns what a pipe holds now, and does not wait until a buffer is full.
                while chunk := os.read(self._stream.fileno(), _CHUNK_BYTES):
                    yield from self._stamped(self._splitter.split(chunk))
                yield from self._stamped(self._splitter.end())
        except OSError as error:
            raise InputError(f"cannot read on in {self.name}: {error.strerror}") from None

    def _stamped(self, values: Iterable[bytes]) -> Iterator[Line]:
        now_ms = time.time_ns() // 1_000_000
        timestamp_ms = self._times.timestamp_ms
        for value in values:
            yield Line(self.name, value, timestamp_ms(value, now_ms))


def open_files(paths: Sequence[str]) -> list[LineSource]:
    """Return a source for every file of a command line, each only once; `-` is standard input.

    Raises InputError for the first that is missing, unreadable or binary.
    """
    names = _distinct_names(paths)
    return [standard_input() if path == "-" else LineSource(names[path], _open_text(Path(path))) for path in names]


def standard_input() -> LineSource:
    try:
        return LineSource("stdin", open(os.dup(0), "rb", buffering=0))
    except OSError:
        raise InputError("standard input is closed: name a file with --input FILE") from None


def stdin_is_meant(wait_s: float = 1.0) -> bool:
    """Return whether standard input is meant as input: a file, or a pipe or socket with data within `wait_s`.

    A silent pipe that a scheduler left open, a terminal and /dev/null are no input.
    """
    import select

    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    if stat.S_ISREG(mode):
        return True
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    readable, _, _ = select.select([0], [], [], wait_s)
    return bool(readable) and _bytes_waiting(0) > 0


def machine_logs(directory: Path = Path("/var/log")) -> tuple[list[LineSource], list[str]]:
    """Return the readable text files below `directory`, and a line of text for each that is left out as too large.

    Empty, binary and unreadable files are skipped. A file that would exceed the limit of all files together counts as
    too large.
    """
    sources: list[LineSource] = []
    left_out: list[str] = []
    total_bytes = 0
    paths = (Path(parent, name) for parent, _, names in os.walk(directory) for name in names)
    for path in sorted(paths):
        try:
            size_bytes = path.stat().st_size if path.is_file() and not path.is_symlink() else 0
            if not size_bytes:
                continue
            stream = _open_text(path)
        except (InputError, OSError):
            continue
        if size_bytes > MAX_MACHINE_FILE_BYTES or total_bytes + size_bytes > MAX_MACHINE_BYTES:
            left_out.append(f"{path} ({size_bytes / 1e6:.0f} MB)")
            stream.close()
            continue
        total_bytes += size_bytes
        sources.append(LineSource(_printable(str(path.relative_to(directory))), stream))
    return sources, left_out


def in_order_of_time(sources: Sequence[LineSource]) -> Iterator[Line]:
    """Yield the lines of all sources merged by their times. Each source keeps its own order.

    A line without a time follows the line before it in its source.
    """
    if len(sources) == 1:
        return sources[0].lines()
    merged = heapq.merge(*(_keyed(number, source.lines()) for number, source in enumerate(sources)))
    return (line for *_, line in merged)


def _keyed(number: int, lines: Iterator[Line]) -> Iterator[tuple[int, int, int, Line]]:
    """Yield each line with its sort key (ms), the source's number and the line's number, which are unique.

    A line without a time, or with an earlier one, has the key of the line before it. Up to 64 leading lines without a
    time have the key of the first line that has one, else the present time.
    """
    key, count = None, 0
    lead: list[Line] = []
    for line in lines:
        if line.stamp_ms is not None:
            key = line.stamp_ms if key is None else max(key, line.stamp_ms)
        lead.append(line)
        if key is None and len(lead) < _UNSTAMPED_LEAD:
            continue
        for each in lead:
            count += 1
            yield key or time.time_ns() // 1_000_000, number, count, each
        lead.clear()
    for each in lead:
        count += 1
        yield time.time_ns() // 1_000_000, number, count, each


def _open_text(path: Path) -> BinaryIO:
    """Open a file of text. Raises InputError if it is missing, a directory, unreadable or binary.

    An empty file is text, and a pipe is not examined.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory: name the files in it")
        stream = path.open("rb", buffering=0)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    sample = b"" if _is_pipe(stream) else os.pread(stream.fileno(), _SAMPLE_BYTES, 0)
    if looks_binary(sample):
        stream.close()
        raise InputError(f"{path} is binary: name a file of lines (zcat and journalctl make some)")
    return stream


def looks_binary(sample: bytes) -> bool:
    """Return whether more than a twentieth of the bytes are control characters that text does not have.

    A stray NUL or broken UTF-8 is still text, UTF-16 and archives are not.
    """
    controls = sum(1 for byte in sample if byte < 32 and byte not in _TEXT_CONTROLS)
    return controls > _MAX_CONTROL_SHARE * len(sample)


def _distinct_names(paths: Sequence[str]) -> dict[str, str]:
    """Return for each path the name under which it is counted: the file's name, or the path if names clash."""
    unique = dict.fromkeys(paths)
    names = [os.path.basename(path) for path in unique]
    return {p: _printable(name if names.count(name) == 1 else p) for p, name in zip(unique, names, strict=True)}


def _printable(name: str) -> str:
    """Return a name as valid UTF-8, which a file's name need not be."""
    return os.fsencode(name).decode(errors="replace")


def _is_pipe(stream: BinaryIO) -> bool:
    return not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)


def _bytes_waiting(descriptor: int) -> int:
    import array
    import fcntl
    import termios

    waiting = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
    return waiting[0]
