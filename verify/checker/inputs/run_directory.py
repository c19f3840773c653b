"""The directory of a run, as the checker reads it.

DIR/histories/NAME.jsonl                the history of each client and broker (`history`)
DIR/final/BROKER/TOPIC-PARTITION.jsonl  the logs of replicas, and those that a client read (`logs`)
DIR/windows.jsonl                       the faults, for availability (I19), one per line:
{"row":"F1","injected":…,"healed":…,"whole":…,"most_gap_ms":3500,"least_operations":100,"most_healing_ms":60000,"broke":""}
DIR/compacted.txt                       topics whose logs may have gaps, one per line
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidelog.errors import HistoryError
from tidelog.history import history_files
from tidelog.history.broker_events import Broker
from tidelog.history.history_files import line_errors, numbered_lines, read_history
from tidelog.history.json_lines import to_line
from tidelog.history.operations import Client
from tidelog.model import TopicPartition
from verify.checker.checker import Checker
from verify.checker.facts import Source
from verify.checker.inputs.logs import FinalLog, read_final_logs
from verify.checker.invariant import Ending, Window
from verify.checker.verdict import Verdict

WINDOWS: Final = "windows.jsonl"
COMPACTED: Final = "compacted.txt"
_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A run's directory. Methods raise HistoryError for an invalid file, and OSError if a file cannot be read. `check`
    and `histories` also raise HistoryError if there are no histories.
    """

    path: Path

    def check(self) -> Verdict:
        """Return the verdict on the run, from its histories, final logs and windows."""
        with _no_collections():
            return self._judged()

    def _judged(self) -> Verdict:
        """Return the verdict. A separate method frees all data before the garbage collector is enabled again."""
        checker = Checker()
        for path in self.histories():
            _report(checker, path)
        return checker.conclude(self.ending())

    def histories(self) -> Sequence[Path]:
        """Return the paths of the histories, sorted; at least one."""
        found = sorted((self.path / history_files.DIRECTORY).glob(f"*{history_files.SUFFIX}"))
        if not found:
            raise HistoryError(f"{self.path / history_files.DIRECTORY} contains no histories")
        return found

    def ending(self) -> Ending:
        """Return the final logs, the windows and the compacted topics. A missing file counts as empty."""
        final: dict[TopicPartition, list[FinalLog]] = defaultdict(list)
        for log in read_final_logs(self.path):
            final[log.tp].append(log)
        topics = self.path / COMPACTED
        compacted = frozenset(topics.read_text().split()) if topics.exists() else frozenset()
        return Ending(final, tuple(self._windows()), compacted)

    def _windows(self) -> Iterator[Window]:
        path = self.path / WINDOWS
        if not path.exists() or path.stat().st_size == 0:
            return
        for number, line in numbered_lines(path):
            with line_errors(path, number):
                window = _window(line)
            yield window


def write_windows(directory: Path, windows: Sequence[Window]) -> None:
    """Write the windows of the faults for I19 to a run's directory, which is created if missing. An earlier file is
    replaced.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / WINDOWS).write_bytes(b"".join(to_line(_window_fields(each)) for each in windows))


def write_compacted(directory: Path, topics: Sequence[str]) -> None:
    """Write the names of the compacted topics, whose logs may have gaps, to a run's directory, which is created if
    missing.

    An earlier file is replaced.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / COMPACTED).write_text("".join(f"{topic}\n" for topic in topics))


@contextmanager
def _no_collections() -> Iterator[None]:
    """Disable the garbage collector in the block: the data contains no cycles, and each full collection would visit all
    of it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _report(checker: Checker, path: Path) -> None:
    """Give all events of one history file to the checker. Each header in the file begins another process."""
    source: Source | None = None
    for line in read_history(path):
        if isinstance(line, (Client, Broker)):
            source = checker.begin(line)
        elif source is not None:
            checker.take(source, line)


def _window(line: Any) -> Window:
    def ns(key: str) -> int | None:
        return None if line.get(key) is None else int(line[key] * _MS)

    moments = line["injected"], line["healed"], line["whole"]
    if any(type(each) is not int for each in moments):
        raise TypeError("times must be integers, in nanoseconds")
    least = line.get("least_operations", 0)
    broke = str(line.get("broke") or "")
    return Window(str(line["row"]), *moments, ns("most_gap_ms"), least, ns("most_healing_ms"), broke)


def _window_fields(window: Window) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "row": window.row,
        "injected": window.injected,
        "healed": window.healed,
        "whole": window.whole,
        "least_operations": window.least_operations,
    }
    for key, bound in (("most_gap_ms", window.most_gap_ns), ("most_healing_ms", window.most_healing_ns)):
        if bound is not None:
            fields[key] = bound / _MS
    if window.broke:
        fields["broke"] = window.broke
    return fields
