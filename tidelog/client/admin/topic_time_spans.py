"""Describe how many records a topic's partitions hold and which times they span, before look-ups by time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidelog.client.admin.log_dir_requests import describe_log_dirs
from tidelog.client.admin.record_timestamp import record_times
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.offset_lookup import find_ends, list_offsets
from tidelog.client.leader_requests import Outcomes
from tidelog.errors import TidelogError
from tidelog.model import MAX_TIMESTAMP, TopicPartition
from tidelog.records import RecordTime

#: Number of records per partition whose timestamps are fetched: the first, the last, and some at equal distances.
_SAMPLES = 8
#: Timeout for a leader that is missing or does not answer; its partitions then have an error.
_TIME_LIMIT_MS = 3_000


@dataclass(frozen=True, slots=True)
class PartitionTimes:
    """The size and time span of one partition. Values that its leader did not report are None.

    The `error` says why, but is not set if only `size_bytes` is missing.

    log_start_offset, end_offset   the readable offsets, the end exclusive
    size_bytes                     size of the leader's log on disk
    newest                         the record with the largest timestamp, the first of equal ones; None if there is
                                   none, or if unknown
    samples                        up to eight records at about equal distances, in offset order and beginning with the
                                   partition's first record; empty if there is none, or if unknown
    """

    partition: int
    log_start_offset: int | None = None
    end_offset: int | None = None
    size_bytes: int | None = None
    newest: RecordTime | None = None
    samples: tuple[RecordTime, ...] = ()
    error: TidelogError | None = None

    @property
    def records(self) -> int | None:
        """The number of readable offsets, as Kafka's tools count; None if unknown.

        A compacted partition may have fewer records.
        """
        if self.log_start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.log_start_offset

    @property
    def oldest(self) -> RecordTime | None:
        """The first record, with which a reader that asks for an earlier time starts; None: none, or unknown."""
        return self.samples[0] if self.samples else None


async def describe_times(client: ClusterClient, topic: str, deadline_ms: int) -> list[PartitionTimes]:
    """Return the sizes and time spans of the topic's partitions, in the order of their numbers.

    If a leader does not answer a request within 3 s, its partitions lack the values in question, and have an `error`
    unless only the size is missing. Raises UnknownTopicOrPartitionError, NoBrokersError or TimeoutError if the topic is
    not found.
    """
    view = await client.topic(topic, deadline_ms)
    tps = [TopicPartition(topic, number) for number in sorted(view.partitions)]
    time_limit_ms = max(1, min(_TIME_LIMIT_MS, deadline_ms - client.clock.monotonic_ms()))
    (ends, silent), newest, sizes = await asyncio.gather(
        find_ends(client, tps, time_limit_ms),
        list_offsets().try_ask(client, dict.fromkeys(tps, MAX_TIMESTAMP), time_limit_ms),
        _sizes(client, tps, client.clock.monotonic_ms() + time_limit_ms),
    )
    spans = {tp: range(each.start, each.end) for tp, each in ends.items()}
    samples = await _samples(client, spans, time_limit_ms)
    errors = samples.unanswered | newest.unanswered | silent
    times: list[PartitionTimes] = []
    for tp in tps:
        top = newest.answers.get(tp)
        times.append(
            PartitionTimes(
                tp.partition,
                spans[tp].start if tp in spans else None,
                spans[tp].stop if tp in spans else None,
                sizes.get(tp),
                RecordTime(top.offset, top.timestamp) if top is not None and top.offset >= 0 else None,
                tuple(dict.fromkeys(samples.answers.get(tp, ()))),
                errors.get(tp),
            )
        )
    return times


async def _sizes(client: ClusterClient, tps: Collection[TopicPartition], limit_ms: int) -> dict[TopicPartition, int]:
    """Return the sizes in bytes of the leaders' logs; partitions whose leader does not answer are left out."""
    leaders = {tp: leader.broker_id for tp in tps if (leader := client.view.leader_of(*tp))}

    async def ask(broker_id: int) -> dict[TopicPartition, int]:
        try:
            log_dirs = await describe_log_dirs(client, [broker_id], limit_ms)
        except TidelogError:
            return {}
        logs = [each for directory in log_dirs[broker_id] for each in directory.replicas if not each.is_future]
        return {TopicPartition(each.topic, each.partition): each.size_bytes for each in logs}

    brokers = sorted(set(leaders.values()))
    of_broker = dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))
    return {tp: size for tp, broker in leaders.items() if (size := of_broker[broker].get(tp)) is not None}


async def _samples(
    client: ClusterClient, spans: Mapping[TopicPartition, range], time_limit_ms: int
) -> Outcomes[list[RecordTime]]:
    found: Outcomes[list[RecordTime]] = Outcomes({tp: [] for tp in spans})
    for number in range(_SAMPLES):
        wanted = {
            tp: span.start + (len(span) - 1) * number // (_SAMPLES - 1)
            for tp, span in spans.items()
            if span and tp not in found.errors and tp not in found.refused
        }
        outcome = await record_times(client, wanted, time_limit_ms)
        for tp, record in outcome.answers.items():
            if record is not None and record.offset in spans[tp]:
                found.answers[tp].append(record)
        found.errors |= outcome.errors
        found.refused |= outcome.refused
    return found
