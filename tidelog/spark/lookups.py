"""The driver's look-ups in the cluster: which partitions exist, their offsets, and offsets by time.

An exception in a driver-side call of a stream ends the query. Therefore all retries, for brokers that died and leaders
that moved, are here, and last at least `TIME_LIMIT_MS`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from tidelog import Consumer
from tidelog.clock import Clock, SystemClock
from tidelog.errors import ConfigError, TidelogError, TimeoutError, UnknownTopicOrPartitionError
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.spark.bounds import outside_log_error, past_end
from tidelog.spark.clients import Clients
from tidelog.spark.options import ReadOptions
from tidelog.spark.values import Assign, AtOffsets, AtTime, AtTimes, Bound, Position, Subscribe, SubscribePattern

_T = TypeVar("_T")

#: The driver waits through a restart of the whole cluster, but not longer.
TIME_LIMIT_MS = 120_000
#: The client itself waits for topics that brokers are about to learn of; this time allows one more attempt.
UNKNOWN_TOPIC_TIME_LIMIT_MS = 1_000
_MAX_PAUSE_MS = 2_000
#: Added partitions and topics are noticed within this time.
_METADATA_AGE_MS = 5_000


class Lookups:
    """Look-ups for the options of one read. The first look-up connects.

    Each look-up is repeated after retriable errors, for TIME_LIMIT_MS and at least `retries` times; then it raises
    TimeoutError. A missing topic or partition is an error after UNKNOWN_TOPIC_TIME_LIMIT_MS.
    """

    def __init__(
        self,
        options: ReadOptions,
        clients: Clients,
        *,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._clients = clients
        self._clock: Clock = clock or SystemClock()
        self._pause = pause

    def partitions(self, known: Collection[str] = ()) -> list[TopicPartition]:
        """Return the partitions that the options select, sorted; a pattern may select none.

        Raises UnknownTopicOrPartitionError if a named topic or partition does not exist. With a pattern, `known` topics
        that are not in the list of all topics are looked up by name, because the broker that lists may be behind the
        others.
        """
        return self._retry("list of partitions", lambda consumer: self._partitions(consumer, known))

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._retry("earliest offsets", lambda consumer: dict(consumer.beginning_offsets(list(partitions))))

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return each partition's end offset for consumers, which is the high watermark."""
        return self._retry("latest offsets", lambda consumer: dict(consumer.end_offsets(list(partitions))))

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return by partition the offset of the first record at or after its time (ms); None if no record is."""
        found = self._retry("offsets by time", lambda consumer: consumer.offsets_for_times(dict(times)))
        return {partition: answer.offset if (answer := found[partition]) else None for partition in times}

    def starting(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the starting offset of each partition by the options.

        Raises ConfigError if an offset lies past the end of its log, if no record is at or after a time and the
        strategy is `error`, or if the options do not name exactly `partitions`. An offset before its log is returned.
        """
        return self._resolve(self._options.starting, partitions, "starting", self._options.no_match_is_latest)

    def ending(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ending offset (exclusive) of each partition by the options.

        If no record is at or after an ending time, the end is the log's current one. Raises ConfigError if an offset
        lies past the end of its log, or if the options do not name exactly `partitions`.
        """
        return self._resolve(self._options.ending, partitions, "ending", True)

    def _resolve(
        self, position: Position, partitions: Collection[TopicPartition], which: Bound, no_match_is_latest: bool
    ) -> dict[TopicPartition, int]:
        match position:
            case "earliest":
                return self.earliest(partitions)
            case "latest":
                return self.latest(partitions)
            case AtOffsets(offsets):
                _check_all_named(offsets, partitions, f"{which}Offsets")
                self._check_not_past_end(position, which)
                return self._resolve_codes(offsets)
            case AtTime(timestamp):
                times = dict.fromkeys(partitions, timestamp)
            case AtTimes(timestamps):
                _check_all_named(timestamps, partitions, f"{which}OffsetsByTimestamp")
                times = dict(timestamps)
        # The ends are looked up before the times, so that no record between the two answers is skipped.
        ends = self.latest(partitions) if no_match_is_latest else {}
        answers = self.at_times(times)
        missing = [partition for partition, offset in answers.items() if offset is None]
        if missing and not no_match_is_latest:
            raise ConfigError(
                f"no record at or after the {which} time in {', '.join(map(str, sorted(missing)))}; "
                "to start at the end there set startingOffsetsByTimestampStrategy to latest"
            )
        return {partition: ends[partition] if offset is None else offset for partition, offset in answers.items()}

    def _check_not_past_end(self, position: AtOffsets, which: Bound) -> None:
        explicit = [partition for partition, offset in position.offsets.items() if offset >= 0]
        ends = self.latest(explicit) if explicit else {}
        if wrong := past_end(position, ends):
            raise outside_log_error(position, which, self.earliest(wrong), ends)

    def _resolve_codes(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        resolved = dict(offsets)
        for code, look_up in ((EARLIEST_TIMESTAMP, self.earliest), (LATEST_TIMESTAMP, self.latest)):
            coded = [partition for partition, offset in offsets.items() if offset == code]
            if coded:
                resolved |= look_up(coded)
        return resolved

    def _partitions(self, consumer: Consumer, known: Collection[str]) -> list[TopicPartition]:
        match self._options.subscription:
            case Subscribe(topics):
                chosen: tuple[str, ...] = topics
            case SubscribePattern(pattern):
                listed = consumer.topics()
                listed |= {topic for topic in set(known) - listed if consumer.partitions_for_topic(topic)}
                chosen = tuple(sorted(topic for topic in listed if re.fullmatch(pattern, topic)))
            case Assign(partitions):
                existing = {each for topic in {each.topic for each in partitions} for each in _of(consumer, topic)}
                unknown = [each for each in partitions if each not in existing]
                if unknown:
                    raise UnknownTopicOrPartitionError(f"there is no {', '.join(map(str, unknown))}")
                return list(partitions)
        return sorted(each for topic in chosen for each in _of(consumer, topic))

    def _retry(self, name: str, look_up: Callable[[Consumer], _T]) -> _T:
        began_ms = self._clock.monotonic_ms()
        pause_ms = self._options.retry_interval_ms
        attempts = 0
        while True:
            try:
                return look_up(self._clients.consumer(metadata_max_age_ms=_METADATA_AGE_MS))
            except TidelogError as error:
                attempts += 1
                waited_ms = self._clock.monotonic_ms() - began_ms
                unknown = isinstance(error, UnknownTopicOrPartitionError)
                time_limit_ms = UNKNOWN_TOPIC_TIME_LIMIT_MS if unknown else TIME_LIMIT_MS
                if not (error.retriable or isinstance(error, TimeoutError)):
                    raise
                if unknown and waited_ms >= time_limit_ms:
                    raise
                if waited_ms >= time_limit_ms and attempts > self._options.retries:
                    raise TimeoutError(f"{name}: no answer within {waited_ms} ms: {error}") from error
            self._pause(pause_ms / 1000)
            pause_ms = min(max(2 * pause_ms, 1), _MAX_PAUSE_MS)


def _of(consumer: Consumer, topic: str) -> list[TopicPartition]:
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}: create it, or correct the option")
    return [TopicPartition(topic, number) for number in numbers]


def _check_all_named(named: Mapping[TopicPartition, int], partitions: Collection[TopicPartition], option: str) -> None:
    missing = sorted(set(partitions) - named.keys())
    unknown = sorted(named.keys() - set(partitions))
    if missing or unknown:
        wrong = [f"{', '.join(map(str, missing))} missing"] * bool(missing)
        wrong += [f"{', '.join(map(str, unknown))} not read"] * bool(unknown)
        raise ConfigError(f"{option} must name exactly the partitions that are read: {'; '.join(wrong)}")
