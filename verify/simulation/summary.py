"""Summarize many simulations: speed, failures, effects of faults and observations of the invariants."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from verify.checker.checker import INVARIANTS
from verify.simulation.fault_counts import FaultCounts
from verify.simulation.run import JUDGED, Outcome

_NAMES = {each.key: each.name for each in INVARIANTS}

#: The number of scenarios in which every kind of fault must have had an effect.
_MANY = 1_000


@dataclass(slots=True)
class Summary:
    """The totals of a run of `seeds` scenarios.

    done           the number of completed scenarios
    simulated_s    the virtual time of all of them
    failed         the outcomes with a failure
    observations   the number of observations of each invariant in all completed scenarios
    begun          when the run began, by the monotonic clock (s)
    """

    seeds: int
    done: int = 0
    simulated_s: float = 0.0
    failed: list[Outcome] = field(default_factory=list)
    observations: Counter[str] = field(default_factory=Counter)
    fault_counts: FaultCounts = field(default_factory=FaultCounts)
    begun: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        self.done += 1
        self.simulated_s += outcome.simulated_s
        self.observations.update(dict(outcome.rows))
        self.fault_counts.add(outcome.fault_counts)
        if outcome.wrong:
            self.failed.append(outcome)

    @property
    def took_s(self) -> float:
        return time.monotonic() - self.begun

    @property
    def without_data(self) -> list[str]:
        """Return the invariants without an observation, which are not proved."""
        return [key for key in JUDGED if not self.observations[key]]

    @property
    def never_bitten(self) -> list[str]:
        """Return the names of faults that were drawn and never had an effect."""
        return [name for name, _, bitten in self.fault_counts.rows() if not bitten]

    @property
    def status(self) -> int:
        """Return the exit status: 1 for a failure, else 3 for something unproved, else 0.

        Unproved are an invariant without an observation and, after at least _MANY scenarios, a fault that never had an
        effect.
        """
        unproved = self.without_data or (self.done >= _MANY and self.never_bitten)
        return 1 if self.failed else 3 if unproved else 0

    def progress(self) -> str:
        """Return the progress in one line."""
        per_minute, per_second = self.done / self.took_s * 60, self.simulated_s / self.took_s
        return (
            f"{self.done} of {self.seeds} seeds, {len(self.failed)} failed,"
            f" {per_minute:.0f} seeds a minute, {per_second:.0f} simulated seconds a second"
        )

    def lines(self) -> Iterator[str]:
        """Yield the lines of the complete summary."""
        rows = list(self.fault_counts.rows())
        if rows:
            width = max(len(name) for name, _, _ in rows)
            yield f"{'fault':<{width}}  {'drawn':>7}  {'bitten':>7}"
            for name, drawn, bitten in rows:
                yield f"{name:<{width}}  {drawn:>7,}  {bitten:>7,}"
        yield "observations"
        for key in JUDGED:
            yield f"  {key:<4}{self.observations[key]:>12,}  {_NAMES[key]}"
        if self.never_bitten:
            yield f"never bitten: {', '.join(self.never_bitten)}"
        if self.without_data:
            yield f"without an observation: {', '.join(self.without_data)}"

    def to_json(self) -> str:
        return json.dumps(
            {
                "seeds": self.done,
                "seconds": round(self.took_s, 1),
                "simulated_seconds": round(self.simulated_s, 1),
                "failed": [{"seed": each.scenario.seed, "wrong": each.wrong} for each in self.failed],
                "faults": {
                    name: {"drawn": drawn, "bitten": bitten} for name, drawn, bitten in self.fault_counts.rows()
                },
                "observations": {key: self.observations[key] for key in JUDGED},
                "without_data": self.without_data,
            }
        )
