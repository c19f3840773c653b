"""Implement `tidelog chaos check`, which checks a saved run again."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.cli.commands import Command
from tidelog.cli.common_options import json_option
from verify.chaos.commands.chaos_lines import MOST_FINDINGS, as_object, lines_of, show_object
from verify.chaos.saved_run import judge_again


@click.command(cls=Command)
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--findings",
    type=click.IntRange(0),
    default=MOST_FINDINGS,
    show_default=True,
    metavar="N",
    help="How many violations of each invariant are printed in full.",
)
@json_option
def check(directory: Path, findings: int, as_json: bool) -> int:
    """Check the results of an earlier run again.

    DIR is the directory that --report named, or the directory of a run that was kept because of --keep or of a
    violation. The command reads the histories, the final logs and the faults again, and writes verdict.json and
    windows.jsonl again.

    The exit status is that of the run: 0, 1 or 3. If a file is damaged, there is no verdict and the exit status is 1.
    """
    result = judge_again(directory)
    if as_json:
        show_object(as_object(result))
    else:
        for line in lines_of(result, most_findings=findings):
            click.echo(line)
    return result.status
