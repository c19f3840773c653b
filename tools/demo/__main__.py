"""The command line of `scripts/demo`: inputs, the cluster around the story, and the verdict behind it."""

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
from tools.demo.report import Teller, busiest_sources, plot, table, write_json
from tools.demo.scenario import Story, StoryError
from tools.demo.spark_runs import JobError
from tools.demo.verdict import Figures

_PLAIN_WIDTH = 120
_FAILED, _BAD_INPUT, _INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1: a condition does not hold, or nothing could be done; 2: a wrong command line or input; 130: Ctrl-C."""
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
        # Standard output or the disk is full, or nobody reads any more: nothing else may be said there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _refuse(f"cannot write: {error.strerror or error}; make room and start again", _FAILED)


def _run(options: argparse.Namespace, console: Console) -> int:
    teller, figures = Teller(console), Figures()
    json_file: Path | None = options.json
    if json_file is not None:
        _check_writable(json_file)
    sources, live = _sources(options.input, teller)
    directory = _temporary_directory()
    cluster = DemoCluster(directory)
    story = Story(sources, live, cluster, teller, figures)
    keep_running = keep_files = False
    try:
        if not live and story.ahead.wait_filled(1.0) and not len(story.ahead):
            figures.error = "the input holds no line"
        else:
            _perform(story, cluster, teller, figures)
            keep_running = options.keep and not figures.interrupted
            keep_files = keep_running or figures.went_wrong
    finally:
        teller.quiet()
        if not keep_running:
            cluster.stop()
        if not keep_files:
            shutil.rmtree(directory, ignore_errors=True)
    figures.seconds = round(teller.seconds, 3)
    _report(console, story, figures)
    if keep_running:
        _say_how_to_go_on(console, cluster)
    elif keep_files:
        console.print(f"logs and data are in {directory}", soft_wrap=True, markup=False)
    if json_file is not None:
        write_json(json_file, figures)
    console.print(figures.verdict(), soft_wrap=True)
    return _INTERRUPTED if figures.interrupted else int(bool(figures.failures()))


def _console() -> Console:
    """As wide as the terminal; wide enough for the table where there is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def _perform(story: Story, cluster: DemoCluster, teller: Teller, figures: Figures) -> None:
    """The story, to its end or to where it is broken off; nothing but the cluster runs afterwards."""
    try:
        with interruption.uninterrupted():
            cluster.start(lambda what, where: teller.step(f"{what} is ready at {where}"))
        with story:
            try:
                story.tell()
            except KeyboardInterrupt:
                figures.interrupted = True
                interruption.no_more()
                story.wind_down()
            except (StoryError, JobError, TidelogError) as error:
                figures.error = str(error)
                story.wind_down()
    except KeyboardInterrupt:
        figures.interrupted = True
    finally:
        interruption.no_more()


def _report(console: Console, story: Story, figures: Figures) -> None:
    console.print()
    console.print(table(figures))
    if story.counts:
        console.print()
        console.print(busiest_sources(story.counts))
        console.print()
        console.print(plot(story.counts), soft_wrap=True, markup=False)
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


def _sources(inputs: list[str] | None, teller: Teller) -> tuple[list[LineSource], bool]:
    """What to read, and whether the cluster's own logs come after it."""
    if inputs:
        return open_files(inputs), False
    if stdin_is_meant():
        teller.step("reading standard input")
        return [standard_input()], False
    sources, left_out = machine_logs()
    teller.step(f"reading {len(sources)} of this machine's logs, then those of ZooKeeper and the brokers")
    for name in left_out:
        teller.step(f"  too large for a demo: {name}")
    return sources, True


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog="scripts/demo",
        description="Streams log lines into three replicated brokers, counts them with Spark from a point in time on, "
        "kills a leader meanwhile, and audits that nothing was lost. Without input it takes this machine's own logs.",
    )
    parser.add_argument("--input", nargs="+", metavar="FILE", help="log files; - is standard input")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    return parser.parse_args(arguments)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, where argparse would print the usage as well."""
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
