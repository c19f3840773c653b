"""Perform a chaos run, from the start of the first process to the verdict and the report."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from signal import SIGTERM

from tidelog.aio import Admin
from tidelog.errors import HistoryError, LocalError, TidelogError
from tidelog.protocol.partition_messages import ElectionType
from verify.chaos import cleanup, faults
from verify.chaos.fault import Need
from verify.chaos.faults.support.fault_base import Timing, ended, send
from verify.chaos.injections import FaultsFile
from verify.chaos.load import Load
from verify.chaos.report import write_report
from verify.chaos.report.reading import RUN
from verify.chaos.results import foreign_histories
from verify.chaos.results.activity import Activity
from verify.chaos.results.final_logs import copy_replica_logs, read_final_logs
from verify.chaos.results.judging import judge
from verify.chaos.results.resources import ResourceCounts
from verify.chaos.results.tail import HistoryTail
from verify.chaos.results.verdict import BROKEN, RowCount, count_rows, exit_status, repeated, shortcomings
from verify.chaos.run_directory import RESULTS, WorkDirectory
from verify.chaos.runner import LEAST_RATE, MOST_HEALING_S, FaultRunner, Reporter
from verify.chaos.scenarios import Scenario
from verify.chaos.schedule import schedule
from verify.chaos.targets.cluster_views import Views
from verify.chaos.targets.container_target import ContainerTarget
from verify.chaos.targets.process_target import Cluster, own_cluster, running_cluster
from verify.chaos.workload import Workload, create_topics, replicas_of
from verify.checker.verdict import Verdict

_BUSY_S = 30.0
_WATCH_EVERY_S = 0.2
_ASK_MS = 5_000
#: If a larger share of the load was left out, the run had a different load than requested.
_MOST_LEFT_OUT = 0.5


@dataclass(frozen=True, slots=True)
class Request:
    """The parameters of a run.

    rows       all or some rows of the scenario, in the catalogue's order
    seconds    the time in which new steps begin. After it, steps begin only until each row has had one. A stop, or a
               cluster that does not recover from a fault, ends the steps earlier.
    servers    the addresses of a running cluster of this machine; None: the run starts a cluster of `brokers` brokers
    data_dir   the data directory of that running cluster if `tidelog up` started it; None: it runs in containers
    results    the directory for histories and report, created if needed; None: `results` in the run's own directory
    """

    scenario: Scenario
    rows: tuple[str, ...]
    seed: int
    seconds: float
    load: Load
    brokers: int = 3
    data_dir: Path | None = None
    servers: str | None = None
    results: Path | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    rows       the counts of each requested row, in the catalogue's order
    verdict    None: the histories could not be checked
    troubles   the failures of the run itself, one text each
    results    the directory of histories and verdict
    report     the path of report.html; None: this call has not written one
    """

    rows: Sequence[RowCount]
    verdict: Verdict | None
    troubles: Sequence[str]
    results: Path
    report: Path | None = None

    @property
    def status(self) -> int:
        """Return the exit status: 0 if all was proved, 1 if an invariant was violated, 3 if something
        was not proved.
        """
        return exit_status(self.rows, self.verdict, self.troubles)

    @property
    def shortcomings(self) -> list[str]:
        """Return the reasons why the run has not proved what was requested. Violations are not among
        them. Empty: none.
        """
        return shortcomings(self.rows, self.verdict, self.troubles)

    @property
    def repeated(self) -> list[str]:
        """Return the rows with a fault that was injected again, because the cluster did not notice an earlier
        attempt.
        """
        return repeated(self.rows)

    @property
    def must_be_kept(self) -> bool:
        """Return whether an invariant was violated, because the run's directory must then be kept as evidence."""
        return self.status == BROKEN


async def run(request: Request, place: WorkDirectory, reporter: Reporter, stop: asyncio.Event) -> Result:
    """Start or find the cluster, run load and faults, check the histories, and return the result.

    A cluster of the run's own is stopped at the end. On a cluster that others use, topics and groups get names of their
    own and are removed at the end. If `stop` is set, the current fault is healed, no other follows, and the verdict
    covers the histories until then. Raise TidelogError if the cluster cannot be started or reached.
    """
    results = request.results or place.path / RESULTS
    results.mkdir(parents=True, exist_ok=True)
    target = _target(request, place, results)
    if not target.is_ours:
        request = replace(request, load=request.load.named_apart(f"chaos-{place.path.name}-"))
    reporter.status("starting the cluster" if target.is_ours else "looking at the cluster")
    async with running(target, results):
        # A run that is killed before it has recorded its troubles must not be taken for a complete one.
        _write_about(results, request, ["the run was interrupted before its end"])
        chaos_run = _ChaosRun(request, target, results, reporter, stop)
        if target.broker_histories is None:
            chaos_run.troubles.append(
                "the brokers record no histories, so the invariants that need them are not checked"
            )
        elif not target.is_ours:
            foreign_histories.follow(target.broker_histories, target.broker_ids, results)
        try:
            await chaos_run.run_load_and_faults()
            await chaos_run.read_final_logs()
        finally:
            if not target.is_ours:
                await chaos_run.clear()
    return await asyncio.to_thread(chaos_run.judge)


@asynccontextmanager
async def running(target: Cluster, results: Path) -> AsyncIterator[None]:
    """Enter the target, and leave it when the context ends.

    If entering fails, remove all directories in `results`, so that the next run can use `results`, and raise the error.
    """
    async with AsyncExitStack() as ends:
        try:
            await ends.enter_async_context(target)
        except BaseException:
            _empty(results)
            raise
        yield


def _empty(directory: Path) -> None:
    for left in directory.iterdir():
        shutil.rmtree(left)


def _target(request: Request, place: WorkDirectory, results: Path) -> Cluster:
    if request.data_dir is not None:
        return running_cluster(place.path, results, request.data_dir, place.undo)
    if request.servers is not None:
        return ContainerTarget(place.path, results, request.servers, place.undo)
    needed = needs_of(request.rows)
    prerequisites = [each for each in faults.prerequisites() if each.need in needed]
    return own_cluster(place.path, results, request.brokers, place.undo, prerequisites)


def needs_of(rows: Sequence[str]) -> set[Need]:
    """Return all needs of all fault kinds of these rows. A row without an implemented fault has none."""
    catalogue = faults.catalogue()
    return {need for row in rows for kind in catalogue.get(row, ()) for need in kind().needs}


@dataclass(slots=True)
class _ChaosRun:
    """One run on a target that has been entered. Failures of the run itself are added to `troubles`.

    The caller calls the methods in this order: `run_load_and_faults`, `read_final_logs`, `clear` if the cluster is not
    the run's own, and `judge`.
    """

    request: Request
    target: Cluster
    results: Path
    reporter: Reporter
    stop: asyncio.Event
    troubles: list[str] = field(default_factory=list)
    faults: FaultsFile = field(init=False)
    #: A function to call when nothing of the run is left in a cluster that others use.
    cleared: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.faults = FaultsFile(self.results)

    async def run_load_and_faults(self) -> None:
        """Create the topics, start the clients, inject the faults, stop the clients, and wait until replicas have all
        records.

        The brokers' resources are counted before, during and after the load.
        """
        request, target = self.request, self.target
        await self._prepare()
        timing = Timing(target.session_timeout_ms, target.replica_lag_time_max_ms)
        catalogue = faults.catalogue(timing)
        steps = schedule(request.seed, request.rows, {row: len(kinds) for row, kinds in catalogue.items()})
        counts = ResourceCounts(self.results, lambda: target.brokers)
        clients = Workload(self.results, target.bootstrap_servers, request.load, seed=request.seed)
        activity, tail, views = Activity(target.tps), HistoryTail(self.results), Views(target.view)

        def take() -> None:
            for line in tail.read():
                activity.take(*line)

        async def read() -> None:
            await asyncio.to_thread(take)

        runner = FaultRunner(
            target,
            catalogue,
            activity,
            views,
            self.faults,
            self.stop,
            replicas=replicas_of(len(target.broker_ids)),
            read=read,
            spread=self._spread,
            reporter=self.reporter,
            moved_ms=timing.moved_ms if request.load.has_administrator else None,
        )
        try:
            await counts.idle_before()
            async with clients, _watching(views):
                target.use_clients(lambda: clients.processes)
                began = time.monotonic()
                await self._until_busy(runner)
                await counts.busy("baseline")
                await runner.run(steps, request.rows, request.seconds)
                await counts.busy("healed")
                self.reporter.status("waiting for clients to finish")
                worked_s = time.monotonic() - began
                await clients.stop()
                self.troubles += clients.failures
                self._report_left_out(clients.left_out, worked_s)
                await self._quiesce(runner)
            await counts.idle_after()
            self.troubles += counts.troubles()
        finally:
            counts.close()

    async def _prepare(self) -> None:
        """Create the load's topics, and __consumer_offsets by a first request for offsets.

        If the cluster is not the run's own, first record the removal of topics and groups in the undo log.
        """
        target, load = self.target, self.request.load
        if not target.is_ours:
            self.cleared = target.undo.to_run(*cleanup.command(target.bootstrap_servers, load.group_prefix))
        self.reporter.status(f"creating topics of {sum(topic.partitions for topic in load.all_topics):,} partitions")
        await create_topics(target.bootstrap_servers, load, len(target.broker_ids))
        target.tps = load.tps
        async with Admin(target.bootstrap_servers, client_id="chaos") as admin:
            await admin.list_consumer_group_offsets("chaos")
            if load.idle_partitions and target.is_ours:
                await self._restart_brokers(admin)

    async def _restart_brokers(self, admin: Admin) -> None:
        """Restart one broker after the other, because the memory of brokers with many partitions settles only then.

        A broker holds more once it has opened existing logs, and the controller once other brokers have registered
        again. The faults do both, so the count before the faults must follow such restarts. After a trouble, and once
        the run is asked to stop, no further broker is restarted. Raise LocalError if a broker does not end within 20 s
        of SIGTERM.
        """
        for broker_id in self.target.broker_ids:
            if self.stop.is_set() or self.troubles:
                return
            self.reporter.status(f"restarting broker {broker_id}, so that its memory settles")
            process = self.target.broker_process(broker_id)
            send(process, SIGTERM, f"broker {broker_id}")
            if not await ended(process):
                raise LocalError(f"broker {broker_id} did not end within 20 s of SIGTERM")
            await self.target.start_broker(broker_id)
            await self._until_level(admin, f"the restart of broker {broker_id}")

    async def _spread(self) -> None:
        async with Admin(self.target.bootstrap_servers, client_id="chaos") as admin:
            await admin.elect_leaders(ElectionType.PREFERRED, timeout_ms=_ASK_MS)

    async def _until_busy(self, runner: FaultRunner) -> None:
        """Wait until `LEAST_RATE` records per second are acknowledged, at most 30 s, or until the run is asked to stop.

        The wait is needed because brokers' resources under load are counted next.
        """
        deadline = time.monotonic() + _BUSY_S
        while not self.stop.is_set() and time.monotonic() < deadline and (rate := await runner.rate()) < LEAST_RATE:
            self.reporter.status(f"waiting for load: {rate} records/s")
            await asyncio.sleep(_WATCH_EVERY_S)

    def _report_left_out(self, left_out: int, worked_s: float) -> None:
        """Report `left_out` records that clients did not send in `worked_s` seconds: a trouble if more than half of the
        load.

        A smaller number is only a line, because a fault is injected only under sufficient load, and is void otherwise.
        """
        if not left_out:
            return
        rate = self.request.load.rate
        share = left_out / (rate * worked_s)
        message = f"clients left out {left_out:,} records, {100 * share:.0f} % of the load"
        message += f", because this machine is too slow for {rate:,} records per second"
        if share > _MOST_LEFT_OUT:
            self.troubles.append(message)
        else:
            self.reporter.line(message)

    async def _quiesce(self, runner: FaultRunner) -> None:
        """Wait until all brokers are registered, every replica is in sync and has all records. After 60 s add a
        trouble.
        """
        self.reporter.status("waiting until all replicas have all records")
        async with Admin(self.target.bootstrap_servers, client_id="chaos") as admin:
            await self._until_level(admin, "the last fault", runner)

    async def _until_level(self, admin: Admin, event: str, runner: FaultRunner | None = None) -> None:
        """Wait until every replica is in sync and has all records, and the runner finds the cluster whole. After 60 s
        add a trouble, which names `event`.
        """
        deadline = time.monotonic() + MOST_HEALING_S
        while time.monotonic() < deadline:
            with suppress(TidelogError):
                is_whole = runner is None or runner.is_whole(await runner.views.now())
                if is_whole and await self._is_level(admin):
                    return
            await asyncio.sleep(_WATCH_EVERY_S)
        self.troubles.append(f"some replicas lacked records {MOST_HEALING_S:g} s after {event}")

    async def _is_level(self, admin: Admin) -> bool:
        """Return whether each partition of the load, with records or without, has all replicas in sync and level."""
        described = await admin.describe_topics([topic.name for topic in self.request.load.all_topics], _ASK_MS)
        return all(
            len(partition.isr) >= replicas_of(len(self.target.broker_ids))
            and partition.high_watermark == partition.log_end_offset is not None
            and set((partition.lag or {}).values()) <= {0}
            for topic in described
            for partition in topic.partitions
        )

    async def read_final_logs(self) -> None:
        """Write all records from the leaders, then stop a cluster of the run's own, and write all records of the
        brokers' files.

        If the target lacks `Need.FILES`, only the leaders' records are written, and a trouble says so. A TidelogError
        or OSError becomes a trouble, and the logs that were not read are missing in the results.
        """
        target = self.target
        self.reporter.status("reading all records from the leaders")
        try:
            await read_final_logs(target.bootstrap_servers, target.tps, self.results)
            if (hidden := target.lacks(Need.FILES)) is not None:
                self.troubles.append(f"the replicas' logs are not checked: {hidden}")
                return
            self.reporter.status("reading the brokers' files")
            await target.stop()
            topics = sorted({tp.topic for tp in target.tps})
            for broker_id in target.broker_ids:
                await copy_replica_logs(broker_id, [target.broker_dir(broker_id)], topics, self.results)
        except (TidelogError, OSError) as error:
            self.troubles.append(f"the final logs are unknown: {error}")

    async def clear(self) -> None:
        """Replace the links to the brokers' histories by copies, and delete the topics and groups with the run's
        prefix.

        A failure of either becomes a trouble and is not raised. If the deletion fails, its entry in the undo log stays
        open.
        """
        prefix = self.request.load.group_prefix
        try:
            foreign_histories.take(self.results)
        except OSError as error:
            self.troubles.append(f"cannot copy the brokers' histories: {error}")
        try:
            await cleanup.remove(self.target.bootstrap_servers, prefix)
        except TidelogError as error:
            self.troubles.append(f"some topics or groups {prefix}… could not be removed: {error}")
        else:
            self.cleared()

    def judge(self) -> Result:
        """Write run.json, check the histories, write the verdict and the report, and return the result. The call
        blocks.

        A HistoryError or OSError becomes a trouble. Then the report is None, and so is the verdict unless only the
        report failed.
        """
        verdict, report = None, None
        self.reporter.status("checking the histories")
        try:
            _write_about(self.results, self.request, self.troubles)
            verdict = judge(self.results, self.faults.injections)
            self.reporter.status("writing the report")
            report = write_report(self.results)
        except (HistoryError, OSError) as error:
            self.troubles.append(str(error))
        return Result(
            count_rows(self.request.rows, self.faults.injections), verdict, self.troubles, self.results, report
        )


def _write_about(results: Path, request: Request, troubles: Sequence[str]) -> None:
    """Write run.json, which the report and a later check read: scenario, seed, seconds, the requested rows and the
    troubles. An existing file is replaced.
    """
    values = {"scenario": request.scenario.name, "seed": request.seed, "seconds": request.seconds}
    text = json.dumps(values | {"rows": list(request.rows), "troubles": list(troubles)}, ensure_ascii=False)
    (results / RUN).write_text(text + "\n", encoding="utf-8")


@asynccontextmanager
async def _watching(views: Views) -> AsyncIterator[None]:
    watching = asyncio.create_task(views.watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})
