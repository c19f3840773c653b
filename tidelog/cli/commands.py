"""The click classes of all commands, which refuse an option that is given twice, unless it may be repeated.

click itself silently takes the last value, so that a command would ignore a part of what the user typed.
"""

from __future__ import annotations

from collections.abc import Sequence

import click


class Command(click.Command):
    """A command that raises UsageError for an option that is given twice and may not be, before it does anything."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _refuse_repeated_options(self, ctx, args)
        return super().parse_args(ctx, args)


class Group(click.Group):
    """A group whose subcommands are `Command` by default, and which refuses repeated options of its own alike."""

    command_class = Command
    group_class = type

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _refuse_repeated_options(self, ctx, args)
        return super().parse_args(ctx, args)


def _refuse_repeated_options(command: click.Command, ctx: click.Context, args: Sequence[str]) -> None:
    """Raise UsageError if one parameter is set more than once, by the same option or by two options."""
    if ctx.resilient_parsing:  # a shell completes an unfinished line
        return
    _, _, in_order = command.make_parser(ctx).parse_args(list(args))
    given: dict[str | None, list[click.Option]] = {}
    for parameter in in_order:
        if isinstance(parameter, click.Option) and parameter in command.params and not parameter.multiple:
            given.setdefault(parameter.name, []).append(parameter)
    for options in given.values():
        if len(options) > 1:
            raise click.UsageError(_complaint(options, args), ctx)


def _complaint(options: Sequence[click.Option], args: Sequence[str]) -> str:
    names = dict.fromkeys(name for option in options for name in (*option.opts, *option.secondary_opts))
    typed = [name for name in names if any(arg == name or arg.startswith(f"{name}=") for arg in args)]
    if len(typed) > 1:
        return f"{' and '.join(typed)} are given together: give one of them"
    often = "twice" if len(options) == 2 else f"{len(options)} times"
    return f"{(typed or options[0].opts)[0]} is given {often}: give it once"
