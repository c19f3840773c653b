"""Metric families of Prometheus: numbers with their names, meanings and labels, independent of a text format."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from node.runtime.latency_histogram import LatencyHistogram
from tidelog.frozen_dataclass import frozen


class Kind(Enum):
    """The kinds of Prometheus' metrics."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@frozen
class Sample:
    """One series: its value, and the values of its labels in the order of the family's labels."""

    labels: tuple[str, ...]
    value: float | LatencyHistogram


@dataclass(slots=True)
class Family:
    """The series of one name. A counter's name is given without `_total`; durations are in seconds."""

    name: str
    meaning: str
    kind: Kind = Kind.GAUGE
    labels: tuple[str, ...] = ()
    samples: list[Sample] = field(default_factory=list)

    def add(self, value: float | LatencyHistogram, *labels: object) -> Family:
        """Add one series, and return the family."""
        self.samples.append(Sample(tuple(map(str, labels)), value))
        return self


def single(name: str, meaning: str, value: float, kind: Kind = Kind.GAUGE) -> Family:
    """Return a family of one series without labels."""
    return Family(name, meaning, kind).add(value)
