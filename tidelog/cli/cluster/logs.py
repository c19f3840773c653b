"""`tidelog logs`: shows the logs of the local processes."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import click

from tidelog.cli.commands import Command
from tidelog.cli.common_options import data_dir_option, find_data_dir
from tidelog.cli.terminal.stdout_reader import stop_if_stdout_is_closed
from tidelog.errors import LocalError
from tidelog.local.cluster import LocalCluster

_LOOK_EVERY_S = 0.2
_BYTES_PER_LINE = 512


@click.command(cls=Command)
@click.argument("process", metavar="[BROKER|zookeeper]", required=False)
@data_dir_option
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    metavar="N",
    default=20,
    show_default=True,
    help="Show the last N lines of each log.",
)
@click.option("--follow", is_flag=True, help="Keep printing new lines until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print each line as one JSON object.")
def logs(process: str | None, data_dir: Path | None, lines: int, follow: bool, as_json: bool) -> None:
    """Show the logs of all processes, or of one: a broker's id, or zookeeper."""
    cluster = LocalCluster(find_data_dir(data_dir))
    tails = [Tail(name, path) for name, path in _choose(cluster, process).items()]
    if not any(tail.path.exists() for tail in tails):
        raise LocalError(f"there is no log in {cluster.log_dir} yet: start the cluster with tidelog up")
    writer = _JsonWriter() if as_json else _Writer(with_headings=len(tails) > 1)
    for tail in tails:
        writer.write(tail.name, tail.last(lines))
    while follow:
        sys.stdout.flush()
        time.sleep(_LOOK_EVERY_S)
        stop_if_stdout_is_closed()
        for tail in tails:
            writer.write(tail.name, tail.more())


def _choose(cluster: LocalCluster, process: str | None) -> dict[str, Path]:
    state = cluster.known_state()
    log_files = {f"broker {broker.broker_id}": cluster.log_file(broker.broker_id) for broker in state.brokers}
    if state.embedded is not None:
        log_files["zookeeper"] = cluster.log_file()
    if process is None:
        return log_files
    name = f"broker {process}" if process.isdigit() else process.replace("-", " ").lower()
    if name not in log_files:
        raise click.UsageError(
            f"no log of {process!r}: the logs are {', '.join(log_files)}", click.get_current_context()
        )
    return {name: log_files[name]}


class _Writer:
    def __init__(self, with_headings: bool) -> None:
        self._with_headings = with_headings
        self._last: str | None = None

    def write(self, name: str, content: bytes) -> None:
        if not content:
            return
        if self._with_headings and name != self._last:
            click.echo(("" if self._last is None else "\n") + f"==> {name} <==")
            self._last = name
        click.echo(content, nl=False)


class _JsonWriter:
    """Prints each whole line as a JSON object; keeps the beginning of a line until the rest is written."""

    def __init__(self) -> None:
        self._rest: dict[str, bytes] = {}

    def write(self, name: str, content: bytes) -> None:
        *lines, self._rest[name] = (self._rest.get(name, b"") + content).split(b"\n")
        for line in lines:
            click.echo(json.dumps({"process": name, "line": line.decode(errors="replace")}))


class Tail:
    """Reads the end of a file: `last` its last lines, then `more` the bytes that were added since the last call.

    The file is followed by its inode. After a rotation, `more` reads the old file to its end and then the new one. A
    file that does not exist counts as empty.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self._descriptor = -1
        self._inode = -1

    def last(self, lines: int) -> bytes:
        if not self._reopen():
            return b""
        size = os.fstat(self._descriptor).st_size
        window = _BYTES_PER_LINE * (lines + 1)
        while True:
            start = max(0, size - window)
            content = os.pread(self._descriptor, size - start, start)
            if start == 0 or content.count(b"\n") > lines:
                break
            window *= 4
        os.lseek(self._descriptor, size, os.SEEK_SET)
        return b"".join(content.splitlines(keepends=True)[-lines:]) if lines else b""

    def more(self) -> bytes:
        content = self._rest()
        if self._reopen():
            content += self._rest()
        return content

    def _rest(self) -> bytes:
        parts = []
        while self._descriptor >= 0 and (part := os.read(self._descriptor, 1 << 16)):
            parts.append(part)
        return b"".join(parts)

    def _reopen(self) -> bool:
        """Open the file at the path if it is another one than the open file; return whether that was so."""
        try:
            inode = self.path.stat().st_ino
            if inode == self._inode:
                return False
            descriptor = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._inode = descriptor, inode
        return True
