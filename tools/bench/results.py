"""The nouns of a benchmark: figures, what measures them, and what became of it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.bench.environment import Lab


_AIM = re.compile(r"([≤≥]) ([\d,.]+)")


class NotMeasured(Exception):
    """A figure could not be measured; the message says why in a line."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table.

    key     unique, BENCHMARK.WHAT
    unit    of all its values, the aim's and the bound's too
    aim     "≤ 5" or "≥ 100,000", as the project has set it for itself; others are in words, and only shown
    bound   the key of what the machine allows at best, measured in the same run
    kafka   NAME:FIELD of what the reference's scripts print for the same thing
    same_client   False where Kafka's side is measured through another client than ours; its row says so then
    """

    key: str
    what: str
    unit: str
    aim: str = ""
    bound: str = ""
    kafka: str = ""
    same_client: bool = False

    def misses(self, value: float | None) -> bool:
        """Whether its aim is a number that `value` does not reach. What was not measured misses nothing."""
        aim = _AIM.fullmatch(self.aim)
        if aim is None or value is None:
            return False
        number = float(aim[2].replace(",", ""))
        return value > number if aim[1] == "≤" else value < number


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`measure` does it once and returns a value for each figure, by key; it raises NotMeasured, or what went wrong."""

    name: str
    settings: str
    figures: tuple[Figure, ...]
    measure: Callable[[Lab], Mapping[str, float]]


@dataclass(slots=True)
class Results:
    """The values of all runs by figure key, Kafka's by Kafka's name, and what could not be measured."""

    values: dict[str, list[float]] = field(default_factory=dict)
    kafka: dict[str, list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self.values.setdefault(key, []).append(value)

    def add_kafka(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.kafka.setdefault(name, []).append(value)

    def median(self, key: str) -> float | None:
        return _median(self.values.get(key))

    def kafka_median(self, name: str) -> float | None:
        return _median(self.kafka.get(name))


def _median(values: list[float] | None) -> float | None:
    return statistics.median(values) if values else None
