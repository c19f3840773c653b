"""Numbers as Prometheus reads them; the one module that knows its library.

Its import takes 90 ms and 3 MB: to be imported on a thread, when somebody asks for the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from node.observability.metric_families import Family, Kind, Sample
from node.runtime.latency_histogram import BOUNDS_S, LatencyHistogram

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

#: Series that are written down before other work gets a turn of the loop: a millisecond's worth.
_TURN = 100


class _Told(Collector):
    """A registry of what is known already."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def expose(families: Iterable[Family]) -> Iterator[bytes]:
    """The text of one scrape in parts that take a millisecond each.

    On a thread the whole would keep the loop waiting for the interpreter longer, 5 ms at each of its turns.
    """
    for family in families:
        for start in range(0, max(1, len(family.samples)), _TURN):
            text = generate_latest(_Told(_metric(family, family.samples[start : start + _TURN])))
            yield text.split(b"\n", 2)[2] if start else text  # name and meaning stand there once


def expose_process() -> bytes:
    """What the kernel knows of this process; looks at files."""
    return generate_latest(ProcessCollector(registry=None))


def _metric(family: Family, samples: Sequence[Sample]) -> Metric:
    labels = list(family.labels)
    match family.kind:
        case Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(family.name, family.meaning, labels=labels)
            for sample in samples:
                assert isinstance(sample.value, LatencyHistogram)
                bounds = (*map(str, BOUNDS_S), "+Inf")
                buckets = list(zip(bounds, sample.value.cumulated, strict=True))
                histogram.add_metric(sample.labels, buckets, sample.value.total_ns / 1e9)
            return histogram
        case Kind.COUNTER:
            counter = CounterMetricFamily(family.name, family.meaning, labels=labels)
            for sample in samples:
                assert not isinstance(sample.value, LatencyHistogram)
                counter.add_metric(sample.labels, sample.value)
            return counter
        case Kind.GAUGE:
            gauge = GaugeMetricFamily(family.name, family.meaning, labels=labels)
            for sample in samples:
                assert not isinstance(sample.value, LatencyHistogram)
                gauge.add_metric(sample.labels, float(sample.value))
            return gauge
