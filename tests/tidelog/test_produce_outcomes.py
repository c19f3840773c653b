"""Combine every end of a produce attempt with what the leader really did, and with the producer's next step.

The leader stores the batch or not, and independently of that answers with any error, or not at all. The producer
repeats the batch or fails it. Two rules must always hold: each acknowledged record is in the log once and in order, and
a record that the producer calls certainly lost is not in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tidelog.clients import a_producer
from tests.tidelog.fake_cluster import FakeCluster, FakePartition, Fault, Verdict
from tests.virtual_time import on_virtual_time
from tidelog import errors
from tidelog.client.producer.record_future import RecordFuture
from tidelog.errors import BrokerError, error_for
from tidelog.protocol.messages import InitProducerIdRequest, ProduceRequest, Request

#: No version of the protocol defines this code.
UNDEFINED_CODE = 9999

#: Kafka's leaders answer these before they append anything, so that the batch cannot be stored.
ANSWERED_BEFORE_THE_APPEND = {
    errors.ClusterAuthorizationFailedError.code,
    errors.CorruptMessageError.code,
    errors.InvalidProducerEpochError.code,
    errors.InvalidRecordError.code,
    errors.InvalidRequiredAcksError.code,
    errors.InvalidTimestampError.code,
    errors.InvalidTopicError.code,
    errors.InvalidTxnStateError.code,
    errors.MessageTooLargeError.code,
    errors.NotEnoughReplicasError.code,
    errors.OutOfOrderSequenceError.code,
    errors.PolicyViolationError.code,
    errors.RecordListTooLargeError.code,
    errors.TopicAuthorizationFailedError.code,
    errors.UnknownProducerIdError.code,
    errors.UnsupportedCompressionTypeError.code,
    errors.UnsupportedForMessageFormatError.code,
    errors.UnsupportedVersionError.code,
}
#: With these errors the leader does not know the producer's state, and a new producer id helps.
FORGOTTEN = {
    errors.InvalidProducerEpochError.code,
    errors.OutOfOrderSequenceError.code,
    errors.UnknownProducerIdError.code,
}
#: This error means that the batch is stored.
ANSWERED_AFTER_THE_APPEND = {errors.DuplicateSequenceError.code}


class End(NamedTuple):
    """The end of one attempt for the producer (an error code, a lost connection, no answer), and what the leader did.

    faulty   the positions of the records that the leader names as the reason
    """

    seen: int | str
    stored: bool
    faulty: tuple[int, ...] = ()


DISCONNECTION, SILENCE, OMISSION, SEND_ERROR = "disconnection", "silence", "omission", "send-error"
CODES = sorted({cls.code for cls in BrokerError.__subclasses__()} | {UNDEFINED_CODE})
SEEN: list[int | str] = [*CODES, DISCONNECTION, SILENCE, OMISSION, SEND_ERROR]
_FAULTS = {
    End(OMISSION, stored=True): Fault.LEAVE_OUT,
    End(OMISSION, stored=False): Fault.LEAVE_OUT_UNDONE,
    End(DISCONNECTION, stored=True): Fault.LOSE_ANSWER,
    End(DISCONNECTION, stored=False): Fault.LOSE_REQUEST,
    End(SILENCE, stored=True): Fault.SWALLOW_ANSWER,
    End(SILENCE, stored=False): Fault.SWALLOW,
}
ENDS = [
    End(seen, stored)
    for seen in SEEN
    for stored in (True, False)
    if not (stored and seen in ANSWERED_BEFORE_THE_APPEND) and not (not stored and seen in ANSWERED_AFTER_THE_APPEND)
] + [
    End(error.code, False, faulty)
    for error in (errors.InvalidRecordError, errors.InvalidTimestampError)
    for faulty in ((0,), (1,), (0, 2))
]


def _name(end: End) -> str:
    seen = end.seen if isinstance(end.seen, str) else type(error_for(end.seen)).__name__ + f"-{end.seen}"
    return f"{seen}-{'stored' if end.stored else 'not-stored'}" + "".join(f"-{each}" for each in end.faulty)


def _attempts_end(cluster: FakeCluster, ends: Sequence[End]) -> None:
    """Let the next produce attempts end so, in order; later ones succeed."""
    left = iter(ends)
    under_way: dict[int, End] = {}

    def on_send(broker: int, request: Request) -> None:
        end = next(left, None) if isinstance(request, ProduceRequest) else None
        if end is None:
            return
        if end.seen != SEND_ERROR:
            under_way[id(request)] = end
            return
        assert isinstance(request, ProduceRequest)
        for each in request.partitions if end.stored else ():
            with contextlib.suppress(BrokerError):
                cluster.partitions[each.topic][each.partition].append(bytes(each.records))
        raise errors.DisconnectedError("the connection broke while the request was sent")

    def fault_of(broker: int, request: Request) -> Fault | None:
        end = under_way.pop(id(request), None)
        if end is None or end in _FAULTS:
            return None if end is None else _FAULTS[end]
        assert isinstance(end.seen, int)
        cluster.verdicts.append(Verdict(end.seen, end.stored, end.faulty))
        return None

    cluster.on_send, cluster.fault_of = on_send, fault_of


class Story:
    """Sends records whose values are their numbers, and compares the outcomes with the stored records."""

    def __init__(self, *, idempotent: bool) -> None:
        self.cluster = FakeCluster()
        self.partition: FakePartition = self.cluster.create("t")[0]
        self.idempotent = idempotent
        self.sent: list[tuple[bytes, RecordFuture]] = []

    async def report(
        self,
        ends: Sequence[End],
        *,
        together: int = 1,
        behind: int = 1,
        before: Callable[[], object] = lambda: None,
        **options: Any,
    ) -> None:
        """Send one record that succeeds, then records whose attempts end as `ends` say, then one after all are settled.

        together   number of records that share the batch whose attempts end so
        before     called before they are sent
        """
        linger_ms = 0 if together == 1 else 5
        async with a_producer(
            self.cluster, enable_idempotence=self.idempotent, request_timeout_ms=500, linger_ms=linger_ms, **options
        ) as producer:

            async def send() -> RecordFuture:
                value = b"%d" % len(self.sent)
                future = await producer.send("t", value)
                self.sent.append((value, future))
                return future

            await (await send()).wait_done()
            _attempts_end(self.cluster, ends)
            before()
            for _ in range(together):
                await send()
            await asyncio.sleep(linger_ms / 1000)
            for _ in range(behind):
                await send()
            await producer.flush()
            await (await send()).wait_done()

    def judge(self) -> None:
        log = [value for value in self.partition.values() if value is not None]
        once = list(dict.fromkeys(log))
        acknowledged = [value for value, future in self.sent if future.succeeded()]
        assert [value for value in once if value in acknowledged] == acknowledged, "an acknowledged record is missing"
        if self.idempotent:
            assert log == once, "a record is stored twice"
        for value, future in self.sent:
            if future.succeeded():
                offset = future.get(0).offset
                assert offset == -1 or self.partition.records()[offset].value == value, "another record stands there"
            elif not future.may_be_stored():
                assert value not in log, "a record that certainly failed is stored"


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("end", ENDS, ids=_name)
@on_virtual_time
async def test_attempt_with_any_end_and_no_retry_keeps_all_guarantees(end: End, idempotent: bool) -> None:
    story = Story(idempotent=idempotent)
    await story.report([end], retries=0)
    story.judge()


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("end", ENDS, ids=_name)
@on_virtual_time
async def test_attempt_with_any_end_that_may_be_repeated_breaks_no_promise(end: End, idempotent: bool) -> None:
    story = Story(idempotent=idempotent)
    await story.report([end])
    story.judge()


@pytest.mark.parametrize("end", [End(code, stored=False) for code in CODES], ids=_name)
@on_virtual_time
async def test_record_survives_one_refusal_if_the_next_attempt_may_succeed(end: End) -> None:
    assert isinstance(end.seen, int)
    story = Story(idempotent=True)
    await story.report([end])
    error = error_for(end.seen)
    survives = error is None or error.retriable or end.seen in {errors.DuplicateSequenceError.code, *FORGOTTEN}
    assert story.sent[1][1].succeeded() == survives


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("end", ENDS, ids=_name)
@on_virtual_time
async def test_attempts_with_any_end_until_the_deadline_break_no_promise(end: End, idempotent: bool) -> None:
    story = Story(idempotent=idempotent)
    # The records share a deadline, so that all fail; the last one is sent when the fault is over.
    await story.report([end] * 6, delivery_timeout_ms=520, retry_backoff_ms=100)
    story.judge()


@pytest.mark.parametrize("last", [each for each in ENDS if not each.stored], ids=_name)
@pytest.mark.parametrize("first", [End(SILENCE, stored=True), End(errors.StorageError.code, stored=True)], ids=_name)
@on_virtual_time
async def test_later_refusal_does_not_hide_that_an_earlier_attempt_may_be_stored(first: End, last: End) -> None:
    between, too_large = (
        End(cls.code, stored=False) for cls in (errors.NotEnoughReplicasError, errors.MessageTooLargeError)
    )
    stories = ([first, last], [first, between, last], [first, too_large, last])
    for ends, idempotent, together in product(stories, (True, False), (1, 3)):
        story = Story(idempotent=idempotent)
        await story.report(ends, together=together, retries=len(ends) - 1)
        story.judge()


@pytest.mark.parametrize("first", [(0,), (1,), (0, 2)], ids=str)
@pytest.mark.parametrize("second", [(0,), (1,), (0, 1)], ids=str)
@on_virtual_time
async def test_two_rejections_of_single_records_fail_only_the_named_records(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    story = Story(idempotent=True)
    code = errors.InvalidRecordError.code
    await story.report([End(code, False, first), End(code, False, second)], together=4)
    story.judge()
    left = [number for number in range(4) if number not in first]
    named = {*first, *(left[position] for position in second)}
    batch = [future for _, future in story.sent[1:5]]
    assert {number for number, future in enumerate(batch) if future.failed()} == named


@pytest.mark.parametrize("retries", [0, 5])
@on_virtual_time
async def test_producer_whose_leader_lost_its_last_batches_goes_on_with_a_new_id(retries: int) -> None:
    """An unclean election removed the batches, so that no sequence of the old id would ever be the next one."""
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster, retries=retries) as producer:
        for _ in range(3):
            await producer.send_and_wait("t", b"before")
        (known,) = partition.producers.values()
        partition.batches.pop()
        known.pop()
        futures = []
        for number in range(3):
            futures.append(await producer.send("t", b"%d" % number))
            await futures[-1].wait_done()
    assert [future.succeeded() for future in futures] == [retries > 0, True, True]


@pytest.mark.parametrize("refused", ["t", "u"])
@on_virtual_time
async def test_partitions_of_one_request_end_each_by_its_own_answer(refused: str) -> None:
    cluster = FakeCluster()
    logs = {topic: cluster.create(topic)[0] for topic in ("t", "u")}
    verdicts = {
        topic: Verdict(errors.InvalidTopicError.code if topic == refused else 0, topic != refused) for topic in logs
    }

    def fault_of(broker: int, request: Request) -> None:
        if isinstance(request, ProduceRequest):
            assert {each.topic for each in request.partitions} == {"t", "u"}
            cluster.verdicts.extend(verdicts[each.topic] for each in request.partitions)

    async with a_producer(cluster, linger_ms=5) as producer:
        cluster.fault_of = fault_of
        futures = {topic: await producer.send(topic, topic.encode()) for topic in logs}
        await producer.flush()
    assert {topic: future.succeeded() for topic, future in futures.items()} == {
        topic: topic != refused for topic in logs
    }
    assert {topic: log.values() for topic, log in logs.items()} == {
        topic: [] if topic == refused else [topic.encode()] for topic in logs
    }


LATE_ENDS = [
    End(errors.NotEnoughReplicasError.code, stored=False),
    End(errors.MessageTooLargeError.code, stored=False),
    End(errors.InvalidRecordError.code, stored=False, faulty=(0,)),
    End(errors.OutOfOrderSequenceError.code, stored=False),
    End(errors.StorageError.code, stored=True),
    End(0, stored=True),
]


@pytest.mark.parametrize("end", LATE_ENDS, ids=_name)
@on_virtual_time
async def test_answer_after_the_deadline_of_its_records_changes_nothing_for_them(end: End) -> None:
    """The batch shares its request with later records, which may still wait when its own deadline passes."""
    assert isinstance(end.seen, int)
    cluster = FakeCluster()
    old, young = cluster.create("old")[0], cluster.create("young")[0]
    kinds: list[type[Request]] = [InitProducerIdRequest, ProduceRequest]

    def fault_of(broker: int, request: Request) -> Fault | None:
        if type(request) not in kinds:
            return None
        kinds.remove(type(request))
        if isinstance(request, ProduceRequest):
            assert [each.topic for each in request.partitions] == ["old", "young"]
            assert isinstance(end.seen, int)
            cluster.verdicts.extend([Verdict(end.seen, end.stored, end.faulty), Verdict(0, stored=True)])
        cluster.delay_s = 5 if isinstance(request, InitProducerIdRequest) else 2
        return Fault.DELAY

    cluster.fault_of = fault_of
    async with a_producer(cluster, delivery_timeout_ms=6000, linger_ms=5, request_timeout_ms=6000) as producer:
        late = [await producer.send("old", b"%d" % number) for number in range(3)]
        await asyncio.sleep(2)
        in_time = await producer.send("young", b"young")
        for future in late:
            await future.wait_done()
        assert [type(future.exception(0)) for future in late] == [errors.TimeoutError] * 3
        assert all(future.may_be_stored() for future in late)
        await in_time.wait_done()
        assert in_time.succeeded()
        await producer.send_and_wait("old", b"after")
        assert [type(future.exception(0)) for future in late] == [errors.TimeoutError] * 3
    assert old.values() == ([b"0", b"1", b"2"] if end.stored else []) + [b"after"]
    assert young.values() == [b"young"]


class BrokenRng(random.Random):
    """Fails once when a pause is computed, as a defect of the client would."""

    armed = False

    def uniform(self, a: float, b: float) -> float:
        if self.armed:
            self.armed = False
            raise ZeroDivisionError("a defect")
        return super().uniform(a, b)


@pytest.mark.parametrize("end", [End(DISCONNECTION, True), End(errors.StorageError.code, True)], ids=_name)
@on_virtual_time
async def test_defect_while_an_end_is_judged_leaves_the_end_unknown(end: End) -> None:
    rng = BrokenRng(7)
    story = Story(idempotent=True)
    await story.report([end], rng=rng, before=lambda: setattr(rng, "armed", True))
    story.judge()
    assert story.sent[1][1].may_be_stored()


@settings(max_examples=200)
@given(
    ends=st.lists(st.sampled_from(ENDS), max_size=8),
    idempotent=st.booleans(),
    together=st.integers(1, 4),
    behind=st.integers(0, 3),
    retries=st.integers(0, 4),
    delivery_timeout_ms=st.sampled_from([300, 600, 1500, 120_000]),
)
@on_virtual_time
async def test_any_ends_one_after_the_other_break_no_promise(
    ends: list[End], idempotent: bool, together: int, behind: int, retries: int, delivery_timeout_ms: int
) -> None:
    story = Story(idempotent=idempotent)
    options = {"retries": retries, "delivery_timeout_ms": delivery_timeout_ms}
    await story.report(ends, together=together, behind=behind, **options)
    story.judge()
