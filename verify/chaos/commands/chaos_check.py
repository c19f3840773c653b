"""`tidelog chaos check`: a further verdict on a run that was kept."""

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
    help="So many violations of each invariant are told in full.",
)
@json_option
def check(directory: Path, findings: int, as_json: bool) -> int:
    """Judge again what a run has left.

    DIR is what --report named, or the directory of a run that was kept (--keep, or because a promise was broken). The
    histories, the final logs and the faults in it are read anew; verdict.json and windows.jsonl are written anew.

    The exit status is that of the run: 0, 1 or 3. Without a verdict, since a file is damaged, it is 1.
    """
    result = judge_again(directory)
    if as_json:
        show_object(as_object(result))
    else:
        for line in lines_of(result, most_findings=findings):
            click.echo(line)
    return result.status
