"""What a handler is: a typed request goes in, and what it comes to, at once or later, comes out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from node.net.server import RequestContext
from node.runtime.deferred_response import DeferredResponse
from tidelog.protocol.messages import ApiKey, Response

#: None where no response is wanted.
Outcome = Response | DeferredResponse | Awaitable[Response] | None
Handler = Callable[[Any, RequestContext], Outcome]
#: Who answers what, or the part of it that is one room's.
HandlerTable = Mapping[ApiKey, Handler]
