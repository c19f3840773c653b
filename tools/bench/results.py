"""Defines a figure and the results of a run."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

#: A number, or a multiple of Kafka's median in the same run.
_AIM = re.compile(r"([≤≥]) ([\d,.]+)( × Kafka)?")
#: The part of the bound that counts as the aim if the bound does not reach an aim relative to Kafka.
_OF_BOUND = 0.9


class NotMeasured(Exception):
    """A figure could not be measured. The message says why in one line."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table.

    key     unique, BENCHMARK.NAME
    what    what the figure measures, as the table shows it
    unit    the unit of all its values, of the aim and of the bound
    aim     "≤ 5" or "≥ 100,000", which the project has set for itself, or "≥ 1.5 × Kafka"; "": none. Other texts are
            only shown
    bound   the key of the figure that the machine allows at best, measured in the same run; "": none
    kafka   NAME:FIELD in the output of the scripts that measure Kafka; "": not measured
    same_client   False if Kafka is measured through another client than Tidelog, which the row then says
    """

    key: str
    what: str
    unit: str
    aim: str = ""
    bound: str = ""
    kafka: str = ""
    same_client: bool = False

    @property
    def is_relative(self) -> bool:
        """Return whether the aim is a multiple of Kafka's value."""
        return self.aim.endswith("× Kafka")

    def reached(self, value: float | None, kafka: float | None = None, bound: float | None = None) -> bool | None:
        """Return whether `value` reaches the aim; None if the aim is no number, or `value` or Kafka's is None.

        If not even the bound reaches an aim relative to Kafka, `_OF_BOUND` of the bound counts. A bound that Kafka
        itself surpasses is none, and is ignored.
        """
        aim = _AIM.fullmatch(self.aim)
        if aim is None or value is None or (self.is_relative and kafka is None):
            return None
        least = aim[1] == "≥"
        number = float(aim[2].replace(",", ""))
        if self.is_relative and kafka is not None:
            number *= kafka
            is_bound = bound is not None and (bound >= kafka if least else bound <= kafka)
            if bound is not None and is_bound and least != (bound >= number):
                number = bound * _OF_BOUND if least else bound / _OF_BOUND
        return value >= number if least else value <= number


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

    def reached(self, figure: Figure) -> bool | None:
        """Return whether the medians reach the figure's aim; None if that is not known."""
        return figure.reached(self.median(figure.key), self.kafka_median(figure.kafka), self.median(figure.bound))


def _median(values: list[float] | None) -> float | None:
    return statistics.median(values) if values else None
