"""Implement `tidelog chaos`, which injects faults into a cluster and reports whether the cluster kept its promises."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import time
from pathlib import Path

import click
from click.core import ParameterSource

from tidelog.cli.commands import Group
from tidelog.cli.common_options import Seconds, json_option
from tidelog.local.cluster import DEFAULT_BROKERS
from tidelog.local.home import data_home, last_up
from tidelog.local.state import load_state
from tidelog.model import Endpoint
from tidelog.quantities import format_duration
from verify.chaos.commands.chaos_check import check
from verify.chaos.commands.chaos_lines import ELECTIONS, REASSIGNMENTS, TerminalReporter, show
from verify.chaos.faults import catalogue
from verify.chaos.load import Load
from verify.chaos.run import Request, run
from verify.chaos.run_directory import WorkDirectory, clean_up
from verify.chaos.scenarios import SCENARIOS, rows_of

_LONGEST_S = 7 * 86_400.0
#: The least load under which each fault meets requests in flight. Part of the records uses acks=0, so not every record
#: is acknowledged.
_LEAST_RATE = 250
_MOST_RATE, _MOST_BROKERS, _MOST_KAFKA_CLIENTS = 100_000, 9, 16
_MOST_IDLE_PARTITIONS = 10_000
#: The interval of the operations that --meanwhile requests.
_ADMINISTRATOR_MS = 5_000
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_SCENARIO_HELP = "; ".join(f"{scenario.name}: {scenario.about}" for scenario in SCENARIOS.values())


@click.group(cls=Group, invoke_without_command=True, subcommand_metavar="[check DIR]")
@click.option(
    "--scenario",
    type=click.Choice(list(SCENARIOS)),
    default="all",
    show_default=True,
    help=f"The faults to inject. {_SCENARIO_HELP}.",
)
@click.option(
    "--only",
    metavar="ROW,…",
    help="Inject only these rows of the scenario, for example F1,F24.",
)
@click.option(
    "--seconds",
    type=Seconds(1, _LONGEST_S),
    metavar="N",
    help="How long to inject faults. Each fault of the scenario is injected at least once, even if that takes longer. "
    "[default: about the time that each fault needs once]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    metavar="N",
    help="The seed of the schedule. The same seed gives the same schedule. [default: from the clock, and printed]",
)
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write report.html and the files that it is made from into DIR. DIR must be new or empty.",
)
@click.option(
    "--rate",
    type=click.IntRange(_LEAST_RATE, _MOST_RATE),
    default=400,
    show_default=True,
    metavar="N",
    help="Records per second that the producers send and several consumers read.",
)
@click.option(
    "--brokers",
    type=click.IntRange(DEFAULT_BROKERS, _MOST_BROKERS),
    metavar="N",
    help=f"The number of brokers of the cluster that is started. [default: {DEFAULT_BROKERS}]",
)
@click.option(
    "--meanwhile",
    type=click.Choice([ELECTIONS, REASSIGNMENTS]),
    multiple=True,
    help="An operation that an administrator repeats every five seconds: elect the preferred leaders of all "
    "partitions, "
    "or reassign the replicas of one partition (a new order, and other brokers if there are more than three). "
    "May be given twice.",
)
@click.option(
    "--kafka-clients",
    type=click.IntRange(0, _MOST_KAFKA_CLIENTS),
    default=0,
    show_default=True,
    metavar="N",
    help="Processes of Kafka clients (confluent-kafka) that work beside the two processes of our own clients: a "
    "producer, a reader, a client that looks up offsets, and a member of each group.",
)
@click.option(
    "--idle-partitions",
    type=click.IntRange(0, _MOST_IDLE_PARTITIONS),
    default=0,
    show_default=True,
    metavar="N",
    help="The partitions of one more topic, which gets no records, so that faults hit brokers that hold many "
    "partitions.",
)
@click.option("--keep", is_flag=True, help="Keep the run's directory: histories, logs and data of the brokers.")
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,…",
    help="Inject faults into the cluster of these brokers. [default: start a cluster for the run]",
)
@click.option("--yes", is_flag=True, help="Confirm that the cluster of --bootstrap-servers may be broken.")
@json_option
@click.pass_context
def chaos(
    context: click.Context,
    scenario: str,
    only: str | None,
    seconds: float | None,
    seed: int | None,
    report: Path | None,
    rate: int,
    brokers: int | None,
    meanwhile: tuple[str, ...],
    kafka_clients: int,
    idle_partitions: int,
    keep: bool,
    bootstrap_servers: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Inject faults into a cluster, and report whether the cluster kept its promises.

    This command starts a cluster of three brokers and a load of clients, and records what clients and brokers observe.
    The command then injects one fault after another and heals each fault before the next. A fault that the cluster does
    not notice is injected again, at most twice, and the last attempt decides. Finally a checker decides whether any
    record was lost, duplicated, reordered or visible too early.

    With --bootstrap-servers the faults are injected into a cluster that already runs on this machine. That is the
    cluster of the last tidelog up, or one in containers that docker compose started. The histories of its brokers are
    checked if the brokers record histories (tidelog up --histories).

    Ctrl-C heals the current fault and still gives the verdict on everything recorded until then.

    \b
    Exit status:
      0  every fault bit, and every promise was kept
      1  a promise was broken, or the run failed
      2  the command line was wrong
      3  no promise was seen broken, but part of the request was not proved:
         a fault was void, skipped or not reached, or an invariant saw no data
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return 0  # the subcommand returns its own exit status
    if seed is None:
        seed = time.time_ns() % 1_000_000_000
    chosen = SCENARIOS[scenario]
    try:
        rows = rows_of(chosen, catalogue(), [row.strip() for row in only.split(",")] if only is not None else ())
    except ValueError as error:
        raise click.UsageError(f"--only: {error}") from None
    if kafka_clients and importlib.util.find_spec("confluent_kafka") is None:
        raise click.UsageError(
            "--kafka-clients needs confluent-kafka, which is not installed: pip install confluent-kafka"
        )
    data_dir = servers = None
    if bootstrap_servers is not None:
        if brokers is not None:
            raise click.UsageError("--brokers is for a cluster that is started, --bootstrap-servers for one that runs")
        data_dir = _find_data_dir(bootstrap_servers)
        servers = bootstrap_servers
        if not yes:
            cluster = f"in {data_dir}" if data_dir else f"at {bootstrap_servers}"
            raise click.UsageError(f"this command injects faults into the cluster {cluster}: pass --yes to confirm")

    if report is not None:
        _prepare(report)
    reporter = TerminalReporter()
    home = data_home()
    clean_up(home, reporter.line)
    place = WorkDirectory(home)
    request = Request(
        chosen,
        rows,
        seed,
        seconds or max(1.0, chosen.seconds * len(rows) / len(rows_of(chosen, catalogue()))),
        Load(
            rate=rate,
            election_interval_ms=_ADMINISTRATOR_MS if ELECTIONS in meanwhile else 0,
            reassignment_interval_ms=_ADMINISTRATOR_MS if REASSIGNMENTS in meanwhile else 0,
            kafka_processes=kafka_clients,
            idle_partitions=idle_partitions,
        ),
        brokers or DEFAULT_BROKERS,
        data_dir,
        servers,
        report and report.absolute(),
    )
    reporter.line(f"scenario {chosen.name}, seed {seed}, {format_duration(request.seconds * 1000)}: {place.path}")

    async def main() -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, stop.set)
        result = await run(request, place, reporter, stop)
        keeps_place = keep or result.must_be_kept
        if keeps_place:
            place.keep()
        reporter.clear()
        show(result, request, kept=keeps_place or report is not None, as_json=as_json)
        return result.status

    try:
        with reporter:
            return asyncio.run(main())
    finally:
        for failure in place.close():
            reporter.line(f"cannot undo a change on this machine: {failure}")


chaos.add_command(check)


def _refuse_options(context: click.Context) -> None:
    for option in context.command.params:
        if option.name and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            message = f"{option.opts[0]} is for a run; {context.invoked_subcommand} has options of its own"
            raise click.UsageError(message, context)


def _prepare(report: Path) -> None:
    """Create the directory of the report. Raise UsageError if the directory cannot be created or written, or is not
    empty.
    """
    try:
        report.mkdir(parents=True, exist_ok=True)
        is_empty = not any(report.iterdir())
    except OSError as error:
        raise click.UsageError(f"--report: {error.filename}: {error.strerror}") from None
    if not is_empty:
        raise click.UsageError(f"--report: {report} is not empty: pass a new or empty directory")
    if not os.access(report, os.W_OK | os.X_OK):
        raise click.UsageError(f"--report: {report} is not writable")


def _find_data_dir(bootstrap_servers: str) -> Path | None:
    """Return the data directory of this user's last `tidelog up` if one of the servers is a broker of that cluster,
    else None.

    Raise UsageError for an invalid address.
    """
    named = {_endpoint(server) for server in bootstrap_servers.split(",")}
    data_dir = last_up(data_home())
    state = load_state(data_dir) if data_dir else None
    if data_dir is None or state is None or not named & {str(broker.endpoint) for broker in state.brokers}:
        return None
    return data_dir


def _endpoint(server: str) -> str:
    try:
        found = Endpoint.parse(server.strip())
    except ValueError as error:
        raise click.UsageError(f"--bootstrap-servers: {error}") from None
    return f"127.0.0.1:{found.port}" if found.host == "localhost" else str(found)
