"""Parses a command that a document shows, without running it."""

from __future__ import annotations

import shlex

import click

from tidelog.cli.program import tidelog


def find(command: str) -> tuple[click.Command, click.Context, list[str]]:
    """Return the command, its context, and its own words. click.UsageError if there is no such command."""
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
    """Parse the command. click.UsageError if it does not take these options, values or arguments."""
    found, context, words = find(command)
    found.parse_args(context, words)
