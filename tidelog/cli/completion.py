"""`tidelog completion`: prints the script by which a shell completes the commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tidelog.cli.commands import Command

_SHELLS = ("bash", "fish", "zsh")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    For bash, put this into ~/.bashrc:  eval "$(tidelog completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None
    program = click.get_current_context().find_root().command
    click.echo(kind(program, {}, "tidelog", "_TIDELOG_COMPLETE").source())
