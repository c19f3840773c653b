"""Checks that hold for every command of the tree."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from tidelog.cli.program import tidelog

#: Commands that print a script for a shell, or a process's own log, have no JSON output.
WITHOUT_JSON = {"broker", "completion"}


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(leaves(tidelog))


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT_JSON))
def test_every_command_has_json_output(name: str) -> None:
    assert any("--json" in parameter.opts for parameter in COMMANDS[name].params)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_summary(name: str) -> None:
    assert COMMANDS[name].help


def test_every_topic_argument_completes_topics() -> None:
    kinds = {
        name: parameter.type.name
        for name, command in COMMANDS.items()
        for parameter in command.params
        if parameter.name == "topic" or "TOPIC" in (parameter.metavar or "")
    }
    assert len(kinds) > 10
    assert set(kinds.values()) == {"topic", "topic/partition"}
