"""A response that is still to come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from tidelog.messages import Response


class LaterResponse:
    """Given once, to one receiver.

    Unlike a future it calls the receiver at once, and not in a later turn of the loop: a produce passes through
    three such answers before it is acknowledged, and each turn is time that its sender waits.
    """

    __slots__ = ("_receive", "_response")

    def __init__(self) -> None:
        self._response: Response | None = None
        self._receive: Callable[[Response], None] | None = None

    @property
    def given(self) -> bool:
        return self._response is not None

    def give(self, response: Response) -> None:
        """Only the first one counts."""
        if self._response is None:
            self._response = response
            if self._receive is not None:
                self._receive(response)

    def then(self, receive: Callable[[Response], None]) -> None:
        """Have it called with the response; here and now where that is given already."""
        self._receive = receive
        if self._response is not None:
            receive(self._response)

    def __await__(self) -> Generator[Any, None, Response]:
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.then(lambda response: None if future.done() else future.set_result(response))
        return future.__await__()
