"""Record the changes that a run makes to the machine, each before it is made, so that they can be undone.

`undo.jsonl` is append-only. An entry is `{"id":7,"run":["umount","-l",…]}`, `{"id":8,"continue":[pid,birth]}` or
`{"id":9,"remove":path}`; `{"done":7}` records that entry 7 was undone. The run undoes open entries at its end, last
first. If the run was killed, the next run does (`verify.chaos.run_directory`).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGCONT
from typing import Any

from tidelog.local.processes.process import Process

UNDO_FILE = "undo.jsonl"
_COMMAND_S = 20.0


class UndoFile:
    """The undo log of one run's directory, with the open entries of an existing file. Only one thread at a time may use
    it.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / UNDO_FILE
        self._open = dict(_read(self.path))
        self._next_id = max(self._open, default=-1) + 1

    def to_run(self, *command: str) -> Callable[[], None]:
        """Record a command that undoes a change. The command must be harmless if the change was not made.

        Call the returned function once the change has been undone by other means. The command is then not run.
        """
        return self._add({"run": list(command)})

    def to_continue(self, process: Process) -> Callable[[], None]:
        """Record that a process is about to be stopped, so that SIGCONT continues it if it is still the same process.

        Call the returned function once the process has been continued.
        """
        return self._add({"continue": [process.pid, process.birth]})

    def to_remove(self, path: Path) -> Callable[[], None]:
        """Record a file that is about to be created, so that it is removed. A missing file is no error.

        Call the returned function once the file has been removed.
        """
        return self._add({"remove": str(path)})

    @property
    def pending(self) -> bool:
        """Return whether an entry is open, so that `perform` would undo something."""
        return bool(self._open)

    def perform(self) -> list[str]:
        """Undo the open entries once each, last first. A failed entry counts as done too. Return the failures, one line
        each.
        """
        failures = []
        for number, entry in sorted(self._open.items(), reverse=True):
            try:
                _undo(entry)
            except (OSError, subprocess.SubprocessError) as error:
                failures.append(f"{json.dumps(entry, ensure_ascii=False)}: {_in_a_line(error)}")
            self._done(number)
        return failures

    def _add(self, entry: dict[str, Any]) -> Callable[[], None]:
        number, self._next_id = self._next_id, self._next_id + 1
        self._append({"id": number, **entry})
        self._open[number] = entry
        return lambda: self._done(number)

    def _done(self, number: int) -> None:
        if self._open.pop(number, None) is not None:
            self._append({"done": number})

    def _append(self, line: dict[str, Any]) -> None:
        # a single write, so that the file has complete lines if the tool is killed
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, json.dumps(line, ensure_ascii=False).encode() + b"\n")
        finally:
            os.close(descriptor)


def _read(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the open entries. Skip an invalid line, which a crash of the machine has cut off."""
    entries: dict[int, dict[str, Any]] = {}
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            entry = json.loads(line)
            if "done" in entry:
                entries.pop(entry["done"], None)
            else:
                entries[entry.pop("id")] = entry
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    yield from entries.items()


def _undo(entry: dict[str, Any]) -> None:
    if command := entry.get("run"):
        subprocess.run(command, check=True, capture_output=True, timeout=_COMMAND_S, stdin=subprocess.DEVNULL)
    elif process := entry.get("continue"):
        Process(process[0], process[1]).signal(SIGCONT)
    elif path := entry.get("remove"):
        Path(path).unlink(missing_ok=True)


def _in_a_line(error: OSError | subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.CalledProcessError) and error.stderr:
        return " ".join(error.stderr.decode(errors="replace").split())
    return " ".join(str(error).split())
