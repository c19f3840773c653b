"""Shorten a failing scenario: drop every part without which one of its failures still occurs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from verify.simulation.fault_kinds import Fault
from verify.simulation.run import Outcome
from verify.simulation.scenario import Scenario
from verify.simulation.scenario_generator import PLAIN

#: The most simulations of one shortening, and the number of seeds tried for scenarios with few faults. Each change
#: shifts all delays, so the failure may need another seed.
_MOST_TRIES = 240
_FEW = 5
_SEEDS = 3
_FEWEST_BROKERS = 3
#: The time after the last fault that a failure found only at the end may need.
_AFTERMATH_S = 5


def shrink(failed: Outcome, simulate: Callable[[Scenario], Outcome], on_step: Callable[[Outcome], object]) -> Outcome:
    """Return the outcome of the shortest scenario found, with up to three failures in `Scenario.found`.

    At least one kind of failure is the same as in `failed`. `on_step` is called with the outcome of each shorter
    scenario that has one.
    """
    shrinking = _Shrinking(failed, simulate, on_step)
    while shrinking.round():
        pass
    best = shrinking.best
    return replace(best, scenario=replace(best.scenario, found="\n".join(best.wrong[:3])))


class _Shrinking:
    """The shortening of one scenario. `best` is the outcome of the shortest scenario so far."""

    def __init__(
        self, failed: Outcome, simulate: Callable[[Scenario], Outcome], on_step: Callable[[Outcome], object]
    ) -> None:
        self.best = failed
        self._kinds = failed.kinds
        self._simulate = simulate
        self._on_step = on_step
        self._tries = 0

    def round(self) -> bool:
        """Try to drop or simplify every part once. Return whether any attempt succeeded and tries are left."""
        before = self.best.scenario
        self._fails(replace(before, seconds=self._enough()))
        size = max(1, len(self.best.scenario.faults) // 2)
        while size:
            place = 0
            while place < len(self.best.scenario.faults):
                if not self._fails(self.best.scenario.without(faults=range(place, place + size))):
                    place += size
            size //= 2
        for place, client in enumerate(self.best.scenario.clients):
            if client:
                self._fails(self.best.scenario.without(clients=[place]))
        if self.best.scenario.promises != PLAIN:
            self._fails(replace(self.best.scenario, promises=PLAIN))
        if self.best.scenario.brokers > _FEWEST_BROKERS:
            self._fails(replace(self.best.scenario, brokers=_FEWEST_BROKERS))
        for place in range(len(self.best.scenario.faults)):
            for simpler in _simpler(self.best.scenario.faults[place]):
                faults = self.best.scenario.faults
                self._fails(replace(self.best.scenario, faults=(*faults[:place], simpler, *faults[place + 1 :])))
        self._fails(replace(self.best.scenario, seconds=self._enough()))
        return self.best.scenario != before and self._tries < _MOST_TRIES

    def _fails(self, scenario: Scenario) -> bool:
        """Return whether the scenario has a failure of a kind that the scenario before all shortening had.

        A scenario of few faults is tried with its own seed and the next two, any other with its own seed only. The
        outcome with the failure becomes `best`. False for the scenario of `best` itself, and when no tries are left.
        """
        if scenario == self.best.scenario:
            return False
        seeds = _SEEDS if len(scenario.faults) <= _FEW else 1
        for seed in range(scenario.seed, scenario.seed + seeds):
            if self._tries >= _MOST_TRIES:
                return False
            self._tries += 1
            outcome = self._simulate(replace(scenario, seed=seed))
            if outcome.kinds & self._kinds:
                self.best = outcome
                self._on_step(outcome)
                return True
        return False

    def _enough(self) -> float:
        """Return the duration (s) after which nothing can have contributed to the failure, at most the present one.

        The duration ends with the failure. If the failure was found only at the end, the last fault's healing and
        _AFTERMATH_S count.
        """
        scenario, seconds = self.best.scenario, self.best.failed_after_s
        if seconds is None:
            seconds = _AFTERMATH_S + max(((fault.at_ms + fault.for_ms) / 1000 for fault in scenario.faults), default=0)
        return min(scenario.seconds, float(round(seconds + 0.5)))


def _simpler(fault: Fault) -> Iterator[Fault]:
    """Yield the fault without its delay, without one of its victims, and for a quarter of its time, where possible."""
    if fault.after_us:
        yield replace(fault, after_us=0)
    if len(fault.whom) > 1 and not fault.whom[0].startswith("client-"):
        for place in range(len(fault.whom)):
            yield replace(fault, whom=fault.whom[:place] + fault.whom[place + 1 :])
    if fault.for_ms > 1_000:
        yield replace(fault, for_ms=fault.for_ms // 4 // 100 * 100)
