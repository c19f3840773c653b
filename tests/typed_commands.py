"""What the program makes of a command that a page has somebody type, without running it."""

from __future__ import annotations

import shlex

import click

from tidelog.cli.program import tidelog


def find(command: str) -> tuple[click.Command, click.Context, list[str]]:
    """The command, where it stands, and the words that are its own; click.UsageError where there is none."""
    found: click.Command = tidelog
    context, words = click.Context(tidelog, info_name="tidelog"), shlex.split(command)[1:]
    while isinstance(found, click.Group) and words:
        if found.invoke_without_command and words[0].startswith("-"):
            break  # these are its own
        name, subcommand, words = found.resolve_command(context, words)
        assert subcommand is not None
        found, context = subcommand, click.Context(subcommand, info_name=name, parent=context)
    return found, context, words


def understand(command: str) -> None:
    """click.UsageError where it has options, values or arguments that the command does not take."""
    found, context, words = find(command)
    found.parse_args(context, words)
