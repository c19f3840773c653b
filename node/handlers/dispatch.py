"""The types of a request handler: a typed request goes in, a response comes out, at once or later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from node.net.server import RequestContext
from node.runtime.deferred_response import DeferredResponse
from tidelog.protocol.messages import ApiKey, Response

#: None if the request wants no response.
HandlerResult = Response | DeferredResponse | Awaitable[Response] | None
Handler = Callable[[Any, RequestContext], HandlerResult]
#: Maps each API to its handler. Each module of handlers contributes one part of the table.
HandlerTable = Mapping[ApiKey, Handler]
