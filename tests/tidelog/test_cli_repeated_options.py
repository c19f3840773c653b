"""Options that are given twice: refused on every command, unless the option says that it may be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import pytest

from tidelog.cli.commands import Command, Group
from tidelog.cli.program import run, tidelog

Words = tuple[str, ...]


def tree(command: click.Command, path: Words = ()) -> Iterator[tuple[Words, click.Command]]:
    """Return the command and every command below it, each with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from tree(below, (*path, name))


EVERY = dict(tree(tidelog))
OPTIONS = [
    (path, option) for path, command in EVERY.items() for option in command.params if isinstance(option, click.Option)
]
SINGLE = [
    pytest.param(path, option, name, id=" ".join((*path, name)))
    for path, option in OPTIONS
    if not option.multiple
    for name in (*option.opts, *option.secondary_opts)
]


@pytest.fixture
def did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the commands that ran: the body of each is replaced by one that notes its command."""
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS", raising=False)
    done: list[str] = []
    for path, command in EVERY.items():
        noted = [] if isinstance(command, click.Group) else done
        monkeypatch.setattr(command, "callback", partial(_note, noted, " ".join(path)))
    return done


def _note(done: list[str], command: str, **_: object) -> None:
    done.append(command)


def test_walk_visits_every_command() -> None:
    assert len(EVERY) > 30
    assert len(SINGLE) > 120
    assert ("chaos", "check") in EVERY and ("dump",) in EVERY


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_command_refuses_repeated_options(path: Words) -> None:
    assert isinstance(EVERY[path], Group if isinstance(EVERY[path], click.Group) else Command)


@pytest.mark.parametrize(("path", "option", "name"), SINGLE)
def test_repeated_option_is_refused(
    path: Words, option: click.Option, name: str, did: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [name] if option.is_flag else [name, "1"]
    assert run([*path, *given, *given]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("tidelog: ") and f"{name} is given twice" in shown.err
    assert len(shown.err.splitlines()) == 1 and shown.out == ""
    assert did == []


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["consume", "t", "--from", "1", "--from", "2"], "--from is given twice"),
        (["consume", "t", "--from=1", "--from=1"], "--from is given twice"),
        (["group", "reset", "g", "--to-time", "-1h", "--to-datetime", "-2h"], "--to-time and --to-datetime are given"),
        (["group", "reset", "g", "--execute", "--dry-run"], "--execute and --dry-run are given"),
        (["--version", "--version"], "--version is given twice"),
        (["chaos", "--seed", "1", "--seed", "2"], "--seed is given twice"),
        (["topic", "create", "t", "--partitions", "1", "--partitions", "2", "--partitions", "3"], "--partitions is"),
    ],
)
def test_synonymous_options_are_refused_together(
    arguments: list[str], reported: str, did: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert reported in capsys.readouterr().err
    assert did == []


def test_two_options_that_set_one_parameter_are_refused_together() -> None:
    options = [click.Option(["--format", "form"]), click.Option(["--json", "form"], flag_value="json")]
    command = Command("read", params=options)
    with pytest.raises(click.UsageError, match="--format and --json are given together: give one of them"):
        command.main(["--format", "lines", "--json"], standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["consume", "--from", "1", "t", "--until", "2"], "consume"),
        (["consume", "t", "--partition", "0", "--partition", "1"], "consume"),
        (["topic", "create", "--", "t"], "topic create"),
        (["produce", "t", "--key-separator", "--key-separator"], "produce"),
    ],
)
def test_option_given_once_is_accepted(arguments: list[str], command: str, did: list[str]) -> None:
    assert run(arguments) == 0
    assert did == [command]


def test_repeated_help_option_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "create", "--help", "--help"]) == 0
    assert "Usage: tidelog topic create" in capsys.readouterr().out
