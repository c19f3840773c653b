"""Commands in a session of their own, which end together with everything that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

#: How long killed processes may take until they are gone.
_KILLED_S = 5.0
_POLL_S = 0.05

#: A place for output; None is the output of this process.
Sink = int | IO[bytes] | IO[str] | None


class Stop(NamedTuple):
    """How a command is asked to end before it is killed.

    number     the signal
    grace_s    the time that the command then has; 0 kills it at once
    group      whether the signal goes to the command's whole process group, as a terminal sends it
    """

    number: int = signal.SIGINT
    grace_s: float = 10.0
    group: bool = False


def start(
    command: Sequence[str | Path],
    *,
    stdout: Sink,
    stderr: Sink = subprocess.STDOUT,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command` without standard input in a session of its own, which the terminal's Ctrl-C does not reach.

    `stderr` goes to `stdout` by default; `environment` None means that of this process. Raises OSError if the command
    cannot be started.
    """
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        # A shell makes its background commands ignore Ctrl-C, and a child would inherit that.
        preexec_fn=_heed_interrupts if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else None,
    )


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def end(process: subprocess.Popen[bytes], stop: Stop) -> None:
    """End `process` as `stop` says, then kill all that is left of its session, and wait up to 5 s for that to end.

    A process that has ended already is not signalled, but the rest of its session is killed. A KeyboardInterrupt during
    the grace time is raised after all processes are killed.
    """
    try:
        if process.poll() is None and stop.grace_s > 0:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, stop.number) if stop.group else process.send_signal(stop.number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(stop.grace_s)
    finally:
        _kill_session(process)


#: Kills the command at once, for commands that never end by themselves.
KILL = Stop(grace_s=0)


@contextmanager
def supervised(
    command: Sequence[str | Path],
    stop: Stop,
    *,
    stdout: Sink,
    stderr: Sink = subprocess.STDOUT,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start `command` as `start` does, and end it by `end` at the end of the block. Yields the process.

    Raises OSError if the command cannot be started.
    """
    process = start(command, stdout=stdout, stderr=stderr, cwd=cwd, environment=environment)
    try:
        yield process
    finally:
        end(process, stop)


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    # The command is killed first even if it cannot be found in /proc.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + _KILLED_S
    # A process may leave its process group but not its session, as Spark's workers do.
    while (left := _session_members(process.pid)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _session_members(session: int) -> list[int]:
    """Return the pids of a session's living processes, by /proc."""
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text(errors="replace")
            except OSError:
                continue
            # The name of the program stands in parentheses before the other fields and may hold any character.
            state, _, _, member_of = stat[stat.rindex(")") + 2 :].split()[:4]
            if member_of == str(session) and state not in "ZX":
                members.append(int(entry))
    return members
