"""Requests of this broker to the controller, which may run in this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, cast

from node.metadata.metadata_cache import MetadataCache
from node.net.identity import Identity
from tidelog.errors import BrokerNotAvailableError
from tidelog.protocol.messages import Request, Response

Req = TypeVar("Req", bound=Request)
Res = TypeVar("Res", bound=Response)


class KnownController(Protocol):
    """The part of `node.controller.controller_elector.ControllerElector` that this module needs."""

    @property
    def is_controller(self) -> bool: ...
    @property
    def controller_id(self) -> int: ...


class ControllerClient:
    """Sends requests of this broker to the controller.

    Each request to another broker opens a connection of its own, because such requests are rare.
    """

    def __init__(self, identity: Identity, metadata: MetadataCache, known_controller: KnownController) -> None:
        self._identity = identity
        self._metadata = metadata
        self._known_controller = known_controller

    async def ask(self, request: Req, here: Callable[[Req], Awaitable[Res]], timeout_ms: int) -> Res:
        """Return the controller's response, or that of `here(request)` if this broker is the controller.

        Another broker gets `timeout_ms` for its answer, from the time when the connection is open. Raise
        BrokerNotAvailableError if the controller is not known, or is not among the live brokers. Also raise the errors
        of `here`, or DisconnectedError, TimeoutError and the BrokerError with which the other broker refuses.
        """
        if self._known_controller.is_controller:
            return await here(request)
        controller = self._metadata.brokers.get(self._known_controller.controller_id)
        if controller is None:
            raise BrokerNotAvailableError("this broker knows no controller yet; try again")
        connection = await self._identity.connect(controller.replication_endpoint)
        try:
            return cast(Res, await connection.call(request, timeout_ms=timeout_ms))
        finally:
            connection.close()
