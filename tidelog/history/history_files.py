"""Write and read histories: the events of one client or broker, as a file of JSON lines, `DIR/histories/NAME.jsonl`.

The first line names the writer: `{"history":1,"kind":"client"|"broker","name":…}`. A further header line begins a
further start of the same process. Each other line is one event of `tidelog.history.events`:

    {"e":"invoke","f":"produce","tp":["t",0],"ids":[1,2],"ts":[5,6],"t":[100,110]}
    {"e":"ok","f":"produce","tp":["t",0],"ids":[1,2],"offset":7,"t":[150,150]}
    {"e":"hw","t":140,"tp":["t",0],"epoch":3,"value":9}

The writer may be killed at any moment. A line counts as soon as its line end is written. Bytes after the last line end
are ignored, and the next start removes them. Apart from that a file is only appended to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from tidelog.errors import HistoryError
from tidelog.history.broker_events import Broker
from tidelog.history.events import Event, Header
from tidelog.history.json_lines import Shape, of_fields, to_fields, to_line
from tidelog.history.operations import Client

DIRECTORY: Final = "histories"
SUFFIX: Final = ".jsonl"
VERSION: Final = 1

_HEADERS: Final[dict[str, Shape]] = {
    "client": Shape(Client, {"kind": "client"}),
    "broker": Shape(Broker, {"kind": "broker"}),
}


class HistoryWriter:
    """Appends events to the history at `path`. Only one thread may use a writer.

    The constructor creates the file and its directory if needed, removes an incomplete last line, and writes `header`.
    With `buffer_bytes=0` the kernel has each line when `write` returns, so that the line survives a SIGKILL, but not a
    crash of the machine. With a larger value, up to that many bytes wait for `flush` or `close`. All methods raise
    OSError if the disk does.
    """

    def __init__(self, path: Path, header: Header, *, buffer_bytes: int = 0) -> None:
        self.path = path
        self._limit = buffer_bytes
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        _drop_cut_line(self._file)
        kind = "client" if isinstance(header, Client) else "broker"
        self._put(to_line({"history": VERSION, **_HEADERS[kind].write(header)}))

    def write(self, event: Event) -> None:
        self._put(to_line(to_fields(event)))

    def flush(self) -> None:
        """Pass all waiting lines to the kernel, without an fsync."""
        if self._waiting:
            data, self._waiting, self._waiting_bytes = b"".join(self._waiting), [], 0
            _write_all(self._file, data)

    def close(self) -> None:
        """Pass all waiting lines to the kernel, and close the file, even if that fails. Idempotent."""
        if self._file >= 0:
            file, self._file = self._file, -1
            try:
                _write_all(file, b"".join(self._waiting))
            finally:
                os.close(file)

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, line: bytes) -> None:
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > self._limit:
            self.flush()


def history_path(directory: Path, name: str) -> Path:
    """Return the path of the history of the client or broker `name` in a run's directory; for a broker it is its id."""
    return directory / DIRECTORY / f"{name}{SUFFIX}"


def read_history(path: Path) -> Iterator[Header | Event]:
    """Yield a history's headers and events in the order of their lines; the first is a header.

    Bytes after the last line end are ignored. Raises HistoryError, with file and line, for a line that is not a
    header or an event, and OSError if the file cannot be read.
    """
    for number, raw in complete_lines(path):
        with line_errors(path, number):
            line = json_object(raw)
            if "history" in line:
                yield _header(line)
                continue
            if number == 1:
                raise ValueError("the first line is not a header")
            event = of_fields(line)
        yield event


def numbered_lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield a file's complete lines as JSON objects, with their numbers from 1.

    Raises HistoryError, with file and line, for a line that is not a JSON object or an empty file; OSError if the file
    cannot be read.
    """
    for number, raw in complete_lines(path):
        with line_errors(path, number):
            line = json_object(raw)
        yield number, line


def complete_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers (from 1) and bytes of a file's complete lines, with line ends; ignore an incomplete last line.

    Raises HistoryError if the file is empty, and OSError if it cannot be read.
    """
    number = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.endswith(b"\n"):
                break
            yield number, raw
    if number == 0:
        raise HistoryError(f"{path}: the file is empty")


def json_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; ValueError if the line is not JSON, TypeError if it is another JSON value."""
    line = orjson.loads(raw)
    if type(line) is not dict:
        raise TypeError("the line is not a JSON object")
    return line


class line_errors:  # noqa: N801 - it is used as a function
    """A context that turns a data error of its block (ValueError, TypeError, KeyError, …) into a HistoryError.

    The HistoryError names the file and the line number. Other errors, such as OSError, pass.
    """

    def __init__(self, path: Path, number: int) -> None:
        self._path, self._number = path, number

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, KeyError):
            raise HistoryError(f"{self._path}:{self._number}: {error.args[0]} is missing") from None
        if isinstance(error, (ValueError, TypeError, OverflowError, AttributeError)):
            raise HistoryError(f"{self._path}:{self._number}: {error}") from None


def _header(line: Mapping[str, Any]) -> Header:
    if line["history"] != VERSION:
        raise ValueError(f"version {line['history']} of histories is not supported")
    shape = _HEADERS.get(line["kind"])
    if shape is None:
        raise ValueError(f"a history is a client's or a broker's, not a {line['kind']!r}'s")
    header: Header = shape.read(line)
    if isinstance(header, Broker) and not header.name.isdecimal():
        raise ValueError(f"a broker's name is its id, not {header.name!r}")
    return header


def _drop_cut_line(file: int) -> None:
    """Truncate the open file after its last line end, because a killed process may have left an incomplete line."""
    end = position = os.fstat(file).st_size
    while position > 0:
        start = max(0, position - 65536)
        found = os.pread(file, position - start, start).rfind(b"\n")
        if found >= 0:
            if start + found + 1 < end:
                os.ftruncate(file, start + found + 1)
            return
        position = start
    if end:
        os.ftruncate(file, 0)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
