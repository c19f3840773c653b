"""The plot of one simulation: from a seed a schedule of faults and of clients; as JSON it is kept and told again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from verify.simulation.fault_kinds import Fault, Kind, Moment
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
class Story:
    """Who is there, and what goes wrong when.

    seed       rolls the dice of all that is not written here
    promises   of its topics: "plain", "durable" or "unclean"
    found      what it once found
    compacted  whether there is a topic of which only the last record of each key is kept
    """

    seed: int
    seconds: float
    clients: tuple[str, ...]
    faults: tuple[Fault, ...]
    brokers: int = 3
    promises: str = PLAIN
    found: str = ""
    compacted: bool = False

    @classmethod
    def of_seed(cls, seed: int, seconds: float = 60, density: Density = USUAL) -> Story:
        dice = Random(seed)
        brokers, clients, promises = draw_cast(dice, density)
        faults = draw_faults(dice, seconds, brokers, clients, promises, density)
        clients += draw_trimmers(dice)
        compacted = draw_compaction(dice, density)
        faults = tuple(sorted(faults + draw_changes(dice, seconds, density), key=lambda fault: fault.at_ms))
        return cls(seed, seconds, clients + draw_bursts(dice), faults, brokers, promises, compacted=compacted)

    @classmethod
    def from_json(cls, text: str) -> Story:
        """ValueError where it is none."""
        try:
            told: dict[str, Any] = json.loads(text)
            faults = tuple(_fault(each) for each in told.pop("faults"))
            return cls(faults=faults, clients=tuple(told.pop("clients")), **told)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"this is no story: {error!r}") from None

    def to_json(self) -> str:
        """A fault a line, without what goes without saying."""
        lines = ",\n".join(f"  {json.dumps(_told(fault))}" for fault in self.faults)
        fields = [
            f'"{name}": [\n{lines}\n ]' if name == "faults" else f'"{name}": {json.dumps(value)}'
            for name, value in asdict(self).items()
            if value is not False
        ]
        return "{\n " + ",\n ".join(fields) + "\n}\n"

    def without(self, *, faults: Sequence[int] = (), clients: Sequence[int] = ()) -> Story:
        """What is left when these, by their places, are dropped; a client's place stays, empty."""
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


def _told(fault: Fault) -> dict[str, Any]:
    return {key: value for key, value in asdict(fault).items() if value or key == "at_ms"}


def _fault(told: dict[str, Any]) -> Fault:
    upon = told.get("upon")
    whom = tuple(told.get("whom", ()))
    return Fault(**{**told, "kind": Kind(told["kind"]), "whom": whom, "upon": upon and Moment(upon)})
