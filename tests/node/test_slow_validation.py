"""Batches whose validation takes long: validated on a thread, appended in order, without delaying other partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from node.handlers.records import produce
from node.kafka.old_requests import OldFormatPartition
from node.net.server import RequestContext
from node.runtime.keyed_queue import KeyedQueue
from storage.configs.log_config import LogConfig
from storage.segments.timestamp_search import MAX_QUICK_BYTES
from tests.message_sets import message
from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_node import Node
from tests.virtual_time import on_virtual_time
from tidelog.errors import InvalidRecordError, MessageTooLargeError, NotLeaderOrFollowerError, RequestTimedOutError
from tidelog.model import TopicPartition
from tidelog.protocol.messages import ProducePartition, ProduceRequest, ProduceResponse
from tidelog.records import Codec, encode_batch

T0 = 1_700_000_000_000
OTHER = TP._replace(partition=1)
OF_A_CLIENT = RequestContext(b"client", "test", -1, -1, False)


def quick(value: bytes = b"quick") -> bytes:
    return encode_batch([(T0, b"k", value, ())])


def long(value: bytes = b"long", key: bytes | None = b"k") -> bytes:
    """Return a batch of a few hundred bytes that is too large to decompress on the event loop."""
    return encode_batch([(T0, key, value, ()), (T0, b"k", bytes(MAX_QUICK_BYTES), ())], codec=Codec.ZSTD)


async def at_once(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


async def of_compacted_topics() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.configs["cleanup.policy"] = "compact"
    await cluster.elect(1)
    await cluster.elect(1, tp=OTHER)
    return cluster


def begin(
    leader: Node,
    *batches: tuple[TopicPartition, bytes],
    acks: int = 1,
    context: RequestContext = OF_A_CLIENT,
    kind: type[ProducePartition] = ProducePartition,
) -> asyncio.Future[ProduceResponse] | None:
    """Send a produce. It is handled before the next one; its answer may come later."""
    parts = tuple(kind(tp.topic, tp.partition, batch) for tp, batch in batches)
    outcome = leader.handlers.handle(ProduceRequest(acks, 5000, parts), context)
    if outcome is None:
        return None
    if isinstance(outcome, ProduceResponse):
        answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        answer.set_result(outcome)
        return answer
    return asyncio.ensure_future(outcome)  # type: ignore[arg-type]


def codes(response: ProduceResponse | None) -> list[int]:
    assert response is not None
    return [each.error_code for each in response.partitions]


def first_values(node: Node, tp: TopicPartition = TP) -> list[bytes]:
    return [value for value in node.log(tp).values if len(value) < MAX_QUICK_BYTES]


@on_virtual_time
async def test_slow_validation_delays_no_other_partition() -> None:
    async with await of_compacted_topics() as cluster:
        later = begin(cluster.leader, (TP, long()))
        at_once = begin(cluster.leader, (OTHER, quick()))
        assert at_once is not None and at_once.done()
        assert later is not None and not later.done()
        assert codes(await later) == [0]
        assert first_values(cluster.leader) == [b"long"]


@on_virtual_time
async def test_later_batches_of_a_partition_keep_their_order() -> None:
    async with await of_compacted_topics() as cluster:
        leader = cluster.leader
        sent = [begin(leader, (TP, batch)) for batch in (long(b"a"), quick(b"b"), long(b"c"), quick(b"d"))]
        answers = [await each for each in sent if each is not None]
        assert [answer.partitions[0].base_offset for answer in answers] == [0, 2, 3, 5]
        assert first_values(leader) == [b"a", b"b", b"c", b"d"]
        after = begin(leader, (TP, quick(b"e")))
        assert after is not None and after.done(), "the queue is empty"


@on_virtual_time
async def test_message_sets_of_old_clients_keep_their_order_too() -> None:
    async with await of_compacted_topics() as cluster:
        old = [message(value) for value in (b"a", b"b")]
        sent = [begin(cluster.leader, (TP, records), kind=OldFormatPartition) for records in (old[0], quick(), old[1])]
        assert [each is not None and each.done() for each in sent] == [False] * 3, "the conversion is on a thread"
        assert [(await each).partitions[0].base_offset for each in sent if each is not None] == [0, 1, 2]
        assert first_values(cluster.leader) == [b"a", b"quick", b"b"]


@on_virtual_time
async def test_partitions_of_one_request_do_not_wait_for_each_other() -> None:
    async with await of_compacted_topics() as cluster:
        leader = cluster.leader
        first = begin(leader, (TP, long(b"a")), (OTHER, quick(b"a")))
        second = begin(leader, (OTHER, quick(b"b")), (TP, quick(b"b")))
        assert first_values(leader, OTHER) == [b"a", b"b"], "the other partition's queue is empty"
        assert first is not None and second is not None
        assert codes(await second) == codes(await first) == [0, 0]
        assert first_values(leader) == [b"a", b"b"]


@on_virtual_time
async def test_acks_all_waits_for_the_isr_and_acks_0_has_no_answer() -> None:
    async with await of_compacted_topics() as cluster:
        assert begin(cluster.leader, (TP, long(b"a")), acks=0) is None
        everywhere = begin(cluster.leader, (TP, long(b"b")), acks=-1)
        assert everywhere is not None and codes(await everywhere) == [0]
        for node in cluster.nodes.values():
            assert first_values(node) == [b"a", b"b"]
        cluster.cut(1, 2, 3)
        unconfirmed = begin(cluster.leader, (TP, long(b"c")), acks=-1)
        assert unconfirmed is not None and codes(await unconfirmed) == [RequestTimedOutError.code]


@on_virtual_time
async def test_batch_refused_on_the_thread_blocks_no_later_batch() -> None:
    async with await of_compacted_topics() as cluster:
        bad, good = begin(cluster.leader, (TP, long(key=None))), begin(cluster.leader, (TP, quick()))
        assert bad is not None and good is not None
        refusal = (await bad).partitions[0]
        assert refusal.error_code == InvalidRecordError.code and "without a key" in (refusal.error_message or "")
        assert (await good).partitions[0].base_offset == 0


@on_virtual_time
async def test_leader_deposed_during_validation_appends_nothing() -> None:
    async with await of_compacted_topics() as cluster:
        leader = cluster.leader
        leader.replicas.leader_epoch_fence.offload = at_once  # before the batch is validated
        sent = [begin(leader, (TP, batch)) for batch in (long(), quick())]
        await asyncio.sleep(0)
        await cluster.elect(2)
        for each in sent:
            assert each is not None and codes(await each) == [NotLeaderOrFollowerError.code]
        assert first_values(leader) == []


@on_virtual_time
async def test_topic_recreated_during_validation_gets_no_old_batch() -> None:
    async with await of_compacted_topics() as cluster:
        leader = cluster.leader
        sent = begin(leader, (TP, long()))
        await asyncio.sleep(0)
        again = cluster.leader_and_isr(topic_id="topic-id-2")
        await leader.ask(again, sender_epoch=1)
        assert sent is not None and codes(await sent) == [NotLeaderOrFollowerError.code]
        assert leader.log().log_end_offset == 0


@on_virtual_time
async def test_batch_is_validated_again_if_settings_change_meanwhile() -> None:
    async with await of_compacted_topics() as cluster:
        sent = begin(cluster.leader, (TP, long()))
        assert sent is not None and not sent.done()
        cluster.leader.replica().configure(LogConfig.from_topic_configs({"max.message.bytes": "100"}))
        assert codes(await sent) == [MessageTooLargeError.code]


@on_virtual_time
async def test_batch_is_not_appended_after_its_deadline() -> None:
    async with await of_compacted_topics() as cluster:
        leader = cluster.leader
        soon = replace(OF_A_CLIENT, deadline_ms=leader.replicas.clock.monotonic_ms())
        long_one, behind = begin(leader, (TP, long()), context=soon), begin(leader, (TP, quick()), context=soon)
        patient = begin(leader, (TP, quick(b"patient")))
        assert long_one is not None and behind is not None and patient is not None
        assert codes(await long_one) == codes(await behind) == [RequestTimedOutError.code]
        assert codes(await patient) == [0]
        assert first_values(leader) == [b"patient"]


@on_virtual_time
async def test_bytes_of_waiting_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "MAX_WAITING_BYTES", 3 * produce.WAITING_OVERHEAD_BYTES)
    async with await of_compacted_topics() as cluster:
        leader = cluster.leader
        sent = [begin(leader, (TP, batch)) for batch in (long(b"a"), quick(b"b"), quick(b"c"))]
        elsewhere = begin(leader, (OTHER, quick()))
        assert elsewhere is not None and codes(await elsewhere) == [0], "the other partition does not wait"
        assert [codes(await each)[0] for each in sent if each is not None] == [0, 0, RequestTimedOutError.code]
        again = begin(leader, (TP, quick(b"c")))
        assert again is not None and codes(await again) == [0]
        assert first_values(leader) == [b"a", b"b", b"c"]


@on_virtual_time
async def test_closing_broker_answers_waiting_produces() -> None:
    async with await of_compacted_topics() as cluster:
        sent = begin(cluster.leader, (TP, long()))
        await cluster.leader.replicas.close()
        assert sent is not None and codes(await sent) == [NotLeaderOrFollowerError.code]


@on_virtual_time
async def test_keyed_queue_continues_after_failed_work() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def count() -> int:
        await asyncio.sleep(1)
        return queues.held_bytes

    queues: KeyedQueue[str] = KeyedQueue()
    failing, first, second = queues.submit("a", 1, fail), queues.submit("a", 2, count), queues.submit("a", 4, count)
    elsewhere = queues.submit("b", 8, count)
    assert "a" in queues and "c" not in queues
    assert [await first, await second, await elsewhere] == [14, 4, 14]
    assert isinstance(failing.exception(), ZeroDivisionError)
    await asyncio.sleep(0)
    assert "a" not in queues and "b" not in queues and queues.held_bytes == 0
