"""The synchronous clients over one I/O thread, with the brokers in memory."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

import pytest

from tests.tidelog.fake_cluster import FakeCluster
from tidelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.errors import ClosedError, TimeoutError
from tidelog.io_thread import GRACE_S, IoThread

P0 = TopicPartition("t", 0)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("tidelog")}


def test_records_go_through_and_no_thread_stays() -> None:
    cluster = FakeCluster()
    where: Any = {"_opener": cluster.open}
    with Admin(cluster.bootstrap, **where) as admin:
        admin.create_topics([NewTopic("t", 1)])
        with Producer(cluster.bootstrap, **where) as producer:
            futures = [producer.send("t", b"%d" % number, timestamp_ms=number) for number in range(1000)]
            producer.flush(timeout=10)
            assert [future.get().offset for future in futures] == list(range(1000))
        with Consumer(cluster.bootstrap, auto_offset_reset="earliest", **where) as consumer:
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
    assert threads() == set()


def test_many_threads_share_a_producer_and_each_keeps_its_order() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    with Producer(cluster.bootstrap, _opener=cluster.open) as producer:

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
        assert [number for who, number in seen if who == name] == list(range(300))


def test_a_closed_client_says_so() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    producer = Producer(cluster.bootstrap, _opener=cluster.open)
    producer.close()
    producer.close()
    with pytest.raises(ClosedError):
        producer.send("t", b"v")
    consumer = Consumer(cluster.bootstrap, _opener=cluster.open)
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll()


def test_a_forked_child_is_told_to_make_its_own() -> None:
    cluster = FakeCluster()
    with Consumer(cluster.bootstrap, _opener=cluster.open) as consumer:
        child = os.fork()
        if child == 0:
            try:
                consumer.topics()
            except ClosedError as error:
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


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
