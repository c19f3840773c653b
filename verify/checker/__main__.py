"""Check a run's directory: `python -m verify.checker DIR`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tidelog.extras import missing

if line := missing("local", "the checker"):
    sys.exit(line)

import click

from tidelog.cli.commands import Command
from tidelog.errors import HistoryError
from verify.checker.checker import INVARIANTS
from verify.checker.inputs.run_directory import RunDirectory


@click.command("check", cls=Command)
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", metavar="I1,I2,…", help="Check only these invariants.")
@click.option(
    "--findings",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Violations of each invariant printed in full.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_context
def check(context: click.Context, directory: Path, only: str | None, findings: int, as_json: bool) -> None:
    """Check the histories and final logs of a run.

    DIR holds histories/*.jsonl and final/*/*.jsonl. Exit status: 0 if each invariant was observed and held, 1 if one
    was violated, 3 if one was not observed or a final log is missing, 2 if a file is invalid or cannot be read.
    """
    keys = [each.key for each in INVARIANTS] if only is None else [each.strip() for each in only.split(",")]
    if unknown := sorted(set(keys) - {each.key for each in INVARIANTS}):
        raise click.BadParameter(f"unknown invariant {', '.join(unknown)}", context, param_hint="--only")
    try:
        verdict = RunDirectory(directory).check().only(keys)
    except (HistoryError, OSError) as error:
        click.echo(f"Error: {error}", err=True)
        context.exit(2)
    if as_json:
        click.echo(json.dumps(verdict.to_json(), ensure_ascii=False, indent=1))
    else:
        for line in verdict.lines(most_findings=findings):
            click.echo(line)
    context.exit(verdict.exit_code)


if __name__ == "__main__":
    check(prog_name="python -m verify.checker")
