"""Produce: append to the leader's log, then wait for the ISR (acks=all) and for a flush (`flush.messages=1`).

A batch whose validation takes long is validated on a thread. Later batches for the same partition wait behind it, so
that batches are appended in the order of their arrival. Other partitions do not wait, also those of the same request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

from node.kafka.old_requests import OldFormatPartition, ZstdFreePartition
from node.metadata.internal_topics import check_produce
from node.net.server import RequestContext
from node.replication.leader_appends import ACKS_ALL, ACKS_NONE, AppendOutcome, LeaderAppends
from node.replication.replica_manager import ReplicaManager
from node.runtime.deferred_response import DeferredResponse
from node.runtime.keyed_queue import KeyedQueue
from node.runtime.step_runner import StepRunner
from storage.configs.log_config import LogConfig
from storage.log.batch_validation import ValidatedBatch, conversion_steps, validation_steps
from storage.steps import SteppedWork, Steps
from tidelog.errors import (
    BrokerError,
    InvalidRequiredAcksError,
    RequestTimedOutError,
    UnsupportedCompressionTypeError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.messages import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    Response,
)
from tidelog.records import Codec, is_message_set
from tidelog.records.header import CODEC_MASK, HEADER, HEADER_BYTES, MAGIC

_KNOWN_ACKS = (ACKS_ALL, ACKS_NONE, 1)

#: The number of batches that are validated on threads at the same time, so that one slow batch does not block all.
VALIDATION_THREADS = 2
#: The limit of bytes in waiting batches, over all partitions. The client must retry batches beyond the limit.
MAX_WAITING_BYTES = 64 << 20
#: The memory that a waiting batch takes in addition to its bytes.
WAITING_OVERHEAD_BYTES = 4 << 10
#: The longest time for which a batch may wait before its append. The request's own deadline holds if it is earlier.
_MAX_WAIT_MS = 30_000


class Produces:
    """The handler of Produce, with the queues of waiting batches."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._appends = LeaderAppends(replicas)
        self._queues: KeyedQueue[TopicPartition] = KeyedQueue()
        self._step_runner = StepRunner(replicas.offload, VALIDATION_THREADS)

    def handle(
        self, request: ProduceRequest, context: RequestContext
    ) -> Response | DeferredResponse | Awaitable[Response] | None:
        """Append the batches. Return the answer, one entry for each partition, a deferred one, or None with acks=0.

        With other `acks` than 0, 1 and −1 nothing is appended, and each partition gets INVALID_REQUIRED_ACKS.
        The answer is deferred if it must wait for validation on a thread, for the ISR, or for a flush. With acks=0 a
        sender that hears failures gets an answer too, which has only the partitions that failed.
        """
        acks = request.acks
        if acks not in _KNOWN_ACKS:
            code = InvalidRequiredAcksError.code
            return ProduceResponse(
                tuple(ProducePartitionResponse(part.topic, part.partition, code) for part in request.partitions)
            )
        now_ms = self._replicas.clock.monotonic_ms()
        deadline_ms = context.due_ms(now_ms, _MAX_WAIT_MS)
        started = [self._append_or_wait(part, acks, deadline_ms) for part in request.partitions]
        due_ms = context.due_ms(now_ms, request.timeout_ms)
        if acks == ACKS_NONE and not context.hears_failures:
            return None
        outcomes = [each for each in started if not isinstance(each, asyncio.Task)]
        if len(outcomes) == len(started):
            return self._acknowledge(outcomes, acks, due_ms)
        return self._acknowledge_later(started, acks, due_ms)

    # --- appending -------------------------------------------------------------------------------------------

    def _append_or_wait(
        self, part: ProducePartition, acks: int, deadline_ms: int
    ) -> AppendOutcome | asyncio.Task[AppendOutcome]:
        tp = TopicPartition(part.topic, part.partition)
        try:
            check_produce(tp.topic)
        except BrokerError as error:
            return self._appends.error_response(tp, error)
        append = SteppedWork(self._append(tp, part, acks))
        if tp not in self._queues and not self._replicas.loop_budget.exhausted:
            append.resume()
            if append.finished:
                return append.result
        size_bytes = len(part.records) + WAITING_OVERHEAD_BYTES
        if 0 < self._queues.held_bytes > MAX_WAITING_BYTES - size_bytes:
            return self._appends.error_response(
                tp, RequestTimedOutError(f"{tp}: too many batches are waiting for validation; retry later")
            )
        return self._queues.submit(tp, size_bytes, lambda: self._finish_in_turn(tp, append, deadline_ms))

    async def _finish_in_turn(
        self, tp: TopicPartition, append: SteppedWork[AppendOutcome], deadline_ms: int
    ) -> AppendOutcome:
        try:
            await self._replicas.loop_budget.yield_()
            self._raise_if_late(deadline_ms)
            return await self._step_runner.finish(append, partial(self._raise_if_late, deadline_ms))
        except BrokerError as error:
            return self._appends.error_response(tp, error)

    def _append(self, tp: TopicPartition, part: ProducePartition, acks: int) -> Steps[AppendOutcome]:
        """Validate the batch, which may take a long step, and append it. Return an error response if that fails."""
        try:
            replica = self._appends.leader_or_raise(self._replicas.get_or_raise(tp), acks)
            if isinstance(part, ZstdFreePartition):
                _raise_if_zstd(tp, part)
            if isinstance(part, OldFormatPartition) and not len(part.records):
                return self._appends.nothing(replica)
            while True:
                config = replica.log.config
                try:
                    validated = yield from _validation(part, config, self._replicas.clock.now_ms())
                except BrokerError as invalid:
                    self._appends.leader_or_raise(replica, acks)
                    return self._appends.repeated(replica, part.records, invalid)
                # The batch goes to this replica object only. The topic may have been deleted and created again
                # meanwhile, with other settings.
                self._appends.leader_or_raise(replica, acks)
                if replica.log.config is config:
                    return self._appends.append(replica, validated)
        except BrokerError as error:
            return self._appends.error_response(tp, error)

    def _raise_if_late(self, deadline_ms: int) -> None:
        if deadline_ms < self._replicas.clock.monotonic_ms():
            raise RequestTimedOutError("timed out waiting for earlier batches of the same partition")

    # --- answering -------------------------------------------------------------------------------------------

    def _acknowledge(self, outcomes: list[AppendOutcome], acks: int, due_ms: int) -> Response | DeferredResponse:
        return _failures(outcomes) if acks == ACKS_NONE else self._appends.acknowledge(outcomes, acks, due_ms)

    async def _acknowledge_later(
        self, started: list[AppendOutcome | asyncio.Task[AppendOutcome]], acks: int, due_ms: int
    ) -> Response:
        outcomes = [await each if isinstance(each, asyncio.Task) else each for each in started]
        answer = self._acknowledge(outcomes, acks, due_ms)
        return answer if isinstance(answer, Response) else await answer


def _failures(outcomes: list[AppendOutcome]) -> ProduceResponse:
    return ProduceResponse(
        tuple(each for each in outcomes if isinstance(each, ProducePartitionResponse) and each.error_code)
    )


def _raise_if_zstd(tp: TopicPartition, part: ZstdFreePartition) -> None:
    if len(part.records) < HEADER_BYTES:
        return  # the validation refuses it
    _, _, _, magic, _, attributes, *_ = HEADER.unpack_from(part.records)
    if magic == MAGIC and attributes & CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCompressionTypeError(
            f"{tp}: the batch is compressed with zstd, which Produce before version 7 does not know; "
            "update the client, or set its compression.type to another codec"
        )


def _validation(part: ProducePartition, config: LogConfig, now_ms: int) -> Steps[ValidatedBatch]:
    if isinstance(part, OldFormatPartition) and is_message_set(part.records):
        return conversion_steps(part.records, config, now_ms)
    return validation_steps(part.records, config, now_ms)
