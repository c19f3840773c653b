"""Implement the consumer for programs without asyncio: each call runs the asyncio consumer's on an I/O thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from tidelog import arguments
from tidelog.aio.consumer import CLOSE_TIMEOUT_MS, CONSUME_TIMEOUT_MS
from tidelog.aio.consumer import Consumer as AsyncConsumer
from tidelog.arrow.requirement import required_schema
from tidelog.client.blocking.blocking_client import BlockingClient
from tidelog.client.blocking.io_thread import in_caller
from tidelog.client.consumer.begun_commits import BegunCommits, CommitCallback
from tidelog.client.consumer.deserialization import Polled
from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord, FetchedBatches
from tidelog.client.consumer.reader import count_of, in_one_list
from tidelog.client.consumer.seek_to_time import StartingPoint
from tidelog.client.environment import ClientEnvironment
from tidelog.client.help import client_repr, shows_settings
from tidelog.client.metrics.snapshot import Metrics
from tidelog.client.settings import BootstrapServers, ConsumerOptions, ConsumerSettings
from tidelog.errors import RecordDeserializationError
from tidelog.groups.membership.rebalance_listener import RebalanceListener
from tidelog.model import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, OffsetOutcome, TopicPartition
from tidelog.timestamps import Timestamp

if TYPE_CHECKING:  # imported by the first call that needs it
    import pyarrow as pa


@shows_settings(ConsumerSettings, ConsumerOptions)
class Consumer(BlockingClient[AsyncConsumer]):
    """Read records from the leaders of partitions. Only one thread at a time may use a consumer, and no forked process.

    topics                      topics to subscribe to, as `subscribe` does; without them, call `subscribe` or `assign`
    bootstrap_servers           "host:port,host:port" or a list; by default $TIDELOG_BOOTSTRAP_SERVERS, else the cluster
                                of this user's last `tidelog up`
    auto_offset_reset           where to start without a valid position: "latest" (default), "earliest", a duration (a
                                timedelta, or KIP-1106's "by_duration:PT1H"), a time (an aware datetime, or
                                "@2026-11-21T09:30:00Z"), or "none": raise OffsetOutOfRangeError with the valid range.
                                With a time, a partition without a record at or after it starts at its end.
                                The policy also applies if the topic was deleted and created again. If an unclean
                                election removed records that the consumer has read, the consumer goes back to where the
                                logs diverge ("none": LogTruncationError)
    fetch_min_bytes, fetch_max_wait_ms      how many bytes a leader waits for, and how long
    fetch_max_bytes, max_partition_fetch_bytes      maximum bytes of one answer, and of one partition in it; the first
                                batch of an answer comes whole, even if it is larger
    prefetch_max_bytes          no fetch begins while so many fetched bytes wait for `poll` (64 MiB)
    max_poll_records            maximum records of one `poll` (500)
    consumer_timeout_ms         the iteration ends if no record arrives for so long (None: never)
    max_decompressed_batch_bytes    maximum bytes of one batch's decompressed records (128 MiB, at most 1 GiB); a larger
                                batch raises MessageTooLargeError. `fetch_max_bytes` limits the compressed bytes
    default_api_timeout_ms      timeout of each call whose `timeout_ms` is not given (1 min)
    isolation_level             "read_uncommitted" (default) or "read_committed"
    check_crcs                  verify the CRC of each batch (default)
    group_id                    the consumer group; commit and committed need it. Assigned partitions start at the
                                group's committed offsets, else as auto_offset_reset says. Without a group, subscribe
                                reads all partitions
    group_instance_id           makes the consumer a static member: it keeps its partitions if it is away for less than
                                its session timeout
    enable_auto_commit, auto_commit_interval_ms     each poll commits what earlier polls returned (True, every 5 s); a
                                rebalance, unsubscribe and close commit it too
    session_timeout_ms, heartbeat_interval_ms       after how long without a heartbeat the coordinator removes the
                                member (45 s), and how often it sends one (3 s)
    max_poll_interval_ms        a consumer that does not poll for so long leaves the group; its next poll joins again
                                (5 min)
    partition_assignment_strategy   "range", "roundrobin", "sticky", "cooperative-sticky", or several, the preferred one
                                first ("range", "roundrobin"); cooperative rebalances need it as the only one
    allow_auto_create_topics    whether brokers may create a topic that does not exist when the consumer asks for it
                                (False); they do so if their setting `auto_create_topics_enable` is on, as for
                                `tidelog up`
    key_deserializer, value_deserializer    functions of one bytes object, for example `json.loads`, whose results are
                                the records' keys and values (None: bytes). A null (a record without key, a tombstone)
                                is not passed to them and stays None. They run in the thread that reads
    request_timeout_ms, retry_backoff_ms, retry_backoff_max_ms, metadata_max_age_ms, bootstrap_timeout_ms, client_id

    A call that needs a broker raises NoBrokersError if none was ever reached, TimeoutError at its deadline (a poll
    returns nothing instead), and errors of a broker that are not retriable.

    Example:

        with Consumer(bootstrap_servers="localhost:9092", group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            for records in consumer.poll(timeout_ms=10_000).values():
                for record in records:
                    print(record.partition, record.offset, record.key, record.value)
    """

    def __init__(
        self, *topics: str, bootstrap_servers: BootstrapServers | None = None, **options: Unpack[ConsumerOptions]
    ) -> None:
        self._set_up(bootstrap_servers, options, ClientEnvironment(), *topics)

    def _set_up(
        self,
        bootstrap_servers: BootstrapServers | None,
        options: Mapping[str, Any],
        environment: ClientEnvironment,
        *topics: str,
    ) -> None:
        of_caller = replace(environment, call_listener=in_caller)
        core = of_caller.create(AsyncConsumer, bootstrap_servers, *topics, **options)
        super().__init__(core, "tidelog-consumer", core.settings.default_api_timeout_ms)
        self._reader = core.reader
        self._deserializer = core._deserializer
        self._begun_commits = BegunCommits()

    def __repr__(self) -> str:
        return client_repr(self, self._core.settings, *self._core._facts(), closed=self._io.stopped)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share these topics, or all topics whose names match the pattern, with the other members of the group.

        Without a group_id this consumer reads every partition of the topics, starts where auto_offset_reset says, and
        commits nothing; polls notice new partitions and topics.

        Polls join the group and take part in its rebalances; heartbeats are sent in the background. A topic need not
        exist yet. A pattern matches from the beginning of a name (`re.match`), and includes later topics within
        `metadata_max_age_ms`. A further `subscribe` replaces this one. Topics, a pattern and `assign` exclude each
        other (IllegalStateError) until `unsubscribe`. The listener is called by `poll`, `unsubscribe` and `close`, in
        the thread that calls them: see `ConsumerRebalanceListener`.
        """
        self._now(lambda: self._core.subscribe(topics, pattern=pattern, listener=listener))

    def subscription(self) -> set[str]:
        """Return the topics that this consumer is subscribed to; for a pattern, those that match it.

        Empty without a subscription, and before the first match of a pattern.
        """
        return self._now(self._core.subscription)

    def unsubscribe(self) -> None:
        """Commit (if auto-commit is enabled), leave the group, and unassign all partitions, also those of `assign`.

        The listener's `on_partitions_revoked` gets all partitions; its exception is raised at the end. The commit and
        the leave together have 10 s; errors of both are only logged. Without a group nothing is committed.
        """
        self._wait(self._core.unsubscribe(), CLOSE_TIMEOUT_MS)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: int | None = None
    ) -> None:
        """Commit these offsets for the group; None: the position of each assigned partition.

        A position is the offset after the last returned record, or the offset that the user has sought to. Raises
        CommitFailedError if the group has rebalanced without this consumer, FencedInstanceIdError if another consumer
        has its group_instance_id, and RebalanceInProgressError if the consumer must poll first. Raises
        InvalidGroupIdError without a group, OffsetMetadataTooLargeError and other errors of the coordinator. After a
        TimeoutError the outcome is unknown.
        """
        try:
            self._wait(self._core.commit(offsets, timeout_ms), timeout_ms)
        finally:
            self._begun_commits.run_callbacks()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> Future[None]:
        """Begin to commit like `commit`, and return a future whose `result(timeout)` waits for the outcome.

        Without `offsets`, the positions at the time of this call are committed. Commits reach the coordinator in the
        order of their calls, and each has `default_api_timeout_ms`. The future raises the errors of `commit`.

        `callback(offsets, error)` gets the offsets of this commit, and its error or None. The callback runs within a
        later call of `poll`, `consume`, `commit`, `commit_async` or `close`, or of an iteration that fetches records,
        and in the thread of that call, which raises the callback's exception. Callbacks run in the order of the
        commits. If there is no callback, an error is logged. `close` waits for the outcomes within its timeout.

        Raises InvalidGroupIdError without a group, and OverloadedError if 1,000 commits have no outcome.
        """
        if callback is not None:
            arguments.function("callback", callback)
        self._begun_commits.run_callbacks()
        self._begun_commits.require_space()
        commit = self._now(partial(self._core._begin_commit, offsets, logs_error=callback is None))
        self._begun_commits.add(commit, callback)
        return commit.outcome

    @overload
    def committed(self, partitions: TopicPartition, timeout_ms: int | None = None) -> int | None: ...

    @overload
    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def committed(
        self, partitions: TopicPartition | Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> int | dict[TopicPartition, OffsetAndMetadata | None] | None:
        """Return the group's committed offsets: an int for one partition, a dict for several. None: no commit.

        The call first waits for earlier commits of this consumer. Raises InvalidGroupIdError without a group.
        """
        return self._wait(self._core.committed(partitions, timeout_ms), timeout_ms)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; partitions that were assigned before keep their position.

        The others start at the group's committed offset, else as auto_offset_reset says. With a group and auto-commit,
        the positions of dropped partitions are committed in the background. Raises IllegalStateError if the consumer is
        subscribed.
        """
        self._now(lambda: self._core.assign(partitions))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's identity in its group: the member id and the generation, as far as they are known.

        Raises InvalidGroupIdError without a group.
        """
        return self._now(self._core.group_metadata)

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return self._now(self._core.assignment)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read from `offset` next, and discard the fetched records of the partition.

        Raises ValueError for a negative offset, or if the partition is not assigned. The offset is not compared with
        the log here; one out of range is an error of a later poll, or is reset.
        """
        self._seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these partitions from their first offset next; without arguments, all assigned partitions.

        The offset is looked up in the background. Raises ValueError if a partition is not assigned.
        """
        self._now(lambda: self._core.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read these partitions next from their end, after the last visible record; without arguments, all assigned.

        The end is looked up in the background, after this call. Raises ValueError if a partition is not assigned.
        """
        self._now(lambda: self._core.seek_to_end(*partitions))

    def seek_to_time(
        self, time: Timestamp, *partitions: TopicPartition, timeout_ms: int | None = None
    ) -> dict[TopicPartition, StartingPoint]:
        """Read next from each partition's first record with this time (ms, or an aware datetime) or a later time.

        Without partitions, all assigned partitions move. The result says where each partition starts and why:
        `found`; `before_log_start`: at its first record, whose timestamp is later than the time, and whether older
        records are `gone` or were `never_written`; `past_end` or `empty`: at its end. Records that are written during
        the call and have this time or a later one are not skipped.
        Raises the errors of `offsets_for_times`; in that case no partition has moved.
        """
        return self._wait(self._core.seek_to_time(time, *partitions, timeout_ms=timeout_ms), timeout_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Let polls return no records of these partitions until `resume`; their positions stay.

        Raises ValueError if a partition is not assigned; in that case none is paused.
        """
        self._now(lambda: self._core.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Let polls return records of these partitions again.

        Raises ValueError if a partition is not assigned; in that case none is resumed.
        """
        self._now(lambda: self._core.resume(*partitions))

    def paused(self) -> set[TopicPartition]:
        """Return the assigned partitions that are paused."""
        return self._now(self._core.paused)

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return fetched records at once if there are any, else records that arrive within `timeout_ms`, else nothing.

        The result has at most `max_records` records (default `max_poll_records`), for each partition in offset order.

        The OffsetOutOfRangeError of auto_offset_reset="none" has the partition, the offset and the valid range. An
        error of one partition does not hold back records of others. A poll raises a new error at once, but the error of
        a missing topic only after 3 s, because the topic may be created meanwhile. While an error lasts, each later
        poll raises it when the poll's own time is over. The poll of a subscribed consumer also raises errors that keep
        it out of its group, and errors of its listener. The next poll joins again, unless another consumer has its
        group_instance_id (FencedInstanceIdError). RecordDeserializationError means that a deserializer failed. Earlier
        polls have returned the records before that record, and the position stays at it until a seek. InternalError
        means that a background task of this consumer failed unexpectedly; the cause is chained, and the consumer starts
        the task again.
        """
        return self._read(partial(self._reader.poll, max_records=max_records), timeout_ms)

    def consume(self, max_records: int = 500, timeout_ms: int = CONSUME_TIMEOUT_MS) -> list[ConsumerRecord]:
        """Wait until `max_records` records have arrived or `timeout_ms` has passed, and return them as one list.

        The list is empty if no record arrived. The records of each partition are in offset order. `max_poll_records`
        does not apply. The errors are those of `poll`. If an error occurs after records have arrived, the call returns
        these records at once, and the next call raises the error.
        """
        return in_one_list(self._read(partial(self._reader.consume, max_records=max_records), timeout_ms))

    def poll_batches(self, timeout_ms: int = 0) -> dict[TopicPartition, FetchedBatches]:
        """Return fetched batches undecoded, for each partition those of one fetch answer; wait like `poll`.

        The position moves past the batches. `max_poll_records` and the deserializers do not apply.
        """
        return self._wait(self._core.poll_batches(timeout_ms), timeout_ms, self._reader.give_back)

    def poll_arrow(
        self, timeout_ms: int = 0, *, columns: Iterable[str] | None = None, headers: bool = False
    ) -> pa.Table:
        """Return fetched records as an Arrow table, for each partition those of one fetch answer; wait like `poll`.

            table = consumer.poll_arrow(1000, columns=["offset", "value"])

        columns   names, in the order of the result: topic, partition, offset, timestamp, key, value (the default),
                  timestamp_type, headers
        headers   whether to add the column `headers`

        The position moves past the records, as with `poll_batches`; `max_poll_records` does not apply. Without records
        the table is empty. pandas, Polars and DuckDB take the table without a copy. Raises the errors of `poll`,
        ArgumentTypeError and ArgumentValueError for wrong columns, and MissingExtraError without pyarrow.
        """
        schema = required_schema("poll_arrow", columns, headers=headers)
        from tidelog.arrow.polled_rows import to_table

        polled = self._wait(self._reader.poll_rows(schema, timeout_ms), timeout_ms, self._reader.give_back)
        return to_table(schema, polled.values())

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record that `poll` returns; wait for the look-up of the start if need be.

        Raises ValueError if the partition is not assigned, the error that prevents the look-up, or TimeoutError.
        """
        return self._wait(self._core.position(partition, timeout_ms), timeout_ms)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the partition's high watermark of the last fetch answer; None before the first answer.

        Raises ValueError if the partition is not assigned.
        """
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
        """Return each partition's earliest offset whose timestamp is at or after the target; None if there is none.

        Targets are milliseconds or aware datetimes; partitions need not be assigned. ValueError names the partition
        of a negative time or a naive datetime. TimeoutError says how long the call took and which partitions are
        missing. The call warns with SecondsForMillisecondsWarning if a target looks like seconds.

        With `partial` each partition has its own outcome, with the reason if no offset was found (`NoOffset`), and the
        errors of single partitions are not raised.
        """
        if arguments.flag("partial", partial):
            return self._wait(self._core.offsets_for_times(times, timeout_ms, partial=True), timeout_ms)
        return self._wait(self._core.offsets_for_times(times, timeout_ms), timeout_ms)

    def offsets_before(
        self, times: Mapping[TopicPartition, Timestamp], max_num_offsets: int = 1, timeout_ms: int | None = None
    ) -> dict[TopicPartition, list[int]]:
        """Return the base offsets of each partition's segments last written at or before the time, newest first.

        This is `getOffsetsBefore` of Kafka's old SimpleConsumer. Its resolution is a segment, and it uses the
        modification times of the segment files. The result begins with the newest segment that is old enough, goes on
        with all earlier segments, and has at most `max_num_offsets` offsets. The log end counts as a segment that is
        written now. The time −1 asks for the latest offset, −2 for the earliest. A reader that starts at the first
        offset of the result misses nothing that was written after the time. An empty list means that all segments were
        written later, so that the reader must start at the earliest offset. Raises the errors of `offsets_for_times`.
        """
        return self._wait(self._core.offsets_before(times, max_num_offsets, timeout_ms), timeout_ms)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset (log start offset) of each partition, which need not be assigned."""
        return self._wait(self._core.beginning_offsets(partitions, timeout_ms), timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last visible record of each partition, which need not be assigned.

        That is the high watermark, or with "read_committed" the last stable offset.
        """
        return self._wait(self._core.end_offsets(partitions, timeout_ms), timeout_ms)

    def partitions_for_topic(self, topic: str, timeout_ms: int | None = None) -> set[int] | None:
        """Return the numbers of the topic's partitions; None if brokers deny it for 3 s, or until the deadline."""
        return self._wait(self._core.partitions_for_topic(topic, timeout_ms), timeout_ms)

    def topics(self, timeout_ms: int | None = None) -> set[str]:
        """Return the names of all topics except internal topics, as one broker knows them."""
        return self._wait(self._core.topics(timeout_ms), timeout_ms)

    def bootstrap_connected(self) -> bool:
        """Return whether a connection to any broker is open now; False before the first call, and after `close`."""
        return not self._io.stopped and self._now(self._core.bootstrap_connected)

    def close(self, *, autocommit: bool = True, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Commit (if auto-commit is enabled), call the listener, leave the group, and free the resources.

        `timeout_ms` limits the wait for commits of `commit_async`, the commit, and the leave together. The time of the
        listener counts, but the listener is not interrupted. With `autocommit` False the call commits nothing, but
        waits for commits of `commit_async`. A static member does not leave its group. The listener's exception is
        raised at the end. Idempotent.
        """
        arguments.flag("autocommit", autocommit)
        arguments.timeout_ms("timeout_ms", timeout_ms)
        try:
            self._close(self._core.close(autocommit=autocommit, timeout_ms=timeout_ms), timeout_ms)
        finally:
            self._begun_commits.run_callbacks()

    def metrics(self) -> Metrics:
        """Return a snapshot of this consumer's metrics, under Kafka's names: `metrics()[group][name]`.

        Any thread may call this method at any time, also after `close`. Totals, averages and maxima count from the
        start of the consumer. A value that is not known yet is NaN. `print` shows each metric on a line.

        consumer-fetch-manager-metrics:
        records-consumed-total      records that polls have returned; of `poll_batches` the offsets of the batches
        bytes-consumed-total        bytes of record batches in answers to fetches, compressed as received
        records-lag-max             the largest value of the group `records-lag`
        fetch-total                 fetches that were answered
        fetch-latency-avg, -max     time from a fetch to its answer (ms), which includes the wait for records
        fetch-size-avg, -max        bytes of record batches in one answer

        consumer-coordinator-metrics:
        assigned-partitions         partitions that are assigned now
        commit-total, commit-latency-avg, -max      answered commits, and the time to their answer (ms)
        rebalance-total             assignments of the group that this consumer has adopted
        join-total, join-time-avg, -max     answered JoinGroup requests, and the time to their answer (ms)
        sync-total, sync-time-avg, -max     answered SyncGroup requests, and the time to their answer (ms)
        heartbeat-total, heartbeat-response-time-max    answered heartbeats, and the longest time to an answer (ms)
        last-heartbeat-seconds-ago  time since the last answer to a heartbeat (s)

        records-lag:
        topic-number                for each assigned partition the offsets from its position to the high watermark of
                                    the last fetch; records that an iteration has polled ahead count as read

        consumer-metrics:
        connection-count, connection-creation-total     open connections, and all that were opened
        request-total, response-total       requests sent, and requests answered
        requests-in-flight          requests that have neither an answer nor an error yet
        request-latency-avg, -max   time from a request to its answer (ms)
        throttle-time-max           longest time for which a broker has throttled this client (ms, KIP-219)
        metadata-age                time since the last answer with metadata (s)
        """
        return self._core.metrics()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record of the assigned partitions.

        The iteration stops if no record arrives for `consumer_timeout_ms`; None: it waits without a limit. The
        iteration and `poll` share one position. The next poll returns the records that were fetched and not yielded,
        and a commit covers exactly the records that were yielded.
        """
        core = self._core
        while True:
            if (record := self._reader.remainder.next()) is None:
                self._begun_commits.run_callbacks()
                if not self._wait(self._reader.fill_remainder(), core.settings.consumer_timeout_ms):
                    raise StopIteration
            elif self._deserializer is None:
                return record
            else:
                try:
                    return self._deserializer.record(record)
                except RecordDeserializationError as error:
                    self._now(partial(self._reader.refuse, [error], 1))
                except BaseException:  # an interrupt
                    tp = TopicPartition(record.topic, record.partition)
                    self._now(partial(self._reader.give_back, {tp: [record]}))
                    raise

    def _seek(self, partition: TopicPartition, offset: int, topic_id: str = "") -> None:
        """Do what `seek` does, for an offset of the topic with this id; "": of the topic that exists now."""
        self._now(lambda: self._core._seek(partition, offset, topic_id))

    def _read(self, poll: Callable[[int], Coroutine[Any, Any, Polled]], timeout_ms: int) -> Polled:
        """Wait for `poll(timeout_ms)` of the core, and return its records, deserialized in this thread.

        If no record before those that cannot be deserialized is left, the next poll raises the error.
        """
        self._begun_commits.run_callbacks()
        while True:
            polled = self._wait(poll(timeout_ms), timeout_ms, self._reader.give_back)
            if self._deserializer is None:
                return polled
            try:
                found, errors = self._deserializer.polled(polled)
            except BaseException:  # an interrupt
                self._now(partial(self._reader.give_back, polled))
                raise
            if errors:
                self._now(partial(self._reader.refuse, errors, count_of(polled) - count_of(found)))
            if found or not errors:
                return found
            timeout_ms = 0
