"""Crosses every end of a produce attempt with what the leader really did, and with what the producer does next.

The leader stores the batch or not, and independently of that answers any error, or nothing. The producer repeats the
batch or gives it up. Whatever happens: each acknowledged record is in the log once and in order, and a record that the
producer calls certainly lost is not in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tidelog.clients import a_producer
from tests.tidelog.fake_cluster import FakeCluster, FakePartition, Fault, Verdict
from tests.virtual_time import on_virtual_time
from tidelog import errors
from tidelog.errors import BrokerError, error_for
from tidelog.messages import ProduceRequest, Request
from tidelog.record_future import RecordFuture

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
#: This one says that the batch is stored.
ANSWERED_AFTER_THE_APPEND = {errors.DuplicateSequenceError.code}


class End(NamedTuple):
    """How one attempt ends for the producer (an error code, a lost connection, silence), and what the leader did."""

    seen: int | str
    stored: bool


DISCONNECTION, SILENCE = "disconnection", "silence"
CODES = sorted({cls.code for cls in BrokerError.__subclasses__()} | {UNDEFINED_CODE})
SEEN: list[int | str] = [*CODES, DISCONNECTION, SILENCE]
_FAULTS = {
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
]


def _name(end: End) -> str:
    seen = end.seen if isinstance(end.seen, str) else type(error_for(end.seen)).__name__ + f"-{end.seen}"
    return f"{seen}-{'stored' if end.stored else 'not-stored'}"


def _attempts_end(cluster: FakeCluster, ends: Sequence[End]) -> None:
    """Let the next produce attempts end so, one after the other; later ones succeed."""
    left = iter(ends)

    def fault_of(broker: int, request: Request) -> Fault | None:
        end = next(left, None) if isinstance(request, ProduceRequest) else None
        if end is None:
            return None
        if end in _FAULTS:
            return _FAULTS[end]
        assert isinstance(end.seen, int)
        cluster.verdicts.append(Verdict(end.seen, end.stored))
        return None

    cluster.fault_of = fault_of


class Story:
    """Sends records of which each has its own number as value, and compares what was told with what is stored."""

    def __init__(self, *, idempotent: bool) -> None:
        self.cluster = FakeCluster()
        self.partition: FakePartition = self.cluster.create("t")[0]
        self.idempotent = idempotent
        self.sent: list[tuple[bytes, RecordFuture]] = []

    async def tell(self, ends: Sequence[End], *, behind: int = 1, **options: Any) -> None:
        """One record succeeds, the attempts of the next end as `ends` say with others waiting behind it, a last one
        follows when all are settled.
        """
        async with a_producer(
            self.cluster, enable_idempotence=self.idempotent, request_timeout_ms=500, **options
        ) as producer:

            async def send() -> RecordFuture:
                value = b"%d" % len(self.sent)
                future = await producer.send("t", value)
                self.sent.append((value, future))
                return future

            await (await send()).wait_done()
            _attempts_end(self.cluster, ends)
            await send()
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
async def test_attempt_with_any_end_that_is_given_up_at_once_breaks_no_promise(end: End, idempotent: bool) -> None:
    story = Story(idempotent=idempotent)
    await story.tell([end], retries=0)
    story.judge()


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("end", ENDS, ids=_name)
@on_virtual_time
async def test_attempt_with_any_end_that_may_be_repeated_breaks_no_promise(end: End, idempotent: bool) -> None:
    story = Story(idempotent=idempotent)
    await story.tell([end])
    story.judge()


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("end", ENDS, ids=_name)
@on_virtual_time
async def test_attempts_with_any_end_until_the_deadline_break_no_promise(end: End, idempotent: bool) -> None:
    story = Story(idempotent=idempotent)
    # The records share a deadline, so that all are given up; the last one comes when the fault is over.
    await story.tell([end] * 6, delivery_timeout_ms=520, retry_backoff_ms=100)
    story.judge()


@pytest.mark.parametrize("last", [each for each in ENDS if not each.stored], ids=_name)
@pytest.mark.parametrize("first", [End(SILENCE, stored=True), End(errors.StorageError.code, stored=True)], ids=_name)
@on_virtual_time
async def test_later_refusal_does_not_hide_that_an_earlier_attempt_may_be_stored(first: End, last: End) -> None:
    between = End(errors.NotEnoughReplicasError.code, stored=False)
    for ends in ([first, last], [first, between, last]):
        for idempotent in (True, False):
            story = Story(idempotent=idempotent)
            await story.tell(ends, retries=len(ends) - 1)
            story.judge()


@settings(max_examples=200)
@given(
    ends=st.lists(st.sampled_from(ENDS), max_size=8),
    idempotent=st.booleans(),
    behind=st.integers(0, 3),
    retries=st.integers(0, 4),
    delivery_timeout_ms=st.sampled_from([300, 600, 1500, 120_000]),
)
@on_virtual_time
async def test_any_ends_one_after_the_other_break_no_promise(
    ends: list[End], idempotent: bool, behind: int, retries: int, delivery_timeout_ms: int
) -> None:
    story = Story(idempotent=idempotent)
    await story.tell(ends, behind=behind, retries=retries, delivery_timeout_ms=delivery_timeout_ms)
    story.judge()
