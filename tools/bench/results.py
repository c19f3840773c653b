"""Defines a figure and the results of a run."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

_AIM = re.compile(r"([≤≥]) ([\d,.]+)")


class NotMeasured(Exception):
    """A figure could not be measured. The message says why in one line."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table.

    key     unique, BENCHMARK.NAME
    what    what the figure measures, as the table shows it
    unit    the unit of all its values, of the aim and of the bound
    aim     "≤ 5" or "≥ 100,000", which the project has set for itself; "": none. Other texts are only shown
    bound   the key of the figure that the machine allows at best, measured in the same run; "": none
    kafka   NAME:FIELD in the output of the scripts that measure Kafka; "": not measured
    same_client   False if Kafka is measured through another client than ours, which the row then says
    """

    key: str
    what: str
    unit: str
    aim: str = ""
    bound: str = ""
    kafka: str = ""
    same_client: bool = False

    def misses(self, value: float | None) -> bool:
        """Return whether `value` does not reach the aim. False if the aim is not a number, or `value` is None."""
        aim = _AIM.fullmatch(self.aim)
        if aim is None or value is None:
            return False
        number = float(aim[2].replace(",", ""))
        return value > number if aim[1] == "≤" else value < number


@dataclass(slots=True)
class Results:
    """The values of all runs by figure key, Kafka's values by Kafka's name, and the failures in words."""

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
