"""Inject the faults of a run one after another into a cluster under load, and heal each before the next."""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto

from tidelog.errors import LocalError, TidelogError
from verify.chaos.fault import Catalogue, Evidence, Fault, Target, View
from verify.chaos.injections import FaultsFile, Injection, Outcome
from verify.chaos.results.activity import Activity
from verify.chaos.schedule import Step
from verify.chaos.targets.cluster_views import Views

#: The acknowledged records per second that a fault needs, because with less load the fault has nothing to disturb.
#: Reads do not count, because they continue when no partition is writable.
LEAST_RATE = 200
#: The number of operations that must succeed during a fault that leaves a majority, or soon after its permitted pause.
LEAST_DURING = 100
#: The most repeats of a step whose fault the cluster did not notice. A busy machine can hide the effect of a fault by
#: chance, for example if a broker starts so slowly that its old session is over. A lasting reason hides all attempts.
MOST_REPEATS = 2
#: Time limits of waiting for the load, of a view of the cluster, of an injection and of a healing.
_RATE_S, _SIGHT_S, _INJECT_S, _HEAL_S = 30.0, 15.0, 120.0, 120.0
#: The time in which all replicas must be in sync after a fault is healed.
MOST_HEALING_S = 60.0
_LOOK_EVERY_S = 0.1
_SECOND_NS = 1_000_000_000

#: Errors that a fault may raise and that are no defects of the tool itself.
_FAULT_ERRORS = (TidelogError, OSError, subprocess.SubprocessError)


class _Next(Enum):
    """The continuation after an attempt: the next step of the schedule, the same step again, or the end of the run."""

    STEP = auto()
    REPEAT = auto()
    END = auto()


class Reporter:
    """A receiver of progress messages. This base class discards them."""

    def status(self, text: str) -> None:
        """Report the current activity, many times a second. The text replaces the one before."""

    def line(self, text: str) -> None:
        """Report a message that stays visible."""


@dataclass(slots=True)
class FaultRunner:
    """The execution of a schedule. If `stop` is set, the current fault is healed and the execution ends.

    faults     gets each step's outcome
    replicas   the number of replicas of each partition under load
    read       passes the new events of clients and brokers to `activity`
    spread     elects preferred leaders, so that a fault that hits one leader leaves others, even after earlier faults
               moved some
    moved_ms   added to the fault's limit of unavailability, together with the time from injection to healing, because
               an administrator moves leaders; None: no administrator is active, and neither is added
    """

    target: Target
    catalogue: Catalogue
    activity: Activity
    views: Views
    faults: FaultsFile
    stop: asyncio.Event
    replicas: int
    read: Callable[[], Awaitable[None]]
    spread: Callable[[], Awaitable[None]]
    reporter: Reporter
    moved_ms: int | None = None
    now_ns: Callable[[], int] = time.monotonic_ns

    async def run(self, steps: Iterator[Step], rows: Sequence[str], seconds: float) -> None:
        """Run the steps until `seconds` have passed and each of `rows` has had one, except rows that cannot be injected
        here.

        Those rows are recorded as skipped at the begin. The call returns early if the run is asked to stop, if a fault
        cannot be healed, or if the cluster does not recover within 60 s. The end of `seconds` interrupts no step and no
        repeat. A stop shortens the current step, but an injected fault is healed and recorded.
        """
        possible = self._possible(rows)
        deadline = self._deadline(seconds)
        for step in steps if possible else ():
            if self.stop.is_set() or (step.number >= len(rows) and self.now_ns() >= deadline):
                return
            if (kinds := possible.get(step.row)) and not await self._attempts(step, kinds[step.kind % len(kinds)]):
                return

    def _possible(self, rows: Sequence[str]) -> Catalogue:
        """Return the fault kinds that can be injected here, by row. A row without any is missing.

        Each other kind is recorded as skipped with the reason, because a different kind of the same row does not prove
        the same. A row without an implemented fault is recorded as skipped too.
        """
        possible = {}
        for row in rows:
            kinds = {kind: self._lacks(kind()) for kind in self.catalogue.get(row, ())}
            if not kinds:
                self._end(Injection(row, "", Outcome.SKIPPED, "no fault is implemented for this row"))
            for kind, why in kinds.items():
                if why:
                    self._end(_injection(kind(), Outcome.SKIPPED, why))
            if left := [kind for kind, why in kinds.items() if not why]:
                possible[row] = left
        return possible

    def _lacks(self, fault: Fault) -> str:
        """Return the reasons why the target lacks needs of the fault, as text. Empty: the target provides all."""
        reasons = [why for need in fault.needs if (why := self.target.lacks(need)) is not None]
        return "; ".join(sorted(set(reasons)))

    async def _attempts(self, step: Step, kind: Callable[[], Fault]) -> bool:
        """Run one step, and repeat the step at most `MOST_REPEATS` times while the cluster does not notice the fault.

        Return False if the fault was not healed or the cluster has not recovered, so that no step may follow.
        """
        repeats = 0
        while (following := await self._attempt(step, kind(), repeats < MOST_REPEATS)) is _Next.REPEAT:
            step, repeats = step.repeated(), repeats + 1
        return following is _Next.STEP

    async def _attempt(self, step: Step, fault: Fault, may_repeat: bool) -> _Next:
        """Run one attempt of a step: pause, elect preferred leaders, wait for load, inject and heal.

        Without enough load or a view of the cluster, the attempt is recorded as void, and the next step follows. If the
        run is asked to stop before the injection, the attempt is not recorded.
        """
        await self._pause(step.pause_ms / 1000)
        with suppress(TidelogError):
            await self.spread()
        reason = await self._reason_not_to_inject()
        if self.stop.is_set():
            return _Next.END
        if reason is not None:
            self._end(_injection(fault, Outcome.VOID, reason))
            return _Next.STEP
        return await self._inject(step, fault, may_repeat)

    async def _reason_not_to_inject(self) -> str | None:
        """Wait up to 30 s for enough load, then up to 15 s for a view of the cluster. Return None if both exist.

        Otherwise, or if the run is asked to stop meanwhile, return as text what is missing.
        """
        deadline = self._deadline(_RATE_S)
        while (rate := await self.rate()) < LEAST_RATE:
            self.reporter.status(f"waiting for load: {rate} records/s")
            if self.now_ns() >= deadline or self.stop.is_set():
                return f"only {rate} records acknowledged in the second before the fault, {LEAST_RATE} are needed"
            await self._pause(_LOOK_EVERY_S)
        deadline = self._deadline(_SIGHT_S)
        while True:
            try:
                await self.views.now()
                return None
            except TidelogError as error:
                if self.now_ns() >= deadline or self.stop.is_set():
                    return f"cannot observe the cluster before the fault: {error}"
                await self._pause(_LOOK_EVERY_S)

    async def _inject(self, step: Step, fault: Fault, may_repeat: bool) -> _Next:
        """Inject and heal the fault, wait until all replicas are in sync, and record the outcome.

        Only an attempt that went as planned and that the cluster did not notice is repeated. Another failure would stay
        hidden if a later attempt succeeded.
        """
        begin = self.now_ns()
        trouble, what = "", ""
        self.reporter.status(f"{fault.row} {fault.name}")
        try:
            what = await self._until_stop(fault.inject(self.target, random.Random(step.rng_seed)))
            await self._last(fault, what, step.lasts_ms(fault.lasts_ms))
        except _FAULT_ERRORS as error:
            trouble = f"cannot inject the fault: {_error_text(error)}"
        self.reporter.status(f"{fault.row} {fault.name}: healing")
        unhealed = await _heal(fault)
        healed, was_cut_short = self.now_ns(), bool(trouble) or self.stop.is_set()
        whole = await self._whole(fault)
        await self.read()
        end = whole or self.now_ns()
        injection = self._judge(fault, begin, healed, end)
        injection = replace(injection, what=what, t_whole=whole, was_cut_short=was_cut_short)
        trouble = trouble or unhealed
        is_repeated = False
        if trouble:
            injection = replace(injection, outcome=Outcome.VOID, why=trouble)
        elif may_repeat and injection.outcome is Outcome.VOID and whole is not None and not self.stop.is_set():
            is_repeated = True
            injection = replace(injection, outcome=Outcome.AGAIN)
        self._end(injection)
        if unhealed or whole is None:
            return _Next.END
        return _Next.REPEAT if is_repeated else _Next.STEP

    async def _until_stop(self, injecting: Awaitable[str]) -> str:
        """Return the result of the injection. Cancel it after 120 s or if the run is asked to stop, and raise
        LocalError.
        """
        work, stopping = asyncio.ensure_future(injecting), asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({work, stopping}, timeout=_INJECT_S, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        finally:
            work.cancel()
            stopping.cancel()
            await asyncio.wait({work}, timeout=_INJECT_S)
        raise LocalError("the run was stopped" if self.stop.is_set() else f"it took longer than {_INJECT_S:g} s")

    async def _last(self, fault: Fault, what: str, lasts_ms: int) -> None:
        """Wait for the duration of the fault, or until the run is asked to stop."""
        began, lasts_s = self.now_ns(), lasts_ms / 1000
        while (passed_s := (self.now_ns() - began) / _SECOND_NS) < lasts_s and not self.stop.is_set():
            rate = await self.rate()
            self.reporter.status(f"{fault.row} {what}, {passed_s:.0f} of {lasts_s:.0f} s, {rate} records/s")
            await self._pause(min(_LOOK_EVERY_S, lasts_s - passed_s))

    async def _whole(self, fault: Fault) -> int | None:
        """Wait until the cluster `is_whole` and each partition in use has acknowledged a record since this call. Return
        the time.

        Return None after 60 s. The wait prevents that the next fault is blamed for effects of this one.
        """
        began = self.now_ns()
        while (passed_s := (self.now_ns() - began) / _SECOND_NS) < MOST_HEALING_S:
            with suppress(TidelogError):
                if self.is_whole(await self.views.now()):
                    await self.read()
                    if self.activity.is_served(began):
                        return self.now_ns()
            self.reporter.status(f"{fault.row} healed, waiting for replicas to be in sync, {passed_s:.0f} s")
            await asyncio.sleep(_LOOK_EVERY_S)
        return None

    def is_whole(self, view: View) -> bool:
        """Return whether every broker is registered, every partition has a leader and all of its replicas are in sync.

        If the view has no registrations, they are not checked.
        """
        registered = view.broker_epochs is None or set(self.target.broker_ids) <= view.broker_epochs.keys()
        return registered and all(
            (found := view.partitions.get(tp)) is not None
            and found.leader in found.isr
            and len(found.isr) >= self.replicas
            for tp in self.target.tps
        )

    def _judge(self, fault: Fault, begin: int, healed: int, end: int) -> Injection:
        evidence = Evidence(
            begin,
            healed,
            end,
            self.views.between(begin, end),
            self.activity.broker_events(begin, end),
            self.activity.between(begin, healed),
            self.activity.errors(begin, end),
            self.activity.slowest_ms(begin, end),
            round(max(self.activity.longest_gap_ms(begin, end).values(), default=0.0), 1),
        )
        bit = fault.bit(evidence)
        injection = (
            _injection(fault, Outcome.VOID, "nothing in the cluster noticed it")
            if bit is None
            else _injection(fault, Outcome.BIT, bit)
        )
        most_gap_ms = injection.most_gap_ms
        if most_gap_ms is not None and self.moved_ms is not None:
            most_gap_ms += (healed - begin) // 1_000_000 + self.moved_ms
        return replace(
            injection,
            most_gap_ms=most_gap_ms,
            t_inject=begin,
            t_bit=None if bit is None else _first_bit(fault, evidence),
            t_heal=healed,
            acknowledged=evidence.acknowledged,
            longest_gap_ms=evidence.longest_gap_ms,
            broke=fault.broken(evidence) or "",
        )

    def _end(self, injection: Injection) -> None:
        self.faults.add(injection)
        self.reporter.line(format_injection(injection))

    async def rate(self) -> int:
        """Read the new events, and return the number of records acknowledged in the last second."""
        await self.read()
        return self.activity.rate(self.now_ns())

    def _deadline(self, seconds: float) -> int:
        return self.now_ns() + round(seconds * _SECOND_NS)

    async def _pause(self, seconds: float) -> None:
        """Wait, but return early if the run is asked to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self.stop.wait()


def format_injection(injection: Injection) -> str:
    """Return the outcome, the reason, any exceeded bound and the duration of an injection in one line."""
    line = f"{injection.row:<4} {injection.outcome.value:<7} {injection.what or injection.name}: {injection.why}"
    if injection.broke:
        line += f"; BROKEN: {injection.broke}"
    if injection.t_heal is not None and injection.t_inject is not None:
        line += f"; healed after {(injection.t_heal - injection.t_inject) / 1e9:.1f} s"
        line += f", {injection.acknowledged} records acknowledged during the fault"
        line += f", longest pause {injection.longest_gap_ms / 1000:.1f} s"
    return line


def _injection(fault: Fault, outcome: Outcome, why: str) -> Injection:
    tolerated = fault.availability
    return Injection(
        fault.row,
        fault.name,
        outcome,
        why,
        most_gap_ms=tolerated.most_gap_ms,
        leaves_majority=tolerated.leaves_majority,
    )


def _first_bit(fault: Fault, evidence: Evidence) -> int:
    """Return the time of the earliest view up to which the evidence suffices for `bit`, else `evidence.whole`."""
    for place, view in enumerate(evidence.views[1:], 2):
        events = {broker: [event for event in known if event.t <= view.t] for broker, known in evidence.events.items()}
        if fault.bit(replace(evidence, views=evidence.views[:place], events=events, whole=view.t)) is not None:
            return view.t
    return evidence.whole


async def _heal(fault: Fault) -> str:
    """Heal the fault within 120 s. Return an empty text, or in one line the reason why the fault could
    not be healed.
    """
    try:
        async with asyncio.timeout(_HEAL_S):
            await fault.heal()
    except TimeoutError:
        return f"the fault was not healed within {_HEAL_S:g} s"
    except _FAULT_ERRORS as error:
        return f"cannot heal the fault: {_error_text(error)}"
    return ""


def _error_text(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
