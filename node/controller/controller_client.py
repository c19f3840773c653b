"""How a broker asks the controller something, be it in this very process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, cast

from node.identity import Identity
from node.metadata_cache import MetadataCache
from tidelog.errors import BrokerNotAvailableError
from tidelog.protocol.messages import Request, Response

Req = TypeVar("Req", bound=Request)
Res = TypeVar("Res", bound=Response)


class Seat(Protocol):
    """What is needed of `node.controller.controller_elector.ControllerElector`."""

    @property
    def is_controller(self) -> bool: ...
    @property
    def controller_id(self) -> int: ...


class ControllerClient:
    """Opened anew for each question: there are few."""

    def __init__(self, identity: Identity, metadata: MetadataCache, lease: Seat) -> None:
        self._identity = identity
        self._metadata = metadata
        self._lease = lease

    async def ask(self, request: Req, here: Callable[[Req], Awaitable[Res]], timeout_ms: int) -> Res:
        """The answer; `here` gives it where this broker holds the seat.

        BrokerNotAvailableError where no controller is known, DisconnectedError, TimeoutError, BrokerError.
        """
        if self._lease.is_controller:
            return await here(request)
        controller = self._metadata.brokers.get(self._lease.controller_id)
        if controller is None:
            raise BrokerNotAvailableError("no controller is known")
        connection = await self._identity.connect(controller.replication_endpoint)
        try:
            return cast(Res, await connection.call(request, timeout_ms=timeout_ms))
        finally:
            connection.close()
