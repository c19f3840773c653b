"""Numbers as Prometheus reads them; the one module that knows its library.

Its import takes 90 ms and 3 MB: to be imported on a thread, when somebody asks for the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from node.durations import BOUNDS_S, Durations
from node.measures import Family, Kind

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class _Collected(Collector):
    """A registry of what is known already, and of what the kernel knows of this process."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from map(_metric, self._families)
        yield from ProcessCollector(registry=None).collect()


def expose(families: Iterable[Family]) -> bytes:
    """The text of one scrape. For a thread: it takes a few ms for thousands of series."""
    return generate_latest(_Collected(families))


def _metric(family: Family) -> Metric:
    labels = list(family.labels)
    match family.kind:
        case Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(family.name, family.meaning, labels=labels)
            for sample in family.samples:
                assert isinstance(sample.value, Durations)
                bounds = (*map(str, BOUNDS_S), "+Inf")
                buckets = list(zip(bounds, sample.value.cumulated, strict=True))
                histogram.add_metric(sample.labels, buckets, sample.value.total_ns / 1e9)
            return histogram
        case Kind.COUNTER:
            counter = CounterMetricFamily(family.name, family.meaning, labels=labels)
            for sample in family.samples:
                assert not isinstance(sample.value, Durations)
                counter.add_metric(sample.labels, sample.value)
            return counter
        case Kind.GAUGE:
            gauge = GaugeMetricFamily(family.name, family.meaning, labels=labels)
            for sample in family.samples:
                assert not isinstance(sample.value, Durations)
                gauge.add_metric(sample.labels, float(sample.value))
            return gauge
