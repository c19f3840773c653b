"""Numbers with their names, meanings and labels, before anybody writes them down (Prometheus' metric families)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from node.runtime.latency_histogram import LatencyHistogram
from tidelog.frozen_dataclass import frozen


class Kind(Enum):
    """As Prometheus knows them."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@frozen
class Sample:
    """One series: its labels' values in the order of the family's labels."""

    labels: tuple[str, ...]
    value: float | LatencyHistogram


@dataclass(slots=True)
class Family:
    """Series of one name. The name has no `_total`; durations are in seconds."""

    name: str
    meaning: str
    kind: Kind = Kind.GAUGE
    labels: tuple[str, ...] = ()
    samples: list[Sample] = field(default_factory=list)

    def add(self, value: float | LatencyHistogram, *labels: object) -> Family:
        """One more series; returns the family."""
        self.samples.append(Sample(tuple(map(str, labels)), value))
        return self


def single(name: str, meaning: str, value: float, kind: Kind = Kind.GAUGE) -> Family:
    """A family of one series without labels."""
    return Family(name, meaning, kind).add(value)
