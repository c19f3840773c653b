"""A run of chaos from its first process to its verdict."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidelog.aio import Admin
from tidelog.errors import HistoryError, TidelogError
from tidelog.protocol.partition_messages import ElectionType
from verify.chaos import cleanup, faults
from verify.chaos.fault import Need
from verify.chaos.faults.support.fault_base import Timing
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
from verify.chaos.results.verdict import BROKEN, RowCount, count_rows, exit_status, shortcomings
from verify.chaos.run_directory import RESULTS, Workplace
from verify.chaos.runner import LEAST_RATE, MOST_HEALING_S, Course, Reporter
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
#: Of a load of which more was left out a run was under another one.
_MOST_LEFT_OUT = 0.5


@dataclass(frozen=True, slots=True)
class Request:
    """What a run is asked for.

    rows       of the scenario, all or some, in the catalogue's order
    seconds    in which faults are begun; each row that is asked for is begun once, however long that takes
    servers    of a cluster of this machine that runs and is to be broken; None: one of `brokers` brokers is started
    data_dir   of that cluster if `tidelog up` started it; None: it is one in containers
    results    where histories and report go; None: into the run's own directory
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
    """What it came to.

    verdict    None: the histories could not be judged
    troubles   what went wrong in the run itself
    """

    rows: Sequence[RowCount]
    verdict: Verdict | None
    troubles: Sequence[str]
    results: Path
    report: Path | None = None

    @property
    def status(self) -> int:
        """The exit status; see `verify.chaos.results.verdict`."""
        return exit_status(self.rows, self.verdict, self.troubles)

    @property
    def shortcomings(self) -> list[str]:
        """Why it has not proved what it was asked to."""
        return shortcomings(self.rows, self.verdict, self.troubles)

    @property
    def must_be_kept(self) -> bool:
        """Whether somebody will want to look into the run's directory: there is a violation in it."""
        return self.status == BROKEN


async def run(request: Request, place: Workplace, reporter: Reporter, stop: asyncio.Event) -> Result:
    """`stop` set ends it early, and with a verdict. TidelogError where the cluster cannot be had."""
    results = request.results or place.path / RESULTS
    results.mkdir(parents=True, exist_ok=True)
    target = _target(request, place, results)
    if not target.is_ours:
        request = replace(request, load=request.load.named_apart(f"chaos-{place.path.name}-"))
    reporter.status("starting the cluster" if target.is_ours else "looking at the cluster")
    async with had(target, results):
        # What a run leaves that dies before it has told its troubles is not taken for a whole one.
        _write_about(results, request, ["the run did not come to its end"])
        ordeal = _Ordeal(request, target, results, reporter, stop)
        if target.broker_histories is None:
            ordeal.troubles.append("the brokers keep no histories, so what only they saw is not judged")
        elif not target.is_ours:
            foreign_histories.follow(target.broker_histories, target.broker_ids, results)
        try:
            await ordeal.undergo()
            await ordeal.read_final_logs()
        finally:
            if not target.is_ours:
                await ordeal.clear()
    return await asyncio.to_thread(ordeal.judge)


@asynccontextmanager
async def had(target: Cluster, results: Path) -> AsyncIterator[None]:
    """The cluster, as long as that lasts. Where it cannot be had, the directory of the results is empty again, so that
    the next run may have it.
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


def _target(request: Request, place: Workplace, results: Path) -> Cluster:
    if request.data_dir is not None:
        return running_cluster(place.path, results, request.data_dir, place.undo)
    if request.servers is not None:
        return ContainerTarget(place.path, results, request.servers, place.undo)
    needed = needs_of(request.rows)
    furnishings = [each for each in faults.furnishings() if each.need in needed]
    return own_cluster(place.path, results, request.brokers, place.undo, furnishings)


def needs_of(rows: Sequence[str]) -> set[Need]:
    """All that some fault of these rows cannot do without."""
    catalogue = faults.catalogue()
    return {need for row in rows for kind in catalogue.get(row, ()) for need in kind().needs}


@dataclass(slots=True)
class _Ordeal:
    """A cluster that runs, what is done to it, and what is left of that in `results`."""

    request: Request
    target: Cluster
    results: Path
    reporter: Reporter
    stop: asyncio.Event
    troubles: list[str] = field(default_factory=list)
    faults: FaultsFile = field(init=False)
    #: To be called when nothing of the run is left in a cluster that others use.
    cleared: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.faults = FaultsFile(self.results)

    async def undergo(self) -> None:
        """Load, faults, and at the end a cluster at rest."""
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

        course = Course(
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
            async with clients, _going_on(views):
                target.clients, began = (lambda: clients.processes), time.monotonic()
                await self._until_busy(course)
                await counts.busy("baseline")
                await course.run(steps, request.rows, request.seconds)
                await counts.busy("healed")
                self.reporter.status("waiting for clients to come to an end")
                worked_s = time.monotonic() - began
                await clients.stop()
                self.troubles += clients.failures
                self._tell_of_load(clients.left_out, worked_s)
                await self._quiesce(course)
            await counts.idle_after()
            self.troubles += counts.troubles()
        finally:
            counts.close()

    async def _prepare(self) -> None:
        """Topics, also that of the groups' offsets, which is made when somebody first asks for one."""
        target, load = self.target, self.request.load
        if not target.is_ours:
            self.cleared = target.undo.to_run(*cleanup.command(target.bootstrap_servers, load.group_prefix))
        await create_topics(target.bootstrap_servers, load, len(target.broker_ids))
        target.tps = load.tps
        async with Admin(target.bootstrap_servers, client_id="chaos") as admin:
            await admin.list_consumer_group_offsets("chaos")

    async def _spread(self) -> None:
        async with Admin(self.target.bootstrap_servers, client_id="chaos") as admin:
            await admin.elect_leaders(ElectionType.PREFERRED, timeout_ms=_ASK_MS)

    async def _until_busy(self, course: Course) -> None:
        """What brokers hold under load is counted when there is some."""
        deadline = time.monotonic() + _BUSY_S
        while not self.stop.is_set() and time.monotonic() < deadline and (rate := await course.rate()) < LEAST_RATE:
            self.reporter.status(f"waiting for load: {rate} records/s")
            await asyncio.sleep(_WATCH_EVERY_S)

    def _tell_of_load(self, left_out: int, worked_s: float) -> None:
        """What clients did not send of it in this time. A little less is no shortcoming: a fault is injected only under
        enough load, and is void otherwise.
        """
        if not left_out:
            return
        rate = self.request.load.rate
        share = left_out / (rate * worked_s)
        told = f"{left_out:,} records were left out, {100 * share:.0f} % of the load"
        told += f": this machine is too slow for {rate:,} a second"
        if share > _MOST_LEFT_OUT:
            self.troubles.append(told)
        else:
            self.reporter.line(told)

    async def _quiesce(self, course: Course) -> None:
        """Until every replica is in sync and has all there is."""
        self.reporter.status("waiting for replicas to be level")
        deadline = time.monotonic() + MOST_HEALING_S
        async with Admin(self.target.bootstrap_servers, client_id="chaos") as admin:
            while time.monotonic() < deadline:
                with suppress(TidelogError):
                    if course.is_whole(await course.views.now()) and await self._is_level(admin):
                        return
                await asyncio.sleep(_WATCH_EVERY_S)
        self.troubles.append(f"the replicas were not level {MOST_HEALING_S:g} s after the last fault")

    async def _is_level(self, admin: Admin) -> bool:
        described = await admin.describe_topics(sorted({tp.topic for tp in self.target.tps}), _ASK_MS)
        return all(
            partition.high_watermark == partition.log_end_offset is not None
            and set((partition.lag or {}).values()) <= {0}
            for topic in described
            for partition in topic.partitions
        )

    async def read_final_logs(self) -> None:
        """What cannot be read is not there, and who judges says so."""
        target = self.target
        self.reporter.status("reading all there is")
        try:
            await read_final_logs(target.bootstrap_servers, target.tps, self.results)
            if (hidden := target.lacks(Need.FILES)) is not None:
                self.troubles.append(f"what each replica holds is not judged: {hidden}")
                return
            self.reporter.status("reading the brokers' files")
            await target.stop()
            topics = sorted({tp.topic for tp in target.tps})
            for broker_id in target.broker_ids:
                await copy_replica_logs(broker_id, [target.broker_dir(broker_id)], topics, self.results)
        except (TidelogError, OSError) as error:
            self.troubles.append(f"what there was in the end is not known: {error}")

    async def clear(self) -> None:
        """Leaves a cluster that others use without the run's topics and groups, and takes its histories along."""
        prefix = self.request.load.group_prefix
        try:
            foreign_histories.take(self.results)
        except OSError as error:
            self.troubles.append(f"the brokers' histories were not had: {error}")
        try:
            await cleanup.remove(self.target.bootstrap_servers, prefix)
        except TidelogError as error:
            self.troubles.append(f"something of {prefix}… was left behind: {error}")
        else:
            self.cleared()

    def judge(self) -> Result:
        """Of files alone. Where one of them is damaged there is no verdict, or no report."""
        verdict, report = None, None
        self.reporter.status("judging the histories")
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
    """What the report tells of the run, and what it takes into account: the rows asked for, and the run's troubles."""
    values = {"scenario": request.scenario.name, "seed": request.seed, "seconds": request.seconds}
    text = json.dumps(values | {"rows": list(request.rows), "troubles": list(troubles)}, ensure_ascii=False)
    (results / RUN).write_text(text + "\n", encoding="utf-8")


@asynccontextmanager
async def _going_on(views: Views) -> AsyncIterator[None]:
    watching = asyncio.create_task(views.watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})
