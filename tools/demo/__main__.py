"""Runs the command line of `scripts/demo`: the inputs, the cluster, the scenario and the verdict."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from tidelog import TidelogError
from tools.demo import interruption
from tools.demo.cluster import TOPIC, DemoCluster
from tools.demo.lines.sources import InputError, LineSource, machine_logs, open_files, standard_input, stdin_is_meant
from tools.demo.report import ProgressReporter, busiest_sources, plot, table, write_json
from tools.demo.scenario import Scenario, ScenarioError
from tools.demo.spark_runs import JobError
from tools.demo.verdict import Figures

_PLAIN_WIDTH = 120
_FAILED, _BAD_INPUT, _INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 on success, 1 if a condition or the demo itself fails, 2 for a wrong input, 130 after Ctrl-C.

    A wrong command line exits with 2.
    """
    options = _parse(arguments)
    interruption.install()
    try:
        return _run(options, _console())
    except KeyboardInterrupt:
        return _INTERRUPTED
    except InputError as error:
        return _refuse(str(error), _BAD_INPUT)
    except TidelogError as error:
        return _refuse(str(error), _FAILED)
    except OSError as error:
        # Standard output or the disk is full, or the reader of standard output has gone. Nothing more can be printed
        # there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _refuse(f"cannot write: {error.strerror or error}; free some space and start again", _FAILED)


def _run(options: argparse.Namespace, console: Console) -> int:
    reporter, figures = ProgressReporter(console), Figures()
    json_file: Path | None = options.json
    if json_file is not None:
        _check_writable(json_file)
    sources, live = _sources(options.input, reporter)
    directory = _temporary_directory()
    cluster = DemoCluster(directory)
    scenario = Scenario(sources, live, cluster, reporter, figures)
    keep_running = keep_files = False
    try:
        if not live and scenario.ahead.wait_filled(1.0) and not len(scenario.ahead):
            figures.error = "the input holds no line"
        else:
            _perform(scenario, cluster, reporter, figures)
            keep_running = options.keep and not figures.interrupted
            keep_files = keep_running or figures.went_wrong
    finally:
        reporter.quiet()
        if not keep_running:
            cluster.stop()
        if not keep_files:
            shutil.rmtree(directory, ignore_errors=True)
    figures.seconds = round(reporter.seconds, 3)
    _report(console, scenario, figures)
    if keep_running:
        _say_how_to_go_on(console, cluster)
    elif keep_files:
        console.print(f"logs and data are in {directory}", soft_wrap=True, markup=False)
    if json_file is not None:
        write_json(json_file, figures)
    console.print(figures.verdict(), soft_wrap=True)
    return _INTERRUPTED if figures.interrupted else int(bool(figures.failures()))


def _console() -> Console:
    """Return a console as wide as the terminal, or 120 columns wide if standard output is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def _perform(scenario: Scenario, cluster: DemoCluster, reporter: ProgressReporter, figures: Figures) -> None:
    """Start the cluster, and run the scenario to its end, to its failure, or to an interruption.

    The outcome is in `figures`. Only the cluster runs afterwards, and signals are ignored from then on.
    """
    try:
        with interruption.uninterrupted():
            cluster.start(lambda what, where: reporter.step(f"{what} is ready at {where}"))
        with scenario:
            try:
                scenario.run()
            except KeyboardInterrupt:
                figures.interrupted = True
                interruption.ignore_signals()
                scenario.stop_early()
            except (ScenarioError, JobError, TidelogError) as error:
                figures.error = str(error)
                scenario.stop_early()
    except KeyboardInterrupt:
        figures.interrupted = True
    finally:
        interruption.ignore_signals()


def _report(console: Console, scenario: Scenario, figures: Figures) -> None:
    console.print()
    console.print(table(figures))
    if scenario.counts:
        console.print()
        console.print(busiest_sources(scenario.counts))
        console.print()
        console.print(plot(scenario.counts), soft_wrap=True, markup=False)
    console.print()
    for failure in figures.failures():
        console.print(f"failed: {failure}", soft_wrap=True, markup=False)


def _say_how_to_go_on(console: Console, cluster: DemoCluster) -> None:
    tidelog = shlex.quote(str(Path(sys.executable).with_name("tidelog")))
    console.print(
        f"the cluster goes on at {cluster.bootstrap_servers}, its data and logs are in {cluster.directory}\n"
        f"  {tidelog} topic describe {TOPIC} --bootstrap-servers {cluster.bootstrap_servers}\n"
        f"  {tidelog} down --purge --data-dir {cluster.directory}\n",
        soft_wrap=True,
        markup=False,
    )


def _sources(inputs: list[str] | None, reporter: ProgressReporter) -> tuple[list[LineSource], bool]:
    """Return the inputs, and whether the cluster's own logs come after them.

    The inputs are the named files, else standard input if it is meant, else this machine's logs.
    """
    if inputs:
        return open_files(inputs), False
    if stdin_is_meant():
        reporter.step("reading standard input")
        return [standard_input()], False
    sources, left_out = machine_logs()
    reporter.step(f"reading {len(sources)} of this machine's logs, then those of ZooKeeper and the brokers")
    for name in left_out:
        reporter.step(f"  too large for a demo: {name}")
    return sources, True


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog="scripts/demo",
        description="Streams log lines into three replicated brokers, counts them with Spark from a point in time on, "
        "kills a leader meanwhile, and audits that nothing was lost. Without input it takes this machine's own logs.",
    )
    parser.add_argument("--input", nargs="+", metavar="FILE", help="log files; - is standard input")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    return parser.parse_args(arguments)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print one line, without the usage that argparse would add, and exit with status 2."""
        self.exit(_BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


def _temporary_directory() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    except OSError as error:
        raise InputError(f"no temporary directory can be written ({error.strerror}): set TMPDIR to one") from None


def _check_writable(path: Path) -> None:
    try:
        path.open("a").close()
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another --json") from None


def _refuse(message: str, status: int) -> int:
    print(f"scripts/demo: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
