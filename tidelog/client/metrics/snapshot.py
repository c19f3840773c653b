"""Name the counters of a client by Kafka's names, and group them as Kafka does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import nan

from tidelog.client.metrics.client_metrics import ClientMetrics, Measure, ProducerMetrics
from tidelog.display.listing import ShownAsTable
from tidelog.model import TopicPartition
from tidelog.protocol.messages import ApiKey

Group = dict[str, float]


class Metrics(ShownAsTable, dict[str, Group]):
    """A snapshot of a client's metrics: names and values by the name of their group.

    `print` shows each metric on a line. A value that is not known yet is NaN, and is shown as "–".

    Example:

        metrics = consumer.metrics()
        print(metrics["consumer-fetch-manager-metrics"]["records-consumed-total"])
        print(metrics)
    """

    __slots__ = ()

    def __str__(self) -> str:
        from tidelog.display.html_table import cell_text

        rows = [{heading: cell_text(cell) for heading, cell in row.items()} for row in self._rows_()]
        widths = [max((len(row[heading]) for row in rows), default=0) for heading in ("group", "metric", "value")]
        group, metric, value = widths
        return "\n".join(f"{row['group']:{group}}  {row['metric']:{metric}}  {row['value']:>{value}}" for row in rows)

    def _rows_(self) -> Iterator[dict[str, object]]:
        for group, metrics in self.items():
            for metric, value in metrics.items():
                yield {"group": group, "metric": metric, "value": value}


def admin_metrics(client: ClientMetrics, now_ms: int) -> Metrics:
    """Return the metrics of an admin; `now_ms` is the time on the monotonic clock."""
    return Metrics({"admin-client-metrics": _of_connections(client, now_ms)})


def producer_metrics(
    client: ClientMetrics,
    records: ProducerMetrics,
    now_ms: int,
    *,
    buffered_bytes: int,
    buffer_memory: int,
    waiting: int,
) -> Metrics:
    """Return the metrics of a producer.

    buffered_bytes   how much of `buffer_memory` is used
    waiting          how many calls of `send` wait for buffer memory
    """
    return Metrics(
        {
            "producer-metrics": {
                "record-send-total": float(records.records_sent),
                "record-retry-total": float(records.records_retried),
                "record-error-total": float(records.records_failed),
                "byte-total": records.batch_bytes.total,
                **_average_and_max("batch-size", records.batch_bytes),
                "batch-split-total": float(records.splits),
                "compression-rate-avg": records.compression.average,
                **_average_and_max("record-queue-time", records.queue_time_ms),
                "buffer-total-bytes": float(buffer_memory),
                "buffer-available-bytes": float(max(0, buffer_memory - buffered_bytes)),
                "waiting-threads": float(waiting),
                **_of_connections(client, now_ms),
            }
        }
    )


def consumer_metrics(client: ClientMetrics, lags: Mapping[TopicPartition, int | None], now_ms: int) -> Metrics:
    """Return the metrics of a consumer; `lags` has the lag of each assigned partition, None if it is not known."""
    known = {str(tp): float(lag) for tp, lag in lags.items() if lag is not None}
    fetches, commits = client.of(ApiKey.FETCH).latency_ms, client.of(ApiKey.OFFSET_COMMIT).latency_ms
    joins, syncs = client.of(ApiKey.JOIN_GROUP).latency_ms, client.of(ApiKey.SYNC_GROUP).latency_ms
    heartbeats = client.of(ApiKey.HEARTBEAT)
    return Metrics(
        {
            "consumer-metrics": _of_connections(client, now_ms),
            "consumer-fetch-manager-metrics": {
                "records-consumed-total": float(client.records_consumed),
                "bytes-consumed-total": client.fetched_bytes.total,
                "records-lag-max": max(known.values(), default=nan),
                "fetch-total": float(fetches.count),
                **_average_and_max("fetch-latency", fetches),
                **_average_and_max("fetch-size", client.fetched_bytes),
            },
            "consumer-coordinator-metrics": {
                "assigned-partitions": float(len(lags)),
                "commit-total": float(commits.count),
                **_average_and_max("commit-latency", commits),
                "rebalance-total": float(client.rebalances),
                "join-total": float(joins.count),
                **_average_and_max("join-time", joins),
                "sync-total": float(syncs.count),
                **_average_and_max("sync-time", syncs),
                "heartbeat-total": float(heartbeats.latency_ms.count),
                "heartbeat-response-time-max": heartbeats.latency_ms.largest,
                "last-heartbeat-seconds-ago": (now_ms - heartbeats.answered_ms) / 1000,
            },
            "records-lag": known,
        }
    )


def _of_connections(client: ClientMetrics, now_ms: int) -> Group:
    return {
        "connection-count": float(client.connections),
        "connection-creation-total": float(client.connections_created),
        "requests-in-flight": float(client.in_flight),
        "request-total": float(client.requests),
        "response-total": float(client.answers),
        **_average_and_max("request-latency", client.latency_ms),
        "throttle-time-max": float(client.longest_throttle_ms),
        "metadata-age": (now_ms - client.of(ApiKey.METADATA).answered_ms) / 1000,
    }


def _average_and_max(name: str, measure: Measure) -> Group:
    return {f"{name}-avg": measure.average, f"{name}-max": float(measure.largest)}
