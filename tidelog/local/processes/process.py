"""A process that a command has started. Later commands recognise it after that command has ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

_STATE, _THREADS, _START_TIME = 0, 17, 19  # fields of /proc/PID/stat, counted from the field after the command's name


class Condition(StrEnum):
    """The state of a process, as the kernel shows it for the first thread (proc(5), ps(1))."""

    RUNNING = "running"
    #: State T or t: a signal or a debugger stopped the process. It keeps its ports and answers no request.
    SUSPENDED = "suspended"
    #: State D: a system call is blocked on a device, such as a disk, and no signal ends the wait.
    BLOCKED = "blocked"
    #: Gone, or state Z: its parent has not collected it yet.
    ENDED = "ended"


_CONDITIONS = {"T": Condition.SUSPENDED, "t": Condition.SUSPENDED, "D": Condition.BLOCKED}


def read_stat(stat: str) -> tuple[str, Condition]:
    """Return the tick at which the process started (text), and its condition, from the text of /proc/PID/stat.

    A killed process keeps its ports and locks until its last thread has ended, so that it counts as running until then.
    """
    fields = stat[stat.rindex(")") + 2 :].split()
    state = fields[_STATE]
    if state in "ZX" and int(fields[_THREADS]) <= 1:
        return fields[_START_TIME], Condition.ENDED
    return fields[_START_TIME], _CONDITIONS.get(state, Condition.RUNNING)


def birth_of(pid: int) -> str | None:
    """Return a text that identifies the process with this pid for ever: the kernel's boot and the tick of its start.

    None if no such process runs.
    """
    birth, condition = _look_up(pid)
    return None if condition is Condition.ENDED else birth


def _look_up(pid: int) -> tuple[str, Condition]:
    try:
        start, condition = read_stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "", Condition.ENDED
    return f"{boot}/{start}", condition


class Process:
    """A process: its pid together with its `birth` (`birth_of`), so that a recycled pid is never signalled or alive.

    The parameter `child` is the Popen object if this process started it.
    """

    def __init__(self, pid: int, birth: str, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self.birth = birth
        self._child = child

    @classmethod
    def spawn(
        cls,
        command: Sequence[str],
        *,
        output: Path,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start `command` in a session of its own, so that the terminal's Ctrl-C does not reach it; return at once.

        Its standard output and standard error replace the content of the file `output`. `directory` is the working
        directory and `environment` the whole environment; None: those of this process. Raises OSError if the command
        cannot be started.
        """
        with output.open("wb") as sink:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )
        return cls(child.pid, birth_of(child.pid) or "ended at once", child)

    @property
    def running(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        return birth_of(self.pid) == self.birth

    @property
    def condition(self) -> Condition:
        """The condition of the process now; ENDED also if another process has its pid."""
        birth, condition = _look_up(self.pid)
        return condition if birth == self.birth else Condition.ENDED

    @property
    def exit_status(self) -> int | None:
        """The exit status as in subprocess.Popen (−N after signal N).

        None while the process runs, and for a process that was not started by this object's `spawn`.
        """
        return None if self._child is None else self._child.poll()

    def signal(self, number: signal.Signals) -> bool:
        """Send the signal and return True; return False, without sending it, if the process does not run any more."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            # The descriptor pins the process, so that the check and the signal refer to the same process.
            if not self.running:
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def wait(self, timeout_ms: int) -> bool:
        """Wait until the process has ended, at most `timeout_ms`; return whether it has."""
        if self._child is not None:
            try:
                self._child.wait(timeout_ms / 1000)
            except subprocess.TimeoutExpired:
                return False
            return True
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return True
        try:
            if not self.running:
                return True
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return bool(poll.poll(timeout_ms))
        finally:
            os.close(descriptor)

    def stop(self, timeout_ms: int) -> bool:
        """Send SIGTERM, and kill the process if it has not ended after `timeout_ms`. Return False if it was killed."""
        self.signal(signal.SIGTERM)
        if self.wait(timeout_ms):
            return True
        self.signal(signal.SIGKILL)
        self.wait(timeout_ms)
        return False
