"""A run of chaos from its first process to its verdict."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from tidelog.aio import Admin
from tidelog.chaos import faults
from tidelog.chaos.activity import Activity
from tidelog.chaos.fault import Need
from tidelog.chaos.faults.harm import Timing
from tidelog.chaos.final_logs import copy_replica_logs, read_final_logs
from tidelog.chaos.injections import FaultsFile
from tidelog.chaos.judging import judge
from tidelog.chaos.load import Load
from tidelog.chaos.report import write_report
from tidelog.chaos.resources import Phase, ResourceCounts
from tidelog.chaos.runner import LEAST_RATE, MOST_HEALING_S, Course, Reporter
from tidelog.chaos.runs import RESULTS, RunDirectory
from tidelog.chaos.scenarios import Scenario, rows_of
from tidelog.chaos.schedule import schedule
from tidelog.chaos.tail import HistoryTail
from tidelog.chaos.targets import LocalTarget, own_cluster, running_cluster
from tidelog.chaos.verdict import BROKEN, RowCount, count_rows, exit_status
from tidelog.chaos.views import Views
from tidelog.chaos.workload import Workload, create_topics
from tidelog.checker.verdict import Verdict
from tidelog.errors import HistoryError, TidelogError

RUN_FILE = "run.json"
_BUSY_S = 30.0
_WATCH_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Request:
    """What a run is asked for.

    seconds    in which faults are begun; each row of the scenario is begun once, however long that takes
    data_dir   of a cluster that `tidelog up` started; None: the run starts one of `brokers` brokers
    results    where histories and report go; None: into the run's own directory
    """

    scenario: Scenario
    seed: int
    seconds: float
    load: Load
    brokers: int = 3
    data_dir: Path | None = None
    results: Path | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What it came to. `verdict` None: the histories could not be judged."""

    rows: Sequence[RowCount]
    verdict: Verdict | None
    results: Path
    report: Path | None = None

    @property
    def status(self) -> int:
        """The exit status; see `tidelog.chaos.verdict`."""
        return exit_status(self.rows, self.verdict)

    @property
    def must_be_kept(self) -> bool:
        """Whether somebody will want to look into the run's directory: there is a violation in it."""
        return self.status == BROKEN


async def run(request: Request, place: RunDirectory, reporter: Reporter, stop: asyncio.Event) -> Result:
    """`stop` set ends it early, and with a verdict. TidelogError where the cluster cannot be had."""
    results = request.results or place.path / RESULTS
    results.mkdir(parents=True, exist_ok=True)
    (results / RUN_FILE).write_text(
        json.dumps({"scenario": request.scenario.name, "seed": request.seed, "seconds": request.seconds}) + "\n"
    )
    if request.data_dir is None:
        needed = needs_of(request.scenario)
        furnishings = [each for each in faults.furnishings() if each.need in needed]
        target = own_cluster(place.path, results, request.brokers, place.undo, furnishings)
    else:
        target = running_cluster(place.path, request.data_dir, place.undo)
    async with AsyncExitStack() as ends:
        reporter.status("starting the cluster" if target.is_ours else "looking at the cluster")
        await ends.enter_async_context(target)
        rows, course = await _break(request, target, results, reporter, stop)
        await _read_final_logs(target, results, reporter)
    reporter.status("judging the histories")
    verdict = await _judge(results, course, request.load, reporter)
    reporter.status("writing the report")
    report = await asyncio.to_thread(write_report, results, f"tidelog chaos --scenario {request.scenario.name}")
    return Result(count_rows(rows, course.faults.injections), verdict, results, report)


async def _judge(results: Path, course: Course, load: Load, reporter: Reporter) -> Verdict | None:
    try:
        return await asyncio.to_thread(judge, results, course.faults.injections, load)
    except (HistoryError, OSError) as error:
        reporter.line(f"the histories cannot be judged: {error}")
        return None


async def _break(
    request: Request, target: LocalTarget, results: Path, reporter: Reporter, stop: asyncio.Event
) -> tuple[Sequence[str], Course]:
    load = request.load
    replicas = min(3, len(target.broker_ids))
    await create_topics(target.bootstrap_servers, load, len(target.broker_ids))
    target.tps = load.tps
    timing = Timing(target.session_timeout_ms, target.replica_lag_time_max_ms)
    catalogue = faults.catalogue(timing)
    rows = rows_of(request.scenario, catalogue)
    activity, tail, views = Activity(target.tps), HistoryTail(results), Views(target.view)

    def take() -> None:
        for kind, name, event in tail.read():
            activity.take(kind, name, event)

    reading = asyncio.Lock()

    async def read() -> None:
        async with reading:
            await asyncio.to_thread(take)

    course = Course(target, catalogue, activity, views, FaultsFile(results), stop, replicas, read, reporter)
    clients = Workload(results, target.bootstrap_servers, load, seed=request.seed)
    counts = ResourceCounts(results, time.monotonic_ns())
    async with clients:
        target.clients = lambda: clients.processes
        watching = asyncio.create_task(views.watch())
        try:
            steps = schedule(request.seed, rows, {row: len(kinds) for row, kinds in catalogue.items()})
            await _until_busy(course, stop)
            await _count_resources(target, counts, "baseline")
            await course.run(steps, rows, request.seconds)
            await _count_resources(target, counts, "healed")
            reporter.status("waiting for clients to come to an end")
            await clients.stop()
            for failure in clients.failures:
                reporter.line(failure)
            await _quiesce(target, course, reporter)
        finally:
            counts.close()
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
    return rows, course


async def _until_busy(course: Course, stop: asyncio.Event) -> None:
    """So that what brokers hold is counted when they have something to do; the course itself wants it before faults."""
    deadline = time.monotonic() + _BUSY_S
    while not stop.is_set() and time.monotonic() < deadline and await course.rate() < LEAST_RATE:
        course.reporter.status("waiting for load")
        await asyncio.sleep(_WATCH_EVERY_S)


async def _count_resources(target: LocalTarget, counts: ResourceCounts, phase: Phase) -> None:
    """Of brokers that do not answer nothing is known."""
    for broker in target.brokers:
        with suppress(OSError):
            await asyncio.to_thread(counts.count, broker, phase, time.monotonic_ns())


def needs_of(scenario: Scenario) -> set[Need]:
    """All that some fault of the scenario cannot do without."""
    catalogue = faults.catalogue()
    rows = rows_of(scenario, catalogue)
    return {need for row in rows for kind in catalogue.get(row, ()) for need in kind().needs}


async def _read_final_logs(target: LocalTarget, results: Path, reporter: Reporter) -> None:
    """What cannot be read is not there, and who judges says so."""
    reporter.status("reading all there is")
    try:
        await read_final_logs(target.bootstrap_servers, target.tps, results)
        reporter.status("reading the brokers' files")
        await target.stop()
        topics = sorted({tp.topic for tp in target.tps})
        for broker_id in target.broker_ids:
            await copy_replica_logs(broker_id, [target.broker_dir(broker_id)], topics, results)
    except (TidelogError, OSError) as error:
        reporter.line(f"what there was in the end is not known: {error}")


async def _quiesce(target: LocalTarget, course: Course, reporter: Reporter) -> None:
    """Until every replica is in sync and has all there is."""
    reporter.status("waiting for replicas to be level")
    deadline = time.monotonic() + MOST_HEALING_S
    async with Admin(target.bootstrap_servers, client_id="chaos") as admin:
        while time.monotonic() < deadline:
            with suppress(TidelogError):
                if course.is_whole(await course.views.now()) and await _is_level(admin, course):
                    return
            await asyncio.sleep(_WATCH_EVERY_S)
    reporter.line("replicas were not level in time")


async def _is_level(admin: Admin, course: Course) -> bool:
    topics = sorted({tp.topic for tp in course.target.tps})
    described = await admin.describe_topics(topics, 5_000)
    return all(
        partition.high_watermark == partition.log_end_offset is not None and set((partition.lag or {}).values()) <= {0}
        for topic in described
        for partition in topic.partitions
    )
