"""The installed command, run as a user would: its own home, its own directory, nothing of this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

TIDELOG = Path(sys.executable).parent / "tidelog"


@dataclass(frozen=True)
class Outcome:
    """The result of a command."""

    status: int
    output: bytes
    complaint: str

    @property
    def complaint_lines(self) -> list[str]:
        return self.complaint.splitlines()


@dataclass(frozen=True)
class Shell:
    """A user's shell: where they stand, and where their clusters lie."""

    directory: Path
    home: Path

    def environment(self, changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDELOG", "PYTEST", "XDG"))}
        merged = {**kept, "TIDELOG_HOME": str(self.home), "TIDELOG_PORT": "0", **(changes or {})}
        return {name: value for name, value in merged.items() if value is not None}

    def start(
        self, *arguments: str, environment: Mapping[str, str | None] | None = None, output: int = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        """The running command, its standard input open."""
        return subprocess.Popen(
            [TIDELOG, *arguments],
            cwd=self.directory,
            env=self.environment(environment),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE,
            # A shell in the background lets its commands ignore Ctrl-C; a terminal does not.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    def run(
        self,
        *arguments: str,
        given: bytes = b"",
        environment: Mapping[str, str | None] | None = None,
        output: int = subprocess.PIPE,
        timeout_s: float = 60,
    ) -> Outcome:
        with self.start(*arguments, environment=environment, output=output) as process:
            try:
                written, complaint = process.communicate(given, timeout_s)
            finally:
                process.kill()
        return Outcome(process.returncode, written or b"", complaint.decode())

    def succeed(self, *arguments: str, given: bytes = b"") -> bytes:
        """The output of a command that must not fail."""
        outcome = self.run(*arguments, given=given)
        assert outcome.status == 0, outcome.complaint
        return outcome.output


@contextmanager
def a_newcomer(directory: Path) -> Iterator[Shell]:
    """A user without a cluster. At the end, all started processes are stopped."""
    user = Shell(directory, directory / "home")
    try:
        yield user
    finally:
        user.run("down", "--purge")
        assert processes_of(directory) == []


def processes_of(directory: Path) -> list[str]:
    """The command lines of live processes that name the directory, or stand in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = os.readlink(entry / "cwd")
        except OSError:
            continue
        if command and (str(directory) in command or Path(place).is_relative_to(directory)):
            found.append(command)
    return found
