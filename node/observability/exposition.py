"""Format metrics as Prometheus reads them; the only module that imports Prometheus' library.

The import takes 90 ms and 3 MB, so that it happens on a thread and at the first scrape.
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

#: Series that are formatted before other work runs on the loop; they take about a millisecond.
_SERIES_AT_ONCE = 100


class _Collected(Collector):
    """A registry of metrics whose values are already known."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def expose(families: Iterable[Family]) -> Iterator[bytes]:
    """Yield the text of one scrape, without the process's metrics, in parts that take a millisecond each.

    A thread that formatted the whole text would keep the loop waiting for the interpreter lock for up to 5 ms in each
    iteration.
    """
    for family in families:
        for start in range(0, max(1, len(family.samples)), _SERIES_AT_ONCE):
            text = generate_latest(_Collected(_metric(family, family.samples[start : start + _SERIES_AT_ONCE])))
            yield text.split(b"\n", 2)[2] if start else text  # the HELP and TYPE lines come once per family


def expose_process() -> bytes:
    """Return the text of the metrics of this process that the kernel provides in /proc. The call may block."""
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
