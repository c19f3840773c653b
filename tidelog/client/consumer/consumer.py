"""The consumer for ordinary programs: each call is answered by the asyncio one on an I/O thread."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self, Unpack, overload

from tidelog import arguments
from tidelog.aio.consumer import CLOSE_TIMEOUT_MS
from tidelog.aio.consumer import Consumer as AsyncConsumer
from tidelog.client.blocking.blocking_client import BlockingClient
from tidelog.client.consumer.fetch_buffer import ConsumerRecord, FetchedBatches
from tidelog.client.consumer.seek_to_time import StartingPoint
from tidelog.client.environment import ClientEnvironment
from tidelog.client.help import client_repr, shows_settings
from tidelog.client.settings import BootstrapServers, ConsumerOptions, ConsumerSettings
from tidelog.groups.membership.rebalance_listener import RebalanceListener
from tidelog.model import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, OffsetOutcome, TopicPartition
from tidelog.timestamps import Timestamp


@shows_settings(ConsumerSettings, ConsumerOptions)
class Consumer(BlockingClient[AsyncConsumer]):
    """Reads partitions from their leaders. One thread at a time; not across a fork.

    bootstrap_servers           "host:port,host:port" or a list; by default $TIDELOG_BOOTSTRAP_SERVERS, else the cluster
                                of this user's last `tidelog up`
    auto_offset_reset           "latest" (default), "earliest", a duration (a timedelta, or KIP-1106's
                                "by_duration:PT1H"), a time (an aware datetime, or "@2026-11-21T09:30:00Z"), or "none":
                                OffsetOutOfRangeError with the valid range. With a time, partitions without a record at
                                or after it begin at their end.
                                Also where a topic was made anew; and where an unclean election cut away what was read,
                                a reader goes back to where the logs part ("none": LogTruncationError)
    fetch_min_bytes, fetch_max_wait_ms      what a leader waits for
    fetch_max_bytes, max_partition_fetch_bytes      what it sends at most at a time
    prefetch_max_bytes          no fetch begins while so much is held ahead of the reader (64 MiB)
    max_poll_records            of one `poll` (500)
    consumer_timeout_ms         an iteration ends when no record came for so long (None: never)
    max_decompressed_batch_bytes    of the records of one batch (128 MiB, at most 1 GiB); `fetch_max_bytes` bounds them
                                as they are sent, compressed. A larger batch is a MessageTooLargeError
    default_api_timeout_ms      of every call that has a `timeout_ms` of its own and is given none (1 min)
    isolation_level             "read_uncommitted" (default) or "read_committed"
    check_crcs                  verify each batch (default)
    group_id                    of its group; commit and committed need it. What is assigned begins where the group left
                                off, else as auto_offset_reset says. Without one, subscribe reads all partitions
    group_instance_id           a static member's: it keeps its partitions while it is away for less than its session
    enable_auto_commit, auto_commit_interval_ms     polls commit what earlier ones returned (True, every 5 s); so do a
                                rebalance, unsubscribe and close
    session_timeout_ms, heartbeat_interval_ms       how long its silence is borne (45 s), how often it is heard (3 s)
    max_poll_interval_ms        who does not poll for so long leaves the group, and joins again when it polls (5 min)
    partition_assignment_strategy   "range", "roundrobin", "sticky", "cooperative-sticky", or some, the preferred first
                                ("range", "roundrobin"); cooperative only where it is the only one
    request_timeout_ms, retry_backoff_ms, retry_backoff_max_ms, metadata_max_age_ms, bootstrap_timeout_ms, client_id

    Calls raise NoBrokersError where no broker was ever reached, TimeoutError at their deadline, and what a broker
    refuses for good.
    """

    def __init__(self, bootstrap_servers: BootstrapServers | None = None, **options: Unpack[ConsumerOptions]) -> None:
        self._set_up(bootstrap_servers, options, ClientEnvironment())

    def _set_up(
        self, bootstrap_servers: BootstrapServers | None, options: Mapping[str, Any], environment: ClientEnvironment
    ) -> None:
        core = environment.create(AsyncConsumer, bootstrap_servers, **options)
        super().__init__(core, "tidelog-consumer", core.settings.default_api_timeout_ms)
        core.listener_caller = self._io.in_caller

    def __repr__(self) -> str:
        return client_repr(self, self._core.settings, *self._core._facts(), closed=self._io.stopped)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share these topics, or all whose names match the pattern, with the other members of the group.

        Without a group_id this consumer reads every partition of the topics, from where auto_offset_reset says, and
        commits nothing; polls notice new partitions and topics.

        Polls join the group and take part in its rebalances; heartbeats go on beside them. A topic need not exist yet.
        A pattern matches from a name's beginning on (`re.match`) and follows topics that are made later, within
        `metadata_max_age_ms`. Another `subscribe` takes the place of this one; by topics, by pattern and `assign`
        exclude each other (IllegalStateError) until `unsubscribe`. The listener is called from within `poll`,
        `unsubscribe` and `close`, in the thread that calls them: see `ConsumerRebalanceListener`.
        """
        self._now(lambda: self._core.subscribe(topics, pattern=pattern, listener=listener))

    def subscription(self) -> set[str]:
        """The topics that this consumer is subscribed to; of a pattern those that match it."""
        return self._now(self._core.subscription)

    def unsubscribe(self) -> None:
        """Commit (where that is automatic), leave the group, and give up what is assigned, also by hand."""
        self._wait(self._core.unsubscribe(), CLOSE_TIMEOUT_MS)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: int | None = None
    ) -> None:
        """Have the group go on from here: behind the last record of each assigned partition that was returned, or from
        these offsets.

        CommitFailedError: the group has gone on without this consumer; FencedInstanceIdError: another one has its
        group_instance_id; RebalanceInProgressError: poll first;
        OffsetMetadataTooLargeError and what else a coordinator refuses; TimeoutError: the outcome is unknown.
        """
        self._wait(self._core.commit(offsets, timeout_ms), timeout_ms)

    @overload
    def committed(self, partitions: TopicPartition, timeout_ms: int | None = None) -> int | None: ...

    @overload
    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def committed(
        self, partitions: TopicPartition | Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> int | dict[TopicPartition, OffsetAndMetadata | None] | None:
        """What the group has committed: of one partition its offset, of several all of each. None: nothing."""
        return self._wait(self._core.committed(partitions, timeout_ms), timeout_ms)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these; those that were assigned before keep their position."""
        self._now(lambda: self._core.assign(partitions))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group, as far as it knows: its id and its generation."""
        return self._now(self._core.group_metadata)

    def assignment(self) -> set[TopicPartition]:
        """The assigned partitions."""
        return self._now(self._core.assignment)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read from `offset` next. ValueError for a negative one or a partition that is not assigned."""
        self._now(lambda: self._core.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read from the first offset next (all assigned partitions without an argument); looked up when needed."""
        self._now(lambda: self._core.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read what comes after the last visible record."""
        self._now(lambda: self._core.seek_to_end(*partitions))

    def seek_to_time(
        self, time: Timestamp, *partitions: TopicPartition, timeout_ms: int | None = None
    ) -> dict[TopicPartition, StartingPoint]:
        """Read next from the first record with this time (ms, or an aware datetime) or a later one, in each partition.

        Without partitions, all that are assigned. Says where each begins and why: `found`; `before_log_start`, with its
        first record, which is younger than the time, and whether older ones are `gone` or were `never_written`;
        `past_end` or `empty`, at its end. Of what is written meanwhile nothing at or after the time is skipped.
        Errors as of `offsets_for_times`; then no partition has moved.
        """
        return self._wait(self._core.seek_to_time(time, *partitions, timeout_ms=timeout_ms), timeout_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these until `resume`; they keep their position. ValueError where one is not assigned."""
        self._now(lambda: self._core.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Read these again."""
        self._now(lambda: self._core.resume(*partitions))

    def paused(self) -> set[TopicPartition]:
        """The assigned partitions that are paused."""
        return self._now(self._core.paused)

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What there is, at once if there is anything; else what comes within `timeout_ms`, else nothing.

        OffsetOutOfRangeError (auto_offset_reset="none") has the partition, the offset and the valid range. An error of
        one partition keeps nothing back of the others. A poll raises a new error at once, but the error of a missing
        topic only after 3 s, because the topic may be created meanwhile. While an error lasts, each later poll raises
        it when its own time is over. A subscriber's poll also raises what keeps it out of its group, and what its
        listener raises; it joins again with the next poll, unless another consumer has its group_instance_id
        (FencedInstanceIdError). InternalError: background work of this consumer failed unexpectedly; the cause is
        chained, and the consumer tries again.
        """
        return self._wait(self._core.poll(timeout_ms, max_records), timeout_ms, self._core.give_back)

    def poll_batches(self, timeout_ms: int = 0) -> dict[TopicPartition, FetchedBatches]:
        """Like `poll`, but undecoded: for each partition the whole batches of one answer of its leader."""
        return self._wait(self._core.poll_batches(timeout_ms), timeout_ms, self._core.give_back)

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record that `poll` returns; waits for its look-up."""
        return self._wait(self._core.position(partition, timeout_ms), timeout_ms)

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark that came with the last fetch; None before the first."""
        return self._now(lambda: self._core.highwater(partition))

    @overload
    def offsets_for_times(
        self,
        times: Mapping[TopicPartition, Timestamp],
        timeout_ms: int | None = None,
        *,
        partial: Literal[False] = False,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...

    @overload
    def offsets_for_times(
        self, times: Mapping[TopicPartition, Timestamp], timeout_ms: int | None = None, *, partial: Literal[True]
    ) -> dict[TopicPartition, OffsetOutcome]: ...

    def offsets_for_times(
        self, times: Mapping[TopicPartition, Timestamp], timeout_ms: int | None = None, *, partial: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None] | dict[TopicPartition, OffsetOutcome]:
        """For each partition the earliest offset whose timestamp is at or after the target; None where there is none.

        Targets are milliseconds or aware datetimes; partitions need not be assigned. ValueError names the partition
        of a negative time or a naive datetime; TimeoutError says how long it took and which partitions are missing.
        SecondsForMillisecondsWarning where a target looks like seconds.

        With `partial` each partition has an outcome of its own, with the reason where nothing was found (`NoOffset`),
        and no partition's refusal or missing leader is raised.
        """
        if arguments.flag("partial", partial):
            return self._wait(self._core.offsets_for_times(times, timeout_ms, partial=True), timeout_ms)
        return self._wait(self._core.offsets_for_times(times, timeout_ms), timeout_ms)

    def offsets_before(
        self, times: Mapping[TopicPartition, Timestamp], max_num_offsets: int = 1, timeout_ms: int | None = None
    ) -> dict[TopicPartition, list[int]]:
        """For each partition where segments begin that were last written at or before the time, the newest first.

        The old SimpleConsumer's `getOffsetsBefore`: as coarse as segments are large, and by their files' times. From
        the newest segment that is old enough on backwards, at most `max_num_offsets`; −1 asks for the latest, −2 for
        the earliest. Reading from the first of them misses nothing that was written after the time. Empty where all
        segments were written later: the earliest offset is the one to begin with then. Errors as of
        `offsets_for_times`.
        """
        return self._wait(self._core.offsets_before(times, max_num_offsets, timeout_ms), timeout_ms)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return self._wait(self._core.beginning_offsets(partitions, timeout_ms), timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next visible record of each will get."""
        return self._wait(self._core.end_offsets(partitions, timeout_ms), timeout_ms)

    def partitions_for_topic(self, topic: str, timeout_ms: int | None = None) -> set[int] | None:
        """The topic's partitions; None where no broker knows it."""
        return self._wait(self._core.partitions_for_topic(topic, timeout_ms), timeout_ms)

    def topics(self, timeout_ms: int | None = None) -> set[str]:
        """The names of all topics but the cluster's own."""
        return self._wait(self._core.topics(timeout_ms), timeout_ms)

    def close(self, *, autocommit: bool = True, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Commit (where that is automatic), leave the group within `timeout_ms`, let go of everything. Idempotent."""
        arguments.flag("autocommit", autocommit)
        arguments.timeout_ms("timeout_ms", timeout_ms)
        self._close(self._core.close(autocommit=autocommit, timeout_ms=timeout_ms), timeout_ms)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record of the assigned partitions; the iteration ends once none came for `consumer_timeout_ms`.

        The iteration shares one position with `poll`. The next poll returns the records that were fetched and not
        yielded, and a commit covers exactly the records that were yielded.
        """
        while (record := self._core.in_hand.next()) is None:
            if not self._wait(self._core.fill_hand(), self._core.settings.consumer_timeout_ms):
                raise StopIteration
        return record
