"""Test the accumulator's rules about which batch may be sent next, without I/O."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.producer.accumulator import Accumulator, PartitionQueue, TopicQueues
from tidelog.client.producer.producer_batch import ANONYMOUS, Batch, ProducerIdentity
from tidelog.client.producer.record_future import BatchOutcome, RecordFuture, RecordRun
from tidelog.client.settings import ProducerSettings, make_settings
from tidelog.errors import (
    ClosedError,
    InvalidTimestampError,
    MessageTooLargeError,
    NetworkError,
    NotEnoughReplicasError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.records.decode import decode_records
from tidelog.records.encode import BatchBuilder, single_record_bytes
from tidelog.records.header import HEADER_BYTES, read_header

ME, ANEW = ProducerIdentity(7, 0), ProducerIdentity(8, 0)


class Story:
    """An accumulator, its clock, and the number of its calls to the sender."""

    def __init__(self, partitions: int = 1, *, first_sequence: int = 0, **options: Any) -> None:
        self.now_ms = 1000
        self.wakes = 0
        settings = make_settings(ProducerSettings, "h:1", options)
        self.accumulator = Accumulator(settings, self._wake, lambda: first_sequence)
        self.topic: TopicQueues = self.accumulator.add_partitions("t", partitions, range(partitions))

    def _wake(self) -> None:
        self.wakes += 1

    def send(self, value: bytes = b"v", partition: int | None = 0) -> RecordFuture:
        clock = lambda: self.now_ms  # noqa: E731
        future = self.accumulator.append(self.topic, partition, 0, None, value, (), clock)
        assert future is not None
        return future

    def queue(self, partition: int = 0) -> PartitionQueue:
        return self.topic.partitions[partition]

    def take(self, identity: ProducerIdentity = ME) -> tuple[int, int, int]:
        header = read_header(self.accumulator.take(self.queue(), identity, 0).payload)
        return header.producer_id, header.base_sequence, header.record_count


def test_the_sender_is_woken_once_for_each_time_it_armed_itself() -> None:
    story = Story(partitions=3)
    story.send(partition=0)
    assert story.wakes == 0
    story.accumulator.arm()
    story.send(partition=0)
    assert story.wakes == 0  # the sender knows of this batch
    story.send(partition=1)
    story.send(partition=2)
    assert story.wakes == 1


def test_waiting_record_goes_to_a_partition_that_exists_then() -> None:
    story = Story(partitions=1)
    accumulator = story.accumulator
    lock = accumulator._lock

    class SomebodyElseFirst:
        def acquire(self) -> None:
            accumulator._lock = lock
            accumulator.add_partitions("t", 3, [2])
            lock.acquire()

    accumulator._lock = SomebodyElseFirst()  # type: ignore[assignment]
    story.send(partition=None)
    assert [len(queue.batches) for queue in story.topic.partitions] == [0, 0, 1]


def test_sequences_follow_each_other_and_a_repeated_batch_keeps_its_own() -> None:
    story = Story()
    story.send()
    story.send()
    assert story.take() == (7, 0, 2)
    story.send()
    story.accumulator.retry(story.queue(), NetworkError(), 1050, outcome_unknown=True)
    assert story.accumulator.ready_at_ms(story.queue()) == 1050
    assert story.take() == (7, 0, 2)
    story.accumulator.succeed(story.queue(), 40)
    assert story.take() == (7, 2, 1)


def test_sequences_start_anywhere_and_wrap_after_the_largest() -> None:
    story = Story(first_sequence=2**31 - 2)
    for sequence in (2**31 - 2, 2**31 - 1, 0, 1):
        story.send()
        assert story.take() == (7, sequence, 1)
        story.accumulator.succeed(story.queue(), 0)
    failed = story.send()
    story.take()
    story.accumulator.fail(story.queue(), InvalidTimestampError())
    assert failed.failed()
    story.send()
    assert story.take() == (7, 2, 1)


def test_a_partition_in_flight_waits_for_its_answer() -> None:
    story = Story()
    story.send()
    story.take()
    story.send()
    assert story.accumulator.waiting_queues() == []
    story.accumulator.succeed(story.queue(), 0)
    assert story.accumulator.waiting_queues() == [story.queue()]


def test_a_certain_failure_gives_its_sequences_to_the_next_batch() -> None:
    story = Story()
    failed = story.send()
    story.take()
    story.accumulator.fail(story.queue(), InvalidTimestampError())
    assert isinstance(failed.exception(), InvalidTimestampError)
    story.send()
    assert story.take() == (7, 0, 1)


def test_unknown_outcome_requests_a_new_producer_id() -> None:
    story = Story()
    story.send()
    story.take()
    story.accumulator.retry(story.queue(), NetworkError("gone"), 1050, outcome_unknown=True)
    story.accumulator.fail(story.queue(), TimeoutError())
    assert story.queue().identity is None and story.queue().refused == ME
    story.send()
    assert story.take(ANEW) == (8, 0, 1)


def test_rejection_after_an_unknown_outcome_keeps_may_be_stored() -> None:
    story = Story()
    future = story.send()
    story.take()
    story.accumulator.retry(story.queue(), NetworkError("gone"), 1050, outcome_unknown=True)
    story.take()
    story.accumulator.fail(story.queue(), NotEnoughReplicasError())
    assert isinstance(future.exception(), NotEnoughReplicasError)
    assert future.may_be_stored()


def test_record_with_rejections_only_is_not_stored() -> None:
    story = Story(delivery_timeout_ms=500)
    refused = story.send()
    story.take()
    story.accumulator.retry(story.queue(), NotEnoughReplicasError(), 1050, outcome_unknown=False)
    assert not refused.may_be_stored()  # not yet known
    story.accumulator.expire(1500)
    assert refused.failed() and not refused.may_be_stored()


def test_record_that_expires_in_flight_may_be_stored() -> None:
    story = Story(partitions=2, delivery_timeout_ms=500)
    expired, closed = story.send(), story.send()
    batch = story.accumulator.take(story.queue(), ME, 0)
    story.accumulator.expire_in_flight(story.queue(), batch, 1500)
    assert expired.may_be_stored() and closed.may_be_stored()
    waiting, sent = story.send(partition=0), story.send(partition=1)
    story.accumulator.take(story.queue(1), ME, 0)
    story.accumulator.fail_all(ClosedError())
    assert sent.may_be_stored() and not waiting.may_be_stored()


def test_batches_behind_an_expired_batch_in_flight_expire_in_time() -> None:
    story = Story(delivery_timeout_ms=500, batch_size=200)
    story.send(b"x" * 100)
    batch = story.accumulator.take(story.queue(), ME, 0)
    story.now_ms = 1100
    second = story.send(b"x" * 100)
    story.now_ms = 1200
    third = story.send(b"x" * 100)

    def expire_in_flight(now_ms: int) -> int | None:
        return story.accumulator.expire_in_flight(story.queue(), batch, now_ms)

    assert (expire_in_flight(1500), expire_in_flight(1599)) == (1600, 1600) and not second.done()
    assert expire_in_flight(1600) == 1700
    assert second.failed() and not second.may_be_stored() and not third.done()
    assert story.queue().in_flight and story.accumulator.waiting_queues() == []
    story.accumulator.succeed(story.queue())
    assert expire_in_flight(1700) is None and not third.done(), "what is not behind it any more is none of its business"
    assert story.take() == (ME.producer_id, 1, 1)
    story.accumulator.succeed(story.queue()).run_callbacks()
    assert third.done() and not third.failed() and story.accumulator.buffered_bytes == 0


def test_batch_that_waits_beyond_its_deadline_fails_with_the_last_error() -> None:
    story = Story(delivery_timeout_ms=500)
    early = story.send()
    assert story.accumulator.next_deadline_ms() == 1500
    story.take()
    story.accumulator.retry(story.queue(), NetworkError("cable"), 1050, outcome_unknown=False)
    story.now_ms = 1400
    late = story.send()
    story.accumulator.expire(1500)
    assert "cable" in str(early.exception()) and not late.done()


def test_full_batch_opens_the_next_and_keyless_records_change_partition() -> None:
    story = Story(partitions=2, batch_size=200)
    for _ in range(4):
        story.send(b"x" * 100, partition=None)
    assert [len(story.queue(number).batches) for number in range(2)] == [2, 2]


def test_keyless_records_avoid_partitions_without_a_leader() -> None:
    story = Story(partitions=3, batch_size=200)
    story.accumulator.add_partitions("t", 3, [1])
    story.send(b"x" * 100, partition=None)
    for _ in range(3):
        story.send(b"x" * 100, partition=None)
    assert [len(story.queue(number).batches) for number in range(3)] == [0, 4, 0]


def test_bytes_are_counted_until_the_outcome() -> None:
    story = Story(buffer_memory=150)
    story.send(b"x" * 100)
    assert story.accumulator.append(story.topic, 0, 0, None, b"y", (), lambda: 0) is None
    called: list[bool] = []
    assert story.accumulator.call_when_space(lambda: called.append(True))
    story.take(ANONYMOUS)
    story.accumulator.succeed(story.queue(), 0)
    assert called == [True] and story.accumulator.buffered_bytes == 0
    assert not story.accumulator.call_when_space(lambda: called.append(True))


def test_only_the_first_waiter_for_space_wakes_the_sender() -> None:
    story = Story(buffer_memory=1)
    for woken in (1, 2):
        story.send()
        for _ in range(100):
            assert story.accumulator.call_when_space(lambda: None)
        assert story.wakes == woken
        story.take(ANONYMOUS)
        story.accumulator.succeed(story.queue(), 0)


def test_record_above_max_request_size_is_rejected_whatever_batch_size_is() -> None:
    story = Story(max_request_size=200, batch_size=16_384)
    allowed = bytes(200 - single_record_bytes(None, b"", ()) - 2)  # two lengths need one byte more
    assert single_record_bytes(None, allowed, ()) == 200
    story.send(allowed)
    with pytest.raises(MessageTooLargeError, match="a record of 201 bytes for t-0: max_request_size is 200"):
        story.send(allowed + b"v")


def test_lingering_ends_with_time_a_full_batch_or_a_flush() -> None:
    story = Story(linger_ms=50, batch_size=200)
    story.send(b"x" * 60)
    assert story.accumulator.ready_at_ms(story.queue()) == 1050
    story.send(b"x" * 100)
    assert story.accumulator.ready_at_ms(story.queue()) == 1000
    story.take()
    story.accumulator.succeed(story.queue(), 0)
    assert story.accumulator.ready_at_ms(story.queue()) == 1050
    (unsettled,) = story.accumulator.begin_flush(1010)
    assert not unsettled.done() and story.accumulator.ready_at_ms(story.queue()) == 1000


def test_halves_of_a_batch_take_its_place_and_its_sequences() -> None:
    story = Story()
    futures = [story.send(b"%d" % number) for number in range(5)]
    story.take()
    later = story.send(b"later")
    story.accumulator.split(story.queue())
    assert story.accumulator.ready_at_ms(story.queue()) == 1000
    assert story.take() == (7, 0, 2)
    story.accumulator.succeed(story.queue(), 40)
    assert [future.done() for future in futures] == [True, True, False, False, False]
    assert story.take() == (7, 2, 3)
    story.accumulator.succeed(story.queue(), 90, 17)
    assert [future.get().offset for future in futures] == [40, 41, 90, 91, 92]
    assert [future.get().timestamp for future in futures] == [0, 0, 17, 17, 17]
    assert story.take() == (7, 5, 1) and not later.done()


def test_half_is_split_again_and_a_rejected_record_frees_its_sequence() -> None:
    story = Story()
    futures = [story.send(value) for value in (b"a", b"x" * 500, b"b", b"c")]
    assert story.take() == (7, 0, 4)
    story.accumulator.split(story.queue())
    assert story.take() == (7, 0, 1)
    story.accumulator.succeed(story.queue(), 10)
    assert story.take() == (7, 1, 3)
    story.accumulator.split(story.queue())
    assert story.take() == (7, 1, 1)
    story.accumulator.fail(story.queue(), MessageTooLargeError())
    assert story.take() == (7, 1, 2)
    story.accumulator.succeed(story.queue(), 11)
    assert isinstance(futures[1].exception(), MessageTooLargeError)
    assert [future.get().offset for future in futures if future.succeeded()] == [10, 11, 12]
    assert [future.failed() for future in futures] == [False, True, False, False]


def test_sequences_that_may_be_in_the_log_are_not_given_to_the_halves() -> None:
    story = Story()
    story.send()
    story.send()
    story.take()
    story.accumulator.retry(story.queue(), NetworkError(), 1050, outcome_unknown=True)
    story.take()
    story.accumulator.split(story.queue())
    assert story.queue().identity is None and story.queue().refused == ME
    assert story.take(ANEW) == (8, 0, 1)


def test_sequences_of_an_unknown_outcome_are_not_reused_after_a_rejection() -> None:
    story = Story()
    story.send()
    story.send()
    story.take()
    story.accumulator.retry(story.queue(), NetworkError(), 1050, outcome_unknown=True)
    story.take()
    story.accumulator.drop_refused(story.queue(), {0: InvalidTimestampError()})
    assert story.queue().identity is None and story.queue().refused == ME
    assert story.take(ANEW) == (8, 0, 1)


def test_half_of_a_batch_with_unknown_outcome_may_be_stored() -> None:
    story = Story()
    futures = [story.send(), story.send()]
    story.take()
    story.accumulator.retry(story.queue(), NetworkError(), 1050, outcome_unknown=True)
    story.take()
    story.accumulator.split(story.queue())
    for _ in futures:
        story.take(ANEW)
        story.accumulator.fail(story.queue(), MessageTooLargeError())
    assert all(future.failed() and future.may_be_stored() for future in futures)


def test_halves_keep_the_deadline_and_use_the_buffer_until_their_outcome() -> None:
    story = Story(delivery_timeout_ms=500)
    futures = [story.send() for _ in range(4)]
    story.now_ms = 1400
    story.take()
    story.accumulator.split(story.queue())
    assert story.accumulator.buffered_bytes == sum(batch.size_bytes for batch in story.queue().batches)
    story.take()
    story.accumulator.succeed(story.queue(), 0)
    story.accumulator.expire(1500)
    assert [future.succeeded() for future in futures] == [True, True, False, False]
    assert isinstance(futures[3].exception(), TimeoutError)
    assert story.accumulator.buffered_bytes == 0


def test_callback_is_called_once_when_its_own_half_has_an_outcome() -> None:
    story = Story()
    called: list[Any] = []
    for number in range(4):
        story.send().add_callback(lambda number, place: called.append((number, place.offset)), number)
    (last,) = story.accumulator.begin_flush(1000)
    story.take()
    story.accumulator.split(story.queue())
    story.take()
    story.accumulator.succeed(story.queue(), 7).run_callbacks()
    assert called == [(0, 7), (1, 8)] and not last.done()
    story.take()
    story.accumulator.succeed(story.queue(), 70).run_callbacks()
    assert called == [(0, 7), (1, 8), (2, 70), (3, 71)] and last.done()


def test_cancelled_wait_leaves_no_callback() -> None:
    story = Story(buffer_memory=1)
    future = story.send()
    called: list[str] = []
    early, late = lambda: called.append("early"), lambda: called.append("late")
    assert story.accumulator.call_when_space(early) and story.accumulator.call_when_space(late)
    story.accumulator.stop_waiting_for_space(early)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            future.get(timeout=0)
    waiting = future._outcome._waiting
    assert waiting == []
    story.take()
    story.accumulator.succeed(story.queue(), 7).run_callbacks()
    assert called == ["late"] and future.get(timeout=0).offset == 7


def test_two_threads_that_end_it_fail_each_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(partitions=2)
    futures = [story.send(partition=0), story.send(partition=1)]
    both_settle = threading.Barrier(2)
    settle = BatchOutcome.settle

    def settle_and_linger(*args: Any, **how: Any) -> None:
        settle(*args, **how)
        with contextlib.suppress(threading.BrokenBarrierError):
            both_settle.wait(0.2)

    monkeypatch.setattr(BatchOutcome, "settle", settle_and_linger)
    errors: list[Exception] = []

    def end() -> None:
        try:
            story.accumulator.fail_all(ClosedError("closed"))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=end) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and all(future.failed() for future in futures)
    assert [len(future._outcome._record_outcomes) for future in futures] == [1, 1]
    assert story.accumulator.buffered_bytes == 0 and not story.accumulator.waiting_queues()


def test_nothing_is_taken_after_the_end() -> None:
    story = Story()
    before = story.send()
    story.accumulator.fail_all(ClosedError("closed"))
    assert before.failed()
    with pytest.raises(ClosedError):
        story.send()
    assert story.accumulator.buffered_bytes == 0 and not story.accumulator.waiting_queues()


_records = st.tuples(
    st.integers(-1, 2**41),
    st.none() | st.binary(max_size=30),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
)


@given(records=st.lists(_records, min_size=2, max_size=12))
def test_halves_hold_all_records_and_half_the_bytes_plus_one_record(records: list[Any]) -> None:
    builder = BatchBuilder(1 << 20)
    for record in records:
        builder.try_append(*record)
    whole = Batch(BatchOutcome(TopicPartition("t", 0), threading.Lock()), builder, 1000, 2000)
    first, second = whole.halves()
    assert (first.first_index, second.first_index, second.last_index) == (0, first.last_index + 1, whole.last_index)
    read = [each for half in (first, second) for each in decode_records(half.builder.build())]
    assert [(each.timestamp, each.key, each.value, list(each.headers)) for each in read] == records
    fair = (whole.size_bytes + HEADER_BYTES) // 2
    assert first.builder.record_count == 1 or first.size_bytes <= fair
    # With another first record as the base, timestamps may need some bytes more.
    largest = max(single_record_bytes(*record[1:]) for record in records)
    assert second.size_bytes <= fair + largest + 10 * len(records)


def test_a_future_waits_with_a_deadline() -> None:
    story = Story()
    with pytest.raises(TimeoutError, match="t-0"):
        story.send().get(timeout=0.01)


# --- many values at once --------------------------------------------------------------------------


def send_values(story: Story, values: list[bytes], partition: int | None = None) -> list[RecordRun]:
    runs, start = [], 0
    while start < len(values):
        run = story.accumulator.append_values(story.topic, partition, 0, values, start, lambda: story.now_ms)
        assert run is not None
        runs.append(run)
        start += run.record_count
    return runs


def stored(queue: PartitionQueue) -> list[bytes | None]:
    builders = [batch.builder for batch in queue.batches]
    return [record.value for builder in builders for record in decode_records(builder.build())]


def test_a_few_hundred_short_keyless_records_reach_every_partition() -> None:
    story, values = Story(partitions=6), [b"%d" % number for number in range(400)]
    send_values(story, values)
    shares = [stored(queue) for queue in story.topic.partitions]
    assert sorted(value or b"" for share in shares for value in share) == sorted(values)
    assert all(30 < len(share) < 130 for share in shares), list(map(len, shares))


@pytest.mark.parametrize("one_by_one", [True, False])
def test_keyless_batches_grow_to_the_batch_size_within_a_few_batches(one_by_one: bool) -> None:
    story, values = Story(partitions=6, batch_size=10_000), [b"x" * 100] * 3000
    if one_by_one:
        for value in values:
            story.send(value, partition=None)
    else:
        send_values(story, values)
    sizes = sorted(batch.size_bytes for queue in story.topic.partitions for batch in queue.batches)
    small = [size for size in sizes if size < 9_800]
    assert sizes[0] < 512 and sum(small) < 10 * 10_000 < sum(sizes)


@pytest.mark.parametrize("available", [[0, 1, 2], [1]])
def test_records_with_a_partition_fill_whole_batches_from_the_beginning(available: list[int]) -> None:
    story = Story(partitions=3)
    story.accumulator.add_partitions("t", 3, available)
    (run,) = send_values(story, [b"x" * 100] * 500, partition=1)
    assert (run.partition, run.record_count, len(story.queue(1).batches)) == (1, 500, 1)


def test_only_partition_with_a_leader_gets_full_batches_of_keyless_records() -> None:
    story = Story(partitions=3)
    story.accumulator.add_partitions("t", 3, [1])
    (run,) = send_values(story, [b"x" * 100] * 500)
    assert (run.partition, run.record_count) == (1, 500)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=60), st.sampled_from([None, 0]))
def test_values_sent_together_are_the_records_that_they_are_one_by_one(
    values: list[bytes], partition: int | None
) -> None:
    together, alone = Story(partitions=2, batch_size=300), Story(partitions=2, batch_size=300)
    send_values(together, values, partition)
    for value in values:
        alone.send(value, partition)
    assert [stored(queue) for queue in together.topic.partitions] == [stored(queue) for queue in alone.topic.partitions]
    assert together.accumulator.buffered_bytes == alone.accumulator.buffered_bytes


def test_rejected_value_ends_the_run_before_it() -> None:
    story = Story(max_request_size=1000)
    values: list[Any] = [b"a", b"b", "text", b"c", b"x" * 2000]
    append = partial(story.accumulator.append_values, story.topic, 0, 0, values)
    run = append(0, lambda: 0)
    assert run is not None and run.record_count == 2
    with pytest.raises(TypeError, match="value must be bytes or None, not 'text'"):
        append(2, lambda: 0)
    run = append(3, lambda: 0)
    assert run is not None and run.record_count == 1
    with pytest.raises(MessageTooLargeError, match="max_request_size is 1000"):
        append(4, lambda: 0)
    assert stored(story.queue()) == [b"a", b"b", b"c"]


def test_values_wait_while_the_buffer_is_full() -> None:
    story = Story(buffer_memory=150)
    send_values(story, [b"x" * 100])
    assert story.accumulator.append_values(story.topic, 0, 0, [b"y"], 0, lambda: 0) is None


def test_a_run_knows_how_each_of_its_records_ended() -> None:
    story = Story()
    story.send()
    (run,) = send_values(story, [b"1", b"2", b"3", b"4"], partition=0)
    story.take()
    assert not run.done() and run.parts() == []
    story.accumulator.split(story.queue())  # the record before the run and its first ones, the last ones
    half = story.queue().batches[0].builder.record_count
    story.take()
    story.accumulator.succeed(story.queue(), 100)
    assert not run.done() and run.parts() == [(half - 1, 101, None)]
    story.take()
    refusal = NotEnoughReplicasError("too few")
    story.accumulator.fail(story.queue(), refusal)
    assert run.done() and run.parts() == [(half - 1, 101, None), (5 - half, -1, refusal)]


def test_a_run_of_a_producer_without_acknowledgements_has_no_offsets() -> None:
    story = Story()
    (run,) = send_values(story, [b"1", b"2"], partition=0)
    story.take(ANONYMOUS)
    story.accumulator.succeed(story.queue())
    assert run.done() and run.parts() == [(2, -1, None)]


def test_a_record_joins_the_run_that_ends_before_it_in_its_batch() -> None:
    story = Story(partitions=2)
    first, elsewhere, second, third = (story.send(partition=number) for number in (0, 1, 0, 0))
    run = first.as_run()
    assert not elsewhere.join(run) and not third.join(run) and run.record_count == 1
    assert second.join(run) and third.join(run) and run.record_count == 3


@pytest.mark.parametrize("chosen", [-1, -3, 3])
def test_partitioner_that_names_no_partition_is_refused(chosen: int) -> None:
    story = Story(3, partitioner=lambda key, count: chosen)
    with pytest.raises(
        UnknownTopicOrPartitionError, match=f"topic 't' has no partition {chosen}: its partitions are 0 to 2"
    ):
        story.accumulator.append(story.topic, None, 0, b"key", b"v", (), lambda: 0)
    assert story.accumulator.buffered_bytes == 0
    assert all(queue.open is None for queue in story.topic.partitions)
