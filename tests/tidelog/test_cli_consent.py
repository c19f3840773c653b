"""The rule for commands that may lose data: some need `--execute`, and some need `--yes`."""

from __future__ import annotations

import click
import pytest

from tests.tidelog.test_cli_repeated_options import EVERY
from tidelog.cli.consent import refuse_losses

#: Commands that compute changes, show them, and make them with --execute.
COMPUTED = {("group", "migrate"), ("group", "reset"), ("topic", "delete-records")}
#: Commands that may lose data as a side effect, and make the change with --yes.
BY_THE_WAY = {("chaos",), ("topic", "alter"), ("topic", "reassign")}


def option(path: tuple[str, ...], name: str) -> click.Option | None:
    """Return the option of that name, None if the command has none."""
    found = [each for each in EVERY[path].params if isinstance(each, click.Option) and name in each.opts]
    return found[0] if found else None


@pytest.mark.parametrize(("name", "commands"), [("--execute", COMPUTED), ("--yes", BY_THE_WAY)])
def test_each_kind_of_loss_has_its_option_on_every_command_of_the_kind(
    name: str, commands: set[tuple[str, ...]]
) -> None:
    assert {path for path in EVERY if option(path, name)} == commands


@pytest.mark.parametrize("path", sorted(COMPUTED), ids=" ".join)
def test_a_command_that_computes_changes_nothing_by_default(path: tuple[str, ...]) -> None:
    execute = option(path, "--execute")
    assert execute is not None and execute.default is False
    assert execute.secondary_opts == ["--dry-run"]


def test_losses_are_refused_in_one_sentence_with_the_next_step() -> None:
    with click.Context(click.Command("alter")), pytest.raises(click.UsageError) as refused:
        refuse_losses(["this goes", "so does that"])
    assert refused.value.message == "this goes; so does that: pass --yes to do it anyway"


def test_change_without_a_loss_is_not_refused() -> None:
    refuse_losses([])
