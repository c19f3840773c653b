"""The admin client of the commands."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tidelog.cli.terminal.waiting import Waiting
from tidelog.client.admin.admin import Admin

T = TypeVar("T")


class CommandAdmin(Admin):
    """An Admin that shows on a terminal how long the current call has waited, once it takes longer than a second."""

    def _wait(
        self,
        coroutine: Coroutine[Any, Any, T],
        timeout_ms: int | None = None,
        on_lost: Callable[[T], object] = lambda result: None,
    ) -> T:
        with Waiting():
            return super()._wait(coroutine, timeout_ms, on_lost)
