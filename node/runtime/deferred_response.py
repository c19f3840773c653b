"""A response that is still to come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from tidelog.protocol.messages import Response


class DeferredResponse:
    """Given once, to one receiver.

    Unlike a future it calls the receiver at once, and not in a later turn of the loop: a produce passes through
    three such answers before it is acknowledged, and each turn is time that its sender waits.
    """

    __slots__ = ("_receive", "_response", "completed")

    def __init__(self) -> None:
        self.completed = False
        # Held until the answer is with its receiver: the question may be remembered longer, the bytes must not.
        self._response: Response | None = None
        self._receive: Callable[[Response], None] | None = None

    def complete(self, response: Response) -> None:
        """Only the first one counts."""
        if self.completed:
            return
        self.completed = True
        receive, self._receive = self._receive, None
        if receive is not None:
            receive(response)
        else:
            self._response = response

    def on_complete(self, receive: Callable[[Response], None]) -> None:
        """Have it called with the response; here and now where that is given already."""
        if self._response is None:
            self._receive = receive
        else:
            response, self._response = self._response, None
            receive(response)

    def __await__(self) -> Generator[Any, None, Response]:
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.on_complete(lambda response: None if future.done() else future.set_result(response))
        return future.__await__()
