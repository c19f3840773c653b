"""Finds the commands that a document shows, and parses them without running them."""

from __future__ import annotations

import re
import shlex

import click

from tidelog.cli.program import tidelog


def typed_in(text: str) -> list[str]:
    """Return the tidelog commands of the text's blocks, without their shell syntax."""
    blocks = [block for _, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    lines = "\n".join(blocks).replace("$ tidelog", "tidelog").splitlines()
    return [re.split(r" [#<>|]|;", line)[0] for line in lines if line.startswith("tidelog ")]


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
