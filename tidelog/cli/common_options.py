"""The options that many commands have, and how a command finds its cluster."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from tidelog.client.bootstrap import ENVIRONMENT_VARIABLE, find_brokers
from tidelog.local.home import data_home, last_up

#: A week: longer than any user waits, and far below the range of a clock.
_LONGEST_TIMEOUT_S = 7 * 86_400.0

F = TypeVar("F", bound=Callable[..., object])


class Seconds(click.FloatRange):
    """The type of an option in seconds within a range. NaN is refused, because click considers it part of any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class _Directory(click.Path):
    """A directory. An empty name is refused: it comes from a variable that was never set, and would mean `.`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


def bootstrap_option(function: F) -> F:
    """Add `--bootstrap-servers`, which becomes the parameter `bootstrap_servers` (str | None)."""
    return click.option(
        "--bootstrap-servers",
        metavar="HOST:PORT,…",
        help=f"Brokers to start from [default: ${ENVIRONMENT_VARIABLE}, else the cluster of the last tidelog up]",
    )(function)


def timeout_option(function: F) -> F:
    """Add `--timeout` in seconds (default 30), which becomes the parameter `timeout` (float)."""
    return click.option(
        "--timeout",
        type=Seconds(0.1, _LONGEST_TIMEOUT_S),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="Fail if the cluster does not answer for this long.",
    )(function)


def data_dir_option(function: F) -> F:
    """Add `--data-dir`, which becomes the parameter `data_dir` (Path | None)."""
    return click.option(
        "--data-dir",
        type=_Directory(path_type=Path),
        metavar="DIR",
        help="The cluster's data [default: $TIDELOG_HOME, else $XDG_DATA_HOME/tidelog or ~/.local/share/tidelog]",
    )(function)


def json_option(function: F) -> F:
    """Add `--json`, which becomes the parameter `as_json` (bool)."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)


def all_option(function: F) -> F:
    """Add `--all`, which becomes the parameter `shows_all` (bool); `tidelog.cli.terminal.long_tables` heeds it."""
    text = "Show all rows of a long table, not its summary and its worst rows."
    return click.option("--all", "shows_all", is_flag=True, help=text)(function)


def find_cluster(bootstrap_servers: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return `bootstrap_servers`, else those of `find_brokers`: by environment variable or of the last `tidelog up`.

    Raises LocalError, which says how to name them, if none are known, or if that cluster is stopped.
    """
    return bootstrap_servers or find_brokers("--bootstrap-servers HOST:PORT", environment).servers


def find_data_dir(data_dir: Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the absolute data directory for a command about local processes; it may not exist.

    That is `data_dir`, else the directory of the last `tidelog up`, else the default (`data_home`).
    """
    home = data_home(environment)
    return (data_dir or last_up(home) or home).absolute()
