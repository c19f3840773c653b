"""Run an async test on uvloop, as brokers and the clients' I/O thread do, and on asyncio's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import Parameter, signature
from typing import Any

import pytest
import uvloop


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on uvloop, as a broker does, and on asyncio's own loop."""

    @wraps(test)
    def run(*args: Any, new_loop: Callable[[], asyncio.AbstractEventLoop], **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(test(*args, **fixtures))

    own = signature(test)
    loop = Parameter("new_loop", Parameter.KEYWORD_ONLY)
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), loop])  # type: ignore[attr-defined]
    loops = [pytest.param(uvloop.new_event_loop, id="uvloop"), pytest.param(asyncio.new_event_loop, id="asyncio")]
    marked: Callable[..., None] = pytest.mark.parametrize("new_loop", loops)(run)
    return marked
