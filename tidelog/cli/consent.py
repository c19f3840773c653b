"""Asks for consent before something is lost. One rule holds for every command:

named       `topic delete`, `group delete`, `topic elect --unclean` and `down --purge` name what is lost. They do it.
computed    `topic delete-records`, `group reset` and `group migrate` compute from the cluster's state what changes.
            They show it and change nothing; `--execute` does it.
by the way  `topic reassign` may lower the replication factor; `topic alter` may delete records or lower a promise.
            They refuse it and say what would be lost; `--yes` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])


def execute_option(function: F) -> F:
    """Add `--execute/--dry-run`, handed on as `execute` (bool)."""
    told = "Do it; without this, only show what would change."
    return click.option("--execute/--dry-run", default=False, help=told)(function)


def yes_option(function: F) -> F:
    """Add `--yes`, handed on as `yes` (bool)."""
    return click.option("--yes", is_flag=True, help="Do it although something is lost by it.")(function)


def tell_of_dry_run() -> None:
    """Print on standard error that nothing is changed yet, and how to change it."""
    click.echo("nothing is changed yet: the same with --execute does it", err=True)


def refuse_losses(losses: Sequence[str]) -> None:
    """Raise UsageError if there is a loss, for a command without `--yes`. Each loss is a clause."""
    if losses:
        raise click.UsageError(f"{'; '.join(losses)}: pass --yes if you want that", click.get_current_context())
