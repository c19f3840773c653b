"""The top-level command: finds the subcommand, and turns each error into one line and an exit status.

0    success, also if the reader of standard output has closed it (`| head -1`)
1    failure
2    wrong usage
130  Ctrl-C
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import logging
import os
import sys
import warnings
from typing import TYPE_CHECKING, TextIO

import click

from tidelog.cli.commands import Group
from tidelog.cli.error_hints import next_step
from tidelog.errors import ConfigError, MissingExtraError, TidelogError, TidelogWarning

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FAILED, MISUSED, INTERRUPTED = 1, 2, 130

_ENTRY_POINTS = "tidelog.commands"
_LONGEST_SUMMARY = 80

#: The errors of a write to a full disk, quota or size limit; without a file name they come from standard output.
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

#: Each command of this package, and its module, which is imported only when the command is called.
_COMMANDS = {
    "broker": "tidelog.cli.cluster.cluster",
    "brokers": "tidelog.cli.cluster.brokers",
    "clients": "tidelog.cli.cluster.clients",
    "completion": "tidelog.cli.completion",
    "config": "tidelog.cli.topics.config",
    "consume": "tidelog.cli.records.consume",
    "doctor": "tidelog.cli.cluster.doctor",
    "down": "tidelog.cli.cluster.cluster",
    "explain": "tidelog.cli.cluster.explain",
    "group": "tidelog.cli.groups.group",
    "logdirs": "tidelog.cli.cluster.logdirs",
    "logs": "tidelog.cli.cluster.logs",
    "offsets": "tidelog.cli.topics.offsets",
    "produce": "tidelog.cli.records.produce",
    "status": "tidelog.cli.cluster.cluster",
    "topic": "tidelog.cli.topics.topic",
    "up": "tidelog.cli.cluster.up",
}
_SUMMARIES = {
    "broker": "Run one broker in the foreground (for compose or systemd).",
    "brokers": "List the live brokers: addresses, racks, and the controller.",
    "clients": "Show who is connected, and which topics each client uses.",
    "completion": "Print the completion script of a shell.",
    "config": "Show the settings of a topic or a broker, each with its source.",
    "consume": "Write a topic's records to standard output.",
    "doctor": "Check the cluster and this machine, and advise what to do.",
    "down": "Stop the local cluster.",
    "explain": "Show why a partition is not healthy.",
    "group": "List, describe, reset and delete consumer groups.",
    "logdirs": "Show the brokers' log directories, and move logs between them.",
    "logs": "Show the logs of the local cluster's processes.",
    "offsets": "Look offsets up by time.",
    "produce": "Write lines to a topic.",
    "status": "Show the local cluster's processes.",
    "topic": "Create, list, describe, alter and delete topics.",
    "up": "Start a local cluster: ZooKeeper and brokers.",
}


def _added_commands() -> dict[str, EntryPoint]:
    """Return the commands that installed packages register in the entry-point group `tidelog.commands`, by name.

    A name of this package's own commands is ignored.
    """
    from importlib.metadata import entry_points

    return {each.name: each for each in entry_points(group=_ENTRY_POINTS) if each.name not in _COMMANDS}


def _load(added: EntryPoint) -> click.Command:
    """Import the command. If its module raises MissingExtraError, return a command that raises this error when it runs.

    A command that cannot run is still listed and completed, and the other commands work.
    """
    try:
        command: click.Command = added.load()
    except MissingExtraError as error:
        missing = error

        @click.command(
            added.name,
            short_help=f"Not installed: {str(missing).rpartition(': ')[2]}",
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )
        def fail() -> None:
            raise missing

        return fail
    return command


class _Commands(Group):
    """The group of all commands, also of those that other packages register.

    The names and summaries of this package's own commands are listed without an import of their modules.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS.keys() | _added_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            added = _added_commands().get(cmd_name)
            return _load(added) if added else None
        command: click.Command = getattr(importlib.import_module(_COMMANDS[cmd_name]), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        # Both errors are caught here, because click would print other texts and return other exit statuses.
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            if sys.stderr.isatty():
                click.echo(err=True)  # behind the terminal's own ^C
            if interrupt.args:
                click.echo(f"tidelog: {interrupt.args[0]}", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _discard_output()
            raise click.exceptions.Exit(0) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(ctx, name)) for name in self.list_commands(ctx)])

    def _summary(self, ctx: click.Context, name: str) -> str:
        if name in _SUMMARIES:
            return _SUMMARIES[name]
        command = self.get_command(ctx, name)
        return command.get_short_help_str(_LONGEST_SUMMARY) if command else ""


def _show_version(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"tidelog {version('tidelog')}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def tidelog() -> None:
    """A replicated, partitioned, durable log."""


def main() -> None:
    """Run the command line of this process, and end the process with its exit status."""
    _open_standard_streams()
    _show_log_lines()
    sys.exit(run())


def _show_log_lines() -> None:
    """Make warnings that the clients log appear as lines `tidelog: …` on standard error."""
    if logging.lastResort is not None:  # the handler of a program that has configured no logging
        logging.lastResort.setFormatter(logging.Formatter("tidelog: %(message)s"))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line (None: of this process) and return its exit status, as in the table above.

    Each error is printed as one line on standard error. With TIDELOG_DEBUG, an unexpected exception is raised.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", TidelogWarning)
        warnings.showwarning = _show_warning
        return _run(arguments)


def _run(arguments: list[str] | None) -> int:
    try:
        status = tidelog.main(arguments, prog_name="tidelog", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except BrokenPipeError:
        _discard_output()
        return 0
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return MISUSED
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "tidelog"
        return _fail(f"{error.format_message().rstrip('.')} (see {where} --help)", MISUSED)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except ConfigError as error:
        return _fail(str(error), MISUSED)
    except TidelogError as error:
        return _fail(f"{str(error) or type(error).__name__}{next_step(error)}", FAILED)
    except OSError as error:
        is_stdout = error.filename is None and error.errno in _OUTPUT_ERRORS
        where = "cannot write to standard output: " if is_stdout else f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}", FAILED)
    except Exception as error:
        if os.environ.get("TIDELOG_DEBUG"):
            raise
        return _fail(f"unexpected error: {type(error).__name__}: {error} (TIDELOG_DEBUG=1 shows the traceback)", FAILED)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a TidelogWarning as a line of the command on standard error, and any other warning as usual."""
    if issubclass(category, TidelogWarning):
        click.echo(f"tidelog: {message}", err=True)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def _open_standard_streams() -> None:
    """Open /dev/null for each standard stream that the caller has closed (`>&-`).

    Otherwise a socket would get its number, and this process's output.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _fail(message: str, status: int) -> int:
    _discard_output()
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"tidelog: {' '.join(message.split())}", err=True)
    return status


def _discard_output() -> None:
    """Flush standard output; if that fails, discard the unwritten output by redirecting the stream to /dev/null.

    Otherwise the interpreter would write the output again at exit and print a traceback.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
