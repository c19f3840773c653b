"""A deferred response reaches its one receiver, unless the receiver is gone."""

from __future__ import annotations

from node.runtime.deferred_response import DeferredResponse
from tidelog.protocol.messages import ProduceResponse, Response

RESPONSE = ProduceResponse(())


def test_response_reaches_the_receiver_before_or_after_completion() -> None:
    received: list[Response] = []
    early, late = DeferredResponse(), DeferredResponse()
    early.on_complete(received.append)
    early.complete(RESPONSE)
    late.complete(RESPONSE)
    late.on_complete(received.append)
    early.complete(RESPONSE)
    assert received == [RESPONSE, RESPONSE]


def test_abandoned_response_ends_its_operation_and_reaches_no_receiver() -> None:
    calls: list[object] = []
    deferred = DeferredResponse()
    deferred.on_complete(calls.append)
    deferred.on_abandon(lambda: calls.append("ended"))
    deferred.abandon()
    deferred.abandon()
    deferred.complete(RESPONSE)
    assert calls == ["ended"]


def test_completed_response_can_no_longer_be_abandoned() -> None:
    calls: list[object] = []
    deferred = DeferredResponse()
    deferred.on_abandon(lambda: calls.append("ended"))
    deferred.complete(RESPONSE)
    deferred.abandon()
    deferred.on_complete(calls.append)
    assert calls == [RESPONSE]
