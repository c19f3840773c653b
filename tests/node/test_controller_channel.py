"""The controller's channel to one broker goes on after expected errors, and reports unexpected ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from cluster.controller.effects import AskLogEnds, SendMetadata, SendStopReplica
from cluster.controller.liveness import NEVER
from cluster.state import BrokerRegistration
from node.controller.controller_channel import ControllerChannel
from node.controller.outbox import Batch, MetadataBatch, QuestionBatch, StopBatch
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import ProtocolError
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.control_messages import StopReplicaPartition, UpdateMetadataResponse
from tidelog.protocol.listeners import BROKERS
from tidelog.protocol.messages import Response

BROKER = BrokerRegistration(1, {BROKERS: Endpoint("h", 1)}, 10)


class Owner:
    """A ChannelOwner that builds no real requests, and raises `at_answer` for each answer.

    answers   the batch and the liveness epoch of each answer
    """

    def __init__(self, at_answer: Exception | None = None) -> None:
        self.liveness_epoch = 0
        self.failures: list[BaseException] = []
        self.answers: list[tuple[type, int]] = []
        self._at_answer = at_answer

    def build(self, batch: Any) -> Any:
        return batch

    def on_answer(self, broker: BrokerRegistration, batch: Batch, response: Response, asked: int) -> None:
        self.answers.append((type(batch), asked))
        if self._at_answer is not None:
            raise self._at_answer

    def on_gone(self, broker: BrokerRegistration) -> None: ...

    def on_replaced(self, broker: BrokerRegistration) -> None: ...

    def on_fenced(self) -> None: ...

    def on_failed(self, error: BaseException) -> None:
        self.failures.append(error)


def channel_of(owner: Owner, *refusals: Exception, delays_s: Sequence[float] = ()) -> ControllerChannel:
    """Return a channel to a broker that first fails with these errors, then answers with these delays, then at once."""
    left, delays = list(refusals), list(delays_s)

    async def call(*_: object, **__: object) -> UpdateMetadataResponse:
        if left:
            raise left.pop()
        if delays:
            await asyncio.sleep(delays.pop(0))
        return UpdateMetadataResponse(0)

    async def opened(_: Endpoint) -> Any:
        connection = SimpleNamespace(peer=SimpleNamespace(broker_id=1, broker_epoch=10), closed=False, call=call)
        connection.on_closed = connection.close = lambda *_: None
        return connection

    return ControllerChannel(BROKER, opened, owner)


@on_virtual_time
async def test_channel_sends_an_unanswered_batch_again() -> None:
    owner = Owner()
    channel = channel_of(owner, ProtocolError("too long"))
    channel.enqueue(SendMetadata((1,)))
    await until(lambda: channel.outbox.empty)
    assert not owner.failures
    channel.close()


@on_virtual_time
async def test_late_answer_does_not_prove_life_and_another_request_is_sent() -> None:
    """The broker may have died since, while the controller was suspended."""
    owner = Owner()
    channel = channel_of(owner, delays_s=[2, 0.5])
    owner.liveness_epoch = 3
    channel.enqueue(SendStopReplica(1, (StopReplicaPartition("t", 0, 0, delete=True),)))
    await until(lambda: channel.outbox.empty and len(owner.answers) == 2)
    assert owner.answers == [(StopBatch, NEVER), (MetadataBatch, 3)]
    channel.close()


@on_virtual_time
async def test_log_ends_request_with_a_late_answer_is_sent_again() -> None:
    owner = Owner()
    channel = channel_of(owner, delays_s=[2])
    channel.enqueue(AskLogEnds(1, (TopicPartition("t", 0),)))
    await asyncio.sleep(1)
    owner.liveness_epoch = 3
    await until(lambda: channel.outbox.empty)
    assert owner.answers == [(QuestionBatch, 3)], "the log ends of the late answer may be outdated"
    channel.close()


@on_virtual_time
async def test_channel_reports_an_unexpected_error() -> None:
    owner = Owner(at_answer=ValueError("a bug"))
    channel_of(owner).enqueue(SendMetadata((1,)))
    await until(lambda: bool(owner.failures))
    assert isinstance(owner.failures[0], ValueError)


@on_virtual_time
async def test_channel_of_a_moved_broker_sends_the_rest_to_the_new_address() -> None:
    dialed: list[Endpoint] = []
    gone: list[BrokerRegistration] = []
    answered = asyncio.Event()

    async def call(*_: object, **__: object) -> UpdateMetadataResponse:
        await answered.wait()
        return UpdateMetadataResponse(0)

    async def opened(endpoint: Endpoint) -> Any:
        dialed.append(endpoint)
        connection = SimpleNamespace(peer=SimpleNamespace(broker_id=1, broker_epoch=10), closed=False, call=call)
        connection.on_closed = lambda _: None
        connection.close = lambda: setattr(connection, "closed", True)
        return connection

    owner = Owner()
    owner.on_gone = gone.append  # type: ignore[method-assign]
    channel = ControllerChannel(BROKER, opened, owner)
    channel.enqueue(SendStopReplica(1, (StopReplicaPartition("t", 0, 0, delete=True),)))
    await asyncio.sleep(0.1)
    channel.enqueue(SendMetadata((1,)))
    moved = replace(BROKER, listeners={BROKERS: Endpoint("elsewhere", 2)})
    channel.move(moved)
    await asyncio.sleep(0.1)
    assert dialed == [Endpoint("h", 1)], "the request in flight is not repeated"
    answered.set()
    await until(lambda: channel.outbox.empty)
    assert (dialed, channel.broker) == ([Endpoint("h", 1), Endpoint("elsewhere", 2)], moved)
    assert [each for each, _ in owner.answers] == [StopBatch, MetadataBatch]
    assert not gone, "the broker has not failed"
    channel.close()


@on_virtual_time
async def test_channel_sends_nothing_to_another_broker_at_the_address() -> None:
    """An answer of a later registration would count as the end of this one."""
    owner = Owner()
    replaced: list[BrokerRegistration] = []
    owner.on_replaced = replaced.append  # type: ignore[method-assign]
    calls: list[object] = []

    async def opened(_: Endpoint) -> Any:
        connection = SimpleNamespace(peer=SimpleNamespace(broker_id=2, broker_epoch=11), closed=False)
        connection.on_closed = connection.close = lambda *_: None
        connection.call = lambda *call, **_: calls.append(call)
        return connection

    channel = ControllerChannel(BROKER, opened, owner)
    channel.enqueue(SendMetadata((1,)))
    await asyncio.sleep(5)
    assert (replaced, calls) == ([], [])
    channel.close()
