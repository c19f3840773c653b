"""A delayed operation that completes the response to a request."""

from __future__ import annotations

from abc import abstractmethod

from node.purgatory.purgatory import DelayedOperation
from node.runtime.deferred_response import DeferredResponse
from tidelog.protocol.messages import Response


class DelayedResponse(DelayedOperation):
    """A delayed operation that answers a request: on completion, `response` is completed with `answer()`."""

    __slots__ = ("response",)

    def __init__(self, deadline_ms: int) -> None:
        super().__init__(deadline_ms)
        self.response = DeferredResponse()

    @abstractmethod
    def answer(self) -> Response:
        """Return the answer for the current state. Called once, when the operation completes or expires."""

    def on_complete(self) -> None:
        self.response.complete(self.answer())
