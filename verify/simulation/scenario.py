"""Describe one simulation: the schedule of faults and clients, derived from a seed, or loaded from JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from verify.simulation.fault_kinds import Fault, FaultKind, Moment
from verify.simulation.scenario_generator import (
    PLAIN,
    USUAL,
    Density,
    draw_bursts,
    draw_cast,
    draw_changes,
    draw_compaction,
    draw_faults,
    draw_trimmers,
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """The faults and clients of one simulation.

    seed           the seed of everything that is not given here
    seconds        the virtual time of the workload, before all faults are healed
    clients        the kind of each client (`scenario_generator`); empty: a client that was dropped, so that others keep
                   their numbers
    faults         in order of time
    promises       the guarantee of the topics: "plain", "durable" or "unclean"
    found          the failure that a saved scenario once found
    compacted      whether there is a compacted topic
    two_log_dirs   whether each broker has two log directories, so that replicas can move between them
    """

    seed: int
    seconds: float
    clients: tuple[str, ...]
    faults: tuple[Fault, ...]
    brokers: int = 3
    promises: str = PLAIN
    found: str = ""
    compacted: bool = False
    two_log_dirs: bool = False

    @classmethod
    def of_seed(cls, seed: int, seconds: float = 60, density: Density = USUAL) -> Scenario:
        """Return the scenario that follows from these arguments, always the same one."""
        rng = Random(seed)
        brokers, clients, promises = draw_cast(rng, density)
        faults = draw_faults(rng, seconds, brokers, clients, promises, density)
        clients += draw_trimmers(rng)
        compacted = draw_compaction(rng, density)
        faults = tuple(sorted(faults + draw_changes(rng, seconds, density), key=lambda fault: fault.at_ms))
        return cls(seed, seconds, clients + draw_bursts(rng), faults, brokers, promises, compacted=compacted)

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        """Return the scenario in `text`. Raise ValueError if the text is not a scenario."""
        try:
            fields: dict[str, Any] = json.loads(text)
            faults = tuple(_fault(each) for each in fields.pop("faults"))
            return cls(faults=faults, clients=tuple(fields.pop("clients")), **fields)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a scenario: {error!r}") from None

    def to_json(self) -> str:
        """Return the scenario as JSON with one fault per line.

        Empty fields of a fault are left out, except its time. `compacted` and `two_log_dirs` are left out if False.
        """
        lines = ",\n".join(f"  {json.dumps(_as_json(fault))}" for fault in self.faults)
        fields = [
            f'"{name}": [\n{lines}\n ]' if name == "faults" else f'"{name}": {json.dumps(value)}'
            for name, value in asdict(self).items()
            if value is not False
        ]
        return "{\n " + ",\n ".join(fields) + "\n}\n"

    def without(self, *, faults: Sequence[int] = (), clients: Sequence[int] = ()) -> Scenario:
        """Return the scenario without these faults and clients, given by index.

        A dropped client leaves an empty kind in its place, except at the end.
        """
        left = ["" if place in clients else kind for place, kind in enumerate(self.clients)]
        while left and not left[-1]:
            left.pop()
        kept = tuple(fault for place, fault in enumerate(self.faults) if place not in faults)
        return replace(self, faults=kept, clients=tuple(left))

    def __str__(self) -> str:
        clients = ", ".join(filter(None, self.clients))
        topics = f"{self.promises} topics{', one of them compacted' if self.compacted else ''}"
        head = f"seed {self.seed}: {self.brokers} brokers, {self.seconds:g} s; {topics}; clients: {clients}"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def _as_json(fault: Fault) -> dict[str, Any]:
    return {key: value for key, value in asdict(fault).items() if value or key == "at_ms"}


def _fault(fields: dict[str, Any]) -> Fault:
    upon = fields.get("upon")
    whom = tuple(fields.get("whom", ()))
    return Fault(**{**fields, "kind": FaultKind(fields["kind"]), "whom": whom, "upon": upon and Moment(upon)})
