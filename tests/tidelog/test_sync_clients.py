"""Test the synchronous clients over one I/O thread, with brokers in memory."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.tidelog.clients import in_memory, put
from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tidelog import Admin, Consumer, ConsumerRebalanceListener, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from tidelog.client.blocking.io_thread import GRACE_S, IoThread
from tidelog.client.cluster_client import TOPIC_IDLE_MS
from tidelog.client.producer.partitioner import partition_for_key
from tidelog.client.producer.record_future import RecordFuture
from tidelog.clock import SystemClock
from tidelog.errors import BufferExhaustedError, ClosedError, TimeoutError, UnknownTopicOrPartitionError
from tidelog.protocol.messages import Request
from tidelog.records.encode import encode_batch

P0 = TopicPartition("t", 0)


@pytest.fixture
def no_thread_stays() -> Iterator[None]:
    """Check after the test that each thread which began in it has ended. Threads of tests before may end meanwhile."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.usefixtures("no_thread_stays")
def test_records_go_through_and_no_thread_stays() -> None:
    cluster = FakeCluster()
    with in_memory(Admin, cluster) as admin:
        admin.create_topics([NewTopic("t", 1)])
        with in_memory(Producer, cluster) as producer:
            futures = [producer.send("t", b"%d" % number, timestamp_ms=number) for number in range(1000)]
            producer.flush(timeout=10)
            assert [future.get().offset for future in futures] == list(range(1000))
        with in_memory(Consumer, cluster, auto_offset_reset="earliest") as consumer:
            consumer.assign([P0])
            seen: list[bytes | None] = []
            while len(seen) < 1000:
                seen += [record.value for record in consumer.poll(5000)[P0]]
            assert seen == [b"%d" % number for number in range(1000)]
            found = consumer.offsets_for_times({P0: 500})[P0]
            assert found is not None and found.offset == 500
            assert next(iter([*consumer.topics()])) == "t"
        (topic,) = admin.describe_topics(["t"])
        assert topic.partitions[0].high_watermark == 1000


def test_many_threads_share_a_producer_and_each_keeps_its_order() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    with in_memory(Producer, cluster) as producer:

        def work(name: int) -> None:
            for number in range(300):
                producer.send("t", b"%d %d" % (name, number))

        workers = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()
    seen = [tuple(map(int, (value or b"").split())) for value in partition.values()]
    assert len(seen) == 1200
    for name in range(4):
        assert [number for thread, number in seen if thread == name] == list(range(300))


def test_values_that_are_sent_together_wait_for_buffer_space() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    values = [b"%d" % number for number in range(5000)]
    with in_memory(Producer, cluster, batch_size=1000, buffer_memory=2000) as producer:
        start = 0
        while start < len(values):
            start += producer.send_values("t", values, start).record_count
        producer.flush(timeout=30)
    assert partition.values() == values


def test_closed_client_raises_closed_error() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    producer = in_memory(Producer, cluster)
    producer.close()
    producer.close()
    with pytest.raises(ClosedError):
        producer.send("t", b"v")
    consumer = in_memory(Consumer, cluster)
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll()


def test_client_says_whether_a_broker_is_connected() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    consumer, producer = in_memory(Consumer, cluster), in_memory(Producer, cluster)
    assert not consumer.bootstrap_connected()
    consumer.topics()
    producer.send("t", b"v").get(timeout=10)
    assert consumer.bootstrap_connected() and producer.bootstrap_connected()
    for client in (consumer, producer):
        client.close()
        assert not client.bootstrap_connected()


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
def test_client_in_a_forked_child_raises_closed_error(kind: Any) -> None:
    cluster = FakeCluster()
    cluster.create("t")
    with in_memory(kind, cluster) as client:
        use: dict[Any, Callable[[], object]] = {
            Producer: lambda: client.send("t", b"v"),
            Consumer: lambda: client.topics(),
            Admin: lambda: client.list_topics(),
        }
        use[kind]()
        child = os.fork()
        if child == 0:
            try:
                use[kind]()
            except ClosedError as error:
                client.close()
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        use[kind]()


def batch_of(value: bytes) -> bytes:
    return encode_batch([(0, None, value, ())])


class PutForward(SystemClock):
    """A clock that the test can also advance."""

    def __init__(self) -> None:
        self.by_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.by_ms


@contextmanager
def grown_during_a_pause(cluster: FakeCluster, clock: PutForward) -> Iterator[Producer]:
    """Return a producer whose topic "t" got a second partition in so long a pause that the producer has forgotten "t".

    Its sent records wait for a flush.
    """
    cluster.create("another")
    partitions = cluster.create("t", 1)
    with in_memory(Producer, cluster, clock=clock, linger_ms=60_000) as producer:
        producer.send("t", b"a")
        producer.flush(10)
        clock.by_ms += 2 * TOPIC_IDLE_MS
        partitions.append(FakePartition("t", 1, 1))
        assert producer.partitions_for("another") == {0}, "by a look that leaves out what was idle for long"
        yield producer


def test_record_after_a_long_pause_uses_the_present_partitions() -> None:
    with grown_during_a_pause(FakeCluster(), PutForward()) as producer:
        keys = [b"%d" % number for number in range(20)]
        futures = [producer.send("t", b"b", key=key) for key in keys]
        producer.flush(10)
        assert [each.get(10).partition for each in futures] == [partition_for_key(key, 2) for key in keys]


def test_after_a_long_pause_a_batch_is_not_taken_for_a_topic_that_is_gone() -> None:
    cluster, clock = FakeCluster(), PutForward()

    def look(broker: int, request: Request) -> None:
        clock.by_ms += 1000  # between two looks

    with grown_during_a_pause(cluster, clock) as producer:
        del cluster.partitions["t"]
        cluster.fault_of = look
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 't' does not exist"):
            producer.send_batch("t", encode_batch([(0, None, b"b", ())]), partition=0)


def test_callback_after_a_long_pause_uses_the_last_known_partitions() -> None:
    sent: list[RecordFuture] = []
    with grown_during_a_pause(FakeCluster(), PutForward()) as producer:

        def send_on(_: object) -> None:
            sent.append(producer.send("t", b"b", partition=0))
            sent.append(producer.send_batch("t", encode_batch([(0, None, b"c", ())]), partition=0))

        producer.send("another", b"a").add_callback(send_on)
        producer.flush(10)
        producer.flush(10)
        assert [each.get(10).offset for each in sent] == [1, 2]


def test_callback_neither_waits_for_space_nor_closes_the_producer() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    calls: list[BaseException] = []
    with in_memory(Producer, cluster, buffer_memory=1, linger_ms=0) as producer:

        def misuse(_: object) -> None:
            for call in (lambda: [producer.send("t", b"v") for _ in range(3)], producer.flush, producer.close):
                try:
                    call()
                except Exception as error:
                    calls.append(error)

        producer.send("t", b"v").add_callback(misuse)
        producer.flush(10)
        producer.send("t", b"it goes on").get(10)
    assert [type(error) for error in calls] == [BufferExhaustedError, RuntimeError, RuntimeError]


def test_waits_for_metadata_and_for_space_share_max_block_ms() -> None:
    cluster = FakeCluster()
    (first,) = cluster.create("t")
    time_limit_s = 3.0
    options: Any = {"buffer_memory": 1, "max_block_ms": int(time_limit_s * 1000)}
    with in_memory(Producer, cluster, **options) as producer:
        producer.send("t", b"v").get(10)
        first.leader = -1
        producer.send("t", b"this fills the buffer")
        threading.Timer(0.5 * time_limit_s, cluster.create, ["late"]).start()
        started = time.monotonic()
        with pytest.raises(BufferExhaustedError):
            producer.send("late", b"v")
        assert time.monotonic() - started < 1.4 * time_limit_s
        producer.close(0)


@pytest.mark.parametrize("forever", [2**63 // 1000, float("inf")])
@pytest.mark.usefixtures("no_thread_stays")
def test_a_wait_may_be_longer_than_any_lock_can_be_waited_for(forever: float) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    forever_ms = 2**63 - 1
    with in_memory(Producer, cluster, buffer_memory=1, max_block_ms=2**63 - 1) as producer:
        assert producer.send("t", b"v").get(forever).offset == 0
        partition.leader = -1
        waits = producer.send("t", b"this fills the buffer")
        threading.Timer(0.2, partition.elect, [1]).start()
        last = producer.send("t", b"and this waits for room")
        producer.flush(forever)
        assert waits.exception(forever) is None and last.succeeded()
        producer.close(forever)
    consumer = in_memory(Consumer, cluster, auto_offset_reset="earliest")
    consumer.assign([P0])
    assert consumer.poll(forever_ms)[P0][0].value == b"v"
    assert consumer.position(P0, forever_ms) == 3
    consumer.close(timeout_ms=forever_ms)


def test_records_of_an_interrupted_poll_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    put(*cluster.create("t"), b"0", b"1", b"2")
    with in_memory(Consumer, cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([P0])
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("poll", lambda: [record.value for record in consumer.poll(5000)[P0]]),
            ("consume", lambda: [record.value for record in consumer.consume(3, 5000)]),
            ("poll_batches", lambda: len(consumer.poll_batches(5000))),
        ]
        for name, call in calls:
            with interrupted_when_done(consumer._reader, name, monkeypatch), pytest.raises(KeyboardInterrupt):
                call()
            assert consumer.position(P0) == 0
            assert call() in ([b"0", b"1", b"2"], 1)
            consumer.seek(P0, 0)


@contextmanager
def interrupted_when_done(reader: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Raise KeyboardInterrupt when the loop has the answer, before the caller has it."""
    real, main_thread = getattr(reader, name), threading.get_ident()

    async def struck(*arguments: Any, **named: Any) -> Any:
        answer = await real(*arguments, **named)
        signal.pthread_kill(main_thread, signal.SIGALRM)
        return answer

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    with monkeypatch.context() as patch:
        patch.setattr(reader, name, struck)
        yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("no_thread_stays")
def test_interrupted_close_fails_the_rest_on_the_callback_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    producer = in_memory(Producer, cluster)
    producer.send("t", b"v").get(10)
    partition.leader = -1
    left = producer.send("t", b"never sent")
    calls: list[str] = []
    left.add_errback(lambda _: calls.append(threading.current_thread().name))
    search = producer._core.sender._search
    stop = search.stop

    async def stop_late() -> None:
        await asyncio.sleep(0.3)
        await stop()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "stop", stop_late)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            producer.close(10)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert left.failed() and calls == ["tidelog-producer"]


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # an interrupt during a garbage collection is ignored
def test_a_send_that_is_interrupted_anywhere_leaves_a_producer_that_works() -> None:
    cluster = FakeCluster(brokers=1)
    (partition,) = cluster.create("t")
    striking = False
    sent: list[tuple[bytes, RecordFuture]] = []
    interrupted = set()

    def strike(*_: object) -> None:
        if striking:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    producer = in_memory(Producer, cluster, batch_size=300, linger_ms=1)
    producer.send("t", b"first").get(10)
    try:
        for number in range(1, 1500):
            value = b"%d" % number
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number * 7 % 40))
            try:
                striking = True
                for _ in range(3):
                    future = producer.send("t", value)
                    sent.append((value, future))
                striking = False
            except KeyboardInterrupt:
                striking = False
                interrupted.add(value)
        signal.setitimer(signal.ITIMER_REAL, 0)
        producer.flush(20)
        for _, future in sent:
            future.get(0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        producer.close(5)
    assert len(interrupted) > 50
    stored = [int(value or b"0") for value in partition.values()[1:]]
    assert stored == sorted(stored)
    assert producer._accumulator._active == {}
    for value in {value for value, _ in sent} - interrupted:
        assert stored.count(int(value)) == 3


def test_a_wait_ends_at_its_deadline_and_by_a_signal() -> None:
    io = IoThread()
    try:
        with pytest.raises(TimeoutError):
            io.run(asyncio.sleep(60), 0.05 - GRACE_S)

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            io.run(asyncio.sleep(60))
        assert time.monotonic() - started < 5
        signal.signal(signal.SIGALRM, before)
    finally:
        io.stop()


class RecordedCalls(ConsumerRebalanceListener):
    """Commits the revoked partitions in the thread that calls the listener."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.calls: list[tuple[str, set[TopicPartition], threading.Thread]] = []

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", set(assigned), threading.current_thread()))
        assert self.consumer.assignment() == set(assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", set(revoked), threading.current_thread()))
        self.consumer.commit()


@pytest.mark.usefixtures("no_thread_stays")
def test_listener_runs_in_the_polling_thread_and_may_call_the_consumer() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a", b"b")
    with in_memory(Consumer, cluster, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        listener = RecordedCalls(consumer)
        consumer.subscribe(["t"], listener=listener)
        seen: list[bytes | None] = []
        while len(seen) < 2:
            seen += [record.value for records in consumer.poll(5000).values() for record in records]
        assert consumer.committed(P0) is None
    here = threading.current_thread()
    assert listener.calls == [("assigned", {P0}, here), ("revoked", {P0}, here)]
    assert cluster.coordinator.committed["g"][P0].committed_offset == 2
    assert cluster.coordinator.groups["g"].members == {}


def test_iteration_over_a_subscription_commits_the_yielded_records() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *(b"%d" % number for number in range(10)))
    options: Any = {"group_id": "g", "auto_offset_reset": "earliest"}
    with in_memory(Consumer, cluster, **options) as consumer:
        consumer.subscribe(["t"])
        assert [next(consumer).offset for _ in range(4)] == [0, 1, 2, 3]
    with in_memory(Consumer, cluster, **options) as consumer:
        consumer.subscribe(["t"])
        assert next(consumer).offset == 4
        consumer.unsubscribe()
        assert consumer.committed([P0])[P0] == OffsetAndMetadata(5, "", 0)
