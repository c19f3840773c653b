"""The offset manager of a group, found and asked in two steps with one try each, and no client's cleverness between."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tidelog.connection import Connection
from tidelog.errors import DisconnectedError, TidelogError, error_for
from tidelog.group_messages import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.messages import Request, Response
from tidelog.model import Endpoint


class Line:
    """A connection to one address, opened when it is needed and opened again after it broke."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._connection: Connection | None = None

    async def ask(self, request: Request, timeout_ms: int = 5_000) -> Response:
        """The answer as it came; TidelogError where none came in this time."""
        if self._connection is None or self._connection.closed:
            endpoint = Endpoint.parse(self.address)
            self._connection = await Connection.open(endpoint, client_id="test", timeout_ms=min(timeout_ms, 3_000))
        return await self._connection.call(request, timeout_ms=timeout_ms)

    def close(self) -> None:
        """What is under way ends with DisconnectedError."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Lines:
    """One to each broker of a cluster, closed at the end of `with`."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self._lines = {address: Line(address) for address in addresses}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines.values():
            line.close()

    def to(self, address: str) -> Line:
        """Also to a broker that has come since."""
        return self._lines.setdefault(address, Line(address))

    async def find(self, group: str, any_broker: str, timeout_ms: int = 5_000) -> str:
        """Step 1: who coordinates the group, as this broker says; its refusal is raised."""
        answer = await self.to(any_broker).ask(FindCoordinatorRequest((group,)), timeout_ms)
        assert isinstance(answer, FindCoordinatorResponse)
        (found,) = answer.coordinators
        if refusal := error_for(found.error_code, found.error_message or ""):
            raise refusal
        return f"{found.host}:{found.port}"

    async def find_somewhere(self, group: str, timeout_ms: int = 5_000) -> str:
        """The same, of the first broker that says it."""
        last: TidelogError = DisconnectedError("there are no brokers")
        for address in self.addresses:
            try:
                return await self.find(group, address, timeout_ms)
            except TidelogError as error:
                last = error
        raise last
