"""A response that becomes known after the handler has returned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from tidelog.protocol.messages import Response


class DeferredResponse:
    """A response that is completed once, with `complete`, and passed once to one receiver.

    If the receiver goes before, it calls `abandon`. The operation that would complete the response may then end.

    A DeferredResponse calls its receiver at once, while a future would call it in a later iteration of the loop. A
    produce passes through three deferred responses before it is acknowledged, and each iteration would add to the
    latency that its sender sees.
    """

    __slots__ = ("_end_operation", "_receive", "_response", "completed")

    def __init__(self) -> None:
        self.completed = False
        # Held only until the receiver has it, because this object may be referenced longer than its bytes should be.
        self._response: Response | None = None
        self._receive: Callable[[Response], None] | None = None
        self._end_operation: Callable[[], object] | None = None

    def complete(self, response: Response) -> None:
        """Pass this response to the receiver, or keep it until there is a receiver. Further calls have no effect."""
        if self.completed:
            return
        self.completed = True
        self._end_operation = None
        receive, self._receive = self._receive, None
        if receive is not None:
            receive(response)
        else:
            self._response = response

    def on_complete(self, receive: Callable[[Response], None]) -> None:
        """Register the one receiver of the response, and call it at once if the response is completed.

        A response that was passed to a receiver is not passed to a later one.
        """
        if self._response is None:
            self._receive = receive
        else:
            response, self._response = self._response, None
            receive(response)

    def on_abandon(self, end_operation: Callable[[], object]) -> None:
        """Register what ends the operation that would complete the response. The operation has no effect but this."""
        self._end_operation = end_operation

    def abandon(self) -> None:
        """End the operation if it has no other effect, because the receiver is gone. The receiver is not called."""
        if self.completed:
            return
        self._receive = _ignore
        end_operation, self._end_operation = self._end_operation, None
        if end_operation is not None:
            end_operation()

    def __await__(self) -> Generator[Any, None, Response]:
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.on_complete(lambda response: None if future.done() else future.set_result(response))
        return future.__await__()


def _ignore(response: Response) -> None:
    """Take the response in place of a receiver that is gone."""
