"""What a handler is: a typed request goes in, and what it comes to, at once or later, comes out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from node.later import LaterResponse
from node.server import RequestContext
from tidelog.messages import ApiKey, Response

#: None where no response is wanted.
Outcome = Response | LaterResponse | Awaitable[Response] | None
Handler = Callable[[Any, RequestContext], Outcome]
#: Who answers what, or the part of it that is one room's.
HandlerTable = Mapping[ApiKey, Handler]
