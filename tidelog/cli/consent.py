"""Asks for consent before data is lost. There are three kinds of commands:

named        `topic delete`, `group delete`, `topic elect --unclean` and `down --purge`: the arguments name the data
             that is lost, so these commands act at once.
computed     `topic delete-records`, `group reset` and `group migrate` compute changes from the state of the cluster.
             Without `--execute` these commands only show the changes; with `--execute` they make them.
side effect  `topic reassign` may lower the replication factor, and `topic alter` may delete records or weaken a
             guarantee. Both refuse such a change and say what would be lost; with `--yes` they make it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])


def execute_option(function: F) -> F:
    """Add `--execute/--dry-run`, which becomes the parameter `execute` (bool, False by default)."""
    text = "Make the changes; without this, only show them."
    return click.option("--execute/--dry-run", default=False, help=text)(function)


def yes_option(function: F) -> F:
    """Add `--yes`, which becomes the parameter `yes` (bool)."""
    return click.option("--yes", is_flag=True, help="Make the change even if data or a guarantee is lost.")(function)


def note_dry_run() -> None:
    """Print on standard error that nothing was changed, and which option makes the changes."""
    click.echo("nothing is changed yet: repeat the command with --execute to make the changes", err=True)


def refuse_losses(losses: Sequence[str]) -> None:
    """Raise UsageError, which lists the losses and names --yes, if there are any. Each loss is a clause."""
    if losses:
        raise click.UsageError(f"{'; '.join(losses)}: pass --yes to do it anyway", click.get_current_context())
