"""Print the progress of `tidelog chaos` on standard error, and its verdict on standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Self

import click

from tidelog.cli.terminal.progress import is_terminal, terminal_width
from tidelog.cli.terminal.table import format_table
from tidelog.local.cluster import DEFAULT_BROKERS
from verify.chaos.faults import catalogue
from verify.chaos.results.verdict import BROKEN, KEPT
from verify.chaos.run import Request, Result
from verify.chaos.runner import Reporter
from verify.chaos.scenarios import rows_of

#: If standard error is no terminal, a line in this interval shows that the run still makes progress.
_STAYS_EVERY_S = 10.0
MOST_FINDINGS = 3
#: The values of the option --meanwhile.
ELECTIONS, REASSIGNMENTS = "elections", "reassignments"


class TerminalReporter(Reporter):
    """A reporter on standard error. On a terminal the status is one line that is updated in place. Elsewhere, a status
    is printed only if nothing was printed for ten seconds. Leaving the context erases the status line.
    """

    def __init__(self) -> None:
        self._moves = is_terminal()
        self._began = self._reported = time.monotonic()
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def status(self, text: str) -> None:
        now = time.monotonic()
        line = f"{now - self._began:5.0f} s  {text}"
        if self._moves:
            self._is_shown = True
            sys.stderr.write("\r\x1b[K" + line[: terminal_width() - 1])  # a line that wraps cannot be erased
            sys.stderr.flush()
        elif now - self._reported >= _STAYS_EVERY_S:
            self._reported = now
            click.echo(line, err=True)

    def line(self, text: str) -> None:
        self.clear()
        self._reported = time.monotonic()
        click.echo(f"{self._reported - self._began:5.0f} s  {text}", err=True)

    def clear(self) -> None:
        """Erase the status line that is updated in place, if it is shown."""
        if self._is_shown:
            self._is_shown = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def show(result: Result, request: Request, *, kept: bool, as_json: bool) -> None:
    """Print the verdict, the command that repeats the run, and the report's path on standard output.

    With `as_json`, print one JSON object, which has scenario, seed and seconds in place of the command. `kept` states
    whether the directory of the results stays. If it does not stay, the report's path is not printed.
    """
    if as_json:
        asked = {"scenario": request.scenario.name, "seed": request.seed, "seconds": request.seconds}
        found = {"report": str(result.report) if kept and result.report is not None else None}
        show_object(asked | as_object(result, kept=kept) | found)
        return
    click.echo()
    for line in lines_of(result):
        click.echo(line)
    click.echo(f"to repeat this run: {_command(request)}")
    if kept and result.report is not None:
        click.echo(f"report: {result.report}")


def lines_of(result: Result, *, most_findings: int = MOST_FINDINGS) -> Iterator[str]:
    """Yield the lines of a result for a reader: a table of rows, the invariants, the violations and the conclusion.

    At most `most_findings` violations of each invariant are shown in full.
    """
    rows = [(row.row, row.name or None, row.injected, row.bit, row.again, row.void, row.skipped) for row in result.rows]
    yield from format_table(("row", "fault", "injected", "bit", "again", "void", "skipped"), rows)
    yield ""
    if result.verdict is not None:
        yield from result.verdict.lines(most_findings=most_findings)
        yield ""
    yield from _words(result)


def _command(request: Request) -> str:
    """Return the command line that produces the same schedule at the same load."""
    command = f"tidelog chaos --scenario {request.scenario.name}"
    if request.rows != rows_of(request.scenario, catalogue()):
        command += f" --only {','.join(request.rows)}"
    if request.brokers != DEFAULT_BROKERS:
        command += f" --brokers {request.brokers}"
    if request.load.election_interval_ms:
        command += f" --meanwhile {ELECTIONS}"
    if request.load.reassignment_interval_ms:
        command += f" --meanwhile {REASSIGNMENTS}"
    if request.load.kafka_processes:
        command += f" --kafka-clients {request.load.kafka_processes}"
    if request.load.idle_partitions:
        command += f" --idle-partitions {request.load.idle_partitions}"
    if request.servers:
        command += f" --bootstrap-servers {request.servers} --yes"
    return f"{command} --seed {request.seed} --seconds {request.seconds:g} --rate {request.load.rate}"


def _words(result: Result) -> Iterator[str]:
    yield from result.shortcomings
    if result.repeated:
        yield f"injected again, because the cluster did not notice an earlier attempt: {', '.join(result.repeated)}"
    if result.status == BROKEN:
        yield f"BROKEN: at least one promise was broken; the evidence is in {result.results}"
    elif result.status == KEPT:
        yield "KEPT: every fault bit, and every promise was kept"
    else:
        yield "NOT PROVED: no promise was seen broken, but part of the request was not proved"


def as_object(result: Result, *, kept: bool = True) -> dict[str, object]:
    """Return the result as a JSON object. The path of the results is null unless `kept`, and the verdict null if there
    is none.
    """
    return {
        "status": result.status,
        "rows": [asdict(row) for row in result.rows],
        "verdict": None if result.verdict is None else result.verdict.to_json(),
        "shortcomings": result.shortcomings,
        "repeated": result.repeated,
        "results": str(result.results) if kept else None,
    }


def show_object(found: Mapping[str, object]) -> None:
    """Print `found` on standard output as one line of JSON."""
    click.echo(json.dumps(found, ensure_ascii=False))
