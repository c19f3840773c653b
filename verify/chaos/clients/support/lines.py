"""Send single requests to single brokers, once each, without the logic of a client."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tidelog.client.connections import Opener, Peer, open_connection
from tidelog.errors import DisconnectedError, TidelogError, error_for
from tidelog.model import Endpoint
from tidelog.protocol.group_messages import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages import Request, Response

_MOST_TO_CONNECT_MS = 3_000


class Line:
    """A connection to one address, which `ask` opens on demand and again after it broke."""

    def __init__(self, address: str, opener: Opener = open_connection) -> None:
        self.address = address
        self._opener = opener
        self._peer: Peer | None = None

    async def ask(self, request: Request, timeout_ms: int = 5_000) -> Response:
        """Send the request once, and return the answer, which may contain error codes. Connect first if there is no
        connection.

        Raise TidelogError if connecting fails or takes longer than 3 s, or if no answer comes within `timeout_ms`.
        """
        if self._peer is None or self._peer.closed:
            connect_timeout_ms = min(timeout_ms, _MOST_TO_CONNECT_MS)
            self._peer = await self._opener(
                Endpoint.parse(self.address), client_id="line", timeout_ms=connect_timeout_ms, cluster_id=""
            )
        return await self._peer.send(request, timeout_ms=timeout_ms)

    def close(self) -> None:
        """Close the connection, if any. Requests in flight end with DisconnectedError. `ask` would open a new one."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None


class Lines:
    """One connection to each broker address, opened on demand. All are closed at the end of `async with`.

    epochs   the epoch of each group's coordinator, as it was found last
    """

    def __init__(self, addresses: Sequence[str], opener: Opener = open_connection) -> None:
        self.addresses = list(addresses)
        self._opener = opener
        self._lines: dict[str, Line] = {}
        self.epochs: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines.values():
            line.close()

    def to(self, address: str) -> Line:
        """Return the line of an address, always the same. The address need not be one of `addresses`."""
        if address not in self._lines:
            self._lines[address] = Line(address, self._opener)
        return self._lines[address]

    async def find(self, group: str, any_broker: str, timeout_ms: int = 5_000) -> str:
        """Return the address `host:port` of the group's coordinator according to the broker at `any_broker`.

        Raise the broker's error, or a TidelogError if no answer comes in time.
        """
        answer = await self.to(any_broker).ask(FindCoordinatorRequest((group,)), timeout_ms)
        assert isinstance(answer, FindCoordinatorResponse)
        (found,) = answer.coordinators
        if refusal := error_for(found.error_code, found.error_message or ""):
            raise refusal
        self.epochs[group] = found.epoch
        return f"{found.host}:{found.port}"

    async def find_somewhere(self, group: str, timeout_ms: int = 5_000) -> str:
        """Return the address of the group's coordinator according to the first of `addresses` that knows it. Raise the
        last broker's error if none does.
        """
        last: TidelogError = DisconnectedError("there are no brokers to query")
        for address in self.addresses:
            try:
                return await self.find(group, address, timeout_ms)
            except TidelogError as error:
                last = error
        raise last
