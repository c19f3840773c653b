"""The types between the listener and the translations: a Kafka message goes in, a Kafka message comes out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from node.net.client_connections import ClientConnection
from node.net.server import RequestContext
from node.runtime.deferred_response import DeferredResponse
from tidelog.errors import BrokerError
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.schema import Request, Response, Versions


class Call(NamedTuple):
    """One request of a Kafka client: the version that it has chosen, its sender, and the sender's connection."""

    version: int
    context: RequestContext
    client: ClientConnection


class Later(NamedTuple):
    """A response that becomes known later; the request itself has had its effects."""

    deferred: DeferredResponse
    convert: Callable[[Any], Response | None]


#: None, at once or when awaited, if the request gets no response.
Outcome = Response | Later | Awaitable[Response | None] | None
#: What the broker's handler returns.
NativeOutcome = native.Response | DeferredResponse | Awaitable[native.Response] | None
#: The broker's handler of typed requests.
NativeHandler = Callable[[native.Request, RequestContext], NativeOutcome]


class KafkaApi(NamedTuple):
    """One API as this broker offers it.

    request          the class of its requests
    versions         the versions that clients are told, all of which are in `request.valid`
    handle           returns the response to a request, now or later; None without a response; may raise BrokerError
    error_response   returns the response that carries an error for the whole request, given the version of the request
    ignores_rest     whether further bytes may follow a request; otherwise the connection of such a client is closed
    """

    request: type[Request]
    versions: Versions
    handle: Callable[[Any, Call], Outcome]
    error_response: Callable[[Any, BrokerError, int], Response]
    ignores_rest: bool = False


def converted(outcome: NativeOutcome, convert: Callable[[Any], Response | None]) -> Outcome:
    """Return the outcome of a native handler as a Kafka response; `convert` is called when the response is known.

    `convert` returns None if the request gets no response.
    """
    if outcome is None:
        return None
    if isinstance(outcome, native.Response):
        return convert(outcome)
    if isinstance(outcome, DeferredResponse):
        return Later(outcome, convert)
    return _converted_later(outcome, convert)


async def _converted_later(
    outcome: Awaitable[native.Response], convert: Callable[[Any], Response | None]
) -> Response | None:
    return convert(await outcome)


async def answer_to(handle: NativeHandler, request: native.Request, call: Call) -> Any:
    """Return the handler's response (None: it gives none), for translations that ask the handlers more than once."""
    return await response_of(handle(request, call.context))


async def response_of(outcome: NativeOutcome) -> Any:
    """Return the response when it is known; None if the request gets none."""
    if outcome is None or isinstance(outcome, native.Response):
        return outcome
    return await outcome
